// More of what the reader has zoomed into than the server tells of the whole tree.

import { get } from "./api.js";

const LIMIT = 500;
const EVERY_MS = 2000;

export class Zoom {
  // onMore() is called when the tree has more, or less, of the part.
  constructor(tree, onMore) {
    Object.assign(this, { tree, onMore, id: null, asking: false, askedAt: 0 });
  }

  to(node) {
    const id = node && node.parent !== null ? node.id : null;
    if (id === this.id) return;
    this.id = id;
    this.tree.setPart(null, []);
    this.load();
  }

  refresh() {
    if (performance.now() - this.askedAt > EVERY_MS) this.load();
  }

  async load() {
    const id = this.id;
    if (id === null || this.asking) return;
    this.asking = true;
    this.askedAt = performance.now();
    try {
      const told = await get(`/debug/tree?limit=${LIMIT}&root=${id}`);
      if (id === this.id) this.tree.setPart(id, told.nodes);
    } catch {
      if (id === this.id) this.tree.setPart(null, []); // it has gone, or the server has
    } finally {
      this.asking = false;
    }
    if (id === this.id) this.onMore();
    else this.load();
  }
}
