"""The parts of benches/changes about traffic: policies in a row, and one rate among many."""
import contextlib
import itertools
import os
import signal
import time

from changes_world import RATE, Changing, names, turning, unequal
from paths_result import FULL, UDP_HEADERS, Part, interleaved, median, valid
from paths_world import FIRST_COUNT, OVERHEAD, SECOND_COUNT, Failure, Lacks
from service_parts import many, of
from service_world import PLACES, Stream, bulk, gap

# A policy every so many seconds.
PACE = 0.25
# Numbered datagrams a second: a gap is known to half a millisecond.
NUMBERED = 2000
# What each of the two counted loads sends, in bit/s of Ethernet frames: less than their classes are
# guaranteed under every policy.
COUNTED = {FIRST_COUNT: 20_000_000, SECOND_COUNT: 10_000_000}


def chosen(arguments, usual=None):
    return arguments.paths or usual or list(PLACES)


def still(world, ports):
    """How many datagrams have come by port, when no more come."""
    begun, before = time.monotonic(), None
    while time.monotonic() < begun + 10:
        now = {port: count for port, count in world.counts("b")[1].items() if port in ports}
        if now == before:
            return now
        before = now
        time.sleep(0.3)
    raise Failure("datagrams come although nobody sends any more")


def dropped(link, without):
    """Packets that altq says it has dropped, but for those of a class."""
    root, other = link["classes"][0], next(of for of in link["classes"] if of["name"] == without)
    return sum(root["dropped"].values()) - sum(other["dropped"].values()) + link["device"]["device_dropped"]


def passing(world, path, count):
    """Applies policies in a row while TCP and datagrams pass, and says what became of them."""
    service, sent, arrived, took = Changing(world, path, turning(path, 0)), {}, {}, {}
    payload = FULL - UDP_HEADERS[4]
    with contextlib.ExitStack() as stack:
        service.start()
        stack.callback(service.end)
        world.sink("b")
        with bulk(world, path, int(PACE * count) + 6) as flow:
            before = still(world, COUNTED)
            stream = Stream(world, path, 10_000, rate=NUMBERED)
            stack.callback(world.drop, stream.sender)
            loads = {port: world.flood("a", world.to(path), port, payload, bits / 8 / (FULL + OVERHEAD), 10_000)
                     for port, bits in COUNTED.items()}
            for load in loads.values():
                stack.callback(world.drop, load)
            time.sleep(2)
            began = time.monotonic()
            for number in range(1, count + 1):
                time.sleep(max(0.0, began + number * PACE - time.monotonic()))
                took[number] = service.apply(turning(path, number))
            ended = time.monotonic()
            time.sleep(1)
            for port, load in loads.items():
                load.terminate()
                sent[port] = world.sent(load)[0]
            come = stream.end()
            now = still(world, COUNTED)
            arrived = {port: now[port] - before[port] for port in COUNTED}
        # TCP has ended as well: nothing waits any more, and counters stand still.
        time.sleep(1)
        link, classes = service.link(), service.classes()
    why = ["the load ended before the last policy"] if ended > began + PACE * count + 3 else []
    if classes != names(count):
        raise Failure(f"the loop has the classes {', '.join(classes)} at the end")
    lost = come["lost"] + sum(sent[port] - arrived[port] for port in COUNTED)
    accounted = dropped(link, "second")
    return {"value": max(took.values()), "applies": took, "why": why, "lost": lost, "twice": come["twice"],
            "sent": come["sent"] + sum(sent.values()), "accounted": accounted,
            "unaccounted": max(0, lost - accounted), "gap": gap(come["times"], began, ended),
            "gap without": gap(come["times"], began - 1.5, began - 0.1), "goodput": flow[0],
            "wrong": unequal(link), "stat": link}


