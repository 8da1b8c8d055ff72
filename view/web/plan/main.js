// The page of psring plan: reads the document that psring put into the page, and draws its sections.

import { preferenceButtons } from "../common/buttons.js";
import { h, onResize } from "../common/dom.js";
import { forget, redraw } from "../common/figure.js";
import { showSections } from "../common/parts.js";
import { apply, languageNow, onSystemTheme } from "../common/preferences.js";
import { cluster } from "./cluster.js";
import { makeContext, makeState } from "./context.js";
import { curves } from "./curves.js";
import { memory } from "./memory.js";
import { rows } from "./rows.js";
import { start } from "./start.js";

const kSections = [cluster, curves, rows, memory, start];

const doc = JSON.parse(document.getElementById("data").textContent);
const state = makeState(doc);

/// Draws the page; the element with the id `focus` has the focus afterwards, at the place where it was.
function render(focus) {
  apply();
  forget();
  const before = document.getElementById(focus)?.getBoundingClientRect().top;
  const ctx = makeContext(doc, state, languageNow(), (act, id) => {
    act();
    render(id);
  });
  const { t } = ctx;
  const sections = kSections.map((make) => make(ctx)).filter(Boolean);
  document.title = `${t.title}${t.colon}${doc.model}`;
  const place = scrollY;
  showSections(h("header", {}, h("h1", {}, document.title), preferenceButtons(t, render)), sections, t, doc.program);
  const element = focus && document.getElementById(focus);
  scrollTo(0, element && before !== undefined ? scrollY + element.getBoundingClientRect().top - before : place);
  element?.focus({ preventScroll: true });
}

render();
onSystemTheme(() => render());
onResize(redraw);
