"""The parts of benches/paths that compare with the kernel's HTB: TCP, packets a second, round trips,
floods; and processor time."""
import contextlib
import functools
import os
import time

from paths_result import (FULL, GBIT, MBIT, SMALL, UDP_HEADERS, WANTED, Part, against, chosen, interleaved, median,
                          named, valid)
from paths_world import FIRST, FIRST_COUNT, OVERHEAD, SECOND, SECOND_COUNT, Failure, Watch, die_with_parent


def bulk(world, path, rate, seconds):
    """Goodput of TCP over a path, in bit/s."""
    with world.shaped(path, rate) as shaper:
        result = world.traffic("a", ["bulk", world.to(path), "--port", str(SECOND), "--duration", f"{seconds + 1}s",
                                     "--warmup", "1s"])
    return {"value": result["flows"][0]["goodput_bit_s"], "why": result["invalid"], "stat": shaper.last}


def tcp(world, arguments):
    part = Part("tcp", "TCP with super-packets: goodput of one connection",
                ["rate", "path", "Mbit/s", "of htb", "worst", "wanted"])
    paths = chosen(arguments, ["none", "htb", "bridge", "xdp", "nfqueue", "kernel"], part)
    seconds = arguments.seconds or 5
    for rate in arguments.rates or [100 * MBIT, GBIT, 10 * GBIT]:
        found = interleaved(part, arguments, named(rate), paths, lambda path: bulk(world, path, rate, seconds))
        against(part, found, lambda value: f"{value:.1f}", WANTED["goodput"].get, named(rate), 1e-6)
    part.notes.append("none: the router without a shaper; nothing holds TCP to the rate there.")
    return part


def datagrams(world, path, senders, seconds, packets=0.0, guarded=0.0):
    """A flood of small packets through a path that is set up, in the class `second`: `packets` a
    second, or as many as the senders can. With `guarded` full packets at this rate (bit/s of
    Ethernet frames) in the class `first` as well. What arrives, and what was sent."""
    segments = 16 if packets else 64
    world.sink("b")
    floods = [world.flood("a", world.to(path), SECOND_COUNT, SMALL, packets / senders, seconds + 60, segments)
              for _ in range(senders)]
    time.sleep(0.2)
    before, kept = world.counts("b"), None
    if guarded:
        packets = guarded / 8 / (FULL + OVERHEAD)
        kept = world.flood("a", world.to(path), FIRST_COUNT, FULL - UDP_HEADERS[4], packets, seconds)
    time.sleep(seconds)
    after = world.counts("b")
    sent = world.sent(kept)[0] if kept else 0
    for flood in floods:
        flood.terminate()
    offered = sum(world.sent(flood)[1] for flood in floods)
    arrived = (after[1][SECOND_COUNT] - before[1][SECOND_COUNT]) / (after[0] - before[0])
    found = {"delivered_per_s": arrived, "offered_per_s": offered}
    if kept:
        time.sleep(0.3)
        came = world.counts("b")[1][FIRST_COUNT] - before[1][FIRST_COUNT]
        found |= {"kept": came / max(sent, 1), "guarded_per_s": came / seconds}
    return found


def some(rate):
    """A rate, which is not 0."""
    if not rate:
        raise Failure("no datagram arrived")
    return rate


