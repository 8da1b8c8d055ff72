// Opens a document from a file that the reader picks or drops: a recorded scene (.json), or a page that holds one.

const kVersion = 1;

function documentIn(text) {
  const embedded = /<script type="application\/json" id="data">(.*?)<\/script>/s.exec(text);
  return JSON.parse(embedded ? embedded[1] : text);
}

const isScene = (one) => [one?.processes, one?.units, one?.events].every(Array.isArray) && one.processes.length > 0 &&
  one.events.every((e) => typeof e?.t === "number" && e.p >= 0 && e.p < one.processes.length);

/// Returns {doc} or {error}: one line that says why the text is no document.
function read(t, name, text) {
  let doc = null;
  try {
    doc = documentIn(text);
  } catch {
    return { error: t.notJson(name) };
  }
  if (doc?.format !== "psring-scene") return { error: t.notScene(name) };
  if (!(doc.version <= kVersion)) return { error: t.newerScene(name, String(doc.version)) };
  if (!Array.isArray(doc.scenes) || doc.scenes.length === 0 || !doc.scenes.every(isScene)) return { error: t.brokenScene(name) };
  return { doc };
}

/// Reads a file, and calls `done` with {doc} or {error}.
export async function openFile(t, file, done) {
  let text = "";
  try {
    text = await file.text();
  } catch {
    return done({ error: t.unreadable(file.name) });
  }
  return done(read(t, file.name, text));
}

/// Accepts files that are dropped anywhere on the page.
export function listenToDrops(open) {
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    if (event.dataTransfer?.files.length) open(event.dataTransfer.files[0]);
  });
}
