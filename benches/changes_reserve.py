"""The parts of benches/changes about reservations: many that come, change and expire; and the
published experiment with two reserved flows beside best effort."""
import contextlib
import json
import threading
import time

from changes_world import Changing
from paths_result import FULL, MBIT, TCP_HEADERS, UDP_HEADERS, Part, interleaved, median, valid
from paths_world import CONTROL, FIRST, FIRST_COUNT, OVERHEAD, SECOND, SECOND_COUNT, Failure
from service_parts import of
from service_world import LISTEN, PLACES, Socket, Stream

# All of it within this time, in seconds.
WITHIN = 60
# How far a flow may be off what it is to have.
OFF = 0.02


class Sums(threading.Thread):
    """Asks for all reservations again and again, and checks what they add up to."""

    def __init__(self, path, room, overhead):
        super().__init__(daemon=True)
        self.path, self.room, self.overhead = path, room, overhead
        self.polls, self.most, self.wrong, self.stopping = 0, 0, [], threading.Event()

    def run(self):
        connection = Socket(self.path)
        while not self.stopping.wait(0.2):
            try:
                place = connection.ask(op="reserve.list")["places"][0]
                link = connection.ask(op="stat")["links"][0]
            except (OSError, TypeError) as error:
                self.wrong.append(f"reservations are not listed: {error}")
                break
            self.look(place, [found for found in link["classes"] if found["parent"] == "res"])
        connection.close()

    def look(self, place, classes):
        self.polls += 1
        charged = 0
        for there in place["reservations"]:
            rate, least = there["tspec"]["rate_bit_s"], there["tspec"]["min_unit_bytes"]
            # The rate with the link's overhead, in packets of the minimum unit (docs/reserve.md).
            own = -(-rate * (least + self.overhead) // least)
            if own != there["charged_bit_s"]:
                self.wrong.append(f"{there['key']}: {there['charged_bit_s']} bit/s are charged, not {own}")
            charged += own
        in_loop = sum(found["guaranteed_bit_s"] or 0 for found in classes)
        self.most = max(self.most, charged, in_loop, place["charged_bit_s"])
        if charged != place["charged_bit_s"] or self.most > self.room:
            self.wrong.append(f"{charged} bit/s are reserved, {place['charged_bit_s']} are said to be, {in_loop} are "
                              f"guaranteed by the loop, of {self.room}")

    def end(self):
        self.stopping.set()
        self.join()


class Events(threading.Thread):
    """Takes note of what happens to reservations, and when."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.connection, self.seen, self.stopping = Socket(path, 1), [], threading.Event()
        if not self.connection.ask(op="reserve.watch"):
            raise Failure("reservations cannot be watched")

    def run(self):
        rest, sock = self.connection.rest, self.connection.connection
        while not self.stopping.is_set():
            with contextlib.suppress(TimeoutError):
                more = sock.recv(1 << 20)
                if not more:
                    return
                *lines, rest = (rest + more).split(b"\n")
                self.seen += [(time.monotonic(), json.loads(line)) for line in lines]

    def count(self, what):
        return sum(event["event"] == what for _, event in list(self.seen))

    def end(self):
        self.stopping.set()
        self.join()
        self.connection.close()


def timed(connection, times, **request):
    begun = time.monotonic()
    answer = connection.ask(**request)
    times.append(time.monotonic() - begun)
    return answer or {"granted": False, "reason": "the request is an error"}


def churn(world, path, count):
    """Reservations come, change, are refreshed and expire, beside a flood and a flow with a
    reservation of its own."""
    rate, room, overhead = 100 * MBIT, 50 * MBIT, OVERHEAD
    text = (f"link wan {{\n    device {PLACES[path][1]}\n    rate {rate}bit/s\n    overhead {overhead} bytes\n"
            "    scheduler cbq\n"
            f"    class res {{ share 50%  priority 6\n        reservations {{ buffer {4000 * count + 100_000}bytes  "
            "lifetime 120s } }\n"
            "    class rest { share 40%  borrow  default }\n}\n")
    # 45 of the 50 Mbit/s, and a little more after the change.
    each, more = 45 * MBIT // count, 46 * MBIT // count
    bucket = {"burst_bytes": 3000, "min_unit_bytes": 1000, "max_packet_bytes": 1500}
    times = {name: [] for name in ("add", "modify", "refused", "refresh")}
    wrong, service, refreshed = [], Changing(world, path, text), {}
    with contextlib.ExitStack() as stack:
        service.start()
        stack.callback(service.end)
        control = Socket(service.socket)
        stack.callback(control.close)
        own = {"rate_bit_s": 2 * MBIT, "burst_bytes": 60_000, "min_unit_bytes": 200, "max_packet_bytes": 1500}
        flow = {"dport": LISTEN, "proto": "udp"}
        call = control.ask(op="reserve.add", key="call", ttl_s=120, flows=[flow], tspec=own)
        if not call or not call["granted"]:
            raise Failure(f"the flow gets no reservation: {call}")
        stack.enter_context(world.single())
        stream = Stream(world, path, 10_000)
        stack.callback(world.drop, stream.sender)
        load = world.flood("a", world.to(path), SECOND_COUNT, FULL - UDP_HEADERS[4],
                           1.1 * rate / 8 / (FULL + OVERHEAD), 10_000)
        stack.callback(world.drop, load)
        events, sums = Events(service.socket), Sums(service.socket, room, overhead)
        events.start()
        stack.callback(events.end)
        time.sleep(1)
        sums.start()
        stack.callback(sums.end)
        begun = time.monotonic()
        for number in range(count):
            flow = {"dst": f"10.77.{number // 256}.{number % 256}", "dport": 7000, "proto": "udp"}
            answer = timed(control, times["add"], op="reserve.add", key=f"k{number}", ttl_s=WITHIN, flows=[flow],
                           tspec={"rate_bit_s": each, **bucket})
            if not answer["granted"]:
                wrong.append(f"k{number} is refused: {answer['reason']}")
        for number in range(count):
            if number % 10 == 0:
                # More than all that is left: the old one stands.
                answer = timed(control, times["refused"], op="reserve.modify", key=f"k{number}",
                               tspec={"rate_bit_s": 10 * MBIT, **bucket})
                if answer["granted"] or answer.get("rsvp_value") != 2:
                    wrong.append(f"k{number} was to be refused: {answer}")
            answer = timed(control, times["modify"], op="reserve.modify", key=f"k{number}",
                           tspec={"rate_bit_s": more, **bucket})
            if not answer["granted"]:
                wrong.append(f"k{number} cannot be changed: {answer['reason']}")
        control.ask(op="reserve.modify", key="call", tspec={**own, "rate_bit_s": 40 * MBIT})
        listed = {there["key"]: there for there in control.ask(op="reserve.list")["places"][0]["reservations"]}
        wrong += [f"{key}: {there['tspec']['rate_bit_s']} bit/s" for key, there in listed.items()
                  if there["tspec"]["rate_bit_s"] != (own["rate_bit_s"] if key == "call" else more)]
        if len(listed) != count + 1:
            wrong.append(f"{len(listed)} reservations are there, not {count + 1}")
        for number in range(count):
            answer = timed(control, times["refresh"], op="reserve.refresh", key=f"k{number}", ttl_s=5)
            refreshed[f"k{number}"] = time.monotonic()
            if not answer["granted"]:
                wrong.append(f"k{number} cannot be refreshed: {answer['reason']}")
        until = time.monotonic() + 15
        while events.count("expired") < count and time.monotonic() < until:
            time.sleep(0.05)
        took = time.monotonic() - begun
        left = control.ask(op="reserve.list")["places"][0]
        if [there["key"] for there in left["reservations"]] != ["call"]:
            wrong.append(f"{len(left['reservations'])} reservations are left")
        world.drop(load)
        come = stream.end()
    late = [at - refreshed[event["key"]] - 5 for at, event in events.seen if event["event"] == "expired"]
    found = {what: events.count(what) for what in ("granted", "changed", "expired", "preempted", "deleted")}
    # To end sooner is a change as well.
    if (found["granted"], found["expired"]) != (count, count) or found["changed"] < count:
        wrong.append(f"events: {found}")
    return {"value": took, "times": times, "late": max(late, default=0.0), "polls": sums.polls, "most": sums.most,
            "room": room, "wrong": wrong[:20] + sums.wrong[:20], "events": found, "lost": come["lost"],
            "sent": come["sent"]}


def reservations(world, arguments):
    count = arguments.reservations
    part = Part("reservations", f"{count} reservations added, changed, refreshed and expired, beside a flood",
                ["path", "what", "times", "ms, median (worst)", "found", "wanted"])
    paths = arguments.paths or ["bridge"]
    found = interleaved(part, arguments, "reservations", paths, lambda path: churn(world, path, count))
    for path, runs in found.items():
        if path in part.skipped:
            continue
        took, done = valid(runs), [run for run in runs if "times" in run]
        wrong = list(dict.fromkeys(text for run in done for text in run["wrong"]))
        if not took:
            part.row(path, "all", *["-"] * 4, verdict="INVALID")
            continue
        good = [run for run in runs if not run["why"]]
        for name in ("add", "modify", "refused", "refresh"):
            every = dict(enumerate(seconds for run in good for seconds in run["times"][name]))
            part.row(path, name, len(every), of(every, digits=2), "-", "-")
        part.row(path, "expired", count, of(valid(runs, "late")), "late", "-")
        part.row(path, "all of it", len(good), f"{median(took):.1f} ({max(took.values()):.1f}) s", "-",
                 f"{WITHIN} s", verdict="held" if max(took.values()) <= WITHIN else "missed")
        most, room = max(run["most"] for run in done), done[0]["room"]
        part.row(path, "sum", sum(run["polls"] for run in done), "-", f"{most / 1e6:.2f} Mbit/s",
                 f"{room / 1e6:.0f} Mbit/s", verdict="held" if most <= room and not wrong else "missed")
        lost = sum(run["lost"] for run in good)
        part.row(path, "a flow whose change was refused", sum(run["sent"] for run in good), "-", f"{lost} lost", "0",
                 verdict="missed" if lost else "held")
        part.notes += [f"{path}: {text}" for text in wrong]
    part.notes.append("sum: the most that was reserved at a time, as listed, worked out by hand from the list, or "
                      "guaranteed by the loop; so many times it was asked for.")
    return part


def rsvp_policy(path):
    """RSVP's cbq.conf of the report (docs/reference/published-models.md 6), with a class for the
    connections that control a measurement: 60 % for best effort, which borrows, and 40 % for
    reservations, which do not."""
    return (f"link wan {{\n    device {PLACES[path][1]}\n    rate {2 * MBIT}bit/s\n    overhead {OVERHEAD} bytes\n"
            "    scheduler cbq\n    class control { share 5%  borrow  priority 7 }\n"
            "    class unres_class { share 55%  borrow  priority 3  default  queue drop_tail { limit 30packets } }\n"
            "    class res_class { share 40%  priority 6  reservations { buffer 60000bytes } }\n"
            f"    match port {CONTROL} -> control\n}}\n")


# The second reserved flow: the port to which it goes, by protocol.
SECONDS = {"tcp": SECOND, "udp": SECOND_COUNT}
# Which flows send in each step; and what each of them is to have, of the link.
ALONE, FIRST_ONLY, BOTH, BESIDE = "best effort alone", "one reserved, beside it", "both reserved", "both, beside it"
WANTED = {ALONE: {"best effort": 1.0}, FIRST_ONLY: {"first": 0.4, "best effort": 0.6},
          BOTH: {"first": 0.2, "second": 0.2}, BESIDE: {"first": 0.2, "second": 0.2, "best effort": 0.6}}
WARMUP = 4


def step(world, path, second, sending, seconds):
    """What flows get that send at the same time, as a part of the link: what their packets with the
    overhead come to."""
    rate, to, found, threads = 2 * MBIT, world.to(path), {}, []

    def tcp(name, port):
        try:
            result = world.traffic("a", ["bulk", to, "--port", str(port), "--duration", f"{int(seconds)}s", "--warmup",
                                         f"{WARMUP}s"])
            payload = FULL - TCP_HEADERS[4]
            found[name] = result["flows"][0]["goodput_bit_s"] * (FULL + OVERHEAD) / payload / rate
            found.setdefault("why", []).extend(result["invalid"])
        except Failure as error:
            found.setdefault("failed", []).append(str(error))

    ports = {"best effort": FIRST_COUNT} | ({"second": SECOND_COUNT} if second == "udp" else {})
    with contextlib.ExitStack() as stack:
        world.sink("b")
        payload = FULL - UDP_HEADERS[4]
        for name, port in ports.items():
            if name in sending:
                load = world.flood("a", to, port, payload, 1.2 * rate / 8 / (FULL + OVERHEAD), seconds + 60)
                stack.callback(world.drop, load)
        for name, port in {"first": FIRST, "second": SECOND}.items():
            if name in sending and name not in ports:
                threads.append(threading.Thread(target=tcp, args=(name, port)))
                threads[-1].start()
        time.sleep(WARMUP)
        before = world.counts("b")
        time.sleep(seconds - WARMUP)
        after = world.counts("b")
        for thread in threads:
            thread.join()
        for name, port in ports.items():
            if name in sending:
                packets = (after[1][port] - before[1][port]) / (after[0] - before[0])
                found[name] = packets * (FULL + OVERHEAD) * 8 / rate
    if "failed" in found:
        raise Failure("; ".join(found["failed"]))
    return found


def experiment(world, path, second, seconds):
    """Best effort, then two flows with reservations of 12.5 % of the link each."""
    service, found, why = Changing(world, path, rsvp_policy(path)), {}, []
    with contextlib.ExitStack() as stack:
        service.start()
        stack.callback(service.end)
        stack.enter_context(world.single())
        for key, proto, port in [("first", "tcp", FIRST), ("second", second, SECONDS[second])]:
            service.done("reserve", "add", "--flow", f"proto={proto} dport={port}", "--rate", "250kbit/s", "--burst",
                         "10kbytes", "--min-unit", "1500", "--max-packet", "1500", "--key", key)
        for name, wanted in WANTED.items():
            got = step(world, path, second, wanted, seconds)
            why += got.pop("why", [])
            found[name] = got
    return {"value": found[BESIDE]["first"], "why": why, "steps": found}


def rsvp(world, arguments):
    seconds = arguments.seconds or 20
    part = Part("rsvp", "The published RSVP experiment on 2 Mbit/s: what each flow gets of the link, in per cent",
                ["second flow", "step", "flow", "median (worst)", "wanted"])
    path = (arguments.paths or ["bridge"])[0]
    found = interleaved(part, arguments, "rsvp", list(SECONDS), lambda second: experiment(world, path, second, seconds))
    for second, runs in found.items():
        if second in part.skipped:
            continue
        good = [run for run in runs if not run["why"]]
        for name, flows in WANTED.items():
            for flow, wanted in flows.items():
                if not valid(runs):
                    part.row(second, name, flow, "-", f"{wanted:.0%}", verdict="INVALID")
                    continue
                values = {run["round"]: run["steps"][name][flow] for run in good}
                worst = max(values.values(), key=lambda value: abs(value - wanted))
                held = abs(median(values) - wanted) <= OFF * wanted and (flow == "best effort" or worst >= 0.125)
                part.row(second, name, flow, f"{median(values):.1%} ({worst:.1%})", f"{wanted:.0%}",
                         verdict="held" if held else "missed")
    part.notes.append("Both reserve 250 kbit/s, 12.6 % of the link with the overhead, of the 40 % for reservations, "
                      f"which they are to divide. Wanted within {OFF:.0%}, and never less than the reservation.")
    return part
