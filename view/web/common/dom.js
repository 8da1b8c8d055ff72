// Elements. Text from the document is set as text content or as an attribute's value, never as markup.

const kSvg = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

export const h = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes = {}, ...children) => fill(document.createElementNS(kSvg, tag), attributes, children);

/// Returns a table; `columns` are {title, number}, rows are lists of nodes, texts or `cell`s.
export function table(columns, rows) {
  const head = h("tr", {}, columns.map((c) => h("th", { scope: "col", class: c.number ? "n" : null }, c.title)));
  const body = rows.map((row) =>
    h("tr", {}, row.map((value, i) =>
      value instanceof HTMLTableCellElement ? value : h("td", { class: columns[i].number ? "n" : columns[i].wrap ? "wrap" : null }, value))));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": columns.map((c) => c.title).join(", ") },
           h("table", {}, h("thead", {}, head), h("tbody", {}, body)));
}

/// Calls `listener` when the window has got another size, and keeps it for a moment.
export function onResize(listener) {
  let waiting = 0;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(listener, 80);
  });
}
