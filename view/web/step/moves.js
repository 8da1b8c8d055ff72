// Ways through a scene: to the next or previous event, message, phase or step.

import { phaseAt } from "./phases.js";

const isMessage = (e) => (e.e === "send" || e.e === "arrive") && e.bytes !== 0;

function phaseStarts(view, unit) {
  const { phases } = view.index;
  return phases.filter((one, k) => unit === "phase" || k === 0 || one.phase === "after" || one.step !== phases[k - 1].step || phases[k - 1].phase === "start" ||
    (one.phase === "forward" && phases[k - 1].phase === "update"));
}

/// Returns the position one `unit` after `at`, or before it: `way` is 1 or -1.
export function move(view, at, unit, way) {
  const count = view.scene.events.length;
  if (unit === "event") return Math.max(0, Math.min(count, at + way));
  if (unit === "message") {
    let i = at + way;
    while (i > 0 && i < count && !isMessage(view.scene.events[i - 1])) i += way;
    return Math.max(0, Math.min(count, i));
  }
  const starts = phaseStarts(view, unit);
  if (way > 0) return starts[phaseAt(starts, at) + 1]?.at ?? count;
  return at === 0 ? 0 : starts[phaseAt(starts, at - 1)].at;
}
