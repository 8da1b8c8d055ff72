"""The pictures of the lessons, drawn from what psring recorded. Each function takes a language, a title and the words of the
lesson's comment, and returns SVG; paths are relative to the folder in which the lesson's commands ran."""

import json

from teach.scenes import figures_of, scenes_of, workers_of
from teach.svg import COLOURS, Drawing

LEFT, RIGHT = 150, 20
WIDTH = 820
CATEGORIES = ("parameters", "gradients", "optimizer", "activations", "communication")


def spans_of(scene, place):
    """Yields (name, begin, end) of a worker's innermost activities that the pictures show."""
    open_spans = []
    for event in scene["events"]:
        if event["p"] != place or event["e"] not in ("begin", "end"):
            continue
        if event["e"] == "begin":
            open_spans.append((event["name"], event["t"]))
        else:
            name, begin = open_spans.pop()
            if name in ("forward", "backward", "update", "wait"):
                yield name, begin, event["t"]


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
    most = max(job["worker"]["total"] for job in jobs)
    drawing = Drawing(WIDTH, 40 + 30 * len(jobs), language, title)
    for row, job in enumerate(jobs):
        x, y = LEFT, 10 + 30 * row
        drawing.label(LEFT - 8, y + 15, job["strategy"])
        for name in CATEGORIES:
            size = job["worker"].get(name, 0)
            width = size / most * (WIDTH - LEFT - RIGHT - 70)
            if size:
                drawing.box(x, y, width, 20, COLOURS[name], f"{name} {size}")
            x += width
        drawing.text(x + 5, y + 15, f"{job['worker']['total'] / 2**20:.2f} MiB", 11)
    drawing.legend(LEFT, 28 + 30 * len(jobs), CATEGORIES)
    return drawing.svg()


def curve(language, title, path):
    """Exposed time and step time over the scenes of a file, in their order; labels are what differs."""
    scenes = scenes_of(path)
    figures = [figures_of(scene) for scene in scenes]
    most = max(each["step_ms"] for each in figures)
    height = 220
    drawing = Drawing(WIDTH, height + 70, language, title)
    step = (WIDTH - LEFT - RIGHT) / max(1, len(scenes) - 1)
    for part in range(5):
        y = 20 + height - part * height / 4
        drawing.line(LEFT - 20, y, WIDTH - RIGHT, y, "#e4e4e4")
        drawing.text(LEFT - 26, y + 4, f"{most * part / 4:.1f} {drawing.say('ms')}", 11, "end")
    for key, colour, words in (("step_ms", COLOURS["line"], "step"), ("exposed_ms", COLOURS["line2"], "exposed")):
        drawing.path([(LEFT + i * step, 20 + height - each[key] / most * height) for i, each in enumerate(figures)], colour)
    for i, scene in enumerate(scenes):
        drawing.text(LEFT + i * step, height + 38, scene["label"].split("=")[-1].split(" ")[-1], 11, "middle")
    x = LEFT
    for words, colour in (("step", COLOURS["line"]), ("exposed", COLOURS["line2"])):
        drawing.box(x, height + 51, 10, 10, colour)
        drawing.text(x + 14, height + 60, drawing.say(words))
        x += 120
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


KINDS = {"timeline": timeline, "memory": memory, "bars": bars, "curve": curve, "rounds": rounds}
