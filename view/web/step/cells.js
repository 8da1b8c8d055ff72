// A cell: one unit in one process. It says which parameters, gradients and optimizer state the process holds, and how
// many updates they contain.

const kOptimizer = 2;  // the category's place in an event's bytes

/// Returns the process's states from the scene's ownership, and its share of a unit: {parameters, gradients, optimizer,
/// parts, place, isStateless}; `isStateless`: the optimizer, such as sgd, has no state. A state is whole, range, range+passing, passing or none.
export function baseOf(scene, p) {
  const process = scene.processes[p];
  const own = scene.ownership ?? {};
  const isWorker = process.role === "worker";
  const other = own.worker ? "none" : "whole";  // servers that have rows of tables alone; or a scene without ownership
  const states = (isWorker ? own.worker : own.server) ?? { parameters: other, gradients: other, optimizer: other };
  if (!isWorker && own.shares) {  // of different sizes: as if all were as large as this one
    const parts = Math.round(100 / own.shares[process.rank]) / 100;
    const before = own.shares.slice(0, process.rank).reduce((sum, each) => sum + each, 0);
    return { ...states, parts, place: before * parts };
  }
  const parts = Math.max(1, (isWorker ? own.parts : own.servers) ?? 1);
  const booked = scene.events.filter((e) => e.e === "memory" && e.p === p);
  const isStateless = booked.length > 0 && !booked.some((e) => e.bytes[kOptimizer] > 0);
  // In a mesh, a tensor rank has a slice of each unit of its stage, and the owners of a slice are the copies of the model.
  const { tensor, pipeline } = own.mesh ?? { tensor: 1, pipeline: 1 };
  return { ...states, parts, place: Math.floor(process.rank / (tensor * pipeline)) % parts, isStateless, slices: tensor, slice: process.rank % tensor };
}

/// Returns the same for a table: the servers own its rows, or the process that is alone; a worker has rows of its batch for
/// a step.
export function tableBaseOf(scene, p) {
  const process = scene.processes[p];
  const servers = scene.processes.filter((one) => one.role === "server").length;
  const state = process.role !== "worker" ? "range" : servers > 0 ? "batch" : "whole";
  return { ...baseOf(scene, p), parameters: state, gradients: state === "batch" ? "batch" : "none", optimizer: state === "batch" ? "none" : state,
           parts: Math.max(1, servers), place: process.rank % Math.max(1, servers), slices: 1, slice: 0 };
}

const unitsOf = (e, count) => {
  if (e.units) return Array.from({ length: e.units[1] - e.units[0] }, (_, k) => e.units[0] + k);
  return e.unit !== undefined ? [e.unit] : Array.from({ length: count }, (_, k) => k);
};
// What names no unit is about all units, and about no table.
const cellsOf = (state, e) => unitsOf(e, state.cells[e.p].length).map((unit) => state.cells[e.p][unit]).filter((cell) => cell && !cell.table);

export function onJoin(state, e) {
  for (const cell of state.cells[e.p].filter(Boolean)) Object.assign(cell, { parameters: "base", gradient: "empty", held: false, pushes: 0, added: 0, from: {} });
  state.processes[e.p].fresh = true;  // its first step tells how many updates its values contain
}

export function onStep(view, state, e) {
  const counts = view.bases[e.p].optimizer !== "none" && state.processes[e.p].fresh;
  for (const cell of state.cells[e.p].filter(Boolean)) {
    cell.gradient = "empty";
    if (counts) cell.updates = cell.version = e.step;
  }
  state.processes[e.p].fresh = false;
}

export function onBackward(state, e) {
  for (const cell of cellsOf(state, e)) cell.gradient = "computing";
}

export function onGradient(state, e) {
  for (const cell of cellsOf(state, e)) cell.gradient = e.state === "averaged" ? "averaged" : "complete";
}

/// A server adds a worker's gradient up.
export function onAdd(state, e) {
  for (const cell of cellsOf(state, e)) ++cell.added;
}

/// The optimizer was applied to the gradients that a server has added up; others wait for the next update. Parameters that are whole while the owner updates one range follow with the all-gather.
export function onUpdate(view, state, e) {
  const base = view.bases[e.p];
  for (const cell of cellsOf(state, e)) {
    ++cell.updates;
    cell.pushes = Math.max(0, cell.pushes - cell.added);
    cell.added = 0;
    if (base.parts === 1 || base.parameters !== "whole") cell.version = cell.updates;
  }
}

export function onHold(state, e) {
  for (const cell of cellsOf(state, e)) {
    if (e.values === "parameters") cell.parameters = "arriving";
    else cell.held = true;
  }
}

export function onDrop(state, e) {
  for (const cell of cellsOf(state, e)) {
    if (e.values === "parameters") cell.parameters = "base";
    else cell.held = false;
  }
}

export function onFinish(view, state, e) {
  if (!["all_gather", "pull", "push_pull"].includes(e.name) || !e.units) return;
  for (const cell of cellsOf(state, e)) {
    if (cell.parameters === "arriving") cell.parameters = "whole";
    if (e.name === "all_gather") cell.version = cell.updates;
  }
}

/// A server answers with values: they contain as many updates as the frame's version says.
export function onServerSend(state, frame) {
  const cell = state.cells[frame.from][frame.units[0]];
  if (!cell || frame.version <= cell.version) return;
  cell.version = cell.updates = frame.version;
  cell.pushes = 0;
}

/// Values of a server arrived: the unit's version is that of its oldest range.
export function onValues(view, state, frame) {
  const cell = state.cells[frame.to][frame.units[0]];
  if (!cell || view.bases[frame.to].optimizer !== "none") return;
  cell.from[frame.from] = frame.version;
  cell.version = Math.min(...Object.values(cell.from));
}

/// Rows of a server arrived, one frame of several: they are as new as the frame says.
export function onRows(state, frame) {
  const cell = state.cells[frame.to][frame.units[0]];
  cell.parameters = "whole";
  cell.version = Math.max(cell.version, frame.version);
}

const kBar = { whole: "whole", range: "part", "range+passing": "part", passing: "none", none: "none", batch: "batch" };

/// Returns the bars of a cell: for each of parameters, gradients and optimizer state {extent: whole, part or none; look;
/// version}.
export function barsOf(base, cell, trained) {
  const parameters = cell.parameters === "base" ? { extent: kBar[base.parameters], look: "full" }
    : { extent: cell.table ? kBar[base.parameters] : "whole", look: cell.parameters === "arriving" ? "arriving" : "full" };
  const gradients = { extent: !trained ? "none" : cell.held ? "whole" : kBar[base.gradients], look: cell.gradient };
  const optimizer = { extent: trained && !base.isStateless ? kBar[base.optimizer] : "none", look: "full" };
  return { parameters: { ...parameters, version: cell.version }, gradients: { ...gradients, version: cell.version }, optimizer: { ...optimizer, version: cell.updates } };
}
