#!/usr/bin/env python3
"""Compares the simulator's TCP with the kernel's over a grid of rates, queues and numbers of flows.

    cases/tcp/grid.py [--altq PROGRAM] [--seeds N] [--runs N] [--at-once N] [--only CELL,...] [--lab FILE] [--all]

Each cell is a case: greedy flows over one link with a plain queue, 20 ms each way, measured for a
minute after the first ten seconds. A seed draws when each flow begins: one in each equal part of
the first second. Nothing else in a cell is random. Every cell runs with `--seeds` seeds in the
simulator and, as root, with the first `--runs` of them in the lab. The table goes to standard
output: means with 95 % intervals, and the median of how long a run's longest standstill of a flow
is. `--lab FILE` keeps the lab's figures in FILE, and takes those that are there; with `--runs 0`
the lab is not run. Without `--all` 82 of the 390 cells are run; `--only` takes names of cells like
0.5-1000-100-reno, or parts of names. `--at-once` says how many labs run side by side. On a host
with other work `chrt -f 20` before the command gives the lab real-time priority.
"""
import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

RATES = [0.25, 0.5, 1, 2, 5, 10, 20, 100]  # Mbit/s
FLOWS = [1, 6, 10, 20, 100]
CONTROLS = ["reno", "cubic", "bbr"]
# A frame of 1514 bytes carries 1448 bytes of payload (docs/lab.md).
FRAME, PAYLOAD = 1514, 1448
ROUND_TRIP = 0.040

# Rate and queue of the cells that are run without `--all`. Of the numbers of flows each row takes
# two, in turn.
ROWS = [(0.25, 10), (0.25, 1000), (0.5, 1000), (1, 13), (1, 1000), (2, 26), (2, 1000), (5, 66), (10, 33), (10, 1000),
        (20, 264), (100, 330)]
# Cells at which an earlier version of the simulator's TCP stood still.
STOOD_STILL = [(1, 100, 10), (0.5, 64, 10), (2, 100, 10), (5, 1000, 10)]


def product(rate, times):
    """The packets of so many bandwidth-delay products."""
    return round(times * rate * 1e6 * ROUND_TRIP / 8 / FRAME)


def cells(every):
    if every:
        for rate in RATES:
            queues = sorted({max(10, packets) for packets in (10, product(rate, 1), product(rate, 4), 1000)})
            yield from ((rate, queue, flows, cc) for queue in queues for flows in FLOWS for cc in CONTROLS)
        return
    for at, (rate, queue) in enumerate(ROWS):
        for flows in sorted({FLOWS[2 * at % 5], FLOWS[(2 * at + 1) % 5]}):
            yield from ((rate, queue, flows, cc) for cc in CONTROLS)
    for rate, queue, flows in STOOD_STILL:
        yield from ((rate, queue, flows, cc) for cc in CONTROLS[:2])
    yield 100, 1000, 1, "cubic"
    yield 100, 1000, 10, "cubic"


def name(cell):
    return "-".join(str(part) for part in cell)


def case(cell, seed):
    rate, queue, flows, cc = cell
    # Flows that open at the same instant lose their SYNs together; they begin one after the other
    # within a second.
    draw = random.Random(f"{name(cell)}-{seed}")
    each = "".join(
        f'[[flows]]\nname = "f{n}"\nkind = "tcp_bulk"\nfrom = "source"\nto = "sink"\ncongestion = "{cc}"\n'
        f'start = "{int((n + draw.random()) * 1e6 / flows)}us"\n' for n in range(flows))
    return f"""name = "tcp/grid/{name(cell)}"
description = "Greedy flows through a plain queue: a cell of cases/tcp/grid.py."
duration = "70s"
warmup = "10s"
seed = {seed}
offload = false
policy = "link wan {{ rate {int(rate * 1000)}kbit/s  overhead 14 bytes  scheduler fifo  queue drop_tail {{ limit {queue}packets }} }}"
hosts = [{{ name = "source" }}, {{ name = "sink" }}]
links = [{{ name = "wan", from = "source", to = "sink", delay = "20ms", policy = "wan" }}]
{each}"""


# Held while the lab's figures are changed and written to their file.
LOCK = Lock()


def run(program, world, path):
    ran = subprocess.run([program, world, str(path), "--json"], capture_output=True, text=True)
    if not ran.stdout:
        sys.exit(f"{path}: {ran.stderr}")
    result = json.loads(ran.stdout)
    rates = [flow["goodput_bit_s"] / 1e6 for flow in result["flows"]]
    packets = sum(row["arrived_packets"] for row in result["classes"])
    lost = sum(row["dropped_packets"] for row in result["classes"])
    stands = [flow["standstill"] for flow in result["flows"] if flow.get("standstill")]
    return {
        "valid": result["valid"],
        "notes": [note for note in result.get("notes", []) if "gro off" not in note],
        "goodput": sum(rates),
        "least": min(rates),
        "loss": lost / max(packets, 1),
        "standstill": max(((s["to_ns"] - s["from_ns"]) / 1e9 for s in stands), default=None),
    }


