// The tree as a chart: drawn on a canvas, moved through by mouse or keys.

import { colourOf } from "./colours.js";
import { oneLine, prepare, variable } from "./dom.js";
import { ROW, barAt, layout } from "./layout.js";
import { plainTitle, spaceName } from "./tree.js";

const LABEL = 34; // narrower bars have no text

export class Icicle {
  // onSelect(node, folded) is called with what the pointer or the keyboard is on; onZoom(node) when
  // the reader wants to see only what is below it.
  constructor(canvas, tree, onSelect, onZoom) {
    Object.assign(this, { canvas, tree, onSelect, onZoom });
    this.focus = null; // the id of the node that fills the width; null: the root
    this.selected = null;
    this.hovered = null;
    this.by = "recency";
    this.theme = "light";
    this.found = new Set();
    this.bars = [];
    canvas.addEventListener("pointermove", (event) => this.hover(this.at(event)));
    canvas.addEventListener("pointerleave", () => this.hover(null));
    canvas.addEventListener("click", (event) => this.click(this.at(event)));
    canvas.addEventListener("keydown", (event) => this.press(event));
  }

  top() {
    return this.tree.nodes.get(this.focus) ?? this.tree.root;
  }

  draw() {
    const width = this.canvas.parentElement.clientWidth;
    const { bars, rows } = layout(this.top(), width);
    const height = Math.max(rows * ROW + 1, this.canvas.parentElement.clientHeight - 4);
    this.canvas.style.height = `${height}px`;
    const context = prepare(this.canvas, width, height);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    this.bars = bars;
    this.now = Date.now() / 1000;
    this.colours = { card: variable("card"), quiet: variable("quiet"), ink: variable("ink"), accent: variable("accent"), bad: variable("bad"), page: variable("page") };
    for (const bar of bars) this.drawBar(context, bar);
    for (const bar of bars) this.drawMarks(context, bar);
  }

  drawBar(context, bar) {
    const [x, y, w, h] = [bar.x + 0.5, bar.row * ROW + 1, Math.max(bar.w - 1, 0.5), ROW - 2];
    const node = bar.node;
    context.globalAlpha = this.found.size && !this.found.has(node.id) ? 0.28 : 1;
    let ink = this.colours.quiet;
    if (bar.folded || (!node.tokens && !node.namespace)) {
      context.fillStyle = this.colours.card;
      context.fillRect(x, y, w, h);
      context.strokeStyle = this.colours.quiet;
      context.setLineDash(bar.folded ? [3, 3] : []);
      if (w > 3) context.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
      context.setLineDash([]);
    } else {
      const colour = colourOf(node, this.by, this.now, this.theme, spaceName(node.space));
      ink = node.namespace ? this.colours.ink : colour.ink;
      context.fillStyle = colour.fill;
      // A bar covers all that goes on from it; its evicted share is pale, at its right.
      const lost = node.tokens ? (w * node.ghost_tokens) / node.tokens : 0;
      if (node.namespace) context.globalAlpha *= 0.35;
      context.fillRect(x, y, w - lost, h);
      if (lost) {
        context.globalAlpha *= 0.25;
        context.fillRect(x + w - lost, y, lost, h);
        if (lost > w / 2) ink = this.colours.ink;
      }
      context.globalAlpha = this.found.size && !this.found.has(node.id) ? 0.28 : 1;
      if (lost > 14) {
        context.strokeStyle = this.colours.quiet;
        context.setLineDash([2, 2]);
        context.strokeRect(x + w - lost + 0.5, y + 0.5, lost - 1, h - 1);
        context.setLineDash([]);
      }
      if (node.in_flight_blocks && w > 2) this.hatch(context, x, y, w, h, ink);
    }
    if (w < LABEL) return;
    context.save();
    context.beginPath();
    context.rect(x, y, w - 4, h);
    context.clip();
    context.fillStyle = ink;
    const left = node.victim && !bar.folded ? 24 : 6;
    context.fillText(label(bar), x + left, y + h / 2 + 0.5);
    context.restore();
    context.globalAlpha = 1;
  }

  hatch(context, x, y, w, h, ink) {
    context.save();
    context.beginPath();
    context.rect(x, y, w, h);
    context.clip();
    context.strokeStyle = ink;
    context.globalAlpha *= 0.45;
    context.beginPath();
    for (let at = x - h; at < x + w; at += 7) {
      context.moveTo(at, y + h);
      context.lineTo(at + h, y);
    }
    context.stroke();
    context.restore();
  }

