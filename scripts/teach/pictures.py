"""The pictures of the lessons, drawn from what psring recorded. Each function takes a language, a title and the words of the
lesson's comment, and returns SVG; paths are relative to the folder in which the lesson's commands ran."""

import csv
import json
import re

from teach.scenes import figures_of, reports_of, scenes_of, workers_of
from teach.svg import COLOURS, Drawing

LEFT, RIGHT = 150, 20
WIDTH = 820
CATEGORIES = ("parameters", "gradients", "optimizer", "activations", "communication")


def spans_of(scene, place, shown=("forward", "backward", "update", "wait", "acquire", "acquire rows")):
    """Yields (name, begin, end) of a worker's activities that the pictures show."""
    open_spans = []
    for event in scene["events"]:
        if event["p"] != place or event["e"] not in ("begin", "end"):
            continue
        if event["e"] == "begin":
            open_spans.append((event["name"], event["t"]))
        else:
            name, begin = open_spans.pop()
            if name in shown:
                yield "wait" if name.startswith("acquire") else name, begin, event["t"]  # an acquire that takes time waits


def transfers_of(scene, place):
    """Yields (begin, end) of a worker's collectives and pushes in flight."""
    begun = {}
    for event in scene["events"]:
        if event["p"] != place or event["e"] not in ("start", "finish") or event["name"] == "barrier":
            continue
        key = (event.get("group"), event.get("call"), event["name"], tuple(event.get("units", ())))
        if event["e"] == "start":
            begun[key] = event["t"]
        elif key in begun:
            yield begun.pop(key), event["t"]


def last_step(scene):
    """The begin and the end of the last step, over all workers."""
    places = workers_of(scene)
    begins = [e["t"] for e in scene["events"] if e["p"] in places and e["e"] == "begin" and e["name"] == "step"
              and e["step"] == scene["steps"] - 1]
    ends = [e["t"] for e in scene["events"] if e["p"] in places and e["e"] == "report" and e["step"] == scene["steps"] - 1]
    return min(begins), max(ends)


def timeline(language, title, path, *numbers):
    """The last step of worker 0 in each scene: its activities, and the transfers in flight below."""
    scenes = scenes_of(path)
    scenes = [scenes[int(number)] for number in numbers] if numbers else scenes
    longest = max(end - begin for begin, end in map(last_step, scenes))
    scale = (WIDTH - LEFT - RIGHT) / longest
    drawing = Drawing(WIDTH, 50 + 52 * len(scenes), language, title)
    for row, scene in enumerate(scenes):
        begin, end = last_step(scene)
        y = 16 + 52 * row
        drawing.label(LEFT - 8, y + 18, scene["label"])
        place = workers_of(scene)[0]
        for name, start, stop in spans_of(scene, place):
            if stop > begin and start < end:
                drawing.box(LEFT + (max(start, begin) - begin) * scale, y, (min(stop, end) - max(start, begin)) * scale, 22,
                            COLOURS[name], f"{name} {(stop - start) / 1e6:.3f} ms")
        for start, stop in transfers_of(scene, place):
            if stop > begin and start < end:
                drawing.box(LEFT + (max(start, begin) - begin) * scale, y + 25, (min(stop, end) - max(start, begin)) * scale, 8,
                            COLOURS["transfer"])
        drawing.text(LEFT + (end - begin) * scale - 2, y + 46, f"{(end - begin) / 1e6:.2f} {drawing.say('ms')}", 11, "end")
    drawing.legend(LEFT, 36 + 52 * len(scenes), ("forward", "backward", "update", "wait", "transfer"))
    return drawing.svg()


