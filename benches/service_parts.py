"""The parts of benches/service."""
import contextlib
import json
import os
import signal
import time

from paths_result import FULL, MBIT, SMALL, UDP_HEADERS, Part, interleaved, median, valid
from paths_world import FIRST_COUNT, OVERHEAD, SECOND_COUNT, Failure, Lacks, Watch
from service_world import PLACES, Memory, Service, Socket, States, Stream, bulk, gap

# Seconds: how soon packets pass again, and how soon they are shaped again.
PASS_AGAIN, SHAPED_AGAIN = 0.200, 1.0


def of(values, unit=1e3, digits=0):
    """Median and worst of some seconds, in milliseconds."""
    return f"{median(values) * unit:.{digits}f} ({max(values.values()) * unit:.{digits}f})"


def fault(world, path, what):
    """Does something to the processes while datagrams and TCP pass, and says what came of it."""
    service, memory = Service(world, path), None
    with contextlib.ExitStack() as stack:
        start = {}
        if what == "memory.max":
            memory = Memory()
            stack.callback(memory.end)

            def enter():
                memory.enter()
            start["preexec_fn"] = enter
        service.start(**start)
        stack.callback(service.end)
        flow = stack.enter_context(bulk(world, path, 6))
        stream = Stream(world, path, 20)
        stack.callback(world.drop, stream.sender)
        time.sleep(1)
        states = States(service.socket)
        states.start()
        time.sleep(0.1)
        worker, began = service.worker(), time.monotonic()
        again = began
        if what == "memory.max":
            # Packets take no more than what there is from the start. A long request takes some.
            memory.set(memory.used() + 65536)
            asking = Socket(service.socket)
            stack.callback(asking.close)
            with contextlib.suppress(OSError):
                asking.connection.sendall(json.dumps({"op": "apply", "text": "#" * 900_000}).encode() + b"\n")
            while os.path.exists(f"/proc/{worker}"):
                if time.monotonic() > began + 5:
                    raise Lacks("the limit of memory did not end the worker: nothing more of it was charged")
                time.sleep(0.001)
            again = time.monotonic()
            memory.set(-1 if "limit" in memory.limit else "max")
        elif what.startswith("worker"):
            os.kill(worker, signal.SIGKILL if what.endswith("kill") else signal.SIGSTOP)
        elif what == "supervisor stop":
            os.kill(service.process.pid, signal.SIGSTOP)
            time.sleep(2)
            os.kill(service.process.pid, signal.SIGCONT)
        else:
            os.kill(service.process.pid, signal.SIGKILL)
            if what == "both kill":
                os.kill(worker, signal.SIGKILL)
            service.killed()
            time.sleep(1)
            again = time.monotonic()
            service.start()
        service.until("shaping", 20)
        time.sleep(max(0.0, began + 4 - time.monotonic()))
        changes = states.end()
        come = stream.end()
    left = service.left()
    shaped = next((at for at, state in reversed(changes) if state == "shaping"), began)
    return {"value": gap(come["times"], began, began + 4), "lost": come["lost"], "twice": come["twice"],
            "sent": come["sent"], "shaped": max(0.0, shaped - again) if len(changes) > 1 else 0.0,
            "said_bypass": any(state == "bypass" for _, state in changes), "goodput": flow[0], "left": left}


def faults(world, arguments):
    part = Part("faults", "What ends or stops the processes of `altq run --supervise`, under 1000 datagrams a second "
                          "and TCP at 100 Mbit/s: milliseconds, median (worst)",
                ["path", "what", "longest gap", "until shaped", "lost of a second", "TCP, Mbit/s", "wanted"])
    whats = ["worker kill", "worker stop", "memory.max", "supervisor kill", "supervisor stop", "both kill"]
    choices = [(path, what) for path in PLACES for what in whats
               if not arguments.paths or path in arguments.paths]
    found = interleaved(part, arguments, "faults", choices, lambda choice: fault(world, *choice))
    for (path, what), runs in found.items():
        if (path, what) in part.skipped:
            continue
        gaps, shaped, lost = valid(runs), valid(runs, "shaped"), valid(runs, "lost")
        if not gaps:
            part.row(path, what, *["-"] * 5, verdict="INVALID")
            continue
        held = max(gaps.values()) <= PASS_AGAIN and max(shaped.values()) <= SHAPED_AGAIN
        left = [line for run in runs for line in run.get("left", [])]
        part.row(path, what, of(gaps), of(shaped), f"{median(lost):.0f} ({max(lost.values())})",
                 f"{median(valid(runs, 'goodput')) / 1e6:.1f}",
                 f"{PASS_AGAIN * 1e3:.0f}, {SHAPED_AGAIN * 1e3:.0f}",
                 verdict="held" if held and not left else "missed")
        part.notes += [f"left behind by {path}, {what}: {line}" for line in dict.fromkeys(left)]
    part.notes.append("longest gap: without a datagram at the receiver. until shaped: from the fault, or from the new "
                      "start where the supervisor was killed, a second later. Stopping the supervisor changes nothing "
                      "for packets.")
    return part