  drawMarks(context, bar) {
    const [x, y, w, h] = [bar.x + 0.5, bar.row * ROW + 1, Math.max(bar.w - 1, 1), ROW - 2];
    const node = bar.node;
    context.globalAlpha = 1;
    if (node.victim && !bar.folded && w >= 20) {
      context.beginPath();
      context.arc(x + 12, y + h / 2, 8, 0, 7);
      context.fillStyle = this.colours.card;
      context.fill();
      context.strokeStyle = this.colours.bad;
      context.stroke();
      context.fillStyle = this.colours.bad;
      context.textAlign = "center";
      context.font = "bold 10px system-ui, sans-serif";
      context.fillText(node.victim, x + 12, y + h / 2 + 0.5);
      context.textAlign = "left";
      context.font = "12px system-ui, sans-serif";
    }
    const on = node.id === this.selected?.id && !!bar.folded === !!this.selected?.folded;
    const over = this.hovered && bar.node === this.hovered.node && bar.folded === this.hovered.folded;
    if (on || over || (this.found.has(node.id) && !bar.folded)) {
      context.strokeStyle = on ? this.colours.ink : this.colours.accent;
      context.lineWidth = on ? 2.5 : 2;
      context.strokeRect(x + 1, y + 1, Math.max(w - 2, 1), h - 2);
      context.lineWidth = 1;
    }
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    return barAt(this.bars, event.clientX - box.left, event.clientY - box.top);
  }

  hover(bar) {
    if (bar?.node === this.hovered?.node && bar?.folded === this.hovered?.folded) return;
    this.hovered = bar;
    const chosen = this.selected && this.tree.nodes.get(this.selected.id);
    if (bar) this.onSelect(bar.node, bar.folded);
    else this.onSelect(chosen ?? null, this.selected?.folded ?? null);
    this.draw();
  }

  // The id of what the pointer is on, or else of what was chosen, and whether it is folded.
  pointedAt() {
    const bar = this.hovered;
    return bar ? { id: bar.node.id, folded: !!bar.folded } : { id: this.selected?.id, folded: !!this.selected?.folded };
  }

  click(bar) {
    if (!bar) return;
    this.select(bar.node, bar.folded);
    this.zoom(bar.node);
  }

  select(node, folded = null) {
    this.selected = node ? { id: node.id, folded } : null;
    this.onSelect(node, folded);
    this.draw();
    const bar = this.bars.find((each) => each.node === node && !each.folded);
    if (!bar) return;
    const box = this.canvas.parentElement;
    const y = bar.row * ROW;
    if (y < box.scrollTop || y + ROW > box.scrollTop + box.clientHeight) box.scrollTop = y - box.clientHeight / 2;
  }

  zoom(node) {
    this.focus = node && node.parent !== null ? node.id : null;
    this.canvas.parentElement.scrollTop = 0;
    this.onZoom(this.top());
    this.draw();
  }

  press(event) {
    const now = this.tree.nodes.get(this.selected?.id) ?? this.top();
    if (!now || event.ctrlKey || event.metaKey || event.altKey) return;
    const parent = this.tree.parent(now);
    const siblings = parent ? parent.below : [now];
    const place = siblings.indexOf(now);
    const to = {
      ArrowUp: () => now !== this.top() && this.select(parent ?? now),
      ArrowDown: () => now.below.length && this.select(largest(now.below)),
      ArrowLeft: () => this.select(siblings[Math.max(0, place - 1)]),
      ArrowRight: () => this.select(siblings[Math.min(siblings.length - 1, place + 1)]),
      Home: () => this.select(this.top()),
      Enter: () => this.zoom(now),
      Backspace: () => this.out(),
      Escape: () => this.out(),
    }[event.key];
    if (!to) return;
    event.preventDefault();
    to();
  }

  out() {
    const top = this.top();
    const parent = top && this.tree.parent(top);
    if (!parent) return;
    this.zoom(parent);
    this.select(top);
  }
}

const largest = (nodes) => nodes.reduce((best, node) => (node.total > best.total ? node : best));

function label(bar) {
  if (bar.folded) return `+ ${bar.folded.nodes} more`;
  return oneLine(plainTitle(bar.node));
}
