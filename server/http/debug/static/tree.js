// The stored prefixes as the page knows them: what the server tells, merged, with totals.

export class Tree {
  constructor() {
    this.told = new Map(); // of the whole tree
    this.part = { id: null, nodes: new Map() }; // more of what is below one node
    this.nodes = new Map(); // both together
    this.root = null;
  }

  // Takes an update: all nodes, or those that have changed and the ids of those that are gone.
  take(update) {
    if (update.full) {
      this.told = inOrder(update.nodes, this.told);
    } else {
      for (const id of update.gone) this.told.delete(id);
      for (const node of update.nodes) this.told.set(id(node), node);
    }
    this.link();
  }

  // Takes all that the server tells of the part below a node, with what is above it; id null: none.
  setPart(id, nodes) {
    this.part = { id, nodes: inOrder(nodes, this.nodes) };
    this.link();
  }

  // What is shown: where there is more of a part, that in place of what is told of the whole.
  join() {
    const { id: top, nodes } = this.part;
    this.nodes = new Map();
    const replaced = new Set(top === null ? [] : [top]);
    for (const [id, node] of this.told) {
      if (replaced.has(node.parent)) replaced.add(id);
      else this.nodes.set(id, node);
    }
    let isBelow = false;
    for (const [id, node] of nodes) {
      isBelow ||= id === top;
      if (isBelow || !this.nodes.has(id)) this.nodes.set(id, node);
    }
  }

  // Children, and how many tokens there are from a node on.
  link() {
    this.join();
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

// By id, in the order in which they were first seen, so that bars keep their places.
function inOrder(nodes, known) {
  const now = new Map(nodes.map((node) => [node.id, node]));
  const all = new Map();
  for (const id of known.keys()) if (now.has(id)) all.set(id, now.get(id));
  for (const [id, node] of now) all.set(id, node);
  return all;
}

export function spaceName(space) {
  if (!space) return "";
  const words = [space.tenant === null ? "no tenant" : space.tenant];
  if (space.salted) words.push("salted");
  if (space.adapter) words.push(`adapter ${space.adapter}`);
  if (space.weights) words.push(`weights ${space.weights}`);
  return words.join(", ");
}

const MARKS = /<\|[^|<>]{1,40}\|>/g; // a chat template's, which all texts would begin with

// A node's text without what a chat template writes around messages.
export const plainTitle = (node) => title(node).replace(MARKS, " ");

export function title(node) {
  if (node.parent === null) return "All namespaces";
  if (node.namespace) return `Namespace: ${spaceName(node.namespace)}`;
  return node.text || `${node.tokens} tokens`;
}
