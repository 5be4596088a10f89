// What colours and marks mean.

import { samples } from "./colours.js";
import { make, prepare, variable } from "./dom.js";

export function showLegend(box, by, theme) {
  const items = samples(by, theme).map(([name, colour]) => item(name, (context) => {
    context.fillStyle = colour;
    context.fillRect(0, 0, 16, 12);
  }));
  if (by === "namespace") items.push(make("span", {}, "each namespace has a colour of its own"));
  const colour = variable("cached");
  items.push(
    item("being computed", (context) => {
      context.fillStyle = colour;
      context.fillRect(0, 0, 16, 12);
      context.strokeStyle = "#fff";
      context.beginPath();
      for (let at = -10; at < 18; at += 6) {
        context.moveTo(at, 12);
        context.lineTo(at + 12, 0);
      }
      context.stroke();
    }),
    item("evicted, remembered", (context) => {
      context.globalAlpha = 0.25;
      context.fillStyle = colour;
      context.fillRect(0, 0, 16, 12);
      context.globalAlpha = 1;
      context.strokeStyle = variable("quiet");
      context.setLineDash([2, 2]);
      context.strokeRect(0.5, 0.5, 15, 11);
    }),
    item("evicted next, in this order", (context) => {
      context.strokeStyle = context.fillStyle = variable("bad");
      context.beginPath();
      context.arc(8, 6, 5, 0, 7);
      context.stroke();
      context.font = "bold 8px system-ui, sans-serif";
      context.textAlign = "center";
      context.textBaseline = "middle";
      context.fillText("1", 8, 6.5);
    }),
  );
  box.replaceChildren(...items);
}

function item(name, paint) {
  const canvas = make("canvas", { "aria-hidden": "true" });
  canvas.style.width = "16px";
  canvas.style.height = "12px";
  paint(prepare(canvas, 16, 12));
  return make("span", {}, canvas, name);
}
