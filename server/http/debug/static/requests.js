// Running, waiting and recent requests, and the life of one.

import { get } from "./api.js";
import { byId, count, make, percent, seconds } from "./dom.js";
import { ending, reason } from "./words.js";

const MOST = 40;

export class Requests {
  // onExplain(id) is called when the reader wants to know why.
  constructor(onExplain) {
    this.body = byId("requests").tBodies[0];
    this.onExplain = onExplain;
    this.recent = [];
  }

  async load() {
    this.recent = (await get("/debug/requests?limit=60")).data;
    const box = byId("recent");
    const chosen = box.value;
    const choices = this.recent.map((each) => make("option", { value: each.id }, `${when(each.started_at)}  ${each.id}`));
    box.replaceChildren(make("option", { value: "" }, "choose"), ...choices);
    box.value = chosen;
  }

  show(active) {
    const known = new Set(active.map((each) => each.id));
    const rows = active.map((each) => this.row(each.id, each.state, each, seconds(each.waited_s)));
    for (const each of this.recent) {
      if (known.has(each.id)) continue;
      const state = each.state === "open" ? "open" : each.status === 200 ? "ended" : `${each.status}`;
      rows.push(this.row(each.id, state, each, each.total_ms === null ? "" : seconds(each.total_ms / 1000), each.error));
    }
    if (!rows.length) rows.push(make("tr", {}, make("td", { colspan: 5, class: "quiet" }, "No requests yet.")));
    const focused = this.body.contains(document.activeElement) ? document.activeElement.dataset.id : null;
    this.body.replaceChildren(...rows.slice(0, MOST));
    // The keyboard stays where it was.
    if (focused) [...this.body.querySelectorAll("button")].find((each) => each.dataset.id === focused)?.focus({ preventScroll: true });
  }

  row(id, state, each, time, error = null) {
    const open = make("button", { type: "button", class: "link", "data-id": id, title: `The life of ${id}`, onclick: () => this.life(id) }, id.length > 22 ? `${id.slice(0, 21)}\u2026` : id);
    const share = each.prompt_tokens && each.cached_tokens !== null ? each.cached_tokens / each.prompt_tokens : null;
    const served =
      share === null
        ? make("span", { class: "quiet" }, each.prompt_tokens ? `of ${count(each.prompt_tokens)}` : "")
        : make("span", { class: "share" }, bar(share), `${percent(share)} of ${count(each.prompt_tokens)}`);
    return make(
      "tr",
      {},
      make("td", {}, open, each.tenant ? make("div", { class: "quiet small" }, each.tenant) : null),
      make("td", {}, make("span", { class: `badge ${error ? "failed" : state}` }, state)),
      ...(error
        ? [make("td", { colspan: 2 }, make("div", { class: "error", title: error }, error))]
        : [make("td", {}, served), make("td", {}, ending(each.match_end))]),
      make("td", { class: "number" }, time),
    );
  }

  async life(id) {
    const box = byId("life");
    let told;
    try {
      told = await get(`/debug/requests/${encodeURIComponent(id)}`);
    } catch (error) {
      box.replaceChildren(make("p", { class: "problem" }, error.message));
      return;
    }
    const lines = told.events.map((event) =>
      make("li", {}, make("time", {}, `${event.at_ms.toFixed(1)} ms`), make("span", { class: `badge ${event.event}` }, event.event.replace("_", " ")), make("span", {}, say(event))),
    );
    box.replaceChildren(
      make("div", { class: "tools" }, make("h3", {}, id), make("button", { type: "button", onclick: () => this.onExplain(id) }, "Explain"), make("button", { type: "button", onclick: () => box.replaceChildren() }, "Close")),
      make("ol", {}, ...lines),
    );
  }
}

function bar(share) {
  const filled = make("i");
  filled.style.width = `${100 * share}%`;
  return make("span", { class: "bar", "aria-hidden": "true" }, filled);
}

const when = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");

function say(event) {
  if (event.event === "matched") {
    const end = event.match_end;
    return `${count(event.cached_tokens)} tokens cached${end ? `; no more: ${reason(end.reason)}` : ""}`;
  }
  if (event.event === "chunk") return `${count(event.tokens)} tokens computed, from ${count(event.start)} on`;
  if (event.event === "ended") return `status ${event.status}${event.finish_reasons.length ? `, ${event.finish_reasons.join(", ")}` : ""}`;
  return { arrived: "the request came", queued: "in the engine's queue", preempted: "gave its blocks back, and waits again", first_token: "the first token of the answer" }[event.event] ?? "";
}
