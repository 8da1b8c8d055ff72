// Names of processes in the page's language.

/// Returns the name of a process, such as "worker 2"; `t` has the words.
export function processName(t, name) {
  const found = /^(worker|server|stage) (\d+)$/.exec(name);
  if (found) return `${t[found[1]] ?? found[1]} ${found[2]}`;
  return name === "servers" ? t.servers : name;
}

/// Returns the field's name of an operation, such as "all-reduce".
export const operationName = (t, name) => t.operations[name] ?? name.replaceAll("_", "-");
