"""The parts of benches/kernel: policies that the kernel executes, their rates, and their shares."""
import collections
import contextlib
import re
import subprocess
import time

import kernel_policies
from paths_result import FULL, GBIT, MBIT, UDP_HEADERS, Part, interleaved, median, named, valid
from paths_shares import share_run
from paths_world import ENVIRONMENT, FIRST_COUNT, OVERHEAD, SECOND_COUNT, Failure, Lacks

# How far rates may be from those through a bridge, and shares from those of altq's own engine.
RATES, SHARED = 0.01, 0.02
# The interface of the router that policies are for.
DEVICE = "wan"
UNITS = {"bit": 1, "Kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9}


def state(world):
    """All qdiscs and interfaces of the router. Classes and filters go with their qdisc."""
    text = world.inside("router", ["tc", "qdisc", "show"]) + world.inside("router", ["ip", "-br", "link"])
    return text.splitlines()


def classes(lines):
    """How many classes of each kind have the same rates, as tc prints them."""
    found = collections.Counter()
    for line in lines:
        rates = re.findall(r"\b(rate|ceil|m2) (\d+)([KMG]?bit)", line)
        kind = line.split()[1]
        found[kind, tuple(int(number) * UNITS[unit] for _, number, unit in rates)] += 1
    return found


def run(world, words):
    """A command of altq in the router: how long it took, its exit code, what it said."""
    begun = time.monotonic()
    done = subprocess.run(["ip", "netns", "exec", "router", world.altq, *words], capture_output=True, text=True,
                          env=ENVIRONMENT, check=False)
    return time.monotonic() - begun, done.returncode, (done.stderr + done.stdout).strip()


def one(world, policy):
    """Sets a policy up, reads it back, changes it, and takes it away. Seconds of each, and what is
    wrong."""
    wrong, took = [], {}
    before = state(world)

    def stands():
        return world.inside("router", ["tc", "class", "show", "dev", DEVICE]).splitlines()

    def step(name, words, may=()):
        took[name], code, said = run(world, words)
        if code in (7, *may):
            raise Lacks(said.splitlines()[-1] if said else f"exit code {code}")
        if code:
            raise Failure(f"{name}: exit code {code}: {said[-300:]}")
        return said

    file = world.scratch / "policy.altq"
    try:
        for name, text, expected in [("set up", policy.text, policy.classes),
                                     ("changed", policy.changed, policy.changed_classes)]:
            file.write_text(text)
            # 2: the policy has a word that the kernel does not keep.
            step(name, ["run", "--detach", str(file)], (2,) if policy.may_be_refused else ())
            lines = stands()
            found = classes(lines)
            for of, number in (expected or {}).items():
                if found[of] < number:
                    wrong.append(f"{name}: {found[of]} classes are {of}, of {number}")
            kinds = {kind for kind, _ in expected or {}}
            there = sum(number for (kind, _), number in found.items() if kind in kinds)
            if expected and there > sum(expected.values()) + policy.more:
                wrong.append(f"{name}: {there} classes, of {sum(expected.values())}")
            # Asked for once more, the same changes nothing: altq reads back what stands. A tree that
            # is built anew has other handles.
            step(f"{name}, again", ["run", "--detach", str(file)])
            if stands() != lines:
                wrong.append(f"{name}, again: the classes are others")
        step("taken away", ["stop"])
        if state(world) != before:
            wrong.append(f"taken away: there are {[line for line in state(world) if line not in before]}")
    finally:
        if state(world) != before:
            run(world, ["stop"])
            for device in ("wan", "lan"):
                subprocess.run(["ip", "netns", "exec", "router", "tc", "qdisc", "del", "dev", device, "root"],
                               capture_output=True, env=ENVIRONMENT, check=False)
    return took, wrong


def policies(world, arguments):
    """Forty generated policies and those of examples/: set up, read back, changed, taken away."""
    part = Part("policies", "Policies that the kernel executes: seconds of altq, and what is wrong afterwards",
                ["policy", "classes", "set up", "again", "changed", "taken away", "wrong"])
    done, refused = 0, []
    for policy in kernel_policies.all_of_them(arguments.classes):
        try:
            took, wrong = one(world, policy)
        except Lacks as error:
            part.skipped[policy.name] = str(error)
            refused.append(policy.name)
            continue
        except Failure as error:
            took, wrong = {}, [str(error)]
        done += 1
        part.row(policy.name, policy.leaves, *(f"{took[name]:.2f}" if name in took else "-"
                                               for name in ("set up", "set up, again", "changed", "taken away")),
                 len(wrong), verdict="missed" if wrong else "held")
        part.notes += [f"{policy.name}: {text}" for text in wrong[:3]]
        part.runs.append({"choice": policy.name, "why": [], "took": took, "wrong": wrong[:100]})
        arguments.say(f"policies: {policy.name}: {took} {wrong[:1]}")
    part.notes.append(f"{done} policies were set up; {len(refused)} were not, and why is said above. What stands is "
                      "read by tc: every class with its rates (htb, hfsc). again: the same file, which changes "
                      "nothing.")
    return part


def rates(world, arguments):
    """Rates of two classes through the kernel's qdiscs, over those of the same policy at a bridge."""
    part = Part("rates", "Rates of two classes with `path kernel` over those of the same policy through `bridge` (htb)",
                ["rate", "what", "first", "second", "wanted"])
    arguments.scheduler = "htb"
    choices = [(place, rate, family, protocol) for rate in arguments.rates or [2 * MBIT, 20 * MBIT, 200 * MBIT, GBIT]
               for family in (4, 6) for protocol in ("tcp", "udp") for place in ("bridge", "kernel")]

    def measure(choice):
        found = share_run(world, arguments, *choice)
        return {**found, **{f"got {name}": bits for name, bits in found["bit_s"].items()}}

    found = interleaved(part, arguments, "rates", choices, measure)
    for place, rate, family, protocol in choices:
        if place != "kernel" or any((of, rate, family, protocol) in part.skipped for of in ("bridge", "kernel")):
            continue
        beside = found["bridge", rate, family, protocol]
        cells, verdict = [], "held"
        for name in ("first", "second"):
            own, other = (valid(runs, f"got {name}") for runs in (found[place, rate, family, protocol], beside))
            if not own or not other:
                cells.append("-")
                verdict = "INVALID"
                continue
            off = median(own) / median(other) - 1
            cells.append(f"{off:+.2%}")
            if abs(off) > RATES and verdict == "held":
                verdict = "missed"
        part.row(named(rate), f"{protocol.upper()}, IPv{family}", *cells, f"{RATES:.0%}", verdict=verdict)
    return part


def shares(world, arguments):
    """What two classes, or two flows, get of the kernel's qdiscs and of altq's own engine."""
    rate = (arguments.rates or [5 * MBIT])[0]
    title = f"Two floods on a link of {named(rate)}: `path kernel` beside altq's own engine (`bridge`), Mbit/s"
    part = Part("shares", title, ["policy", "engine: first", "engine: second", "kernel: first", "kernel: second", "off",
                                  "wanted"])
    seconds = arguments.seconds or 10

    def measure(choice):
        name, path = choice
        loads, words = kernel_policies.SHARED[name]
        payload, host, device = FULL - UDP_HEADERS[4], "middle", "bridge a b"
        if path == "kernel":
            host, device = "router", DEVICE
        text = f"link wan {{\n    device {device}\n    rate {rate}bit/s\n    overhead {OVERHEAD} bytes\n"
        text += f"    path kernel\n{words}}}\n" if path == "kernel" else f"{words}}}\n"
        world.sink("b")
        with world.single(), contextlib.ExitStack() as stack:
            stack.enter_context(world.altq_run(host, text, False))
            for port, load in zip((FIRST_COUNT, SECOND_COUNT), loads):
                packets = load * rate / 8 / (FULL + OVERHEAD)
                stack.callback(world.drop, world.flood("a", world.to(path), port, payload, packets, seconds + 60))
            time.sleep(3)
            before = world.counts("b")
            time.sleep(seconds)
            after = world.counts("b")
        bits = payload * 8 / (after[0] - before[0])
        got = [(after[1][port] - before[1][port]) * bits for port in (FIRST_COUNT, SECOND_COUNT)]
        return {"value": got[0], "first": got[0], "second": got[1]}

    choices = [(name, path) for name in kernel_policies.SHARED for path in ("bridge", "kernel")]
    found = interleaved(part, arguments, "shares", choices, measure)
    for name in kernel_policies.SHARED:
        if any((name, path) in part.skipped for path in ("bridge", "kernel")):
            continue
        cells, off = [], 0
        values = {path: [valid(found[name, path], word) for word in ("first", "second")]
                  for path in ("bridge", "kernel")}
        if not all(all(of) for of in values.values()):
            part.row(name, *["-"] * 5, f"{SHARED:.0%}", verdict="INVALID")
            continue
        middle = {path: [median(of) for of in values[path]] for path in values}
        for path in ("bridge", "kernel"):
            cells += [f"{of / 1e6:.3f}" for of in middle[path]]
        off = max((kernel / own - 1 for kernel, own in zip(middle["kernel"], middle["bridge"])), key=abs)
        part.row(name, *cells, f"{off:+.2%}", f"{SHARED:.0%}", verdict="held" if abs(off) <= SHARED else "missed")
    return part
