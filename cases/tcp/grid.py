#!/usr/bin/env python3
"""Compares the simulator's TCP with the kernel's over a grid of rates, queues and numbers of flows.

    cases/tcp/grid.py [--altq PROGRAM] [--at-once N] [--only PART] [--lab FILE] [--all]

Each cell is a case: greedy flows over one link with a plain queue, 20 ms each way, measured for a
minute after the first ten seconds. It runs in the simulator and, as root, in the lab. The table goes
to standard output. `--lab FILE` keeps the lab's figures in FILE, and takes those that are there.
Without `--all` 82 of the 390 cells are run. `--at-once` says how many labs run side by side. On a
host with other work `chrt -f 20` before the command gives the lab real-time priority.
"""
import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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


def case(cell):
    rate, queue, flows, cc = cell
    # Flows that open at the same instant lose their SYNs together; they begin one after the other
    # within a second.
    each = "".join(
        f'[[flows]]\nname = "f{n}"\nkind = "tcp_bulk"\nfrom = "source"\nto = "sink"\ncongestion = "{cc}"\n'
        f'start = "{n * 1000 // flows}ms"\n' for n in range(flows))
    return f"""name = "tcp/grid/{name(cell)}"
description = "Greedy flows through a plain queue: a cell of cases/tcp/grid.py."
duration = "70s"
warmup = "10s"
offload = false
policy = "link wan {{ rate {int(rate * 1000)}kbit/s  overhead 14 bytes  scheduler fifo  queue drop_tail {{ limit {queue}packets }} }}"
hosts = [{{ name = "source" }}, {{ name = "sink" }}]
links = [{{ name = "wan", from = "source", to = "sink", delay = "20ms", policy = "wan" }}]
{each}"""


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


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--altq", default="target/release/altq")
    args.add_argument("--at-once", type=int, default=3)
    args.add_argument("--only", default="")
    args.add_argument("--lab", type=Path)
    args.add_argument("--all", action="store_true")
    args = args.parse_args()
    kept = json.loads(args.lab.read_text()) if args.lab and args.lab.exists() else {}
    wanted = [cell for cell in cells(args.all) if args.only in name(cell)]
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for cell in wanted:
            paths[cell] = Path(folder, name(cell) + ".toml")
            paths[cell].write_text(case(cell))

        def lab(cell):
            key = name(cell)
            # A run that the host spoiled is run once more.
            for _ in range(2):
                if not (key in kept and kept[key]["valid"]):
                    kept[key] = run(args.altq, "lab", paths[cell])
                    print(key, kept[key], file=sys.stderr)
            if args.lab:
                args.lab.write_text(json.dumps(kept, indent=0))

        # Links of more than 10 Mbit/s keep a processor busy: they run alone.
        quiet, busy = ([c for c in wanted if (c[0] > 10) == fast] for fast in (False, True))
        with ThreadPoolExecutor(args.at_once) as pool:
            list(pool.map(lab, quiet))
        for cell in busy:
            lab(cell)
        print("| Mbit/s | queue | flows | control | kernel | simulator | difference | kernel lost | simulator "
              "| kernel stood | simulator |")
        print("|---|---|---|---|---|---|---|---|---|---|---|")
        apart = 0
        for cell in wanted:
            kernel, model = kept[name(cell)], run(args.altq, "sim", paths[cell])
            difference = model["goodput"] / max(kernel["goodput"], 1e-9) - 1
            apart += abs(difference) > 0.03
            stood = ["-" if r["standstill"] is None else f"{r['standstill']:.1f} s" for r in (kernel, model)]
            doubt = "" if kernel["valid"] else " (invalid)"
            print(f"| {cell[0]} | {cell[1]} | {cell[2]} | {cell[3]} | {kernel['goodput']:.3f}{doubt} "
                  f"| {model['goodput']:.3f} | {difference:+.1%} | {kernel['loss']:.1%} | {model['loss']:.1%} "
                  f"| {stood[0]} | {stood[1]} |")
        print(f"\n{len(wanted)} cells, {apart} differ by more than 3 %")


if __name__ == "__main__":
    main()
