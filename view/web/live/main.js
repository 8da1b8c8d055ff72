// The live page: receives snapshots of a running job, and shows the newest one at most once a second.

import { preferenceButtons } from "../common/buttons.js";
import { h, onResize } from "../common/dom.js";
import { forget, redraw } from "../common/figure.js";
import { apply, languageNow, onSystemTheme } from "../common/preferences.js";
import { connect } from "./connection.js";
import { curves } from "./curves.js";
import { head, title } from "./head.js";
import { links } from "./links.js";
import { isLive } from "./numbers.js";
import { recoveries } from "./recoveries.js";
import { servers } from "./servers.js";
import { staleness } from "./staleness.js";
import { en } from "./texts_en.js";
import { zh } from "./texts_zh.js";
import { workers } from "./workers.js";

const kSections = [curves, workers, servers, links, staleness, recoveries];
const kLeastMs = 1000;  ///< between two drawings

// `at` is when the last snapshot came.
const now = { snapshot: null, at: null, status: "connecting", axis: "step", order: "rank" };
now.ended = () => ["done", "failed"].includes(now.snapshot?.phase);

let view = null;
let drawn = -kLeastMs;
let timer = 0;

/// The line that names what this run does not record, and the option that records it.
function absentText(t, snapshot) {
  const list = [[isLive(snapshot) || now.ended(), t.absent.live], [snapshot.evaluations.length > 0, t.absent.evaluations]].filter(([recorded]) => !recorded).map(([, text]) => text);
  return list.length ? t.absentTitle + list.join(t.listSep) + t.stop : "";
}

function build(focus) {
  apply();
  forget();
  const t = { en, zh }[languageNow()];
  const ctx = Object.assign(now, { t, buttons: preferenceButtons(t, build) });
  const top = head(ctx);
  const sections = kSections.map((make) => make(ctx));
  const anchors = sections.map((one) => h("a", { href: `#${one.id}` }, t.nav[one.id]));
  const nav = h("nav", { "aria-label": t.title }, anchors);
  const absent = h("p", { class: "quiet", id: "absent" });
  const place = scrollY;
  document.getElementById("page").replaceChildren(...top.nodes, nav, absent, ...sections.map((one) => one.node));
  const update = (snapshot) => {
    top.update(snapshot);
    sections.forEach((one, i) => {
      one.node.hidden = anchors[i].hidden = !one.has(snapshot);
      if (!one.node.hidden) one.update(snapshot);
    });
    const text = absentText(t, snapshot);
    if (absent.textContent !== text) absent.textContent = text;
    const name = title(t, snapshot);
    if (document.title !== name) document.title = name;
  };
  view = { update, showConnection: top.showConnection };
  view.showConnection();
  if (now.snapshot) update(now.snapshot);
  else sections.forEach((one, i) => (one.node.hidden = anchors[i].hidden = true));
  scrollTo(0, place);
  if (focus) document.getElementById(focus)?.focus({ preventScroll: true });
}

function show() {
  timer = 0;
  if (document.hidden || !now.snapshot) return;
  drawn = performance.now();
  view.update(now.snapshot);
}
function showSoon() {
  if (timer === 0) timer = setTimeout(show, Math.max(0, drawn + kLeastMs - performance.now()));
}

build();
onSystemTheme(() => build());
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && now.snapshot) showSoon();
});
onResize(redraw);
connect({
  token: new URLSearchParams(location.search).get("token") ?? "",
  onSnapshot: (snapshot) => {
    now.snapshot = snapshot;
    now.at = new Date();
    if (!document.hidden) showSoon();
  },
  onStatus: (status) => {
    now.status = status;
    view.showConnection();
  },
});
