// What is known of the bar that the pointer or the keyboard is on.

import { count, make, seconds } from "./dom.js";
import { spaceName, title } from "./tree.js";

export function showDetails(box, node, folded) {
  if (!node) {
    box.replaceChildren(make("p", { class: "quiet" }, "Point at a bar, or move to it with the arrow keys, to see what it is."));
    return;
  }
  if (folded) {
    const more = folded.at_least ? " or more" : "";
    box.replaceChildren(
      make("pre", {}, `${count(folded.nodes)} smaller branches that are not shown one by one`),
      facts([["Tokens", count(folded.tokens) + more], ["Blocks", count(folded.blocks) + more], ["Hits", count(folded.hits) + more]]),
    );
    return;
  }
  const now = Date.now() / 1000;
  const told = [
    ["Tokens", node.tokens ? `${count(node.tokens)}, from ${count(node.start)}` : "none of its own"],
    ["From here on", `${count(node.total)} tokens`],
    ["Blocks", count(node.blocks)],
    ["Hits", count(node.hits)],
    ["Locks", node.locks ? `${count(node.locks)}: in use` : "0"],
    ["Last use", node.used_at === null ? "now" : `${seconds(Math.max(0, now - node.used_at))} ago`],
  ];
  if (node.space) told.push(["Namespace", spaceName(node.space)]);
  if (node.ghost_tokens) told.push(["Evicted", `${count(node.ghost_tokens)} tokens, remembered`]);
  if (node.in_flight_blocks) told.push(["In flight", `${count(node.in_flight_blocks)} blocks`]);
  if (node.retained) told.push(["Retained", node.retained_until ? `for ${seconds(Math.max(0, node.retained_until - now))}` : `by ${node.retained}`]);
  if (node.victim) told.push(["Next to leave", `number ${node.victim}`]);
  box.replaceChildren(make("pre", {}, title(node)), facts(told));
}

function facts(pairs) {
  return make("dl", { class: "facts" }, ...pairs.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}
