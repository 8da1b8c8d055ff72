// The connection to psring: snapshots as server-sent events, each of them whole. The browser reconnects by itself; it gives
// up when the server answers with an error, and then this code asks what the error is.

const kRetryMs = 3000;

const kLists = ["evaluations", "workers", "servers", "links", "recoveries"];
const kColumns = ["step", "time_s", "loss", "samples_per_second", "step_s", "exposed_s", "staleness"];

/// Makes empty lists of those that the run does not record, which are null.
function complete(snapshot) {
  for (const name of kLists) snapshot[name] ??= [];
  snapshot.series ??= {};
  for (const name of kColumns) snapshot.series[name] ??= [];
  return snapshot;
}

/// Calls `onSnapshot(snapshot)` for every snapshot, and `onStatus(status)` when the status changes: "connecting", "open",
/// "lost" (tries again), "crowded" (too many viewers; asks for single snapshots), "refused" (the token is wrong; does not try
/// again) or "unreadable" (not a snapshot of this schema).
export function connect({ token, onSnapshot, onStatus }) {
  const query = `token=${encodeURIComponent(token)}`;
  let status = "";
  const say = (now) => {
    if (status !== now) onStatus((status = now));
  };
  const read = (text) => {
    let snapshot = null;
    try {
      snapshot = JSON.parse(text);
    } catch {
      // It is reported below.
    }
    if (snapshot?.schema === 1) onSnapshot(complete(snapshot));
    return snapshot?.schema === 1;
  };
  const ask = async () => {
    let now = "lost";
    try {
      const answer = await fetch(`state?${query}`, { cache: "no-store" });
      if (answer.status === 401 || answer.status === 403) return say("refused");
      if (answer.ok && read(await answer.text())) now = "crowded";
    } catch {
      // The server is away.
    }
    say(now);
    setTimeout(open, kRetryMs);
  };
  function open() {
    const source = new EventSource(`events?${query}`);
    source.addEventListener("state", (event) => say(read(event.data) ? "open" : "unreadable"));
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) ask();
      else say("lost");
    };
  }
  say("connecting");
  open();
}
