"""The parts of benches/paths that need no comparison: shares of the link, and a soak."""
import contextlib
import subprocess
import time

from paths_result import FULL, GBIT, MBIT, TCP_HEADERS, UDP_HEADERS, WANTED, Part, interleaved, median, named, valid
from paths_world import FIRST, FIRST_COUNT, OVERHEAD, SECOND, SECOND_COUNT, SHARES, Failure, Lacks, Watch, end

# Where packets are shaped: the path, the device, who sends to whom, and whether through NAT.
PLACES = {
    "bridge": ("bridge", None, "a", "b", False),
    "xdp": ("xdp", None, "a", "b", False),
    "kernel": ("kernel", None, "a", "b", False),
    "nfqueue, forwarded, egress": ("nfqueue", "wan", "a", "b", True),
    "nfqueue, forwarded, ingress": ("nfqueue", "lan ingress", "a", "b", True),
    "nfqueue, local, egress": ("nfqueue", "wan", "router", "b", False),
    "nfqueue, local, ingress": ("nfqueue", "wan ingress", "b", "router", False),
}

# The history of a soak, which fills for six hours up to its limit. This much is full in five minutes.
HISTORY = "100kbytes"


def lengths(rate, protocol):
    """Seconds before figures count, and for which they do: long enough for some hundred packets of
    the smaller class."""
    short = {"tcp": 2, "udp": 1}[protocol]
    if rate < 10 * MBIT:
        return 3 * short, 20
    return short, 8 if rate < 100 * MBIT else 5


def share_run(world, arguments, place, rate, family, protocol):
    """How far two classes that both have more to send than they get are off the policy."""
    path, device, sender, receiver, nat = PLACES[place]
    warmup, seconds = lengths(rate, protocol)
    seconds = arguments.seconds or seconds
    # TCP keeps its class backlogged without loss: its window fits into the queue. From 200 Mbit/s on
    # the kernel tunes it, to some MB.
    limit, buffers = (100, 65536) if rate < 100 * MBIT else (4000, None)
    headers = {"tcp": TCP_HEADERS, "udp": UDP_HEADERS}[protocol][family]
    part = rate / (FULL + OVERHEAD) * (FULL - headers) / (SHARES["first"] + SHARES["second"])
    expected = {name: part * SHARES[name] for name in ("first", "second")}
    with contextlib.ExitStack() as stack:
        if nat and family == 4:
            stack.enter_context(world.nat())
        measure = tcp_shares if protocol == "tcp" else udp_shares
        if protocol == "udp" and sender != "router":
            stack.enter_context(world.single(sender))
        # A server that sends has its port as the source.
        shaper = stack.enter_context(world.shaped(path, rate, device, arguments.scheduler, limit, match="port"))
        got, why = measure(world, path, rate, family, sender, receiver, warmup, seconds, buffers, expected)
    off = {name: got[name] / expected[name] - 1 for name in expected}
    return {"value": max(off.values(), key=abs), "off": off, "bit_s": got, "why": why, "stat": shaper.last,
            "place": place, "rate": rate, "family": family, "protocol": protocol}


def tcp_shares(world, path, _rate, family, sender, receiver, warmup, seconds, buffers, _expected):
    # The server is on host b. What it sends to a client goes down.
    client, direction = (receiver, "down") if sender == "b" else (sender, "up")
    plan = world.scratch / "plan.toml"
    plan.write_text("".join(
        f'[[flows]]\nname = "{name}"\nkind = "tcp_bulk"\ndirection = "{direction}"\nport = {port}\n'
        + (f"buffers = {buffers}\n" if buffers else "") for name, port in [("first", FIRST), ("second", SECOND)]))
    result = world.traffic(client, ["mix", world.to(path, family), "--plan", str(plan), "--duration",
                                    f"{warmup + seconds}s", "--warmup", f"{warmup}s"])
    return {flow["name"]: flow["goodput_bit_s"] for flow in result["flows"]}, result["invalid"]


