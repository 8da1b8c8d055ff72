// Parts of a page: sections with a heading, and keys of colours.

import { h } from "./dom.js";

export const section = (id, title, ...children) => h("section", { id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), ...children);
export const swatch = (colour) => h("span", { class: "swatch", style: `background:${colour}` });
export const keys = (list) => h("div", { class: "keys" }, list.map(([colour, text]) => h("span", {}, swatch(colour), text)));