def restarts(world, arguments):
    part = Part("restarts", f"{arguments.count} starts and stops in a row, under 1000 datagrams a second and TCP",
                ["path", "until shaped, ms", "until ended, ms", "longest gap, ms", "lost", "of", "left behind"])
    for path in arguments.paths or PLACES:
        service = Service(world, path)
        began, ended, left = {}, {}, []
        service.start()
        with Watch() as watch, bulk(world, path, 2 + arguments.count) as flow:
            stream = Stream(world, path, 10_000)
            for number in range(arguments.count):
                time.sleep(0.2)
                ended[number] = service.end()
                if left := service.left():
                    break
                began[number] = service.start()
            come = stream.end()
        service.end()
        times = come["times"]
        longest = gap(times, times[0], times[-1])
        part.row(path, of(began), of(ended), f"{longest * 1e3:.0f}", come["lost"], come["sent"], len(left),
                 verdict="missed" if left or len(began) < arguments.count else "held")
        part.runs.append({"choice": path, "why": watch.why, "began": began, "ended": ended, "goodput": flow,
                          **{key: come[key] for key in ("sent", "lost", "twice")}})
        part.notes += [f"{path}: {line}" for line in left[:3]] + [f"{path}: {why}" for why in watch.why]
    part.notes.append("A bridge forwards nothing between stop and start: that is its gap, and what is lost.")
    return part


def many(classes):
    """A policy of many classes on a bridge, each for an address."""
    lines = ["link wan {\n    device bridge a b\n    rate 10Gbit/s\n    scheduler htb"]
    lines += [f"    class c{at} {{ rate 50kbit/s ceil 1Gbit/s }}" for at in range(classes)]
    lines += ["    class rest { rate 1Mbit/s ceil 10Gbit/s default }"]
    lines += [f"    match dst 10.{64 + at // 65536}.{at // 256 % 256}.{at % 256} -> c{at}" for at in range(classes)]
    return "\n".join(lines) + "\n}\n"


def stat(world, arguments):
    part = Part("stat", f"`altq stat --json` of {arguments.classes} classes",
                ["load", "seconds, median (worst)", "wanted", "MB"])
    service = Service(world, "bridge", many(arguments.classes), options=["--interval", "1s"])
    took = service.start()
    try:
        time.sleep(2)

        def measure(load):
            with contextlib.ExitStack() as stack:
                if load == "flood":
                    stack.enter_context(world.single())
                    flood = world.flood("a", world.to("bridge"), SECOND_COUNT, SMALL, 0, 60, 64)
                    stack.callback(world.drop, flood)
                    time.sleep(1)
                begun = time.monotonic()
                done = service.altq("stat", "--json")
                seconds = time.monotonic() - begun
            if done.returncode:
                raise Failure(f"altq stat: {done.stderr.strip()}")
            return {"value": seconds, "bytes": len(done.stdout),
                    "classes": len(json.loads(done.stdout)["links"][0]["classes"])}

        # Beside a flood the processors are busy on purpose: every run counts.
        found = interleaved(part, arguments, "stat", ["idle", "flood"], measure)
    finally:
        service.end()
    for load, runs in found.items():
        values = {run["round"]: run["value"] for run in runs if run["value"]}
        if not values:
            part.row(load, "-", "1", "-", verdict="INVALID")
            continue
        size = max(run.get("bytes", 0) for run in runs)
        part.row(load, of(values, 1, 2), "1", f"{size / 1e6:.1f}",
                 verdict="held" if median(values) <= 1 else "missed")
    part.notes.append(f"It shaped {took:.1f} s after its start.")
    return part


