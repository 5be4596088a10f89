// The debug page: follows the server's events and shows what they say.

import { get, key, setKey, stream } from "./api.js";
import { curve, layers, tokens } from "./charts.js";
import { showDetails } from "./details.js";
import { byId, bytes, count, make, oneLine, percent, variable } from "./dom.js";
import { explainRequest, setUpExplain } from "./explain.js";
import { showFigures } from "./figures.js";
import { History, OUTCOMES, STATES, byState } from "./history.js";
import { Icicle } from "./icicle.js";
import { showLegend } from "./legend.js";
import { loadNearMisses } from "./near-misses.js";
import { Requests } from "./requests.js";
import { showTable } from "./table.js";
import { setUpTheme } from "./theme.js";
import { Tree, plainTitle } from "./tree.js";
import { reason } from "./words.js";
import { Zoom } from "./zoom.js";

const tree = new Tree();
const history = new History();
const log = [];
let info = null;
let last = null;
let theme = "light";
let paused = false;
let stop = null;

const details = (node, folded) => showDetails(byId("details"), node, folded);
const zoom = new Zoom(tree, redraw);
const icicle = new Icicle(byId("icicle"), tree, details, (top) => {
  showCrumbs(top);
  zoom.to(top);
});
const requests = new Requests(explainRequest);

function zoomTo(node) {
  icicle.select(node);
  icicle.zoom(node);
  refreshTable();
}

function showCrumbs(top) {
  const path = top ? tree.path(top) : [];
  const items = path.flatMap((node, place) => {
    const here = place === path.length - 1;
    const name = oneLine(plainTitle(node)).slice(0, 60);
    const item = here ? make("span", { "aria-current": "location" }, name) : make("button", { type: "button", onclick: () => zoomTo(node) }, name);
    return place ? [make("span", { "aria-hidden": "true" }, "\u203a"), item] : [item];
  });
  byId("crumbs").replaceChildren(...items);
}

function refreshTable() {
  const box = byId("table");
  if (!box.hidden && !box.contains(document.activeElement)) showTable(box, icicle.top(), zoomTo);
}

function keyOf(box, pairs) {
  box.replaceChildren(...pairs.map(([name, colour, value]) => {
    const swatch = make("i");
    swatch.style.background = colour;
    return make("li", {}, swatch, `${name}${value === undefined ? "" : ` ${value}`}`);
  }));
}

function drawCharts() {
  if (!last) return;
  const stateColours = Object.fromEntries(STATES.map((name) => [name, variable({ "in flight": "flight" }[name] ?? name)]));
  const now = byState(last.state);
  const all = Object.values(now).reduce((sum, value) => sum + value, 0);
  layers(byId("blocks"), history.blocks(), STATES, stateColours, { highest: all, format: tokens, span: history.span, nothing: "" });
  const names = { cached: "cached, evictable", pinned: "cached, in use", private: "private tails" };
  keyOf(byId("blocks-key"), STATES.map((name) => [names[name] ?? name, stateColours[name], count(now[name])]));
  byId("blocks").setAttribute("aria-label", STATES.map((name) => `${name}: ${count(now[name])} blocks`).join(", "));
  const hues = { cached: "cached", full: "free", diverged: "pinned", cold: "flight", evicted: "lost", in_flight: "private" };
  const outcomeColours = Object.fromEntries(OUTCOMES.map((name) => [name, variable(hues[name] ?? "quiet")]));
  layers(byId("hits"), history.outcomes(), OUTCOMES, outcomeColours, { highest: 1, format: percent, span: history.span, nothing: "no prompts in these minutes" });
  const prompts = last.counters.prompt_tokens || 1;
  const missed = Object.entries(last.missed_tokens).filter(([, value]) => value / prompts >= 0.0005);
  const cached = last.counters.cached_tokens ?? 0;
  const shares = [["cached", cached], ...missed].map(([name, value]) => [name === "cached" ? "from cache" : name === "full" ? "last tokens" : reason(name), outcomeColours[name], percent(value / prompts)]);
  keyOf(byId("hits-key"), shares);
  byId("hits").setAttribute("aria-label", `Since the start: ${shares.map(([name, , share]) => `${name} ${share}`).join(", ")}`);
  const memory = info ? info.kv.tokens * info.kv.bytes_per_token : 0;
  curve(byId("curve"), last.curve, memory);
  const [today, double] = [last.curve["1"], last.curve["2"]];
  byId("curve-text").textContent =
    today === undefined
      ? "This cache cannot tell."
      : `LRU would serve ${percent(today)} of prompt tokens with ${memory ? bytes(memory) : "today's memory"}, ${percent(double)} with twice as much. Whole blocks only.`;
}

function showLog() {
  const lines = log.map((line) => {
    const at = new Date(line.at * 1000).toLocaleTimeString("en-GB");
    return make("li", {}, make("time", {}, at), make("span", { class: `badge ${line.kind}` }, line.kind), make("span", {}, line.text));
  });
  byId("log").replaceChildren(...(lines.length ? lines : [make("li", { class: "quiet" }, "Nothing yet.")]));
}

