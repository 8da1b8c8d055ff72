// The collectives of a scene that have a plan, and what a plan does to the sample values, round by round.

/// Returns {list, ofFrame, latest}: collectives as {plan, name, units, members, before, after}, where `before` and `after` are
/// the sample values by rank; the collective of a frame; and, by position, the last collective that has done something.
export function collectivesOf(scene) {
  const list = [];
  const ofFrame = [];
  const latest = [null];
  const byKey = new Map();
  const running = scene.processes.map(() => new Map());  // by process: group and call to a number in `list`
  const begin = (e, rank) => {
    const key = `${e.members} ${e.group} ${e.call}`;
    // After a loss the numbers of calls begin again: a rank joins the last collective of the key that lacks it.
    let number = byKey.get(key);
    if (number === undefined || list[number].ranks.has(rank)) {
      number = list.push({ plan: scene.plans?.[e.plan], name: e.name, units: e.units ?? null, members: e.members, before: [], after: [], ranks: new Set() }) - 1;
      byKey.set(key, number);
    }
    list[number].ranks.add(rank);
    list[number].before[rank] = e.values;
    running[e.p].set(`${e.group} ${e.call}`, number);
    return number;
  };
  scene.events.forEach((e) => {
    let number;
    if (e.e === "join") running[e.p].clear();
    else if (e.e === "start" && scene.plans?.[e.plan] && e.members) number = begin(e, e.members.indexOf(e.p));
    else if (e.e === "arrive") number = ofFrame[e.frame];
    else if ((e.e === "finish" || e.e === "send") && e.call !== undefined) number = running[e.p].get(`${e.group} ${e.call}`);
    if (e.e === "send") ofFrame[e.frame] = number;
    if (e.e === "finish" && number !== undefined) list[number].after[list[number].members.indexOf(e.p)] = e.values;
    latest.push(number ?? latest[latest.length - 1]);
  });
  return { list, ofFrame, latest };
}

const contains = (range, chunk) => range[0] <= chunk[0] && chunk[1] <= range[1];

/// A chunk in a rank: {ranks, value}; `ranks` are those whose values it contains, none: undefined; `value` null: not recorded.
function firstChunk(collective, rank, chunk, c) {
  const { plan, before } = collective;
  const isHere = plan.operation === "all_gather" ? (plan.parts?.[rank] ?? []).some((part) => contains(part, chunk))
    : plan.operation === "broadcast" ? rank === plan.root : true;
  return { ranks: isHere ? [rank] : [], value: isHere ? before[rank]?.[c] ?? null : null, kept: null };
}

const add = (a, b) => (a === null || b === null ? null : Math.fround(a + b));
const union = (a, b) => [...new Set([...a, ...b])].sort((x, y) => x - y);

/// Returns a chunk after a message with `source` from rank `from` has come to rank `to`; `join` adds two values.
function received(target, source, action, from, to, count, join) {
  if (action === "copy") return { ...source, kept: null };
  if (action === "reduce") return { ranks: union(target.ranks, source.ranks), value: join(target.value, source.value), kept: null };
  const kept = { ...(target.kept ?? { [to]: target.value }), [from]: source.value };
  const ranks = Object.keys(kept).map(Number).sort((a, b) => a - b);
  if (ranks.length < count) return { ...target, kept };
  return { ranks, value: ranks.map((rank) => kept[rank]).reduce((a, b) => join(a, b)), kept: null };
}

/// Returns the chunks by rank after each round: the first entry is before the collective, and a mean has one more entry, after
/// its division.
export function statesOfPlan(collective) {
  const { plan } = collective;
  const ranks = Array.from({ length: plan.ranks }, (_, rank) => rank);
  const join = [undefined, "sum", "mean"].includes(plan.reduction) ? add : () => null;  // other reductions: ranks alone
  const states = [ranks.map((rank) => plan.chunks.map((chunk, c) => firstChunk(collective, rank, chunk, c)))];
  for (const round of plan.rounds) {
    const was = states[states.length - 1];
    const now = was.map((chunks) => [...chunks]);
    for (const [from, to, first, end, action] of round) {
      plan.chunks.forEach((chunk, c) => {
        if (contains([first, end], chunk)) now[to][c] = received(now[to][c], was[from][c], action, from, to, plan.ranks, join);
      });
    }
    states.push(now);
  }
  if (plan.reduction === "mean") {
    states.push(states[states.length - 1].map((chunks) => chunks.map((one) =>
      one.ranks.length < plan.ranks || one.value === null ? one : { ...one, value: Math.fround(one.value / plan.ranks) })));
  }
  return states;
}

/// Returns whether the last state has the values that were recorded after the collective; null: none were recorded.
export function equalsRecorded(collective, last) {
  const pairs = collective.after.flatMap((values, rank) => (values ?? []).map((value, c) => [value, last[rank][c].value])).filter(([a, b]) => typeof a === "number" && b !== null);
  if (pairs.length === 0) return null;
  const most = Math.max(...pairs.flat().map(Math.abs), ...collective.before.flat().filter((one) => typeof one === "number").map(Math.abs));
  return pairs.every(([a, b]) => Math.abs(a - b) <= most * (collective.plan.type === "f32" ? 1e-5 : 2e-2));
}
