// Parts of a page: sections with a heading, and keys of colours.

import { h } from "./dom.js";
import { redraw } from "./figure.js";

export const section = (id, title, ...children) => h("section", { id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), ...children);
export const swatch = (colour) => h("span", { class: "swatch", style: `background:${colour}` });
export const keys = (list) => h("div", { class: "keys" }, list.map(([colour, text]) => h("span", {}, swatch(colour), text)));

/// Puts sections under a header and links to them, with the name of the program that made the page; `t`: texts.
export function showSections(header, sections, t, program) {
  document.getElementById("page").replaceChildren(header,
    h("nav", { "aria-label": t.title }, sections.map((one) => h("a", { href: `#${one.id}` }, t.nav[one.id]))),
    ...sections, h("p", { class: "quiet" }, `${t.madeBy} ${program}`));
  redraw();
}