def applies(world, arguments):
    part = Part("applies", f"{arguments.count} policies in a row: rates move, a class comes and goes, a scheduler "
                           "changes; under TCP and datagrams at 200 Mbit/s",
                ["path", "datagrams", "lost", "dropped by altq", "unaccounted", "longest gap, ms", "without, ms",
                 "apply, ms", "TCP, Mbit/s"])
    paths = chosen(arguments)
    found = interleaved(part, arguments, "applies", paths, lambda path: passing(world, path, arguments.count))
    for path, runs in found.items():
        if path in part.skipped:
            continue
        lost, gaps = valid(runs, "lost"), valid(runs, "gap")
        if not gaps:
            part.row(path, *["-"] * 8, verdict="INVALID")
            continue
        worst = {key: max(valid(runs, key).values()) for key in ("lost", "accounted", "unaccounted", "twice")}
        took = [seconds for run in runs if not run["why"] for seconds in run["applies"].values()]
        wrong = [text for run in runs for text in run.get("wrong", [])]
        times = dict(enumerate(took))
        part.row(path, max(valid(runs, "sent").values()), worst["lost"], worst["accounted"], worst["unaccounted"],
                 of(gaps, digits=1), of(valid(runs, "gap without"), digits=1), of(times, digits=1),
                 f"{median(valid(runs, 'goodput')) / 1e6:.1f}",
                 verdict="held" if not (any(lost.values()) or worst["twice"] or wrong) else "missed")
        part.notes += [f"{path}: {text}" for text in dict.fromkeys(wrong)]
    part.notes.append("Median (worst). lost: datagrams that were sent and have not come, wanted: none. unaccounted: "
                      "of those, what altq has not counted as dropped; what it dropped of TCP's class is left out. "
                      "without: in the second and a half before the first policy.")
    return part


def until_said(service, before):
    """Waits until more is in the log than before, about SIGHUP, and returns what."""
    begun = time.monotonic()
    while time.monotonic() < begun + 60:
        said = service.log.read_text()[before:]
        if "SIGHUP" in said and said.endswith("\n"):
            return said
        time.sleep(0.001)
    raise Failure("altq says nothing of SIGHUP within a minute")


def rate_of(text, name, rate):
    """A policy of `many` with another rate of a class."""
    begin, found, rest = text.partition(f"class {name} {{ rate ")
    if not found:
        raise Failure(f"the policy has no class {name}")
    return begin + found + rate + " " + rest.partition(" ")[2]


def changed(service, stream, text, how, rate):
    """Changes one rate, and says how long that took, and for how long nothing came meanwhile."""
    stream.come()
    time.sleep(0.3)
    if how == "SIGHUP":
        service.file.write_text(rate_of(text, "c5", rate))
        before, begun = len(service.log.read_text()), time.monotonic()
        os.kill(service.process.pid, signal.SIGHUP)
        said = until_said(service, before)
        took = time.monotonic() - begun
        if "1 thing has changed" not in said:
            raise Failure(f"SIGHUP: {said.strip()[-300:]}")
    elif how == "apply":
        took = service.apply(rate_of(text, "c5", rate))
    else:
        took = service.done("class", "set", "wan/c5", f"rate {rate}")
    time.sleep(0.3)
    times = sorted(at for _, at in stream.come())
    if len(times) < 2:
        raise Failure("no datagrams came meanwhile")
    return {"value": took, "gap": gap(times, times[0], times[-1])}


def rate(world, arguments):
    part = Part("rate", "A change of one rate, beside 1000 datagrams a second",
                ["classes", "how", "ms, median (worst)", "longest gap, ms"])
    if arguments.paths and "bridge" not in arguments.paths:
        raise Lacks("this part measures a bridge")
    few = min(arguments.classes, 10_000)
    # Never the rate that the class has.
    rates = itertools.cycle(["60kbit/s", "61kbit/s"])
    for classes, ways in {few: ["apply", "class set", "SIGHUP"], arguments.classes: ["class set", "SIGHUP"]}.items():
        text = many(classes)
        service = Changing(world, "bridge", text)
        with contextlib.ExitStack() as stack:
            took = service.start()
            stack.callback(service.end)
            stream = Stream(world, "bridge", 100_000)
            stack.callback(world.drop, stream.sender)
            time.sleep(1)
            found = interleaved(part, arguments, f"{classes} classes", ways,
                                lambda how: changed(service, stream, text, how, next(rates)))
            if classes > few:
                done = service.altq(*service.words(rate_of(text, "c5", "70kbit/s")))
                part.notes.append(f"altq apply of {classes} classes ends with {done.returncode}: "
                                  f"{' '.join(done.stderr.split())[-300:]}")
        for how, runs in found.items():
            values = valid(runs)
            if not values:
                part.row(classes, how, "-", "-", verdict="INVALID")
                continue
            part.row(classes, how, of(values), of(valid(runs, "gap"), digits=1))
        part.notes.append(f"{classes} classes: a policy of {len(text) / 1e6:.1f} MB, which was shaped {took:.1f} s "
                          "after the start.")
    part.notes.append("A request takes a policy of at most 1 MiB; a longer one is read from its file at SIGHUP "
                      "(docs/apply.md).")
    return part