def pps(world, arguments):
    part = Part("pps", "64-byte UDP packets a second at saturation, link of 10 Gbit/s",
                ["senders", "path", "thousand/s", "of htb", "worst", "wanted"])
    paths = chosen(arguments, ["alone", "none", "htb", "bridge", "xdp", "nfqueue", "kernel"], part)
    seconds = arguments.seconds or 3
    best = {}

    def measure(senders, path):
        with world.single(), contextlib.ExitStack() as stack:
            if path == "alone":
                world.forwarding(False)
                stack.callback(world.forwarding, True)
                found = datagrams(world, "none", senders, seconds)
                return {**found, "value": found["offered_per_s"]}
            shaper = stack.enter_context(world.shaped(path, 10 * GBIT))
            found = datagrams(world, path, senders, seconds)
        return {**found, "value": some(found["delivered_per_s"]), "stat": shaper.last}

    for senders in sorted({1, max(os.cpu_count(), 1)}):
        found = interleaved(part, arguments, f"{senders} senders", paths, functools.partial(measure, senders))
        ratios = against(part, found, lambda value: f"{value:.0f}", lambda _: None, senders, 1e-3)
        best |= {(senders, path): ratio for path, ratio in ratios.items()}
    for senders in sorted({senders for senders, _ in best}):
        ratio, path = max((ratio, path) for (number, path), ratio in best.items() if number == senders)
        part.row(senders, f"best: {path}", "", f"{ratio:.3f}", "", f"{WANTED['packets']:.2f}",
                 verdict="held" if ratio >= WANTED["packets"] else "missed")
    part.notes.append("alone: what the senders send while the router drops all of it; their own limit. none: what the "
                      "router forwards without a shaper.")
    return part


def rtt(world, arguments):
    part = Part("rtt", "Idle round trip of a byte over UDP, link of 1 Gbit/s (medians of the medians, in us)",
                ["path", "p50", "worst", "p99", "over none", "over htb", "wanted"])
    paths = ["none", "htb", "bridge", "bridge+realtime", "xdp", "nfqueue", "nfqueue+realtime", "kernel"]
    paths = chosen(arguments, paths, part)
    seconds = arguments.seconds or 3

    def measure(path):
        with world.shaped(path, GBIT) as shaper:
            result = world.traffic("a", ["rr", world.to(path), "--udp", "--port", str(FIRST), "--duration",
                                         f"{seconds + 0.5}s", "--warmup", "500ms"])
        trips = result["flows"][0]["rtt_ns"]
        if not trips:
            raise Failure("no request was answered")
        return {"value": trips["p50"] / 1e9, "p99": trips["p99"] / 1e9, "why": result["invalid"], "stat": shaper.last}

    found = interleaved(part, arguments, "round trip", paths, measure)
    bare, base = valid(found.get("none", [])), valid(found.get("htb", []))
    for path, runs in found.items():
        if path in part.skipped:
            continue
        values = valid(runs)
        if not values:
            part.row(path, *["-"] * 6, verdict="INVALID")
            continue
        own, cells, verdict, wanted = median(values), [], "-", "-"
        for other in (bare, base):
            cells.append(f"{(own - median(other)) * 1e6:.1f}" if other else "-")
        if base and path.partition("+")[0] not in ("none", "htb"):
            most = WANTED["round trip"][path.partition("+")[2]]
            wanted, verdict = f"{most * 1e6:.0f}", "held" if own - median(base) <= most else "missed"
        part.row(path, f"{own * 1e6:.1f}", f"{max(values.values()) * 1e6:.1f}",
                 f"{median(valid(runs, 'p99')) * 1e6:.1f}", *cells, wanted, verdict=verdict)
    return part


