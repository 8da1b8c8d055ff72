// The report: reads the document that psring put into the page, and draws its sections.

import { preferenceButtons } from "../common/buttons.js";
import { h, onResize } from "../common/dom.js";
import { forget, redraw } from "../common/figure.js";
import { showSections } from "../common/parts.js";
import { apply, languageNow, onSystemTheme } from "../common/preferences.js";
import { absent } from "./absent.js";
import { asynchrony } from "./asynchrony.js";
import { bytes } from "./bytes.js";
import { cluster } from "./cluster.js";
import { makeContext } from "./context.js";
import { loss } from "./loss.js";
import { memory } from "./memory.js";
import { mesh } from "./mesh.js";
import { next } from "./next.js";
import { owners } from "./owners.js";
import { ran } from "./ran.js";
import { recoveries } from "./recoveries.js";
import { sweeps } from "./sweeps.js";
import { tables } from "./tables.js";
import { time } from "./time.js";
import { timeline } from "./timeline.js";

const kSections = [ran, cluster, owners, mesh, loss, time, timeline, bytes, memory, tables, sweeps, asynchrony, recoveries, next, absent];

const doc = JSON.parse(document.getElementById("data").textContent);
const picks = {};
const hidden = new Set();

function header(ctx) {
  const { t } = ctx;
  const names = ctx.doc.sources.map((source) => source.name).join(", ");
  return h("header", {}, h("h1", {}, names ? `${t.title}${t.colon}${names}` : t.title),
    preferenceButtons(t, render));
}

function render(focus) {
  apply();
  forget();
  const ctx = makeContext(doc, languageNow(), picks, (id, value) => {
    picks[id] = value;
    render(`choose-${id}`);
  });
  ctx.hidden = hidden;
  const sections = kSections.map((make) => make(ctx)).filter(Boolean);
  document.title = `${ctx.t.title}${ctx.t.colon}${doc.sources.map((source) => source.name).join(", ")}`;
  const place = scrollY;
  showSections(header(ctx), sections, ctx.t, doc.program);
  scrollTo(0, place);
  if (focus) document.getElementById(focus)?.focus({ preventScroll: true });
}

render();
onSystemTheme(() => render());
onResize(redraw);
