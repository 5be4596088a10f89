// Why a match ended, in a few words.

const WORDS = {
  full: "all that can be",
  diverged: "leaves what is stored",
  cold: "never stored",
  evicted: "evicted",
  in_flight: "being computed",
  namespace: "in another namespace",
  short: "less than a block",
  bypassed: "cache not read",
  unknown: "not known",
};

export const reason = (name) => WORDS[name] ?? name;

export function ending(end) {
  if (!end) return "";
  if (end.reason === "full") return WORDS.full;
  return `${reason(end.reason)} at token ${end.position.toLocaleString("en-US")}`;
}
