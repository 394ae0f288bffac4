"""The parts of benches/views that compare what is shown with what was there: the largest hosts and
protocols, classes beside a capture; and those who ask what nobody should."""
import collections
import contextlib
import json
import math
import subprocess
import time

from paths_result import MBIT, Part, interleaved
from paths_world import FIRST_COUNT, SECOND_COUNT, Failure, Lacks, call, policy
from service_world import PLACES, Service, resident
from views_packets import NAMES, UDP, name, packet, read, write
from views_parts import percentile
from views_world import LOAD, PACKETS, PORT, Web, ask, stat, top

# What `altq web` may grow by, in bytes, and how many connections it keeps (docs/web.md).
GROWTH, CONNECTIONS = 1_000_000, 64
# Seconds in which somebody who asks rightly is answered meanwhile.
ANSWERED = 2.0
# How far altq's percentiles may be off.
STEP = 1 / 32


def scan(world, arguments):
    part = Part("scan", "What `altq web` does with wrong requests, slow ones, and 1,000 connections",
                ["what", "asked", "answered", "not as wanted", "MB before", "MB after", "descriptors"])
    service = Service(world, "bridge")
    with contextlib.ExitStack() as stack:
        service.start()
        stack.callback(service.end)
        web = Web(world, service)
        stack.callback(web.end)
        client = world.start(service.host, [*LOAD, "scan", str(PORT)], "ready", stdin=subprocess.PIPE)
        stack.callback(world.drop, client)
        idle = web.descriptors()
        # What is allocated once is there after the first of each.
        for line in ("wrong", "slow 60"):
            ask(client, line)
        for what, line in [("wrong requests", "wrong"), ("slow requests and halves", "slow 60"),
                           ("connections", "many 1000")]:
            before = resident(web.process.pid)
            asked = answered = most = 0
            unexpected = []
            for number in range(20 if line == "wrong" else arguments.rounds):
                found = ask(client, line)
                most = max(most, web.descriptors())
                if "held" in found:
                    found = ask(client)
                    if found["beside_s"] > ANSWERED:
                        unexpected.append(f"/metrics took {found['beside_s']:.1f} s beside so many")
                asked, answered = asked + found["asked"], answered + found["answers"]
                unexpected += found["unexpected"]
                arguments.say(f"scan, {what}, {number + 1}: {len(unexpected)} not as wanted, {most} descriptors")
            after = resident(web.process.pid)
            grown = after - before
            held = not unexpected and grown <= GROWTH and most <= idle + CONNECTIONS + 1
            part.row(what, asked, answered, len(unexpected), f"{before / 1e6:.2f}", f"{after / 1e6:.2f}",
                     f"{most} ({idle} idle)", verdict="held" if held else "missed")
            part.notes += [f"{what}: {text}" for text in list(dict.fromkeys(unexpected))[:3]]
            part.runs.append({"what": what, "why": [], "grown": grown, "descriptors": most, "unexpected": unexpected})
        # Those who ask rightly are answered, and nothing of it has reached the process that shapes.
        status = web.inside.get("/metrics")[0]
        state = service.state()
        well = (status, state) == (200, "shaping")
        part.row("afterwards", 1, int(status == 200), int(not well), "-", "-", f"{web.descriptors()} ({idle} idle)",
                 verdict="held" if well else "missed")
    part.notes.append(f"Wanted: only errors for wrong requests, at most {GROWTH / 1e6:.0f} MB more, at most "
                      f"{CONNECTIONS} connections kept, and /metrics within {ANSWERED:.0f} s beside them.")
    return part


def largest(counted):
    """The five with the most bytes, by a full count."""
    return [label for label, _ in sorted(counted.items(), key=lambda of: (-of[1], of[0]))[:5]]


def judged(part, what, seen, hosts, protocols):
    """A row for what altq has seen of the packets that were counted."""
    wrong = []
    for kind, counted in (("hosts", hosts), ("protocols", protocols)):
        shown, true = [entry["name"] for entry in seen[kind][:5]], largest(counted)
        if shown != true:
            wrong.append(f"{kind}: {', '.join(shown)}; a full count has {', '.join(true)}")
    # Bounds are about all packets, so they can only be compared where all were seen.
    total = sum(protocols.values())
    off = 0
    if seen["bytes"] == total:
        for kind, counted in (("hosts", hosts), ("protocols", protocols)):
            for entry in seen[kind]:
                least, size = entry["bytes_at_least"], counted.get(entry["name"], 0)
                off += not least <= size <= least + entry["error_bytes"]
    five = [", ".join(entry["name"] for entry in seen[kind][:5]) for kind in ("hosts", "protocols")]
    part.row(what, seen["packets"], f"{seen['bytes'] / total:.4%}", *five, off,
             verdict="missed" if wrong or off else "held")
    part.notes += [f"{what}: {text}" for text in wrong]


