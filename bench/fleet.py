#!/usr/bin/env python3
"""How a fleet's folder grows with its workers: merging time and sizes as measured, holes over time as simulated.

build/bench/fleet_bench FOLDER 1 10 100 1000 > merged.jsonl     measure merging, on this machine
bench/fleet.py --run merged.jsonl                               simulate the holes, write bench/results/fleet-growth.jsonl
bench/fleet.py                                                  draw docs/images/fleet.svg from that file
bench/fleet.py --check                                          draw nothing; 1 when the picture is not what the file gives
"""

import argparse
import heapq
import json
import math
import pathlib
import random
import sys

from drawing import circle, curve, document, line, text

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results/fleet-growth.jsonl"
PICTURE = ROOT / "docs/images/fleet.svg"
WORKERS = (1, 10, 100, 1000)

# The simulated fleet: 12000 problems on five kinds of GPU, so that 1000 workers have 60 each, as in the measurement.
KINDS, PROBLEMS = 5, 12000
TUNE_S, SPREAD = 60, 0.2  # a problem takes the default budget, times a lognormal factor
QUEUE_S = 600  # mean wait for a GPU, exponential; again after each loss
LOST_H = 20  # mean time until a worker's node is lost, exponential
PUBLISH_S = 600  # results wait this long for their shard at most; a lost worker loses them


