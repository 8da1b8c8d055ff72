#!/usr/bin/env python3
"""Measures how fast a page of psring step opens and steps in a headless Chromium, and prints the figures.

  psring step --strategies zero3 … --out scene.html; python3 tests/process/step_page_timing.py scene.html

Wall time contains what other programs on the machine take; CPU time of the page's main thread does not."""

import argparse
import json
import os
import re
import statistics
import time
from pathlib import Path

from browser import Browser

# Steps by an event at 60 places, and forces the layout. Stepping by a message or a phase goes the same way.
STEPS = """(() => {
  const slider = document.getElementById('slider');
  const times = [];
  for (let k = 0; k < 60; ++k) {
    slider.value = Math.floor(k * slider.max * 0.98 / 60) + 1;
    slider.dispatchEvent(new Event('input'));
    document.body.getBoundingClientRect();
    const began = performance.now();
    document.getElementById('next-event').click();
    document.body.getBoundingClientRect();
    times.push(performance.now() - began);
  }
  return times;
})()"""


# Steps and waits for the frame that shows the step.
PAINTED = """new Promise((done) => {
  const next = document.getElementById('next-event');
  const times = [];
  const again = () => {
    const began = performance.now();
    next.click();
    requestAnimationFrame(() => setTimeout(() => {
      times.push(performance.now() - began);
      if (times.length < 30) again();
      else done(times);
    }));
  };
  again();
})"""


def cpu(browser):
    metrics = {one["name"]: one["value"] for one in browser.call("Performance.getMetrics")["metrics"]}
    return 1000 * metrics["TaskDuration"]


def measure(page):
    """Returns milliseconds by name, of one visit in a browser of its own."""
    with Browser() as browser:
        browser.call("Performance.enable", timeDomain="threadTicks")
        before, began = cpu(browser), time.monotonic()
        browser.open(page, "lang=en&theme=light")
        browser.run("new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(1))))")
        opened = {"open, wall": 1000 * (time.monotonic() - began), "open, CPU": cpu(browser) - before}
        before = cpu(browser)
        steps = browser.run(STEPS)
        used = (cpu(browser) - before) / len(steps) / 2  # each place is a jump and a step
        painted = browser.run(PAINTED)
        if browser.errors:
            raise SystemExit(f"the page reports {browser.errors}")
    return opened | {"step, wall, median": statistics.median(steps), "step, wall, most": max(steps), "jump or step, CPU, mean": used,
                     "step to its frame, wall, median": statistics.median(painted)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path, help="a page that psring step wrote")
    parser.add_argument("--runs", type=int, default=7)
    chosen = parser.parse_args()
    text = chosen.page.read_text()
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    scene = json.loads(data)["scenes"][0]
    before = os.getloadavg()[0]
    runs = [measure(chosen.page) for _ in range(chosen.runs)]
    print(f"{len(scene['events'])} events, {len(text) / 1e6:.2f} MB; {chosen.runs} runs on {os.cpu_count()} cores, load {before:.1f} before and {os.getloadavg()[0]:.1f} after")
    print(f"{'milliseconds':34}{'least':>8}{'median':>8}{'most':>8}")
    for name in runs[0]:
        values = sorted(one[name] for one in runs)
        print(f"{name:34}{values[0]:8.1f}{statistics.median(values):8.1f}{values[-1]:8.1f}")


if __name__ == "__main__":
    main()
