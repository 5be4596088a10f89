// The panel that says why no more of a prompt is cached.

import { post } from "./api.js";
import { byId, count, make, percent } from "./dom.js";

const NAMES = { cached: "cached", in_flight: "in flight", evicted: "evicted", new: "to compute" };

export function setUpExplain() {
  byId("explain").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = byId("prompt").value;
    const recent = byId("recent").value;
    if (text.trim()) ask(bodyOf(text));
    else if (recent) ask({ request_id: recent });
  });
  byId("recent").addEventListener("change", () => byId("recent").value && explainRequest(byId("recent").value));
}

export function explainRequest(id) {
  byId("prompt").value = "";
  ask({ request_id: id });
  byId("explain-title").scrollIntoView({ block: "nearest" });
}

// A JSON body as it is; a list of numbers as token ids; all else as a prompt's text.
function bodyOf(text) {
  try {
    const value = JSON.parse(text);
    if (Array.isArray(value) && value.every(Number.isInteger)) return { prompt: value };
    if (Array.isArray(value)) return { messages: value };
    if (value && typeof value === "object") return value;
  } catch {
    // then it is text
  }
  return { prompt: text };
}

async function ask(body) {
  const box = byId("explanation");
  const tenant = byId("tenant").value.trim();
  try {
    const told = await post("/debug/explain", tenant && !body.request_id ? { ...body, tenant } : body);
    box.replaceChildren(...show(told));
  } catch (error) {
    box.replaceChildren(make("p", { class: "problem" }, error.message));
  }
}

function show(told) {
  const parts = [make("p", { class: "verdict" }, told.reason), make("p", {}, told.advice)];
  if (told.at_start) {
    parts.push(make("p", { class: "quiet small" }, `That was when the request started. A request for the same prompt would be served ${count(told.cached_tokens)} of ${count(told.prompt_tokens)} tokens now.`));
  }
  const strip = make("div", { class: "strip", role: "img", "aria-label": told.segments.map(segmentText).join(", ") });
  for (const each of told.segments) {
    const part = make("i", { class: `s-${each.state}`, title: segmentText(each) });
    part.style.flexGrow = each.end - each.start;
    strip.append(part);
  }
  const states = [...new Set(told.segments.map((each) => each.state))];
  const key = make("ul", { class: "key" }, ...states.map((state) => {
    const all = told.segments.filter((each) => each.state === state).reduce((sum, each) => sum + each.end - each.start, 0);
    return make("li", {}, make("i", { class: `s-${state}` }), `${NAMES[state]}: ${count(all)} (${percent(all / told.prompt_tokens)})`);
  }));
  parts.push(strip, key);
  if (told.parting) parts.push(sides(told.parting));
  parts.push(make("details", { open: !told.parting }, make("summary", {}, "The prompt, part by part"), make("div", { class: "pieces" }, ...told.segments.map(piece))));
  return parts;
}

function sides(parting) {
  const line = (text, side) => make("dd", {}, parting.before, make("mark", { class: side }, text));
  const where = parting.section ? `, in ${parting.section}` : "";
  return make(
    "dl",
    { class: "sides" },
    make("dt", {}, "This prompt"), line(parting.prompt, "prompt"),
    make("dt", {}, "What is stored"), line(parting.stored, "stored"),
    make("dt", {}, ""), make("dt", {}, `They part at token ${count(parting.position)}${where}.`),
  );
}

function piece(each) {
  const text = each.tail ? `${each.head}\n\u2026\n${each.tail}` : each.head;
  return make("pre", { class: `b-${each.state}`, title: segmentText(each) }, text);
}

const segmentText = (each) => `${NAMES[each.state]}: tokens ${count(each.start)} to ${count(each.end)}`;