def flows(world, arguments):
    count = arguments.packets
    part = Part("flows", f"The largest five of a capture of {count} packets, as `altq top` names them and as a full "
                         "count does",
                ["by", "packets seen", "of the bytes", "hosts", "protocols", "outside their bounds"])
    path = world.scratch / "million.pcap"
    arguments.say(f"flows: writing a capture of {count} packets")
    hosts, protocols, _ = write(path, count, seed=11)
    text = call([world.altq, "top", "--file", str(path), "--once", "--json"])
    judged(part, "--file", json.loads(text), hosts, protocols)
    part.runs.append({"what": "--file", "why": [], "seen": json.loads(text)})

    # The same packets on a wire, within the minute that is watched.
    words = [world.altq, "top", "--interface", "a", "--once", "--json", "--window", "60"]
    out = world.scratch / "interface.json"
    with open(out, "w") as stdout:
        watching = world.popen("middle", words, stdout=stdout, stderr=subprocess.DEVNULL)
    with contextlib.ExitStack() as stack:
        stack.callback(world.drop, watching)
        end = time.monotonic() + 10
        # A packet socket is there when it is listed.
        while len(world.inside("middle", ["cat", "/proc/net/packet"]).splitlines()) < 2:
            if (code := watching.poll()) is not None:
                raise (Lacks if code in (6, 7) else Failure)(f"altq top --interface ended with exit code {code}")
            if time.monotonic() > end:
                raise Failure("altq top --interface does not listen")
            time.sleep(0.05)
        replay = world.start("a", [*PACKETS, "replay", "br", str(path), "--rate", str(count / 40)], "ready")
        stack.callback(world.drop, replay)
        sent = json.loads(replay.stdout.read())
        watching.wait(90)
    if sent["seconds"] > 55:
        raise Failure(f"the replay took {sent['seconds']:.0f} s, and a minute is watched")
    seen = json.loads(out.read_text())
    judged(part, "--interface", seen, hosts, protocols)
    part.runs.append({"what": "--interface", "why": [], "sent": sent, "seen": seen})
    return part


# Bit/s of the link, and packets a second that are offered to each class: all three have more to
# send than they get. Bytes of a packet on average, with IP, UDP and Ethernet.
SLOW, OFFERED = 20 * MBIT, {"first": (FIRST_COUNT, 1000), "second": (SECOND_COUNT, 3300), "rest": (5008, 330)}
# Packets that a class may hold: waits of tens of milliseconds, beside which the time that a packet
# needs from the wire into altq and back is short.
LIMIT = 100
# After so many seconds hosts report no groups any more: twice, each within a second (RFC 3810 9.11).
SETTLED = 5


def sent_by_ports(path, address_end, ports):
    """By number, the time and the packet of each datagram of `mix` in a capture."""
    found = {}
    for at, head, _ in read(path):
        one = packet(head)
        if one and one.proto == UDP and one.dport in ports and one.dst.endswith(address_end) and len(one.payload) >= 8:
            found[int.from_bytes(one.payload[:8], "big")] = (at, one)
    return found


def key(one):
    return name(one.src), one.sport, name(one.dst), one.dport, NAMES[one.proto]


def captured(world, path, seconds):
    """Lets flows pass and captures them on both sides: what altq says of them, and what the captures
    do."""
    text = policy(PLACES[path][1], SLOW, "htb", LIMIT)
    service = Service(world, path, text, options=["--interval", "500ms"], supervise=False)
    wire = "br" if path == "bridge" else "rt"
    files = [world.scratch / f"{path}-{end}.pcap" for end in ("in", "out")]
    ports = {port: name_of for name_of, (port, _) in OFFERED.items()}
    with contextlib.ExitStack() as stack:
        service.start()
        stack.callback(service.end)
        captures = []
        for host, file in zip("ab", files):
            words = [*PACKETS, "capture", wire, str(file)] + ["--bind", str(OFFERED["rest"][0])] * (host == "b")
            captures.append(world.start(host, words, "ready", stdin=subprocess.PIPE))
            stack.callback(world.drop, captures[-1])
        world.sink("b")
        before = stat(service)
        if early := before[0]["sent_packets"]:
            raise Failure(f"{early} packets of somebody else had passed before: they are in the minute of altq top")
        words = [*PACKETS, "mix", world.to(path), world.to(path, 6), "--ports", ",".join(map(str, ports)), "--rates",
                 ",".join(str(rate) for _, rate in OFFERED.values()), "--for", str(seconds)]
        mix = world.start("a", words, "ready")
        stack.callback(world.drop, mix)
        sent = json.loads(mix.stdout.read())
        # All that waits leaves, and the second in which it left is over.
        until = time.monotonic() + 15
        while True:
            after, link = stat(service), top(service, window_s=60, flows=64)
            passed = after[0]["sent_packets"] - before[0]["sent_packets"]
            if after[0]["backlog_packets"] == 0 and link and link["classes"][0]["window"]["sent_packets"] == passed:
                break
            if time.monotonic() > until:
                shown = link["classes"][0]["window"]["sent_packets"] if link else "nothing"
                raise Failure(f"of a minute altq top says {shown} and altq stat {passed} packets that were sent, and "
                              f"{after[0]['backlog_packets']} wait")
            time.sleep(0.2)
        lost = 0
        for process in captures:
            process.stdin.close()
            lost += json.loads(process.stdout.read())["lost"]
    if lost:
        raise Failure(f"the captures are not whole: {lost} frames found no room")
    # To read them keeps a processor busy for a while, and the thread that watches the host waits.
    return {"later": lambda: by_captures(files, ports, sent, before, after, link)}


