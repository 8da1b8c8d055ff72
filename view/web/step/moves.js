// Ways through a course: to the next or previous event, message, phase or step of either scene.

import { phaseAt } from "./phases.js";

const isMessage = (e) => (e.e === "send" || e.e === "arrive") && e.bytes !== 0;

function phaseStarts(view, unit) {
  const { phases } = view.index;
  return phases.filter((one, k) => unit === "phase" || k === 0 || one.phase === "after" || one.step !== phases[k - 1].step || phases[k - 1].phase === "start" ||
    (one.phase === "forward" && phases[k - 1].phase === "update"));
}

/// A scene's event has happened between the stops before and at `stop`, and is a message.
function bringsMessage(views, course, stop) {
  const before = course.placesAt(stop - 1);
  return course.placesAt(stop).some((place, side) => place > before[side] && isMessage(views[side].scene.events[place - 1]));
}

/// Returns the stop one `unit` after the stop `at`, or before it: `way` is 1 or -1.
export function move(views, course, at, unit, way) {
  const within = (stop) => Math.max(0, Math.min(course.count, stop));
  if (unit === "event") return within(at + way);
  if (unit === "message") {
    let stop = at + way;
    while (stop > 0 && stop < course.count && !bringsMessage(views, course, stop)) stop += way;
    return within(stop);
  }
  const places = course.placesAt(at);
  const next = views.map((view, side) => {
    const starts = phaseStarts(view, unit);
    if (way > 0) return course.first(side, starts[phaseAt(starts, places[side]) + 1]?.at ?? Infinity);
    return places[side] === 0 ? 0 : course.first(side, starts[phaseAt(starts, places[side] - 1)].at);
  });
  return way > 0 ? Math.min(...next) : Math.max(...next.filter((stop) => stop < at), 0);
}