def udp_shares(world, path, rate, family, sender, receiver, warmup, seconds, _buffers, expected):
    payload = FULL - UDP_HEADERS[family]
    net = {"b": world.to(path, family), "router": "10.9.2.9" if family == 4 else "fd09:2::9"}
    ports = {"first": FIRST_COUNT, "second": SECOND_COUNT}
    floods = {}
    world.sink(receiver)
    for name, part in [("first", 0.4), ("second", 1.1)]:
        packets = rate * part / 8 / (FULL + OVERHEAD)
        segments = 4 if packets > 20_000 and sender != "router" else 1
        floods[name] = world.flood(sender, net[receiver], ports[name], payload, packets, warmup + seconds + 1, segments)
    time.sleep(warmup)
    before = world.counts(receiver)
    time.sleep(seconds)
    after = world.counts(receiver)
    offered = {name: world.sent(flood)[1] * payload * 8 for name, flood in floods.items()}
    bits = payload * 8 / (after[0] - before[0])
    got = {name: (after[1][port] - before[1][port]) * bits for name, port in ports.items()}
    why = [f"the sender of datagrams was too slow for the class {name}" for name in got
           if offered[name] < 1.05 * expected[name]]
    return got, why


def shares(world, arguments):
    rates = arguments.rates or [2 * MBIT, 20 * MBIT, 200 * MBIT, GBIT]
    title = (f"How far two classes are off the policy (scheduler {arguments.scheduler}): the worst median, and the "
             "worst run, of TCP and UDP, IPv4 and IPv6")
    part = Part("shares", title, ["place", *map(named, rates), "wanted"])
    choices = [(place, rate, family, protocol) for rate in rates for place in PLACES
               if not arguments.paths or PLACES[place][0] in arguments.paths
               # The kernel has no cbq.
               if place != "kernel" or arguments.scheduler != "cbq"
               for family in (4, 6) for protocol in ("tcp", "udp")]
    if not choices:
        raise Lacks("no place has one of these paths with this scheduler")
    found = interleaved(part, arguments, "shares", choices, lambda choice: share_run(world, arguments, *choice))
    for place in dict.fromkeys(choice[0] for choice in choices):
        cells, verdicts = [], []
        for rate in rates:
            values = [valid(runs) for choice, runs in found.items()
                      if choice[:2] == (place, rate) and choice not in part.skipped]
            if not values or not all(values):
                cells.append("INVALID" if values else "-")
                verdicts.append(cells[-1])
                continue
            middle = max((median(of) for of in values), key=abs)
            worst = max((value for of in values for value in of.values()), key=abs)
            cells.append(f"{middle * 100:+.2f} % ({worst * 100:+.2f} %)")
            verdicts.append("held" if abs(middle) <= WANTED["shares"] else "missed")
        verdict = next((word for word in ("missed", "INVALID", "held") if word in verdicts), "-")
        part.row(place, *cells, f"{WANTED['shares']:.0%}", verdict=verdict)
    part.notes.append("Of IPv4 what is forwarded goes through NAT; IPv6 does not.")
    return part


def identities(line):
    """What does not add up in a line of altq.stat/1."""
    wrong = []
    for link in line["links"]:
        below = {}
        for found in link["classes"]:
            lost = sum(found["dropped"].values())
            if found["received_packets"] != found["sent_packets"] + lost + found["backlog_packets"]:
                wrong.append(f"{found['name']}: {found['received_packets']} received are not {found['sent_packets']} "
                             f"sent + {lost} dropped + {found['backlog_packets']} waiting")
            if found["parent"]:
                below.setdefault(found["parent"], []).append(found)
        for found in link["classes"]:
            for word in ("received_packets", "sent_packets", "backlog_packets", "received_bytes", "sent_bytes"):
                parts = [child[word] for child in below.get(found["name"], [])]
                if parts and sum(parts) != found[word]:
                    wrong.append(f"{found['name']}: {word} {found[word]} is not {' + '.join(map(str, parts))}")
    return wrong


