// The course of one or two scenes: the stops through which a reader goes, and the events of each scene that have happened
// at each stop. With two scenes every event of either is a stop; the scenes are aligned by phase, or by time.

/// Returns parts of two scenes that belong together: {from: [a, b], to: [a, b], start: [t, t], length: [t, t]}. A phase that
/// only one scene has, such as a repeated step, is a part in which the other scene stands still.
function partsOf(views) {
  const [a, b] = views.map((view) => view.index.phases);
  const pairs = [];
  let j = 0;
  a.forEach((phase, i) => {
    const found = b.findIndex((one, k) => k >= j && one.key === phase.key);
    for (; found >= 0 && j < found; ++j) pairs.push([null, j]);
    pairs.push([i, found >= 0 ? j++ : null]);
  });
  for (; j < b.length; ++j) pairs.push([null, j]);
  const now = [0, 0];
  return pairs.map((pair) => {
    const part = { from: [...now], to: [], start: [], length: [] };
    pair.forEach((k, side) => {
      const { events } = views[side].scene;
      const { phases, end } = views[side].index;
      const start = phases[k]?.t ?? 0;
      if (k !== null) now[side] = phases[k + 1]?.at ?? events.length;
      part.to[side] = now[side];
      part.start[side] = start;
      part.length[side] = (phases[k + 1]?.t ?? end) - start || 1;
    });
    return part;
  });
}

/// Lists the stops of a part: events in the order of the share of the part that has passed. `isJoint`: the last event of
/// both enters the next phase, and is one stop.
function stopsOf(views, part, isJoint, stops) {
  const at = [...part.from];
  const both = isJoint && part.to.every((to, side) => to > part.from[side]);
  const last = part.to.map((to) => (both ? to - 1 : to));
  const share = (side) => (at[side] >= last[side] ? Infinity : (views[side].scene.events[at[side]].t - part.start[side]) / part.length[side]);
  while (at[0] < last[0] || at[1] < last[1]) {
    ++at[share(1) < share(0) ? 1 : 0];
    stops.push([...at]);
  }
  if (both) stops.push([...part.to]);
}

/// Returns {count, placesAt, first}: `placesAt` returns each scene's position at a stop; `first` returns the first stop at
/// which a scene has reached a position.
export function makeCourse(views, byPhase) {
  if (views.length === 1) return { count: views[0].scene.events.length, placesAt: (stop) => [stop], first: (_, position) => Math.min(position, views[0].scene.events.length) };
  const stops = [[0, 0]];
  const whole = { from: [0, 0], to: views.map((view) => view.scene.events.length), start: [0, 0], length: [1, 1] };
  const parts = byPhase ? partsOf(views) : [whole];
  parts.forEach((part, k) => stopsOf(views, part, k + 1 < parts.length, stops));
  const first = (side, position) => {
    let low = 0;
    let high = stops.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (stops[middle][side] >= position) high = middle;
      else low = middle + 1;
    }
    return low;
  };
  return { count: stops.length - 1, placesAt: (stop) => stops[stop], first };
}
