// Drawings from plain data: lines, and horizontal bars.

import { s } from "./dom.js";
import { ticks } from "./format.js";

const kFont = 12;
const kNameRoom = 0.93;  // the part of a bar's margin that its name may fill

export const label = (x, y, text, attributes = {}) =>
  s("text", { x, y, "font-size": kFont, fill: "var(--quiet)", "font-family": "system-ui, sans-serif", ...attributes }, text);

export const svg = (width, height, ...children) =>
  s("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}`, role: "img" }, ...children);

/// About the width of a text in pixels; Chinese characters are twice as wide.
export const widthOf = (text) => [...text].reduce((sum, c) => sum + (c.codePointAt(0) > 0x2e7f ? 12.5 : 6.7), 0);

/// Returns the text, cut to a width.
export function cut(text, width) {
  if (widthOf(text) <= width) return text;
  const letters = [...text];
  while (letters.length > 1 && widthOf(letters.join("") + "…") > width) letters.pop();
  return letters.join("") + "…";
}

/// Returns at least two marks, where `marks` has that many: an axis with one does not show its scale.
function someTicks(marks, least, most, count) {
  let wanted = Math.max(2, count);
  let list = marks(least, most, wanted);
  while (list.length < 2 && wanted < 8) list = marks(least, most, ++wanted);
  return list;
}

function path(xs, ys, x, y) {
  let d = "";
  let pen = false;
  xs.forEach((value, i) => {
    if (value == null || ys[i] == null) {
      pen = false;
      return;
    }
    d += `${pen ? "L" : "M"}${x(value).toFixed(1)},${y(ys[i]).toFixed(1)}`;
    pen = true;
  });
  return d;
}

/// Returns the powers of ten within a range, and their doubles and fives if there are few.
export function logTicks(least, most, count) {
  const list = [];
  const steps = Math.log10(most / least) > count ? [1] : Math.log10(most / least) > count / 3 ? [1, 3] : [1, 2, 5];
  for (let power = Math.floor(Math.log10(least)); power <= Math.log10(most); ++power)
    for (const step of steps) {
      const mark = Number((step * 10 ** power).toPrecision(3));
      if (mark >= least * 0.999 && mark <= most * 1.001) list.push(mark);
    }
  return list.length > 1 ? list : [least, most];
}

/// Leaves out marks that read as the one before: whole steps have no halves.
const unlike = (marks, text) => marks.filter((v, i) => i === 0 || text(v) !== text(marks[i - 1]));

/// Returns the marks whose texts, as wide as they are, have room on an axis; the first stays.
function fitting(marks, x, xText) {
  let end = -Infinity;
  return unlike(marks, xText).filter((v) => {
    const half = widthOf(xText(v)) / 2;
    if (x(v) - half < end + 6) return false;
    end = x(v) + half;
    return true;
  });
}

/// Draws lines. `series` are {name, colour, x, y, width, dash, shift, marks, low, high}: low and high are the ends of
/// whiskers. `bands` are {from, to, colour, name} behind the lines; `xMarks` are the places of the labels on the x axis, which
/// is logarithmic if `xLog`; the y axis is, from above 0, if `yLog`. `dots` are {x, y, name}, rings on top of the lines.
/// `say(text)` gets what lies under the cursor, which the mouse, or the arrow keys, move; `held`
/// keeps the cursor's place from one drawing to the next.
export function lines({ series, width, height = 260, xTitle, yTitle, xText, yText, yTicks = ticks, zero = false, xMarks, xLog = false, yLog = false, bands = [], dots = [], say, held = { x: null } }) {
  const shown = series.filter((one) => one.x.length > 0);
  const of = (axis) => shown.flatMap((one) => one[axis].filter((v) => v != null));
  const xs = of("x");
  const ys = [...of("y"), ...shown.flatMap((one) => (one.high ?? []).filter((v) => v != null))];
  if (xs.length === 0 || ys.length === 0) return svg(width, 30, label(0, 20, "—"));
  const range = (values) => values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
  let [x0, x1] = range(xs);
  let [y0, y1] = range(ys);
  if (x0 === x1) x1 = x0 + 1;
  if (zero) y0 = 0;
  if (y0 === y1) y1 = y0 + (Math.abs(y0) || 1);
  if (yLog) [y0, y1] = [y0 / 1.1, y1 * 1.1];
  else if (!zero) [y0, y1] = [y0 - (y1 - y0) * 0.04, y1 + (y1 - y0) * 0.04];
  const yMarks = unlike((yLog ? logTicks : yTicks)(y0, y1, 5), yText);
  const left = Math.max(...yMarks.map((v) => widthOf(yText(v)))) + 10;
  const [right, top, bottom] = [14, 22, 40];
  const along = xLog ? Math.log : (v) => v;
  const x = (v) => left + ((along(v) - along(x0)) / (along(x1) - along(x0))) * (width - left - right);
  const isEnd = (v) => x(v) + widthOf(xText(v)) / 2 > width;
  const up = yLog ? Math.log : (v) => v;
  const y = (v) => height - bottom - ((up(v) - up(y0)) / (up(y1) - up(y0))) * (height - bottom - top);
  const cursor = s("line", { y1: top, y2: height - bottom, stroke: "var(--quiet)", "stroke-dasharray": "3 3", visibility: "hidden" });
  const node = svg(width, height,
    label(0, 12, yTitle), label(width - right, height - 6, xTitle, { "text-anchor": "end" }),
    bands.map((band) => s("rect", { x: x(band.from), y: top, width: Math.max(0.5, x(band.to) - x(band.from)), height: height - bottom - top, fill: band.colour, "fill-opacity": 0.13 }, s("title", {}, band.name))),
    yMarks.map((v) => [
      s("line", { x1: left, x2: width - right, y1: y(v), y2: y(v), stroke: "var(--line)" }),
      label(left - 6, y(v) + 4, yText(v), { "text-anchor": "end" })]),
    fitting(xMarks ?? someTicks(ticks, x0, x1, Math.floor(width / 110)), x, xText).map((v) => [
      s("line", { x1: x(v), x2: x(v), y1: height - bottom, y2: height - bottom + 4, stroke: "var(--quiet)" }),
      label(x(v), height - bottom + 17, xText(v), isEnd(v) ? { x: width, "text-anchor": "end" } : { "text-anchor": "middle" })]),
    shown.map((one) => [
      s("path", { d: path(one.x, one.y, x, y), fill: "none", stroke: one.colour, "stroke-width": one.width ?? 2, "stroke-dasharray": one.dash, "stroke-dashoffset": one.shift, "stroke-linejoin": "round" },
        s("title", {}, one.name)),
      one.high ? one.x.map((v, i) => one.high[i] == null ? null : s("path", { d: `M${x(v) - 3},${y(one.high[i])}h6m-3,0V${y(one.low[i])}m-3,0h6`, stroke: one.colour, fill: "none" })) : null,
      one.marks || one.x.length === 1
        ? one.x.map((v, i) => one.y[i] == null ? null : s("circle", { cx: x(v), cy: y(one.y[i]), r: 3.2, fill: one.colour }))
        : null]),
    dots.map((dot) => s("circle", { cx: x(dot.x), cy: y(dot.y), r: 5, fill: "none", stroke: "var(--text)", "stroke-width": 1.6 }, s("title", {}, dot.name))),
    cursor);
  if (say) listen(node, cursor, shown, { x, xText, yText, xTitle, say, held });
  return node;
}

function listen(node, cursor, shown, { x, xText, yText, xTitle, say, held }) {
  node.setAttribute("tabindex", "0");
  node.setAttribute("class", "plot");
  const stops = [...new Set(shown.flatMap((one) => one.x))].sort((a, b) => a - b);
  let at = stops.length - 1;
  const nearest = (list, value) => {
    let best = 0;
    list.forEach((v, i) => { if (Math.abs(v - value) < Math.abs(list[best] - value)) best = i; });
    return best;
  };
  const show = () => {
    held.x = stops[at];
    cursor.setAttribute("x1", x(stops[at]));
    cursor.setAttribute("x2", x(stops[at]));
    cursor.setAttribute("visibility", "visible");
    say(`${xTitle} ${xText(stops[at])}: ` + shown.map((one) => `${one.name} ${yText(one.y[nearest(one.x, stops[at])])}`).join(" · "));
  };
  const hide = () => {
    if (held.redraws) return;  // the next drawing goes on with the place
    held.x = null;
    cursor.setAttribute("visibility", "hidden");
    say("");
  };
  node.addEventListener("pointermove", (event) => {
    const place = event.clientX - node.getBoundingClientRect().left;
    at = nearest(stops.map(x), place);
    show();
  });
  node.addEventListener("pointerleave", hide);
  node.addEventListener("blur", hide);
  node.addEventListener("focus", show);
  node.addEventListener("keydown", (event) => {
    const far = Math.max(1, Math.round(stops.length / 20));
    const move = { ArrowLeft: -1, ArrowRight: 1, PageDown: far, PageUp: -far, Home: -stops.length, End: stops.length }[event.key];
    if (move === undefined) return;
    event.preventDefault();
    at = Math.min(stops.length - 1, Math.max(0, at + move));
    show();
  });
  if (held.x === null) return;
  at = nearest(stops, held.x);
  show();
}

/// Draws vertical bars over whole numbers, parts on top of each other. `parts` are {name, colour, values}; `xText(i)` names a bar.
export function columns({ parts, width, height = 220, xTitle, yTitle, xText }) {
  const count = Math.max(1, ...parts.map((part) => part.values.length));
  const sums = Array.from({ length: count }, (_, i) => parts.reduce((sum, part) => sum + (part.values[i] ?? 0), 0));
  const most = Math.max(1, ...sums);
  const marks = ticks(0, most, 4);
  const left = Math.max(...marks.map((v) => widthOf(String(v)))) + 10;
  const [right, top, bottom] = [8, 22, 40];
  const step = (width - left - right) / count;
  const y = (v) => height - bottom - (v / most) * (height - bottom - top);
  const every = Math.max(1, Math.ceil((widthOf(xText(count - 1)) + 8) / step));
  return svg(width, height,
    label(0, 12, yTitle), label(width - right, height - 6, xTitle, { "text-anchor": "end" }),
    marks.map((v) => [s("line", { x1: left, x2: width - right, y1: y(v), y2: y(v), stroke: "var(--line)" }), label(left - 6, y(v) + 4, String(v), { "text-anchor": "end" })]),
    sums.map((_, i) => {
      let below = 0;
      return [parts.map((part) => {
        const value = part.values[i] ?? 0;
        if (value === 0) return null;
        const bar = s("rect", { x: left + i * step + 0.5, y: y(below + value), width: Math.max(1, step - 1), height: y(below) - y(below + value), fill: part.colour }, s("title", {}, `${part.name}: ${xText(i)} · ${value}`));
        below += value;
        return bar;
      }), i % every === 0 && (i === count - 1 || count - 1 - i >= every) || i === count - 1 ? label(left + (i + 0.5) * step, height - bottom + 17, xText(i), { "text-anchor": i === count - 1 && every > 1 ? "end" : "middle" }) : null];
    }));
}

/// Draws horizontal bars. `groups` are {name, bars: [{name, parts: [{value, colour, title}], mark, tick, from, to, text, thin}]}.
/// A thin bar belongs to the bar above it, and has no name. `mark` is a predicted value (a diamond), `tick` a measured one, `from` and `to` the ends of a whisker.
export function bars({ groups, width, scale, text, axisTicks = ticks }) {
  const all = groups.flatMap((group) => group.bars);
  const total = (bar) => bar.parts.reduce((sum, part) => sum + (part.value ?? 0), 0);
  const solid = Math.max(1e-12, ...all.map((bar) => Math.max(total(bar), bar.mark ?? 0, bar.tick ?? 0)));
  const most = scale ?? Math.min(Math.max(solid, ...all.map((bar) => bar.to ?? 0)), solid * 2);
  const left = Math.min(width * 0.36, 10 + Math.max(...all.map((bar) => widthOf(bar.name ?? ""))) / kNameRoom);
  const room = Math.max(...all.map((bar) => widthOf(bar.text ?? ""))) + 16;
  const right = Math.min(width * 0.4, room);
  const x = (v) => left + (Math.min(v, most) / most) * (width - left - right);
  const nodes = [];
  let y = 4;
  for (const group of groups) {
    if (group.name) {
      nodes.push(label(0, y + 14, cut(group.name, width), { fill: "var(--text)", "font-weight": 600, "font-size": 13 }));
      y += 20;
    }
    for (const bar of group.bars) {
      const [rowHeight, thick] = bar.thin ? [9, 6] : [22, 14];
      const middle = y + (bar.thin ? 2 : rowHeight / 2);
      if (bar.name) nodes.push(label(left - 8, middle + 4, cut(bar.name, (left - 8) * kNameRoom), { "text-anchor": "end" }));
      let from = 0;
      for (const part of bar.parts) {
        if (!part.value) continue;
        nodes.push(s("rect", { x: x(from), y: middle - thick / 2, width: Math.max(0.5, x(from + part.value) - x(from)), height: thick, fill: part.colour }, s("title", {}, part.title)));
        from += part.value;
      }
      if (bar.to !== undefined) {
        nodes.push(s("path", { d: `M${x(bar.from)},${middle}H${x(bar.to)}M${x(bar.from)},${middle - 4}v8` + (bar.to > most ? `m0,0M${x(most) - 5},${middle - 4}l5,4l-5,4` : `M${x(bar.to)},${middle - 4}v8`), stroke: "var(--text)", fill: "none", "stroke-width": 1.3 }));
      }
      if (bar.tick != null) nodes.push(s("line", { x1: x(bar.tick), x2: x(bar.tick), y1: middle - 10, y2: middle + 10, stroke: "var(--text)", "stroke-width": 2.5 }));
      if (bar.mark != null) {
        const at = x(bar.mark);
        nodes.push(s("path", { d: `M${at},${middle - 8}l5,8l-5,8l-5,-8z`, fill: "var(--back)", stroke: "var(--bad)", "stroke-width": 2 }, s("title", {}, bar.markTitle)));
      }
      if (bar.text) nodes.push(label(width - right + 12, middle + 4, cut(bar.text, right - 12)));
      y += rowHeight;
    }
    y += 8;
  }
  const marks = someTicks(axisTicks, 0, most, Math.floor((width - left - right) / 90));
  return svg(width, y + 22,
    marks.map((v) => [s("line", { x1: x(v), x2: x(v), y1: 0, y2: y, stroke: "var(--line)" }),
                      label(x(v), y + 15, text(v), { "text-anchor": "middle" })]),
    nodes);
}

/// Draws the rows' panels side by side, each at least `least` pixels wide, in as many lines as that takes. `panel(row, x, y,
/// width)` returns {nodes, height}.
export function panels(rows, width, least, panel) {
  const kSpace = 28;
  const count = Math.max(1, Math.floor((width + kSpace) / least));
  const each = Math.floor((width - (count - 1) * kSpace) / count);
  const nodes = [];
  let y = 0;
  for (let first = 0; first < rows.length; first += count) {
    const line = rows.slice(first, first + count).map((row, i) => panel(row, i * (each + kSpace), y, each));
    nodes.push(line.map((one) => one.nodes));
    y += Math.max(...line.map((one) => one.height));
  }
  return svg(width, y, nodes);
}