def memory(language, title, path, *numbers):
    """The memory of worker 0 over the last step, by category, in one panel for each scene."""
    scenes = scenes_of(path)
    scenes = [scenes[int(number)] for number in numbers] if numbers else scenes
    panels = []
    for scene in scenes:
        place = workers_of(scene)[0]
        begin, end = last_step(scene)
        points, now = [], [0] * len(CATEGORIES)
        for event in scene["events"]:
            if event["p"] != place or event["e"] != "memory" or event["t"] > end:
                continue
            now = event["bytes"]
            points.append((max(event["t"], begin), now))
        points = [point for i, point in enumerate(points) if i + 1 == len(points) or points[i + 1][0] > begin]
        panels.append((scene["label"], begin, end, points))
    most = max(sum(held) for _, _, _, points in panels for _, held in points)
    height = 110
    drawing = Drawing(WIDTH, 40 + (height + 24) * len(panels), language, title)
    for row, (label, begin, end, points) in enumerate(panels):
        base = 14 + height + (height + 24) * row
        scale = (WIDTH - LEFT - RIGHT) / (end - begin)
        drawing.label(LEFT - 8, base - height / 2, label)
        peak = max(sum(held) for _, held in points)
        for i, (time, held) in enumerate(points):
            until = points[i + 1][0] if i + 1 < len(points) else end
            y = base
            for name, size in zip(CATEGORIES, held):
                bar = size / most * (height - 14)
                y -= bar
                if size and until > time:
                    drawing.box(LEFT + (time - begin) * scale, y, (until - time) * scale + 0.3, bar, COLOURS[name])
        drawing.line(LEFT, base, WIDTH - RIGHT, base)
        top = base - peak / most * (height - 14)
        drawing.line(LEFT, top, WIDTH - RIGHT, top, "#e45756")
        drawing.text(WIDTH - RIGHT, top - 3, f"{peak / 1024:.0f} KiB", 11, "end")
    drawing.legend(LEFT, 28 + (height + 24) * len(panels), CATEGORIES)
    return drawing.svg()


def bars(language, title, path):
    """The memory of a worker by category, from `psring memory --json`."""
    with open(path) as file:
        jobs = json.load(file)
    return memory_bars(language, title, [(job["strategy"], job["worker"]) for job in jobs])


def peaks(language, title, path):
    """The peak memory of worker 0 by category, from the memory.csv of `psring compare`."""
    jobs = {}
    with open(path) as file:
        for row in csv.DictReader(file):
            if row["process"] == "worker 0":
                jobs.setdefault(row["strategy"], {})[row["category"]] = int(row["peak"])
    return memory_bars(language, title, list(jobs.items()))


def memory_bars(language, title, jobs):
    """One bar for each pair of a label and the bytes by category."""
    totals = [sum(job.get(name, 0) for name in CATEGORIES) for _, job in jobs]
    drawing = Drawing(WIDTH, 40 + 30 * len(jobs), language, title)
    for row, ((label, job), total) in enumerate(zip(jobs, totals)):
        x, y = LEFT, 10 + 30 * row
        drawing.label(LEFT - 8, y + 15, label)
        for name in CATEGORIES:
            size = job.get(name, 0)
            width = size / max(totals) * (WIDTH - LEFT - RIGHT - 70)
            if size:
                drawing.box(x, y, width, 20, COLOURS[name], f"{name} {size}")
            x += width
        drawing.text(x + 5, y + 15, f"{total / 2**20:.2f} MiB", 11)
    drawing.legend(LEFT, 28 + 30 * len(jobs), CATEGORIES)
    return drawing.svg()


def inference(language, title, *paths):
    """The memory of inference, from files of `psring memory --inference --json`; a row is named after its file."""
    jobs = []
    for path in paths:
        with open(path) as file:
            jobs.append((path.removesuffix(".json").replace("-", " "), json.load(file)))
    most = max(job["total"] for _, job in jobs)
    parts = (("weights", "parameters"), ("KV cache", "communication"), ("overhead", "wait"))
    drawing = Drawing(WIDTH, 40 + 30 * len(jobs), language, title)
    for row, (name, job) in enumerate(jobs):
        x, y = LEFT, 10 + 30 * row
        drawing.label(LEFT - 8, y + 15, name)
        for part, colour in parts:
            width = job[part]["bytes"] / most * (WIDTH - LEFT - RIGHT - 70)
            drawing.box(x, y, width, 20, COLOURS[colour], f"{part} {job[part]['bytes']}")
            x += width
        drawing.text(x + 5, y + 15, f"{job['total'] / 2**30:.2f} GiB", 11)
    x = LEFT
    for part, colour in parts:
        drawing.box(x, 19 + 30 * len(jobs), 10, 10, COLOURS[colour])
        drawing.text(x + 14, 28 + 30 * len(jobs), drawing.say(part))
        x += 110
    return drawing.svg()