def soak(world, arguments):
    part = Part("soak", f"{arguments.soak:g} s at 200 Mbit/s, both paths at once: TCP in a class, datagrams in another",
                ["path", "MB early", "MB at the end", "growth", "wanted", "lines", "wrong"])
    # Each path's datagrams have a port and a class of their own.
    flows = {"bridge": (SECOND_COUNT, "second", FIRST), "nfqueue": (FIRST_COUNT, "first", SECOND)}
    rate, length = 200 * MBIT, arguments.soak
    early = 300 if length >= 600 else length / 5
    paths = [path for path in flows if not arguments.paths or path in arguments.paths]
    memory, shapers, loads, said = {}, {}, {}, {path: [] for path in paths}
    with contextlib.ExitStack() as stack, Watch() as watch:
        before = world.counts("b")[1]
        for path in paths:
            port, _, tcp_port = flows[path]
            try:
                shaper = world.shaped(path, rate, interval="1s", more=["--history", HISTORY])
                shapers[path] = stack.enter_context(shaper)
            except (Lacks, Failure) as error:
                part.skipped[path] = str(error)
                continue
            to = world.to(path)
            packets = 0.9 * rate / 8 / (FULL + OVERHEAD)
            words = [world.altq, "traffic", "bulk", to, "--port", str(tcp_port), "--duration", f"{int(length) + 1}s",
                     "--quiet", "--json"]
            with (world.scratch / f"{path}.tcp").open("w") as out:
                loads[path] = [world.flood("a", to, port, FULL - UDP_HEADERS[4], packets, length),
                               world.popen("a", words, stdout=out, stderr=out)]
        begun = time.monotonic()
        while (passed := time.monotonic() - begun) < length:
            for path, shaper in shapers.items():
                if shaper.process.poll() is not None:
                    raise Failure(f"{path}: altq run has ended by itself")
                if path not in memory and passed >= early:
                    memory[path] = [shaper.resident()]
            time.sleep(min(1.0, max(0.0, length - passed)))
        for path, shaper in shapers.items():
            memory.setdefault(path, [shaper.resident()]).append(shaper.resident())
        sent = {path: world.sent(load[0])[0] for path, load in loads.items()}
        for path, (_, bulk_process) in loads.items():
            # 3: the host did not keep time for all of its flow.
            with contextlib.suppress(subprocess.TimeoutExpired):
                bulk_process.wait(60)
            if bulk_process.poll() not in (0, 3):
                said[path].append(f"altq traffic bulk ended with exit code {bulk_process.returncode}")
            end(bulk_process)
        time.sleep(2)
        arrived = world.counts("b")[1]
    for path, shaper in shapers.items():
        port, name, _ = flows[path]
        lines = shaper.lines()
        wrong = said[path] + [text for line in lines for text in identities(line)]
        link = shaper.last["links"][0]
        found, device = next(of for of in link["classes"] if of["name"] == name), link["device"]
        outside = sent[path] - found["received_packets"], found["sent_packets"] - (arrived[port] - before[port])
        if not 0 <= outside[0] <= device["missed"] + device["unreadable"]:
            wrong.append(f"{sent[path]} datagrams were sent, the class {name} received {found['received_packets']}, "
                         f"and altq missed {device['missed']} frames")
        if not 0 <= outside[1] <= device["lost"] + device["refused"]:
            wrong.append(f"the class {name} sent {found['sent_packets']}, {arrived[port] - before[port]} arrived, and "
                         f"the device lost {device['lost'] + device['refused']}")
        first, final = memory[path]
        growth = final / first - 1
        part.row(path, f"{first / 1e6:.2f}", f"{final / 1e6:.2f}", f"{growth:+.2%}", f"{WANTED['memory']:.0%}",
                 len(lines), len(wrong), verdict="held" if growth <= WANTED["memory"] and not wrong else "missed")
        part.notes += [f"{path}: {text}" for text in wrong[:5]]
        part.runs.append({"choice": path, "why": [], "memory": memory[path], "datagrams_sent": sent[path],
                          "datagrams_arrived": arrived[port] - before[port], "wrong": wrong[:100], "stat": shaper.last})
    part.notes.append(f"early: after {early:g} s. wrong: lines of altq.stat/1 in which a class's received packets are "
                      "not those sent, dropped and waiting, or its counters not the sums of those below it; and "
                      "datagrams that were sent or have arrived and that altq did not count.")
    part.notes += [f"the host did not keep time: {why}" for why in watch.why]
    return part
