#!/usr/bin/env python3
"""Draws the picture and fills the marked tables of the pages from the checked-in results; no figure of theirs is typed by hand.

    bench/results.py            write docs/images/speed.svg and the tables between <!-- results: NAME --> and <!-- /results -->
    bench/results.py --check    write nothing; 1 when a page or a picture is not what the results give
    bench/results.py --take FILE ... --date 2026-11-22     put what a run wrote into bench/results/GPU-2026-11-22.jsonl

The results are JSON lines as `trigen-lab tables` and `sweep` write them, with the date of the run beside each (a letter behind
--date keeps a later run of that day apart: 2026-11-22b). A table is of its GPU's newest file that has rows of it.
`trigen-lab render bench/results/FILE` shows a file's tables in a terminal.
"""

import argparse
import json
import math
import pathlib
import re
import sys
import textwrap

from drawing import circle, curve, document, line, text

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results"
PICTURE, SWEEP_PICTURE = ROOT / "docs/images/speed.svg", ROOT / "docs/images/sweep.svg"
PAGES = [ROOT / "README.md", ROOT / "docs/performance.md", ROOT / "docs/cost-model.md"]

STEP = "mixer's step"  # its three products alone: a model's training step has more
SERIES = [
    ("forward", "#2b6cb0", ""),
    ("grad_input", "#c05621", "6 4"),
    ("grad_weight", "#2f855a", ""),
    (STEP, "#1a202c", ""),
]


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def newest(gpu):
    """The rows of every table, each table from the GPU's newest file that has it."""
    tables = {}
    for path in sorted(RESULTS.glob(f"{gpu}-*.jsonl")):
        of = {}
        for row in read(path):
            of.setdefault(row["table"], []).append(row)
        tables.update(of)
    return [row for rows in tables.values() for row in rows]


def best_peers(rows):
    """One row a problem: the one whose peers are fastest, where several kinds were timed."""
    best = {}
    for row in rows:
        if row.get("got", 0) <= 0 or row.get("failed"):
            continue
        kept = best.setdefault(row["problem"], row)
        if times_as_fast(row) < times_as_fast(kept):
            best[row["problem"]] = row
    return list(best.values())


def sizes(problem):
    """ "forward,dtype=bf16,B=32,T=512,D=1024" -> {"op": "forward", "dtype": "bf16", "B": "32", ...}"""
    op, *keys = problem.split(" + ")[0].split(" at ")[0].split(",")
    return {"op": op, **dict(key.split("=") for key in keys)}


def times_as_fast(row):
    """The peer's time over trigen's. Rows with a limit (asked_at_most) hold trigen's time over the peer's."""
    return row["peer_us"] / row["us"] if "asked_at_most" in row else row["got"]


def speed_points(rows):
    """{series: [(T, times as fast)]}: the first shape of each length that is a power of two."""
    points = {name: {} for name, _, _ in SERIES}
    for row in rows:
        if row["table"] not in ("shapes", "step"):
            continue
        p = sizes(row["problem"])
        tokens = int(p["T"])
        if tokens & (tokens - 1) == 0:
            points[STEP if row["table"] == "step" else p["op"]].setdefault(tokens, times_as_fast(row))
    return {name: sorted(of.items()) for name, of in points.items()}


def picture(rows):
    width, height, left, right, top, bottom = 720, 330, 60, 130, 44, 52
    points = speed_points(rows)
    lengths = sorted({t for of in points.values() for t, _ in of})
    first, last = math.log2(lengths[0]), math.log2(lengths[-1])

    def x(tokens):
        return left + (width - left - right) * (math.log2(tokens) - first) / (last - first)

    def y(ratio):
        return height - bottom - (height - top - bottom) * ratio / 2.2

    row = next(row for row in rows if row["table"] == "shapes")
    out = [
        text(left, 18, "How many times as fast as cuBLAS", 'font-size="13" font-weight="bold"'),
        text(
            left,
            34,
            f"bf16, one {row['device']}, driver {row['driver']}, {row['library']}, {row['date']}",
            'fill="#4a5568"',
        ),
    ]
    for tick in (0, 0.5, 1, 1.5, 2):
        style = 'stroke="#4a5568" stroke-dasharray="4 3"' if tick in (1, 2) else 'stroke="#e2e8f0"'
        out.append(line(left, y(tick), width - right, y(tick), style))
        out.append(text(left - 8, y(tick) + 4, f"{tick:g}", 'text-anchor="end"'))
    out.append(text(left + 6, y(2) - 5, "2: half of the dense product's multiply-adds", 'fill="#4a5568"'))
    out.append(
        text(left + 6, y(1) + 14, "1: cuBLAS's fastest dense product, on weights masked beforehand", 'fill="#4a5568"')
    )
    for tokens in lengths:
        out.append(text(x(tokens), height - bottom + 18, str(tokens), 'text-anchor="middle"'))
    out.append(
        text(
            (left + width - right) / 2,
            height - 12,
            "tokens T (B T D from 16.8 to 33.6 million elements)",
            'text-anchor="middle"',
        )
    )
    legend = top + 30
    for name, color, dash in SERIES:
        of = points[name]
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        stroke = f'stroke="{color}" stroke-width="2.2"{dashes}'
        out.append(curve([(x(t), y(r)) for t, r in of], stroke))
        for tokens, ratio in of:
            out.append(circle(x(tokens), y(ratio), 3.2, f'fill="{color}"', f"{name}, T={tokens}: {ratio:.2f}"))
        out.append(line(width - right + 18, legend - 4, width - right + 40, legend - 4, stroke))
        out.append(text(width - right + 46, legend, name))
        legend += 18
    return document(width, height, out)


