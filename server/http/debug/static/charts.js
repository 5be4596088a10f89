// Small charts on canvases: states over time, and a curve. Each also gets a text for readers who
// do not see it.

import { bytes, percent, prepare, seconds, short, variable } from "./dom.js";

const LEFT = 40;
const BOTTOM = 18;
const TOP = 8;

function frame(canvas, highest, format, from, to) {
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const context = prepare(canvas, width, height);
  const area = { x: LEFT, y: TOP, w: width - LEFT - 6, h: height - TOP - BOTTOM };
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = variable("quiet");
  context.strokeStyle = variable("line");
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (const share of [0, 0.5, 1]) {
    const y = Math.round(area.y + area.h * (1 - share)) + 0.5;
    context.beginPath();
    context.moveTo(area.x, y);
    context.lineTo(area.x + area.w, y);
    context.stroke();
    context.fillText(format(highest * share), area.x - 5, y);
  }
  context.textBaseline = "alphabetic";
  context.textAlign = "left";
  context.fillText(from, area.x, height - 4);
  context.textAlign = "right";
  context.fillText(to, area.x + area.w, height - 4);
  return { context, area };
}

function empty({ context, area }, text) {
  context.fillStyle = variable("quiet");
  context.textAlign = "center";
  context.fillText(text, area.x + area.w / 2, area.y + area.h / 2 - 6);
}

// Layers over each other. points: [{at, values: {name: number}}], the span in seconds.
export function layers(canvas, points, names, colours, { highest, format, span, nothing }) {
  const top = highest || 1;
  const end = points.length ? points[points.length - 1].at : 0;
  const drawn = frame(canvas, top, format, `${seconds(span)} ago`, "now");
  const { context, area } = drawn;
  const parts = [];
  for (const point of points) {
    if (!point.values) parts.push([]);
    else if (parts.length && parts[parts.length - 1].length) parts[parts.length - 1].push(point);
    else parts.push([point]);
  }
  const x = (at) => area.x + area.w * Math.max(0, 1 - (end - at) / span);
  const y = (value) => area.y + area.h * (1 - Math.min(1, value / top));
  let any = false;
  for (const part of parts.filter((each) => each.length)) {
    any = true;
    const wide = part.length > 1 ? part : [part[0], { ...part[0], at: part[0].at + 1 }];
    const below = wide.map(() => 0);
    for (const name of names) {
      const above = wide.map((point, place) => below[place] + (point.values[name] || 0));
      context.beginPath();
      wide.forEach((point, place) => context.lineTo(x(point.at), y(above[place])));
      for (let place = wide.length - 1; place >= 0; place--) context.lineTo(x(wide[place].at), y(below[place]));
      context.closePath();
      context.fillStyle = colours[name];
      context.fill();
      above.forEach((value, place) => (below[place] = value));
    }
  }
  if (!any) empty(drawn, nothing);
}

// Hit rate against multiples of the memory there is, with a mark at today's.
export function curve(canvas, points, memoryBytes) {
  const sizes = Object.keys(points).map(Number).sort((a, b) => a - b);
  const drawn = frame(canvas, 1, percent, "", "");
  const { context, area } = drawn;
  if (!sizes.length) return empty(drawn, "no curve for this cache");
  const low = Math.log2(sizes[0]);
  const wide = Math.log2(sizes[sizes.length - 1]) - low || 1;
  const x = (size) => area.x + 14 + (area.w - 34) * ((Math.log2(size) - low) / wide);
  const y = (share) => area.y + area.h * (1 - share);
  context.textAlign = "center";
  context.fillStyle = variable("quiet");
  for (const size of sizes) context.fillText(size === 1 ? "today" : `${size}x`, x(size), area.y + area.h + 14);
  context.strokeStyle = variable("pinned");
  context.setLineDash([4, 3]);
  context.beginPath();
  context.moveTo(x(1), area.y);
  context.lineTo(x(1), area.y + area.h);
  context.stroke();
  context.setLineDash([]);
  context.strokeStyle = variable("accent");
  context.lineWidth = 2;
  context.beginPath();
  for (const size of sizes) context.lineTo(x(size), y(points[size]));
  context.stroke();
  context.lineWidth = 1;
  for (const size of sizes) {
    context.beginPath();
    context.arc(x(size), y(points[size]), size === 1 ? 5 : 3, 0, 7);
    context.fillStyle = variable(size === 1 ? "pinned" : "accent");
    context.fill();
  }
  canvas.setAttribute("aria-label", sizes.map((size) => `${bytes(memoryBytes * size)}: ${percent(points[size])}`).join(", "));
}

export const tokens = (value) => short(value);
