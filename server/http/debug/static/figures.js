// The numbers at the head of the page.

import { bytes, count, make, percent, seconds } from "./dom.js";

export function showFigures(box, update, history, info) {
  const { state, counters } = update;
  const used = (state.blocks_cached ?? 0) + (state.blocks_private ?? 0) + (state.blocks_in_flight ?? 0);
  const all = used + (state.blocks_free ?? 0) + (state.blocks_quarantined ?? 0);
  const prompts = counters.prompt_tokens ?? 0;
  const pace = history.pace();
  const memory = info ? `of ${bytes(info.kv.tokens * info.kv.bytes_per_token)}` : "";
  const pairs = [
    ["Served from cache", prompts ? percent(counters.cached_tokens / prompts) : "-", `of ${count(prompts)}`],
    ["KV memory in use", all ? percent(used / all) : "-", memory],
    ["Running", count(state.running ?? 0), "requests"],
    ["Waiting", count(state.waiting ?? 0), "requests"],
    ["A step", pace.each === null ? "-" : seconds(pace.each), pace.rate >= 0.5 ? `${count(pace.rate)} a second` : ""],
    ["Evicted so far", count(counters.evicted_blocks ?? 0), "blocks"],
  ];
  box.replaceChildren(...pairs.map(([name, value, more]) => make("div", {}, make("dt", {}, name), make("dd", {}, value, " ", make("small", {}, more)))));
}