function redraw() {
  if (!last) return;
  icicle.found = tree.search(byId("search").value);
  const wanted = byId("search").value.trim();
  byId("found").textContent = wanted ? `${icicle.found.size} found` : "";
  icicle.draw();
  byId("icicle").setAttribute("aria-label", `Stored prefixes, ${count(tree.nodes.size)} of them known here`);
  byId("nothing").hidden = !!tree.root?.total;
  showCrumbs(icicle.top());
  const { id, folded } = icicle.pointedAt();
  const node = tree.nodes.get(id) ?? null;
  details(node, folded ? node?.folded : null);
  refreshTable();
}

let drawing = false;

function take(update) {
  status("live", paused ? "Paused" : "Live");
  problem(update.problem);
  if (update.problem) return;
  const began = performance.now();
  history.take(update);
  if (update.tree.full) log.length = 0;
  log.unshift(...update.log.reverse());
  log.length = Math.min(log.length, 200);
  tree.take(update.tree);
  if (!last || update.counters.prompt_tokens !== last.counters.prompt_tokens || update.active.length !== last.active.length || update.number % 5 === 0) {
    requests.load().then(() => requests.show(last.active), () => {});
    loadNearMisses().catch(() => {});
  }
  if (!paused) zoom.refresh();
  last = update;
  if (paused || drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    const start = performance.now();
    redraw();
    drawCharts();
    showFigures(byId("figures"), last, history, info);
    requests.show(last.active);
    if (update.tree.full || update.log.length) showLog();
    document.documentElement.dataset.drawMs = (performance.now() - start).toFixed(1);
  });
  document.documentElement.dataset.takeMs = (performance.now() - began).toFixed(1);
}

function status(state, text) {
  const box = byId("status");
  if (box.dataset.state === state && box.textContent === text) return;
  box.dataset.state = state;
  box.textContent = text;
}

function problem(text) {
  byId("problem").hidden = !text;
  byId("problem").textContent = text ?? "";
}

async function follow() {
  stop?.abort();
  const mine = (stop = new AbortController());
  for (let wait = 1; !mine.signal.aborted; wait = Math.min(10, 2 * wait)) {
    try {
      info = await get("/server_info");
      byId("model").textContent = `${info.model}, ${bytes(info.kv.tokens * info.kv.bytes_per_token)} of KV memory, evicts ${info.cache.eviction.toUpperCase()} first`;
      await stream("/debug/events", mine.signal, (update) => {
        wait = 1;
        take(update);
      });
      status("waiting", "Reconnecting");
    } catch (error) {
      if (mine.signal.aborted) return;
      status("broken", "Not connected");
      if (error.status === 401 || error.status === 403) {
        problem(error.message);
        askForKey();
        return;
      }
      problem(error.status ? error.message : "The server does not answer. Trying again.");
    }
    await new Promise((done) => setTimeout(done, 1000 * wait));
  }
}

function askForKey() {
  const dialog = byId("key-dialog");
  byId("key-value").value = "";
  if (!dialog.open) dialog.showModal();
}

byId("key-dialog").addEventListener("close", () => {
  const what = byId("key-dialog").returnValue;
  if (what === "use" && byId("key-value").value) setKey(byId("key-value").value.trim());
  else if (what === "forget") setKey("");
  else if (key()) return;
  byId("key-dialog").returnValue = "";
  problem("");
  if (what) follow();
});
byId("key").addEventListener("click", askForKey);
byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", paused);
  status("live", paused ? "Paused" : "Live");
  if (!paused) redraw();
});
byId("colour").addEventListener("change", () => {
  icicle.by = byId("colour").value;
  showLegend(byId("legend"), icicle.by, theme);
  redraw();
});
byId("search").addEventListener("input", redraw);
byId("search").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !icicle.found.size) return;
  const found = [...icicle.found];
  const next = found[(found.indexOf(icicle.selected?.id) + 1) % found.length];
  const node = tree.nodes.get(next);
  if (!tree.path(node).includes(icicle.top())) icicle.zoom(tree.root);
  icicle.select(node);
});
byId("as-table").addEventListener("click", () => {
  const box = byId("table");
  box.hidden = !box.hidden;
  byId("chart").hidden = !box.hidden;
  byId("as-table").setAttribute("aria-pressed", !box.hidden);
  refreshTable();
  if (box.hidden) redraw();
});
new ResizeObserver(() => {
  redraw();
  drawCharts();
}).observe(byId("chart"));
setUpExplain();
setUpTheme((chosen) => {
  theme = icicle.theme = chosen;
  showLegend(byId("legend"), icicle.by, theme);
  redraw();
  drawCharts();
});
details(null);
showLog();
requests.show([]);
follow();
