// The texts of the page by language, and names that depend on them.

import { en } from "./texts/en.js";
import { zh } from "./texts/zh.js";

export const kTexts = { en, zh };

/// Names of processes, such as "worker 2", in the page's language.
export function processName(t, name) {
  const found = /^(worker|server) (\d+)$/.exec(name);
  if (found) return `${t[found[1]]} ${found[2]}`;
  return name === "servers" ? t.servers : name;
}