def curve(language, title, path):
    """Times of a step over the scenes of a file. One strategy: also the exposed time. Several: a line for each, over the same
    values of the option that differs."""
    lines = {}
    for scene in scenes_of(path):
        name, _, value = scene["label"].partition(" ")
        lines.setdefault(name, []).append((value.split("=")[-1], figures_of(scene)))
    most = max(each["step_ms"] for line in lines.values() for _, each in line)
    height = 220
    drawing = Drawing(WIDTH, height + 70, language, title)
    first = next(iter(lines.values()))
    step = (WIDTH - LEFT - RIGHT) / max(1, len(first) - 1)
    for part in range(5):
        y = 20 + height - part * height / 4
        drawing.line(LEFT - 20, y, WIDTH - RIGHT, y, "#e4e4e4")
        drawing.text(LEFT - 26, y + 4, f"{most * part / 4:.1f} {drawing.say('ms')}", 11, "end")
    curves = [(name, "step_ms", line) for name, line in lines.items()]
    if len(lines) == 1:
        curves = [(drawing.say("step"), "step_ms", first), (drawing.say("exposed"), "exposed_ms", first)]
    for number, (name, key, line) in enumerate(curves):
        colour = COLOURS[("line", "line2", "line3", "communication")[number]]
        drawing.path([(LEFT + i * step, 20 + height - each[key] / most * height) for i, (_, each) in enumerate(line)], colour)
        drawing.box(LEFT + 150 * number, height + 51, 10, 10, colour)
        drawing.text(LEFT + 14 + 150 * number, height + 60, name)
    for i, (value, _) in enumerate(first):
        drawing.text(LEFT + i * step, height + 38, value, 11, "middle")
    return drawing.svg()


def lanes(language, title, path, *numbers):
    """All workers over the whole job, in each scene: what they compute, and when they wait."""
    scenes = scenes_of(path)
    scenes = [scenes[int(number)] for number in numbers] if numbers else scenes
    ends = [max(report["t"] for place in workers_of(scene) for report in reports_of(scene, place)) for scene in scenes]
    scale = (WIDTH - LEFT - RIGHT) / max(ends)
    rows = sum(len(workers_of(scene)) for scene in scenes)
    drawing = Drawing(WIDTH, 40 + 20 * rows + 22 * len(scenes), language, title)
    y = 8
    for scene in scenes:
        drawing.text(LEFT, y + 10, scene["label"], weight="bold")
        y += 18
        for place in workers_of(scene):
            drawing.text(LEFT - 8, y + 12, scene["processes"][place]["name"], 11, "end")
            # A fault pauses a worker between its layers: within a step it does nothing that has a name.
            for _, begin, end in spans_of(scene, place, ("step",)):
                drawing.box(LEFT + begin * scale, y, (end - begin) * scale, 15, COLOURS["paused"])
            for name, begin, end in spans_of(scene, place):
                drawing.box(LEFT + begin * scale, y, (end - begin) * scale, 15, COLOURS[name])
            y += 20
        y += 4
    drawing.legend(LEFT, y + 16, ("forward", "backward", "wait", "paused"))
    return drawing.svg()


def rounds(language, title, path, number="0"):
    """The rounds of the first collective of a scene: ranks as columns, chunks as cells, messages as arrows."""
    scene = scenes_of(path)[int(number)]
    plan = scene["plans"][next(e["plan"] for e in scene["events"] if e["e"] == "start" and "plan" in e
                               and e["name"] in ("all_reduce", "reduce_scatter", "all_gather"))]
    ranks, chunks = plan["ranks"], plan["chunks"]
    holds = [[{rank} for _ in chunks] for rank in range(ranks)]
    cell, gap = 26, 40
    rank_width = cell * len(chunks) + gap
    rows = len(plan["rounds"]) + 1
    drawing = Drawing(LEFT + ranks * rank_width, 30 + rows * 58, language, title)
    for rank in range(ranks):
        drawing.text(LEFT + rank * rank_width + cell * len(chunks) / 2, 16, f"rank {rank}", anchor="middle", weight="bold")
    for row in range(rows):
        y = 26 + 58 * row
        if row:
            before = [[set(held) for held in of_rank] for of_rank in holds]
            drawing.text(8, y + 17, drawing.say("round").format(row))
            for sender, receiver, begin, end, action in plan["rounds"][row - 1]:
                for k, (first, last) in enumerate(chunks):
                    if begin <= first and last <= end:
                        source = before[sender][k]
                        holds[receiver][k] = set(source) if action == "copy" else holds[receiver][k] | source
                        drawing.line(LEFT + sender * rank_width + (k + 0.5) * cell, y - 32,
                                     LEFT + receiver * rank_width + (k + 0.5) * cell, y - 2, "#555", 1, True)
        for rank in range(ranks):
            for k in range(len(chunks)):
                x = LEFT + rank * rank_width + k * cell
                share = len(holds[rank][k]) / ranks
                drawing.box(x, y, cell - 2, 24, COLOURS["update"] if share == 1 else
                            f"rgb({int(232 - 90 * share)},{int(238 - 60 * share)},{int(246 - 20 * share)})",
                            "+".join(map(str, sorted(holds[rank][k]))))
                drawing.text(x + cell / 2 - 1, y + 16, str(len(holds[rank][k])), 11, "middle")
    return drawing.svg()