def usable(result):
    """A run that the lab called INVALID counts all the same if its only fault is that a flow stood
    still, which the kernel's TCP does in some of the cells."""
    return result["valid"] or all("nothing of it was delivered" in note for note in result["notes"])


# Student's t for the two-sided 95 % interval, by degrees of freedom from 1 on.
STUDENT = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13]


def student(freedom):
    return STUDENT[int(freedom) - 1] if freedom < len(STUDENT) + 1 else 2.0


def difference(model, kernel):
    """The difference of the means as a part of the kernel's, and half the width of its 95 % interval
    (Welch's; None if a side has a single run)."""
    means = [statistics.mean(side) for side in (model, kernel)]
    base = max(means[1], 1e-9)
    if min(len(model), len(kernel)) < 2:
        return means[0] / base - 1, None
    parts = [statistics.variance(side) / len(side) for side in (model, kernel)]
    if sum(parts) == 0:
        return means[0] / base - 1, 0.0
    freedom = sum(parts)**2 / sum(part**2 / (len(side) - 1) for part, side in zip(parts, (model, kernel)))
    return means[0] / base - 1, student(max(freedom, 1)) * sum(parts)**0.5 / base


def interval(values):
    """The mean, and half the width of its 95 % interval."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return f"{mean:.3f}"
    return f"{mean:.3f} ± {student(len(values) - 1) * statistics.stdev(values) / len(values)**0.5:.3f}"


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--altq", default="target/release/altq")
    args.add_argument("--seeds", type=int, default=11)
    args.add_argument("--runs", type=int, default=3)
    args.add_argument("--at-once", type=int, default=3)
    args.add_argument("--only", default="")
    args.add_argument("--lab", type=Path)
    args.add_argument("--all", action="store_true")
    args = args.parse_args()
    kept = json.loads(args.lab.read_text()) if args.lab and args.lab.exists() else {}
    parts = args.only.split(",")
    wanted = [cell for cell in cells(args.all) if any(part in name(cell) for part in parts)]
    with tempfile.TemporaryDirectory() as folder:

        def path(cell, seed):
            file = Path(folder, f"{name(cell)}-{seed}.toml")
            file.write_text(case(cell, seed))
            return file

        def lab(one):
            cell, seed = one
            with LOCK:
                runs = kept.setdefault(name(cell), {})
            key = str(seed)
            # A run that the host spoiled is run once more.
            for _ in range(2):
                if key in runs and usable(runs[key]):
                    break
                result = run(args.altq, "lab", path(cell, seed))
                print(name(cell), seed, result, file=sys.stderr)
                with LOCK:
                    runs[key] = result
                    if args.lab:
                        args.lab.write_text(json.dumps(kept, indent=0))

        # Links of more than 10 Mbit/s keep a processor busy: they run alone.
        jobs = [(cell, seed) for seed in range(1, args.runs + 1) for cell in wanted]
        with ThreadPoolExecutor(args.at_once) as pool:
            list(pool.map(lab, [job for job in jobs if job[0][0] <= 10]))
        for job in jobs:
            if job[0][0] > 10:
                lab(job)
        print("| Mbit/s | queue | flows | control | kernel (runs) | simulator | difference | kernel lost | simulator "
              "| kernel stood | simulator |")
        print("|---|---|---|---|---|---|---|---|---|---|---|")
        apart = surely = 0
        for cell in wanted:
            model = [run(args.altq, "sim", path(cell, seed)) for seed in range(1, args.seeds + 1)]
            kernel = list(kept.get(name(cell), {}).values())
            good = [one for one in kernel if usable(one)]
            # Runs in which the host was late count only if there are no others.
            doubt = f"{len(good)}" if good else f"{len(kernel)} late"
            kernel = good or kernel
            if not kernel:
                continue
            by, half = difference([one["goodput"] for one in model], [one["goodput"] for one in kernel])
            apart += abs(by) > 0.03
            surely += half is not None and abs(by) - half > 0.03
            stood = [statistics.median(one["standstill"] or 0 for one in side) for side in (kernel, model)]
            stood = [f"{long:.0f} s" if long else "-" for long in stood]
            print(f"| {cell[0]} | {cell[1]} | {cell[2]} | {cell[3]} "
                  f"| {interval([one['goodput'] for one in kernel])} ({doubt}) "
                  f"| {interval([one['goodput'] for one in model])} "
                  f"| {by:+.1%}{'' if half is None else f' ± {half:.1%}'} "
                  f"| {statistics.mean(one['loss'] for one in kernel):.1%} "
                  f"| {statistics.mean(one['loss'] for one in model):.1%} "
                  f"| {stood[0]} | {stood[1]} |".replace("%", " %").replace("  %", " %"), flush=True)
        print(f"\n{len(wanted)} cells: the means of {apart} differ by more than 3 %; "
              f"of {surely} the whole interval lies beyond 3 %")


if __name__ == "__main__":
    main()
