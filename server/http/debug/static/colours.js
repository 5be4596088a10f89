// What a bar's colour says, by what the reader has chosen.

const mix = (from, to, share) => from.map((part, place) => Math.round(part + (to[place] - part) * share));
const css = (rgb) => `rgb(${rgb.join(",")})`;
const bright = (rgb) => 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2] > 140;

const SCALES = {
  light: { cold: [206, 213, 221], use: [13, 122, 110], hits: [38, 92, 170], locks: [224, 138, 30], kept: [118, 92, 205] },
  dark: { cold: [62, 72, 84], use: [62, 190, 172], hits: [104, 164, 240], locks: [236, 160, 70], kept: [160, 146, 250] },
};

function hue(text) {
  let hash = 7;
  for (const character of text) hash = (hash * 31 + character.codePointAt(0)) % 360;
  return hash;
}

function hsl(h, s, l) {
  const f = (n) => {
    const k = (n + h / 30) % 12;
    return Math.round(255 * (l - s * Math.min(l, 1 - l) * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return [f(0), f(8), f(4)];
}

// Seconds since the last use as a share from 1 (in use) to 0 (an hour ago).
const freshness = (node, now) =>
  node.used_at === null ? 1 : Math.max(0, 1 - Math.log10(1 + Math.max(0, now - node.used_at)) / Math.log10(3600));

export function colourOf(node, by, now, theme, spaceName) {
  const scale = SCALES[theme];
  let rgb;
  if (by === "hits") rgb = mix(scale.cold, scale.hits, Math.min(1, Math.log2(1 + node.hits) / 8));
  else if (by === "locks") rgb = node.locks ? mix(scale.cold, scale.locks, 0.55 + 0.45 * Math.min(1, node.locks / 8)) : scale.cold;
  else if (by === "retention") rgb = node.retained ? scale.kept : scale.cold;
  else if (by === "namespace") rgb = hsl(hue(spaceName), 0.45, theme === "dark" ? 0.45 : 0.62);
  else rgb = mix(scale.cold, scale.use, freshness(node, now));
  return { fill: css(rgb), ink: bright(rgb) ? "#14191f" : "#fff" };
}

// Samples for the legend: [name, colour].
export function samples(by, theme) {
  const scale = SCALES[theme];
  const at = (to, share) => css(mix(scale.cold, scale[to], share));
  if (by === "hits") return [["no hits", at("hits", 0)], ["4", at("hits", 0.29)], ["30", at("hits", 0.62)], ["250 or more", at("hits", 1)]];
  if (by === "locks") return [["nobody uses it", at("locks", 0)], ["a request does", at("locks", 0.61)], ["8 or more do", at("locks", 1)]];
  if (by === "retention") return [["may be evicted", at("kept", 0)], ["retained", at("kept", 1)]];
  if (by === "namespace") return [];
  return [["in use", at("use", 1)], ["10 s ago", at("use", 0.71)], ["5 min ago", at("use", 0.3)], ["an hour ago", at("use", 0)]];
}
