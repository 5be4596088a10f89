// Places at which prompts keep leaving what is stored, although they go on as it does.

import { get } from "./api.js";
import { byId, count, make, oneLine, seconds } from "./dom.js";

const KINDS = {
  clock: "a time", date: "a date", uuid: "a random id", id: "an id", hex: "a hash", number: "a number",
  tool_order: "order of tools", tools: "other tools", json_form: "JSON written otherwise", history: "edited history", other: "other text",
};

export async function loadNearMisses() {
  show((await get("/debug/near-misses")).data);
}

function show(found) {
  byId("near-count").textContent = found.length ? count(found.length) : "";
  const nothing = make("li", { class: "quiet" }, "None so far. They are told once they repeat: after three prompts, or five where they may be meant.");
  byId("near-misses").replaceChildren(...(found.length ? found.map(item) : [nothing]));
}

function item(each) {
  const whose = [each.tenant ? `tenant ${each.tenant}` : "", each.salted ? "salted" : ""].filter(Boolean).join(", ");
  const times = `${count(each.times)} prompts so far, the last one ${seconds(each.last_s)} ago${whose ? `; ${whose}` : ""}`;
  return make(
    "li",
    {},
    make("p", {}, make("span", { class: "badge evicted" }, KINDS[each.kind] ?? each.kind), " ", make("strong", {}, section(each)), `, ${place(each)}: costs ${count(each.lost_tokens)} tokens a prompt. `, make("span", { class: "quiet" }, times)),
    make("p", {}, `To mend it: ${each.mend}.`),
    each.here || each.stored ? sides(each) : null,
  );
}

function section(each) {
  const where = { tools: "In the tools", template: "In the chat template's own text", prompt: "In the prompt" }[each.section];
  const message = each.message === null ? "In a message" : `In message ${each.message}${each.role ? ` (${each.role})` : ""}`;
  return where ?? message;
}

function place(each) {
  const [from, to] = each.characters;
  return `characters ${count(from)} to ${count(to)}, at token ${count(each.position)} of ${count(each.prompt_tokens)}`;
}

function sides(each) {
  const shown = (text, side) => make("dd", {}, make("mark", { class: side }, oneLine(text) || "nothing"));
  return make("dl", { class: "sides" }, make("dt", {}, "The last prompt has"), shown(each.here, "prompt"), make("dt", {}, "What is stored has"), shown(each.stored, "stored"));
}
