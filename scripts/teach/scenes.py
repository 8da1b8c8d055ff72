"""Reads the scenes that `psring step --out FILE.json` writes (docs/scene.md)."""

import json
import pathlib


def scenes_of(path):
    document = json.loads(pathlib.Path(path).read_text())
    if document.get("format") != "psring-scene":
        raise ValueError(f"{path}: expected a scene, as psring step --out FILE.json writes it")
    return document["scenes"]


def workers_of(scene):
    return [place for place, process in enumerate(scene["processes"]) if process["role"] == "worker"]


def reports_of(scene, place):
    """What a worker reports at the end of each of its steps. Without backup workers these are all steps."""
    return [event for event in scene["events"] if event["p"] == place and event["e"] == "report"]


def skipped_of(scene, skip=None):
    """The number of first steps that the times of a scene leave out: `skip`, or half of them. The first steps have the start:
    workers that begin together, links that are free."""
    skip = scene["steps"] // 2 if skip is None else skip
    if not 0 <= skip < scene["steps"]:
        raise ValueError(f"--skip {skip}: '{scene['label']}' has {scene['steps']} steps, and one has to remain")
    return skip


def figures_of(scene, skip=None):
    """The figures of one scene: time, exposed time and bytes of a step, and the peak of memory, of the worker that has most. Times
    are means over the steps after the first `skip` (skipped_of) that the worker makes. Bytes are the mean over all steps, because a gather of parameters
    may end in the next step."""
    skip = skipped_of(scene, skip)
    most = {"step_ms": 0.0, "exposed_ms": 0.0, "sent_bytes": 0, "peak_bytes": 0}
    for place in workers_of(scene):
        reports = [report for report in reports_of(scene, place) if report["step"] >= skip]
        if not reports:
            continue  # too late for all of them
        begins = [e["t"] for e in scene["events"] if e["p"] == place and e["e"] == "begin" and e["name"] == "step"]
        begin = max((r["t"] for r in reports_of(scene, place) if r["step"] < skip), default=begins[0])
        step = (reports[-1]["t"] - begin) / len(reports)
        exposed = sum(report["exposed_ns"] for report in reports) / len(reports)
        sent = scene["processes"][place]["sent"]
        peak = max((sum(e["bytes"]) for e in scene["events"] if e["p"] == place and e["e"] == "memory"), default=0)
        found = {"step_ms": step / 1e6, "exposed_ms": exposed / 1e6, "sent_bytes": round(sum(sent) / scene["steps"]), "peak_bytes": peak}
        most = {key: max(value, found[key]) for key, value in most.items()}
    return most


def steps_used(scenes, skip=None):
    """A line for each number of steps among the scenes: which steps the times are means of."""
    used = {}
    for scene in scenes:
        first = skipped_of(scene, skip)
        line = f"times over {scene['steps'] - first} of {scene['steps']} steps, {first + 1} to {scene['steps']}"
        used.setdefault(line, []).append(scene["label"])
    return [line if len(used) == 1 else f"{line}: {', '.join(labels)}" for line, labels in used.items()]


def losses_of(scene):
    """The loss of each worker's last step."""
    last = {e["p"]: e["loss"] for e in scene["events"] if e["e"] == "report"}
    return [last[place] for place in workers_of(scene)]


def kills_of(scene):
    """A line for each run in which a process was killed: how the job ended."""
    for name, run in scene.get("runs", {}).items():
        if "error" in run:
            yield f"  {name}: {run['error']}"
        else:
            same = "the same bits" if run["model_sha256"] == scene["model_sha256"] else "other bits"
            later = (run["duration_ns"] - scene["duration_ns"]) / 1e6
            yield f"  {name}: {same}, {later:.3f} ms later"


def table_of(scenes, loss=False, skip=None):
    rows = [("scene", "ms/step", "exposed ms", "sent bytes/step", "peak bytes", *(["loss"] if loss else []))]
    for scene in scenes:
        figures = figures_of(scene, skip)
        rows.append((scene["label"], f"{figures['step_ms']:.3f}", f"{figures['exposed_ms']:.3f}",
                     str(figures["sent_bytes"]), str(figures["peak_bytes"]),
                     *([f"{sum(losses_of(scene)) / len(losses_of(scene)):.3f}"] if loss else [])))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [row[0].ljust(widths[0]) + "".join("  " + cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))
             for row in rows]
    text = [*steps_used(scenes, skip), lines[0]]
    for line, scene in zip(lines[1:], scenes):
        text += [line, *kills_of(scene)]
    return "\n".join(line.rstrip() for line in text)
