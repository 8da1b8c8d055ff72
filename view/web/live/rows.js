// Tables whose rows change in place, so that a selection, the focus and the place of a scroll bar stay.

import { h } from "../common/dom.js";

/// Writes a text only if it is new: the browser lays out nothing otherwise.
export const write = (node, text) => {
  if (node.textContent !== text) node.textContent = text;
};

/// `columns` are {title, name, number, make, write}: `make()` returns a cell's content, `write(content, one)` shows a value
/// in it. Without them a cell is text, from `text(one)`. The first column is the row's heading. Returns {node, update}:
/// `update(list, key)` shows the list; `key(one)` tells rows apart.
export function growingTable({ label, columns, classes = "" }) {
  const body = h("tbody", { role: "rowgroup" });
  const head = h("tr", { role: "row" }, columns.map((c) => h("th", { scope: "col", role: "columnheader", "data-name": c.name, class: c.number ? "n" : null }, c.title)));
  const node = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    h("table", { class: classes, role: "table", "aria-label": label }, h("thead", { role: "rowgroup" }, head), body));
  const rows = new Map();
  const make = (name) => {
    const cells = columns.map((c, i) => h(i === 0 ? "th" : "td", { role: i === 0 ? "rowheader" : "cell", scope: i === 0 ? "row" : null, "data-name": c.name, "data-title": c.title, class: c.number ? "n" : null }, c.make?.()));
    return { node: h("tr", { role: "row", "data-row": name }, cells), cells };
  };
  const update = (list, key) => {
    const names = list.map((one) => String(key(one)));
    for (const [name, row] of rows) {
      if (names.includes(name)) continue;
      row.node.remove();
      rows.delete(name);
    }
    list.forEach((one, i) => {
      const name = names[i];
      if (!rows.has(name)) rows.set(name, make(name));
      const row = rows.get(name);
      if (body.children[i] !== row.node) body.insertBefore(row.node, body.children[i] ?? null);
      columns.forEach((c, at) => (c.write ? c.write(row.cells[at].firstChild, one) : write(row.cells[at], c.text(one))));
    });
  };
  return { node, update };
}

/// Returns a bar of parts for `writeBar`.
export const makeBar = () => h("div", { class: "bar" }, h("div", { class: "track", role: "img" }), h("span"));

/// `parts` are {value, colour, name}; `most` is the value of a whole bar; `text` stands beside it.
export function writeBar(bar, parts, most, text) {
  const [track, said] = bar.children;
  while (track.children.length > parts.length) track.lastChild.remove();
  while (track.children.length < parts.length) track.append(h("i"));
  parts.forEach((part, i) => {
    const style = `width:${most > 0 ? Math.max(0, Math.min(100, (100 * (part.value ?? 0)) / most)).toFixed(1) : 0}%;background:${part.colour}`;
    if (track.children[i].getAttribute("style") !== style) track.children[i].setAttribute("style", style);
  });
  const names = parts.filter((part) => part.value != null).map((part) => part.name).join(", ");
  if (track.getAttribute("aria-label") !== names) {
    track.setAttribute("aria-label", names);
    track.title = names;
  }
  write(said, text);
}
