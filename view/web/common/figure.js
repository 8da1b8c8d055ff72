// A figure: title, drawing, and buttons that save it as SVG and as CSV. The drawing is made again when its width changes.

import { h } from "./dom.js";

let frames = [];

export const forget = () => (frames = []);
export const redraw = () => frames.forEach((draw) => draw());

function save(name, type, text) {
  const link = h("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/// Returns a drawing as a file of its own, in the colours that the page has now.
export function standalone(svg) {
  const style = getComputedStyle(document.documentElement);
  const copy = svg.cloneNode(true);
  copy.removeAttribute("tabindex");
  copy.setAttribute("style", "background:var(--back)");
  return new XMLSerializer().serializeToString(copy).replace(/var\((--[a-z0-9]+)\)/g, (_, name) => style.getPropertyValue(name).trim());
}

const quoted = (value) => {
  let text = value == null ? "" : String(value);
  if (/^[=+@\t-]/.test(text) && Number.isNaN(Number(text))) text = "'" + text;  // no formula in a spreadsheet
  return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
};
export const csv = (lines) => lines.map((line) => line.map(quoted).join(",")).join("\n") + "\n";

/// Returns buttons that save `svg()`, an SVG element, and `data()`, the lines of a CSV file, the first with names.
export const saveButtons = ({ id, title, texts, svg, data }) => h("span", { class: "tools" },
  h("button", { type: "button", "aria-label": `${texts.save} SVG: ${title}`, onclick: () => save(`${id}.svg`, "image/svg+xml", standalone(svg())) }, "SVG"),
  h("button", { type: "button", "aria-label": `${texts.save} CSV: ${title}`, onclick: () => save(`${id}.csv`, "text/csv", csv(data())) }, "CSV"));

/// `draw(width, say, cursor)` returns an SVG element, which may be wider if `wide`; `data()` returns the lines of the CSV file,
/// the first with names. `say(text)` shows a text below the drawing if `readout`; `cursor` keeps the reader's place when the
/// figure is drawn again.
export function figure({ id, title, caption, draw, data, texts, readout, wide }) {
  const box = h("div", wide ? { class: "box wide", tabindex: "0", role: "region", "aria-label": title } : { class: "box" });
  const said = readout ? h("div", { class: "readout", "aria-live": "polite" }) : null;
  const say = (text) => {
    if (said && said.textContent !== text) said.textContent = text;
  };
  const node = h("figure", { id, "data-figure": id },
    h("div", { class: "head" }, h("strong", {}, title), saveButtons({ id, title, texts, svg: () => box.firstChild, data })),
    box, said, caption ? h("figcaption", {}, caption) : null);
  const cursor = { x: null, redraws: false };
  let width = 0;
  const again = (changed) => {
    const now = Math.floor(box.clientWidth);
    if (now === 0 || (now === width && changed !== true)) return;
    width = now;
    cursor.redraws = true;
    const held = box.contains(document.activeElement);
    const svg = draw(width, say, cursor);
    svg.setAttribute("aria-label", title);
    box.replaceChildren(svg);
    if (held && svg.hasAttribute("tabindex")) svg.focus({ preventScroll: true });
    cursor.redraws = false;
  };
  frames.push(again);
  return Object.assign(node, { redraw: () => again(true) });
}
