// Cells whose number comes from the document.

import { h } from "./dom.js";

/// Returns a cell with the number at a path of the document. The path stays on the cell, so that a test can compare both.
export function numberCell(doc, path, format) {
  const value = path.split(".").reduce((at, name) => at?.[name], doc);
  return h("td", { class: "n", "data-path": path, "data-unit": format.unit ?? "" }, format(value));
}
