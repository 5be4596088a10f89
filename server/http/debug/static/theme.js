// Light or dark: as the system has it, unless the reader chooses.

import { byId } from "./dom.js";

const NAME = "radix-theme";
const system = matchMedia("(prefers-color-scheme: dark)");

export function setUpTheme(onChange) {
  const box = byId("theme");
  box.value = localStorage.getItem(NAME) ?? "auto";
  const apply = () => {
    const theme = box.value === "auto" ? (system.matches ? "dark" : "light") : box.value;
    document.documentElement.dataset.theme = theme;
    onChange(theme);
  };
  box.addEventListener("change", () => {
    localStorage.setItem(NAME, box.value);
    apply();
  });
  system.addEventListener("change", apply);
  apply();
}