def flood(world, arguments):
    part = Part("flood", "A flood of 64-byte packets at three times capacity, and a class within its guarantee",
                ["what is full", "path", "best, thousand/s", "offered", "delivered", "worst", "kept", "worst"])
    paths = chosen(arguments, ["htb", "bridge", "xdp", "nfqueue", "kernel"], part)
    seconds, senders = arguments.seconds or 2, max(os.cpu_count(), 1)
    guarded = 9_500_000

    def processor(path):
        with world.single(), world.shaped(path, 10 * GBIT) as shaper:
            most = datagrams(world, path, senders, seconds)
            # A rate close to what it delivers may bring more than a flood.
            for times in (1.0, 1.25):
                other = datagrams(world, path, senders, seconds, some(most["delivered_per_s"]) * times)
                most = max(most, other, key=lambda found: found["delivered_per_s"])
            best = most["delivered_per_s"]
            load = datagrams(world, path, senders, seconds, 3 * best, guarded)
        return {**load, "best_per_s": best, "times": load["offered_per_s"] / best, "stat": shaper.last,
                "value": (load["delivered_per_s"] + load["guarded_per_s"]) / best}

    def link(path):
        rate = 50 * MBIT
        bits, full = 8 * (SMALL + UDP_HEADERS[4] + OVERHEAD), 8 * (FULL + OVERHEAD)
        with world.single(), world.shaped(path, rate) as shaper:
            best = some(datagrams(world, path, senders, seconds, 1.5 * rate / bits)["delivered_per_s"])
            load = datagrams(world, path, senders, seconds, 3 * rate / bits, guarded)
        return {**load, "best_per_s": best, "times": load["offered_per_s"] / best, "stat": shaper.last,
                "value": (load["delivered_per_s"] * bits + load["guarded_per_s"] * full) / (best * bits)}

    for what, measure in [("a processor, link of 10 Gbit/s", processor), ("the link of 50 Mbit/s", link)]:
        found = interleaved(part, arguments, what, paths, measure)
        for path, runs in found.items():
            if path in part.skipped:
                continue
            values, kept = valid(runs), valid(runs, "kept")
            if not values or not kept:
                part.row(what, path, *["-"] * 6, verdict="INVALID")
                continue
            ratio, share = median(values), median(kept)
            held = ratio >= WANTED["overload"] and share >= WANTED["kept"]
            part.row(what, path, f"{median(valid(runs, 'best_per_s')) / 1e3:.0f}",
                     f"{median(valid(runs, 'times')):.1f} times", f"{ratio:.3f}", f"{min(values.values()):.3f}",
                     f"{share:.3f}", f"{min(kept.values()):.3f}",
                     verdict="-" if path == "htb" else "held" if held else "missed")
    part.notes.append(f"best: the most that the path delivered at loads without the class. offered: times that; fewer "
                      f"than 3 where the senders send no more. delivered: of the best, under the flood (wanted "
                      f"{WANTED['overload']}); with a full link in bytes, else in packets. kept: of {named(guarded)} "
                      f"of full packets in a class that is guaranteed at least 10 Mbit/s (wanted {WANTED['kept']}).")
    return part


def cpu(world, arguments):
    part = Part("cpu", "Processor time at 300 Mbit/s of full packets, 330 offered; altq run held to one processor",
                ["path", "of its processor", "worst", "delivered, Mbit/s", "busy processors"])
    paths = chosen(arguments, ["none", "htb", "bridge", "xdp", "nfqueue", "kernel"], part)
    seconds, rate = arguments.seconds or 8, 300 * MBIT
    last = max(os.sched_getaffinity(0))
    rest = os.sched_getaffinity(0) - {last} or {last}

    def only(processors):
        def before():
            die_with_parent()
            os.sched_setaffinity(0, processors)
        return before

    def measure(path):
        with world.single(), world.shaped(path, rate, preexec_fn=only({last})) as shaper:
            load = world.flood("a", world.to(path), SECOND_COUNT, FULL - UDP_HEADERS[4],
                               1.1 * rate / 8 / (FULL + OVERHEAD), seconds + 1.0, 4, preexec_fn=only(rest))
            time.sleep(0.5)
            before, used = world.counts("b"), shaper.processor_time() if shaper.process else None
            with Watch() as watch:
                time.sleep(seconds)
            after = world.counts("b")
            took = after[0] - before[0]
            used = None if used is None else (shaper.processor_time() - used) / took
            world.sent(load)
        packets = (after[1][SECOND_COUNT] - before[1][SECOND_COUNT]) / took
        return {"value": used, "mbit_s": packets * 8 * (FULL + OVERHEAD) / 1e6, "busy": watch.busy, "stat": shaper.last}

    found = interleaved(part, arguments, "cpu", paths, measure)
    for path, runs in found.items():
        if path in part.skipped:
            continue
        rates, busy, used = valid(runs, "mbit_s"), valid(runs, "busy"), valid(runs)
        if not rates:
            part.row(path, *["-"] * 4, verdict="INVALID")
            continue
        own = [f"{median(used):.1%}", f"{max(used.values()):.1%}"] if used else ["-", "-"]
        part.row(path, *own, f"{median(rates):.1f}", f"{median(busy):.2f}")
    part.notes.append("of its processor: time of the process altq run. busy processors: all that ran, with senders, "
                      "receiver and the kernel; the difference to none is what the path costs.")
    return part