def number(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def table_of_shapes(rows):
    """One row a shape, a column an op; "-" where a row has no figure."""
    shapes = {}
    for row in rows:
        if row["table"] == "shapes":
            p = sizes(row["problem"])
            shapes.setdefault(f"{p['B']}, {p['T']}, {p['D']}", {})[p["op"]] = back_to_back(row) + behind(row)
    ops = ("forward", "grad_input", "grad_weight")
    return "\n".join(
        ["| B, T, D | " + " | ".join(ops) + " |", "|---" * 4 + "|"]
        + [f"| {shape} | " + " | ".join(of.get(op, "-") for op in ops) + " |" for shape, of in shapes.items()]
    )


def back_to_back(row):
    if row.get("failed") or "got" not in row:
        return "fails"
    return f"**{row['got']:.2f}** ({number(row['us'])} us{', untuned' if row.get('provenance') == 'predicted' else ''})"


def behind(row):
    return f"; **{row['behind_got']:.2f}** ({number(row['behind_us'])} us)" if "behind_got" in row else ""


def label(problem):
    """A row's label, unlike the others of its table: "forward 16, 1024, 4x256, bias+gelu"."""
    if " + " in problem:
        p = sizes(problem)
        return f"{STEP} {p['B']}, {p['T']}, {p['D']}"
    p = sizes(problem)
    features = f"{p['H']}x{p['D']}" if "H" in p else p["D"]
    more = [f"K={p['K']}"] if "K" in p else []
    epilogue = p.get("epilogue", "").replace("+zero_outside", "").replace("zero_outside", "")
    more += [part for part in (p.get("math"), epilogue) if part]
    if p["dtype"] == "f32" and "math" not in p:
        more.append("full precision, simt")
    row = re.search(r" at row (\d+)", problem)
    more += [f"row {row.group(1)} alone"] if row else []
    return f"{p['op']} {p['B']}, {p['T']}, {features}" + "".join(f", {part}" for part in more)


def table_of(rows, names, last="times as fast", figure=None):
    lines = [f"| what | trigen | peer | {last} |", "|---|---|---|---|"]
    figure = figure or (
        lambda row: f"{row['got']:.2f}" if len(str(row["got"])) > 4 else str(row["got"])
    )  # no more digits than were taken
    for row in best_peers([row for row in rows if row["table"] in names]):
        untuned = ", untuned" if row.get("provenance") == "predicted" else ""
        lines.append(
            f"| {label(row['problem'])}{untuned} | {number(row['us'])} us | {row['peer']} {number(row['peer_us'])} us | "
            f"**{figure(row)}** |"
        )
    return "\n".join(lines)


def share(row):
    return f"{row['got']:.2f}"


OPS = ("forward", "grad_input", "grad_weight")
CHOICES = ("untuned", "tuned", "beside PyTorch")


def of_sweep(rows, choice, op=None):
    """A choice's rows with a figure, the slowest first. A win over taps counts where a product over im2col was among the peers."""
    return sorted(
        (
            row
            for row in rows
            if row["table"] == choice
            and row.get("got", 0) > 0
            and not row.get("failed")
            and op in (None, row["problem"].split(",")[0])
            and (",K=" not in row["problem"] or row["got"] < 1 or any("im2col" in arm["name"] for arm in row["arms"]))
        ),
        key=lambda row: row["got"],
    )


def quantile(ordered, part):
    at = part * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


MOST = 2  # half of the dense product's multiply-adds: a ratio above is of a peer that is not at its best


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def sweep_facts(rows):
    """A reader's notes beside the table, from the rows' own."""
    ours = [row for row in rows if row["table"] == "tuned"]
    row, failed = ours[0], [row for row in ours if row.get("failed") or row.get("got", 0) <= 0]
    longer = [note.group(1) for note in (re.search(r"tuned with (\d+) s", row.get("note", "")) for row in ours) if note]
    facts = [
        f"{len(ours)} problems, {row['device']}, driver {row['driver']}, {row['library']}, {row['date']}",
        f"{len(failed)} without a figure" if failed else "",
        f"{len(longer)} tuned for {longer[0]} s, as their tune found nothing in its time" if longer else "",
        f"the card slowed down meanwhile in {sum('slowed down' in row.get('note', '') for row in ours)}, for all arms alike",
    ]
    return textwrap.fill("; ".join(fact for fact in facts if fact) + ".", 110)


def sweep_losses(rows):
    """The loss of untuned choices to tuned ones, of one GPU's sweep."""
    us = {choice: {row["problem"]: row["us"] for row in of_sweep(rows, choice)} for choice in ("untuned", "tuned")}
    lost = sorted(
        (max(0, us["untuned"][problem] / tuned - 1), problem)
        for problem, tuned in us["tuned"].items()
        if problem in us["untuned"]
    )
    shares = [share for share, _ in lost]
    row = of_sweep(rows, "tuned")[0]
    return (
        f"{row['device']}, {len(lost)} problems, {row['date']}: {100 * quantile(shares, 0.5):.1f} % in the median, "
        f"{100 * quantile(shares, 0.9):.1f} % for nine in ten, {100 * shares[-1]:.0f} % at worst\n(`{lost[-1][1]}`)."
    )


def sweep_short(rows):
    """The sweep in one paragraph."""

    def counts(choice, op=None):
        got = [row["got"] for row in of_sweep(rows, choice, op)]
        cut = mean([min(one, MOST) for one in got])
        return f"{sum(one >= 1 for one in got)} of {len(got)}", f"{cut:.2f}, the worst {got[0]:.2f}"

    of = {op: counts("tuned", op)[0] for op in OPS}
    (tuned, tuned_ratios), (untuned, untuned_ratios) = counts("tuned"), counts("untuned")
    return textwrap.fill(
        f"Of problems that nobody chose {tuned} were not slower than the best peer when tuned (mean, cut at 2, {tuned_ratios}), {untuned} "
        f"untuned ({untuned_ratios}): tuned forward {of['forward']}, grad_input {of['grad_input']}, grad_weight {of['grad_weight']}.",
        110,
    )


def sweep_unchanged(rows):
    """The rows whose kernel prepares W, with and without that."""
    ours = of_sweep(rows, "tuned")
    kept = [(row, arm["us"]) for row in ours for arm in row["arms"] if arm["name"] == "w unchanged"]
    if not kept:
        return "No tuned row runs a kernel that prepares W."
    shares = sorted(us / row["us"] for row, us in kept)
    before = sum(row["got"] >= 1 for row, _ in kept)
    after = sum(row["peer_us"] >= us for row, us in kept)
    return textwrap.fill(
        f"{len(kept)} of the {len(ours)} tuned rows run a kernel that prepares W. Of these {before} are not slower than the best peer with that launch, "
        f"{after} without it, in {shares[0]:.2f} to {shares[-1]:.2f} of the time, {mean(shares):.2f} in the mean.",
        110,
    )


def sweep_draws(_):
    """Every stored draw, the newest first: a table shows one, and draws differ."""
    lines = ["| draw | not slower, tuned | mean, cut at 2 | tenth percentile | worst |", "|---" * 5 + "|"]
    for gpu in GPUS:
        for path in reversed(sorted(RESULTS.glob(f"{gpu}-*.jsonl"))):
            rows = read(path)
            if got := [row["got"] for row in of_sweep(rows, "tuned")]:
                cut, name = mean([min(one, MOST) for one in got]), f"{gpu.upper()}, {path.stem.partition('-')[2]}"
                lines.append(
                    f"| {name} | {sum(one >= 1 for one in got)} of {len(got)} | **{cut:.2f}** | {quantile(got, 0.1):.2f} | {got[0]:.2f} |"
                )
    return "\n".join(lines)


def sweep_above(rows):
    lines = ["| problem, tuned | times as fast | trigen | peer |", "|---" * 4 + "|"]
    for row in reversed([row for row in of_sweep(rows, "tuned") if row["got"] > MOST]):
        lines.append(
            f"| `{row['problem']}` | **{row['got']:.2f}** | {number(row['us'])} us | {row['peer']} {number(row['peer_us'])} us |"
        )
    return "\n".join(lines) if len(lines) > 2 else "None."


def sweep(rows):
    lines = [
        "| choice | op | rows | not slower | mean, cut at 2 | uncut | tenth percentile | worst |",
        "|---" * 8 + "|",
    ]
    for choice in CHOICES:
        for op in (None, *OPS):
            got = [row["got"] for row in of_sweep(rows, choice, op)]
            if not got:
                continue
            cut = mean([min(one, MOST) for one in got])
            lines.append(
                f"| {choice} | {op or 'all'} | {len(got)} | {sum(one >= 1 for one in got)} | **{cut:.2f}** | {mean(got):.2f} | "
                f"{quantile(got, 0.1):.2f} | {got[0]:.2f} |"
            )
    return "\n".join(lines)


def sweep_worst(rows, count=8):
    lines = ["| problem, tuned | times as fast | trigen | peer | floor |", "|---" * 5 + "|"]
    for row in of_sweep(rows, "tuned")[:count]:
        lines.append(
            f"| `{row['problem']}` | **{row['got']:.2f}** | {number(row['us'])} us | {row['peer']} {number(row['peer_us'])} us | "
            f"{number(row['floor_us'])} us, {row['bound']} |"
        )
    return "\n".join(lines)


def lost(rows):
    """The problems of bench/lost.txt in one paragraph."""
    ours = sorted((row["got"], row["problem"]) for row in rows if row["table"] == "lost" and row.get("got", 0) > 0)
    ratios = [got for got, _ in ours]
    return (
        f"{sum(got >= 1 for got in ratios)} of {len(ratios)} were not slower than the fastest peer (median {quantile(ratios, 0.5):.2f}, "
        f"tenth percentile {quantile(ratios, 0.1):.2f}); the worst, {ratios[0]:.2f}, is\n`{ours[0][1]}`."
    )


def sweep_picture(rows):
    """The peer's time over trigen's against T, a panel a choice, colours by op; both axes logarithmic."""
    width, panel, left, right, top = 720, 240, 60, 20, 76
    shown = [choice for choice in CHOICES if of_sweep(rows, choice)]
    if not shown:
        return None
    row = of_sweep(rows, shown[0])[0]
    colors = {name: color for name, color, _ in SERIES}

    def x(tokens):
        return left + (width - left - right) * (math.log2(tokens) - 5) / 9

    height = top + len(shown) * (panel + 56)
    out = [
        text(
            left,
            18,
            "Problems that nobody chose: times as fast as the fastest peer, against T",
            'font-size="13" font-weight="bold"',
        ),
        text(
            left, 34, f"one {row['device']}, driver {row['driver']}, {row['library']}, {row['date']}", 'fill="#4a5568"'
        ),
    ]
    for number_of, op in enumerate(OPS):
        out.append(circle(left + 4 + 110 * number_of, 48, 4, f'fill="{colors[op]}"'))
        out.append(text(left + 14 + 110 * number_of, 52, op))
    for number_of, choice in enumerate(shown):
        base = top + number_of * (panel + 56)

        def y(ratio):
            return base + panel * (2 - max(-2, min(2, math.log2(ratio)))) / 4

        out.append(text(left, base - 6, choice, 'font-weight="bold"'))
        for tick in (0.25, 0.5, 1, 2, 4):
            style = 'stroke="#4a5568" stroke-dasharray="4 3"' if tick == 1 else 'stroke="#e2e8f0"'
            out.append(line(left, y(tick), width - right, y(tick), style))
            out.append(text(left - 8, y(tick) + 4, f"{tick:g}", 'text-anchor="end"'))
        for power in range(5, 15):
            out.append(text(x(2**power), base + panel + 18, str(2**power), 'text-anchor="middle"'))
        for row in of_sweep(rows, choice):
            op, tokens = row["problem"].split(",")[0], int(sizes(row["problem"])["T"])
            style = f'fill="{colors[op]}" fill-opacity="0.75"'
            out.append(circle(x(tokens), y(row["got"]), 3.4, style, f"{row['problem']}: {row['got']:.2f}"))
    return document(width, height, out)


TABLES = {
    "shapes": table_of_shapes,
    "step": lambda rows: table_of(rows, ["step"], figure=lambda row: f"{times_as_fast(row):.2f}"),
    "torch_step": lambda rows: table_of(rows, ["torch_step"]),
    "fused": lambda rows: table_of([row for row in rows if row["table"] == "heads"], ["heads"])
    + "\n"
    + "\n".join(table_of(rows, ["fused"]).splitlines()[2:]),
    "taps": lambda rows: table_of(rows, ["taps"]),
    "f32": lambda rows: table_of(rows, ["f32"]),
    "decode": lambda rows: table_of(rows, ["decode"], "time over the copy's", share),
    "epilogues": lambda rows: table_of(rows, ["epilogues"], "time over the plain call's", share),
    "lost": lost,
    "sweep": sweep,
    "sweep_facts": sweep_facts,
    "sweep_short": sweep_short,
    "sweep_losses": sweep_losses,
    "sweep_above": sweep_above,
    "sweep_draws": sweep_draws,
    "sweep_unchanged": sweep_unchanged,
    "sweep_worst": sweep_worst,
}
GPUS = ("h200", "h100")  # the first is a table's where its name ends in no other


def fill(page, rows):
    def replace(match):
        name, _, gpu = match.group(2).rpartition("_")
        name, gpu = (name, gpu) if gpu in GPUS else (match.group(2), GPUS[0])
        return f"{match.group(1)}\n\n{TABLES[name](rows[gpu])}\n\n{match.group(3)}"

    return re.sub(r"(<!-- results: (\w+) -->)\n.*?(<!-- /results -->)", replace, page, flags=re.S)


def torch_step(line):
    """A line of bench/torch_ops.py's part step as a row of a table: the step under a CUDA graph."""
    B, T, D = re.findall(r"=(\d+)", line["shape"])[:3]
    arms = [{"name": name, "us": arm["graph"]} for name, arm in line["arms"].items() if "graph" in arm]
    ours = next(arm["us"] for arm in arms if arm["name"] == "trigen")
    best = min((arm for arm in arms if not arm["name"].startswith("trigen")), key=lambda arm: arm["us"])
    problem = " + ".join(f"{op},dtype=bf16,B={B},T={T},D={D},wdtype=f32" for op in OPS)
    return {
        "table": "torch_step",
        "problem": problem,
        "over": "torch",
        "ran": True,
        "device": line["device"],
        "library": f"torch {line['torch']}",
        "us": ours,
        "peer": best["name"],
        "peer_us": best["us"],
        "got": round(best["us"] / ours, 3),
        "arms": arms,
        "provenance": "measured",
    }


def take(files, date):
    """The last line of each row that was started, with the date."""
    rows = {}
    for path in files:
        for row in read(pathlib.Path(path)):
            if "part" in row:
                if "arms" not in row:
                    continue
                row = torch_step(row)
            if "not started" not in row.get("note", "") and not (
                row["over"] == "torch" and "torch_tables" in row.get("note", "")
            ):
                rows[row["table"], row["problem"], row["over"]] = {**row, "date": date[:10]}
    devices = {row["device"] for row in rows.values()}
    if len(devices) != 1:
        sys.exit(f"the lines are of {len(devices)} devices ({', '.join(sorted(devices))}); take one device's at a time")
    device = devices.pop()
    gpu = next((gpu for gpu in GPUS if gpu in device.lower()), None)
    if gpu is None:
        sys.exit(f"no page has tables of {device}; allowed are {', '.join(GPUS)}")
    target = RESULTS / f"{gpu}-{date}.jsonl"
    target.write_text("".join(json.dumps(row) + "\n" for row in rows.values()))
    print(f"{len(rows)} rows in {target.relative_to(ROOT)}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--check", action="store_true", help="compare, write nothing")
    arguments.add_argument("--take", nargs="+", metavar="FILE", help="lines of a run's files, in the order of the runs")
    arguments.add_argument("--date", help="of the run, with --take")
    given = arguments.parse_args()
    if given.take:
        if not re.fullmatch(r"\d{4}-\d\d-\d\d[a-z]?", given.date or ""):
            arguments.error("--take needs the run's --date, as 2026-11-22")
        take(given.take, given.date)
        return 0
    check = given.check
    rows = {gpu: newest(gpu) for gpu in GPUS}
    drawn = sweep_picture(rows[GPUS[0]])
    files = {
        PICTURE: picture(rows[GPUS[0]]),
        **({SWEEP_PICTURE: drawn} if drawn else {}),
        **{page: fill(page.read_text(), rows) for page in PAGES},
    }
    stale = [path for path, content in files.items() if not path.exists() or path.read_text() != content]
    for path in stale:
        if check:
            print(
                f"{path.relative_to(ROOT)} is not what {RESULTS.relative_to(ROOT)} gives; run bench/results.py",
                file=sys.stderr,
            )
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[path])
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
