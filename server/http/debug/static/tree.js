// The stored prefixes as the page knows them: what the server tells, merged, with totals.

export class Tree {
  constructor() {
    this.nodes = new Map();
    this.root = null;
  }

  // Takes an update: all nodes, or those that have changed and the ids of those that are gone.
  take(update) {
    if (update.full) {
      const known = this.nodes;
      this.nodes = new Map();
      // In the order in which they were first seen, so that bars keep their places.
      const now = new Map(update.nodes.map((node) => [node.id, node]));
      for (const id of known.keys()) if (now.has(id)) this.nodes.set(id, now.get(id));
      for (const [id, node] of now) this.nodes.set(id, node);
    } else {
      for (const id of update.gone) this.nodes.delete(id);
      for (const node of update.nodes) this.nodes.set(id(node), node);
    }
    this.link();
  }

  // Children, and how many tokens there are from a node on.
  link() {
    this.root = null;
    for (const node of this.nodes.values()) {
      node.below = [];
      node.total = node.tokens + (node.folded ? node.folded.tokens : 0);
      node.space = node.namespace;
    }
    for (const node of this.nodes.values()) {
      if (node.parent === null) this.root = node;
      else this.nodes.get(node.parent)?.below.push(node);
    }
    if (!this.root) return;
    const order = [this.root];
    for (let place = 0; place < order.length; place++) {
      for (const child of order[place].below) {
        child.space ??= order[place].space;
        order.push(child);
      }
    }
    for (const node of order.reverse()) {
      const parent = node.parent && this.nodes.get(node.parent);
      if (parent) parent.total += node.total;
    }
  }

  parent(node) {
    return node.parent === null ? null : this.nodes.get(node.parent) ?? null;
  }

  path(node) {
    const path = [];
    for (let at = node; at; at = this.parent(at)) path.unshift(at);
    return path;
  }

  search(text) {
    const wanted = text.trim().toLowerCase();
    if (!wanted) return new Set();
    return new Set([...this.nodes.values()].filter((node) => node.text?.toLowerCase().includes(wanted)).map(id));
  }
}

const id = (node) => node.id;

export function spaceName(space) {
  if (!space) return "";
  const words = [space.tenant === null ? "no tenant" : space.tenant];
  if (space.salted) words.push("salted");
  if (space.adapter) words.push(`adapter ${space.adapter}`);
  if (space.weights) words.push(`weights ${space.weights}`);
  return words.join(", ");
}

export function title(node) {
  if (node.parent === null) return "All namespaces";
  if (node.namespace) return `Namespace: ${spaceName(node.namespace)}`;
  return node.text || `${node.tokens} tokens`;
}
