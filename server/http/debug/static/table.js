// The tree as a table, for those who do not see the chart.

import { count, make, seconds } from "./dom.js";
import { title } from "./tree.js";

const MOST = 400;

export function showTable(box, top, onZoom) {
  const now = Date.now() / 1000;
  const rows = [];
  const todo = top ? [[top, 0]] : [];
  while (todo.length && rows.length < MOST) {
    const [node, depth] = todo.pop();
    rows.push(row(node, depth, now, onZoom));
    for (const child of [...node.below].reverse()) todo.push([child, depth + 1]);
  }
  const names = ["Depth", "Text", "Tokens", "State", "Hits", "Last use"];
  const head = make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, name)));
  const more = todo.length ? ` The first ${MOST} are shown.` : "";
  box.replaceChildren(
    make("table", {}, make("caption", { class: "hidden" }, `Stored prefixes, each under the one it continues.${more}`), make("thead", {}, head), make("tbody", {}, ...rows)),
  );
}

function row(node, depth, now, onZoom) {
  const state = [];
  if (node.locks) state.push("in use");
  if (node.in_flight_blocks) state.push("in flight");
  if (node.retained) state.push("retained");
  if (node.ghost_tokens) state.push(`${count(node.ghost_tokens)} evicted`);
  if (node.victim) state.push(`next to leave: ${node.victim}`);
  if (node.folded) state.push(`${count(node.folded.nodes)} branches not shown`);
  const zoom = make("button", { type: "button", class: "link", onclick: () => onZoom(node) }, title(node));
  return make(
    "tr",
    {},
    make("td", { class: "number" }, depth),
    make("td", { class: "text" }, zoom),
    make("td", { class: "number" }, count(node.tokens)),
    make("td", {}, state.join(", ") || "stored"),
    make("td", { class: "number" }, count(node.hits)),
    make("td", { class: "number" }, node.used_at === null ? "now" : seconds(Math.max(0, now - node.used_at))),
  );
}