def clients(world, arguments):
    part = Part("clients", "Sixteen clients of the control socket, of which eight take no replies, beside none",
                ["path", "what", "without", "with", "ratio", "worst", "wanted"])
    seconds, rate = arguments.seconds or 5, 100 * MBIT
    payload = FULL - UDP_HEADERS[4]

    def measure(choice):
        path, asking = choice
        service = Service(world, path, options=["--interval", "200ms"])
        with contextlib.ExitStack() as stack:
            service.start()
            stack.callback(service.end)
            stack.enter_context(world.single())
            world.sink("b")
            for port, times in [(FIRST_COUNT, 0.4), (SECOND_COUNT, 1.1)]:
                load = world.flood("a", world.to(path), port, payload, rate * times / 8 / (FULL + OVERHEAD),
                                   seconds + 60)
                stack.callback(world.drop, load)
            opened = [Socket(service.socket) for _ in range(16 * asking)]
            for connection in opened[8:]:
                # As many requests as fit; nobody reads the replies.
                connection.connection.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    for _ in range(10_000):
                        connection.connection.send(b'{"op":"stat"}\n')
            time.sleep(1)
            before = world.counts("b")
            answered, until = 0, time.monotonic() + seconds
            while time.monotonic() < until:
                for connection in opened[:8]:
                    answered += bool(connection.ask(op="stat"))
                time.sleep(0.1)
            after = world.counts("b")
            found = Socket(service.socket).ask(op="stat")["links"][0]["classes"]
            for connection in opened:
                connection.close()
        bits = payload * 8 / (after[0] - before[0])
        got = {name: (after[1][port] - before[1][port]) * bits
               for name, port in [("first", FIRST_COUNT), ("second", SECOND_COUNT)]}
        waits = {of["name"]: of["sojourn_ns"]["p99"] for of in found if of["name"] in got}
        return {"value": got["first"], "second": got["second"], "p99 first": waits["first"],
                "p99 second": waits["second"], "answered": answered}

    paths = [path for path in PLACES if not arguments.paths or path in arguments.paths]
    found = interleaved(part, arguments, "clients", [(path, asking) for path in paths for asking in (0, 1)], measure)
    for path in paths:
        for key, name, unit in [("value", "first, Mbit/s", 1e-6), ("second", "second, Mbit/s", 1e-6),
                                ("p99 first", "p99 of first, ms", 1e-6), ("p99 second", "p99 of second, ms", 1e-6)]:
            without, beside = (valid(found[path, asking], key) for asking in (0, 1))
            if not without or not beside:
                part.row(path, name, *["-"] * 5, verdict="INVALID")
                continue
            ratio = median(beside) / median(without)
            worst = max((beside[at] / without[at] for at in beside if at in without), key=lambda of: abs(of - 1))
            part.row(path, name, f"{median(without) * unit:.2f}", f"{median(beside) * unit:.2f}", f"{ratio:.4f}",
                     f"{worst:.4f}", "1 %", verdict="held" if abs(ratio - 1) <= 0.01 else "missed")
    return part


def subscribers(world, arguments):
    count = arguments.subscribers
    part = Part("subscribers", f"`altq subscriber set --bulk` of {count} subscribers, under 1000 datagrams a second",
                ["path", "what", "seconds, median (worst)", "lost", "of", "longest gap, ms"])
    text = "".join(f"s{at} addr=10.{64 + at // 65536}.{at // 256 % 256}.{at % 256} wan=1Mbit/s\n"
                   for at in range(count))

    def measure(path):
        device = PLACES[path][1]
        policy = (f"link wan {{ device {device}  rate 1Gbit/s  overcommit  scheduler htb\n"
                  "class subscribers { rate 900Mbit/s ceil 1Gbit/s }\n"
                  "class rest { rate 100Mbit/s ceil 1Gbit/s default } }\n")
        service = Service(world, path, policy, options=["--subscribers", str(count)])
        with contextlib.ExitStack() as stack:
            service.start()
            stack.callback(service.end)
            stream, took = Stream(world, path, 10_000), {}
            stack.callback(world.drop, stream.sender)
            time.sleep(0.5)
            for what, said in [("set", "changed"), ("again", "as before")]:
                begun = time.monotonic()
                done = service.altq("subscriber", "set", "--bulk", "-", text=text)
                took[what] = time.monotonic() - begun
                if done.returncode or f"{count} {said}" not in done.stderr:
                    raise Failure(f"altq subscriber: {done.stderr.strip()[-300:]}")
            come = stream.end()
        return {"value": took["set"], "again": took["again"], "lost": come["lost"], "sent": come["sent"],
                "gap": gap(come["times"], come["times"][0], come["times"][-1])}

    paths = [path for path in PLACES if not arguments.paths or path in arguments.paths]
    for path, runs in interleaved(part, arguments, "subscribers", paths, measure).items():
        if path in part.skipped:
            continue
        for key, name in [("value", "all new"), ("again", "all as before")]:
            values, lost = valid(runs, key), valid(runs, "lost")
            if not values:
                part.row(path, name, *["-"] * 4, verdict="INVALID")
                continue
            part.row(path, name, of(values, 1, 2), max(lost.values()), max(valid(runs, "sent").values()),
                     of(valid(runs, "gap")), verdict="held" if not any(lost.values()) else "missed")
    return part