def by_captures(files, ports, sent, before, after, link):
    """What altq says of the flows that have passed, and what the captures of both sides do."""
    end = b"\x02"
    came = sent_by_ports(files[1], end, ports)
    went = sent_by_ports(files[0], end, ports)
    if len(went) != sent["sent"]:
        raise Failure(f"{sent['sent']} datagrams were sent, and {len(went)} are in the capture")
    classes = {one["name"]: one for one in link["classes"]}
    counted = {one["name"]: one for one in after}
    root = link["classes"][0]["name"]
    result = {}
    for class_name in [root, *OFFERED]:
        inside = {number: one for number, (_, one) in came.items() if class_name in (root, ports[one.dport])}
        waits = [came[number][0] - went[number][0] for number in inside]
        by_flow = collections.Counter()
        for one in inside.values():
            by_flow[key(one)] += one.bytes
        shown, total = classes[class_name], sum(by_flow.values())
        wrong, listed = 0, set()
        for flow in shown["flows"]:
            its = (flow["src"], flow["sport"], flow["dst"], flow["dport"], flow["proto"])
            listed.add(its)
            least, true = flow["bytes_at_least"], by_flow.get(its, 0)
            wrong += not least <= true <= least + flow["error_bytes"]
        missing = sum(size * 64 > total and flow not in listed for flow, size in by_flow.items())
        window = shown["window"]["sent_bytes"]
        rest = sum(flow["bytes_at_least"] for flow in shown["flows"]) + shown["other_bytes"] - window
        before_all = next(one for one in before if one["name"] == class_name)
        arrived = sum(one.bytes for _, one in went.values() if class_name in (root, ports[one.dport]))
        result[class_name] = {
            "bytes": counted[class_name]["sent_bytes"] - before_all["sent_bytes"], "window": window, "captured": total,
            "arrived": counted[class_name]["received_bytes"] - before_all["received_bytes"],
            "captured_arrived": arrived, "flows": len(listed), "wrong": wrong, "missing": missing, "rest": rest,
            "packets": len(inside),
            **{f"p{per_cent}": (shown["sojourn_ns"][f"p{per_cent}"], percentile(waits, per_cent))
               for per_cent in (50, 99)}}
    return {"value": result[root]["captured"], "classes": result}


def pcap(world, arguments):
    part = Part("pcap", "Classes beside captures on both sides of a link of 20 Mbit/s: bytes, flows, waits",
                ["path", "class", "bytes", "captured", "flows", "wrong", "p50, ms", "p50 off", "p99, ms", "p99 off"])
    seconds = min(arguments.seconds or 20, 40)
    paths = [path for path in PLACES if not arguments.paths or path in arguments.paths]
    # In their first seconds the hosts report the multicast groups of their IPv6 addresses, which no
    # capture of datagrams has.
    time.sleep(SETTLED)
    found = interleaved(part, arguments, "pcap", paths, lambda path: captured(world, path, seconds))
    for path in paths:
        if path in part.skipped:
            continue
        runs = [run["classes"] for run in found[path] if not run["why"] and "classes" in run]
        if 2 * len(runs) <= len(found[path]):
            part.row(path, *["-"] * 9, verdict="INVALID")
            continue
        for class_name in runs[0]:
            all_runs = [run[class_name] for run in runs]
            last = all_runs[-1]
            exact = all(one["bytes"] == one["window"] == one["captured"] and one["arrived"] == one["captured_arrived"]
                        for one in all_runs)
            wrong = sum(one["wrong"] + one["missing"] + abs(one["rest"]) for one in all_runs)
            off = {of: max(abs(one[of][0] / one[of][1] - 1) if one[of][1] else math.inf for one in all_runs)
                   for of in ("p50", "p99")}
            part.row(path, class_name, last["bytes"], last["captured"], last["flows"], wrong,
                     f"{last['p50'][0] / 1e6:.2f}", f"{off['p50']:.2%}", f"{last['p99'][0] / 1e6:.2f}",
                     f"{off['p99']:.2%}",
                     verdict="held" if exact and not wrong and max(off.values()) <= STEP else "missed")
    part.notes.append(f"bytes, captured: of the last run; they have to be the same in each. wrong: flows outside their "
                      f"bounds, flows of more than 1/64 that are not listed, bytes that do not add up. off: the worst "
                      f"of the runs, wanted {STEP:.2%}; the time from the wire into altq and back is part of it.")
    return part
