// The report: reads the document that psring put into the page, and draws its sections.

import { absent } from "./absent.js";
import { asynchrony } from "./asynchrony.js";
import { bytes } from "./bytes.js";
import { makeContext } from "./context.js";
import { h } from "./dom.js";
import { forget, redraw } from "./figure.js";
import { loss } from "./loss.js";
import { memory } from "./memory.js";
import { next } from "./next.js";
import { owners } from "./owners.js";
import { ran } from "./ran.js";
import { recoveries } from "./recoveries.js";
import { sweeps } from "./sweeps.js";
import { time } from "./time.js";
import { timeline } from "./timeline.js";

const kSections = [ran, owners, loss, time, timeline, bytes, memory, sweeps, asynchrony, recoveries, next, absent];

const doc = JSON.parse(document.getElementById("data").textContent);
const hash = new URLSearchParams(location.hash.slice(1));  // #lang=zh&theme=dark
const picks = {};
const hidden = new Set();

// A browser may refuse storage to a page that was opened from a file.
function kept(name) {
  try {
    return localStorage.getItem(`psring-${name}`);
  } catch {
    return null;
  }
}
function keep(name, value) {
  try {
    localStorage.setItem(`psring-${name}`, value);
  } catch {
    // It is forgotten with the page.
  }
}

let language = hash.get("lang") ?? kept("lang") ?? (navigator.language.startsWith("zh") ? "zh" : "en");
if (language !== "zh") language = "en";
const dark = matchMedia("(prefers-color-scheme: dark)");
let theme = hash.get("theme") ?? kept("theme");  // null: as the system says

const isDark = () => (theme ? theme === "dark" : dark.matches);
const setTheme = () => document.documentElement.setAttribute("data-theme", isDark() ? "dark" : "light");

function header(ctx) {
  const { t } = ctx;
  const names = ctx.doc.sources.map((source) => source.name).join(", ");
  return h("header", {}, h("h1", {}, names ? `${t.title}: ${names}` : t.title),
    h("div", { class: "tools" },
      h("button", { type: "button", id: "language", lang: language === "zh" ? "en" : "zh", onclick: () => {
        language = language === "zh" ? "en" : "zh";
        keep("lang", language);
        render("language");
      } }, t.language),
      h("button", { type: "button", id: "theme", onclick: () => {
        theme = isDark() ? "light" : "dark";
        keep("theme", theme);
        render("theme");
      } }, isDark() ? t.light : t.dark)));
}

function render(focus) {
  setTheme();
  forget();
  const ctx = makeContext(doc, language, picks, (id, value) => {
    picks[id] = value;
    render(`choose-${id}`);
  });
  ctx.hidden = hidden;
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
  const sections = kSections.map((make) => make(ctx)).filter(Boolean);
  document.title = `${ctx.t.title}: ${doc.sources.map((source) => source.name).join(", ")}`;
  const place = scrollY;
  document.getElementById("page").replaceChildren(header(ctx),
    h("nav", { "aria-label": ctx.t.title }, sections.map((one) => h("a", { href: `#${one.id}` }, ctx.t.nav[one.id]))),
    ...sections, h("p", { class: "quiet" }, `${ctx.t.madeBy} ${doc.program}`));
  redraw();
  scrollTo(0, place);
  if (focus) document.getElementById(focus)?.focus({ preventScroll: true });
}

render();
dark.addEventListener("change", () => render());
let waiting = 0;
addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(redraw, 80);
});