def passes_of(path):
    """The passes of each stage in their order, as pairs of kind and micro-batch, from what `psring train --pipeline` prints."""
    with open(path) as file:
        rows = re.findall(r"(?m)^stage \d+: (.+)$", file.read())
    if not rows:
        raise ValueError(f"{path}: no line 'stage 0: F0 ...', as psring train --pipeline prints it")
    return [[(word[0], int(word[1:])) for word in row.split()] for row in rows]


def begins_of(stages, cost):
    """When each pass begins, by stage: after the stage's pass before it, and after the pass that it needs of a neighbour."""
    ended, begins, free = {}, [{} for _ in stages], [0] * len(stages)
    while any(len(begun) < len(order) for begun, order in zip(begins, stages)):
        before = len(ended)
        for stage, order in enumerate(stages):
            for kind, number in order[len(begins[stage]):]:
                neighbour = stage - 1 if kind == "F" else stage + 1
                needed = (kind, number, neighbour)
                if 0 <= neighbour < len(stages) and needed not in ended:
                    break
                begins[stage][kind, number] = max(free[stage], ended.get(needed, 0))
                free[stage] = ended[kind, number, stage] = begins[stage][kind, number] + cost[kind]
        if len(ended) == before:
            raise ValueError("the stages wait for each other: the order of their passes has no end")
    return begins


def pipeline(language, title, *paths):
    """The passes of each stage, in the order that a run has printed, if backward takes twice as long as forward, all stages are
    equal, and messages take no time. Each file is named after its schedule."""
    cost = {"F": 1, "B": 2}
    runs = []
    for path in paths:
        stages = passes_of(path)
        begins = begins_of(stages, cost)
        runs.append((path.rpartition("/")[2].removesuffix(".txt"), stages, begins,
                     max(begin + cost[kind] for begun in begins for (kind, _), begin in begun.items())))
    scale = (WIDTH - LEFT - RIGHT) / max(end for *_, end in runs)
    drawing = Drawing(WIDTH, 40 + sum(26 + 26 * len(stages) for _, stages, *_ in runs), language, title)
    y = 6
    for name, stages, begins, end in runs:
        busy = sum(cost[kind] for kind, _ in stages[0])
        drawing.text(LEFT, y + 12, drawing.say("idle").format(name, 100 * (1 - busy / end)), weight="bold")
        y += 20
        for stage, begun in enumerate(begins):
            drawing.text(LEFT - 8, y + 15, drawing.say("stage").format(stage), anchor="end")
            drawing.box(LEFT, y, end * scale, 22, COLOURS["wait"])
            for (kind, number), begin in begun.items():
                drawing.box(LEFT + begin * scale, y, cost[kind] * scale - 1, 22, COLOURS["forward" if kind == "F" else "backward"],
                            f"{kind}{number}")
                drawing.text(LEFT + (begin + cost[kind] / 2) * scale - 0.5, y + 15, str(number), 11, "middle")
            y += 26
        y += 6
    drawing.legend(LEFT, y + 16, ("forward", "backward", "wait"))
    return drawing.svg()


KINDS = {"timeline": timeline, "memory": memory, "bars": bars, "peaks": peaks, "curve": curve, "lanes": lanes, "inference": inference,
         "rounds": rounds, "pipeline": pipeline}