def holes_over_time(workers, seed=1):
    """[(hours, holes as the folder shows them)]: every event is one worker's next end of a problem, on its own part of its kind's list."""
    draw = random.Random(seed)
    of_kind = [max(1, workers // KINDS + (kind < workers % KINDS)) for kind in range(KINDS)]
    todo, events = [], []
    for kind in range(KINDS if workers >= KINDS else 1):
        for index in range(of_kind[kind] if workers >= KINDS else workers):
            share = len(range(index, PROBLEMS, of_kind[kind] if workers >= KINDS else workers)) * (
                1 if workers >= KINDS else KINDS
            )
            todo.append(share)
            heapq.heappush(events, (draw.expovariate(1 / QUEUE_S), len(todo) - 1, 0, 0.0))
    lost_at = [draw.expovariate(1 / (LOST_H * 3600)) for _ in todo]
    holes, curve = KINDS * PROBLEMS, [(0.0, KINDS * PROBLEMS)]
    while events:
        now, worker, unpublished, since = heapq.heappop(events)
        if unpublished and (now - since >= PUBLISH_S or unpublished == todo[worker]):
            todo[worker] -= unpublished
            holes -= unpublished
            curve.append((now / 3600, holes))
            unpublished, since = 0, now
        if todo[worker] == 0:
            continue
        done = now + TUNE_S * math.exp(draw.gauss(0, SPREAD))
        if done > lost_at[worker]:
            again = lost_at[worker] + draw.expovariate(1 / QUEUE_S)
            lost_at[worker] = again + draw.expovariate(1 / (LOST_H * 3600))
            heapq.heappush(events, (again, worker, 0, again))
        else:
            heapq.heappush(events, (done, worker, unpublished + 1, since or now))
    return curve


def thinned(curve, points=60):
    """As many points evenly over the holes, the last one among them."""
    step = max(1, len(curve) // points)
    return [[round(hours, 3), holes] for hours, holes in curve[:-1:step] + curve[-1:]]


class Panel:
    """A plot in logarithmic axes (y linear with `linear`)."""

    def __init__(self, left, title, x, y, linear=False, width=270, height=210, top=48):
        self.left, self.top, self.width, self.height, self.linear = left, top, width, height, linear
        self.x, self.y = x, y
        self.parts = [text(left, top - 16, title, 'font-weight="600" font-size="13"')]

    def at(self, x, y):
        across = (math.log10(x) - self.x[0]) / (self.x[1] - self.x[0])
        up = y / self.y[1] if self.linear else (math.log10(y) - self.y[0]) / (self.y[1] - self.y[0])
        return self.left + across * self.width, self.top + (1 - up) * self.height

    def grid(self, x_label, x_names, y_names):
        low = 0 if self.linear else 10 ** self.y[0]
        for value, name in x_names:
            px, _ = self.at(value, self.y[1] if self.linear else 10 ** self.y[1])
            self.parts += [
                line(px, self.top, px, self.top + self.height, 'stroke="#e2e8f0"'),
                text(px, self.top + self.height + 16, name, 'text-anchor="middle"'),
            ]
        for value, name in y_names:
            _, py = self.at(10 ** self.x[0], value if value else low)
            self.parts += [
                line(self.left, py, self.left + self.width, py, 'stroke="#e2e8f0"'),
                text(self.left - 6, py + 4, name, 'text-anchor="end"'),
            ]
        self.parts.append(
            text(self.left + self.width / 2, self.top + self.height + 34, x_label, 'text-anchor="middle"')
        )

    def curve(self, points, color, name="", dots=True, dash=""):
        where = [self.at(x, y) for x, y in points]
        self.parts.append(curve(where, f'stroke="{color}" stroke-width="2" {dash}'))
        if dots:
            self.parts += [circle(x, y, 3.5, f'fill="{color}"') for x, y in where]
        if name:
            self.parts.append(text(where[-1][0] - 4, where[-1][1] - 9, name, f'text-anchor="end" fill="{color}"'))


def picture(rows):
    merged = [row for row in rows if row["what"] == "merged"]
    simulated = [row for row in rows if row["what"] == "holes"]
    counts = [(n, str(n)) for n in WORKERS]
    seconds = Panel(60, "Merging, seconds", (0, 3), (-2, 2))
    seconds.grid(
        "workers, a shard of 60 records each",
        counts,
        [(0.01, "0.01"), (0.1, "0.1"), (1, "1"), (10, "10"), (100, "100")],
    )
    seconds.curve([(1, 30), (1000, 30)], "#c53030", dots=False, dash='stroke-dasharray="5 4"')
    seconds.parts.append(text(68, seconds.at(1, 30)[1] - 6, "asked of 1000: 30 s", 'fill="#c53030"'))
    seconds.curve(
        [(row["workers"], max(row["merge_s"], 0.01)) for row in merged], "#2b6cb0", f"{merged[-1]['merge_s']:.1f} s"
    )
    size = Panel(400, "Base, megabytes", (0, 3), (0, 4))
    size.grid("workers", counts, [(1, "1"), (10, "10"), (100, "100"), (1000, "1000"), (10000, "10000")])
    size.curve(
        [(row["workers"], row["base_bytes"] / 1e6) for row in merged],
        "#2f855a",
        f"{merged[-1]['base_bytes'] / 1e9:.2f} GB",
    )
    holes = Panel(740, "Holes over time, of 60000 (simulated)", (-1, 4), (0, 60000), linear=True)
    holes.grid(
        "hours",
        [(0.1, "0.1"), (1, "1"), (10, "10"), (100, "100"), (1000, "1000"), (10000, "")],
        [(0, "0"), (20000, "20000"), (40000, "40000"), (60000, "60000")],
    )
    for row, color in zip(simulated, ("#718096", "#805ad5", "#c05621", "#2b6cb0")):
        holes.curve([(max(hours, 0.1), left) for hours, left in row["curve"]], color, dots=False)
        hours, left = min(row["curve"], key=lambda point: abs(point[1] - 24000))
        x, y = holes.at(max(hours, 0.1), left)
        holes.parts.append(text(x - 5, y, row["workers"], f'text-anchor="end" fill="{color}"'))
    label = "Merging time, size of the base and holes over time for 1 to 1000 workers"
    return document(1040, 310, [part for panel in (seconds, size, holes) for part in panel.parts], label)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", metavar="MERGED", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    if given.run:
        rows = [
            {"what": "merged", **json.loads(line)}
            for line in given.run.read_text().splitlines()
            if line.startswith("{")
        ]
        rows += [
            {"what": "holes", "workers": workers, "curve": thinned(holes_over_time(workers))} for workers in WORKERS
        ]
        RESULTS.write_text("".join(json.dumps(row) + "\n" for row in rows))
    drawn = picture([json.loads(line) for line in RESULTS.read_text().splitlines()])
    if given.check:
        if PICTURE.read_text() != drawn:
            print(
                f"{PICTURE.relative_to(ROOT)} is not what {RESULTS.relative_to(ROOT)} gives; run bench/fleet.py",
                file=sys.stderr,
            )
            return 1
        return 0
    PICTURE.write_text(drawn)
    return 0


if __name__ == "__main__":
    sys.exit(main())
