"""The parts of benches/views that measure what looking costs: beside a saturated link, in the loop,
and with ten thousand classes."""
import argparse
import contextlib
import json
import subprocess
import time

from paths_result import FULL, MBIT, UDP_HEADERS, Part, interleaved, median, valid
from paths_world import ENVIRONMENT, FIRST_COUNT, OVERHEAD, SECOND_COUNT, Failure, Lacks
from service_parts import many
from service_world import PLACES, Service, resident
from views_browser import Browser
from views_world import LOAD, PORT, PROBES, Looking, Terminal, Web, ask, probed, processor_time, top

# How far rates and waits may be off beside those who look; ns of a packet; seconds of a redraw;
# bytes and seconds of a page.
OFF, PACKET_NS, REDRAW, PAGE_BYTES, PAGE_FRAME = 0.01, 10.0, 0.100, 60e6, 0.016
# The resolution of altq's own percentiles.
STEP = 1 / 32
# Probes a second in each class, and how many must come at least.
PROBE_RATE, PROBES_LEAST = 200, 200
# How often those who look come and go in a round of beside, both counted.
STRETCHES = 6


def percentile(values, per_cent):
    """By nearest rank."""
    return sorted(values)[max(0, -(-len(values) * per_cent // 100) - 1)]


def compared(part, label, name, without, beside, unit, wanted):
    """A row: a figure without those who look, and with. A round has both, so its ratio is its own."""
    ratios = {at: beside[at] / without[at] for at in beside if at in without}
    if not ratios:
        part.row(label, name, *["-"] * 5, verdict="INVALID")
        return
    ratio, worst = median(ratios), max(ratios.values(), key=lambda of: abs(of - 1))
    part.row(label, name, f"{median(without) * unit:.3f}", f"{median(beside) * unit:.3f}", f"{ratio:.4f}",
             f"{worst:.4f}", f"{wanted:.1%}", verdict="held" if abs(ratio - 1) <= wanted else "missed")


def pooled(stretches, bits):
    """The figures of stretches of one kind: mean rates, and percentiles of all waits together."""
    found = {}
    for name, port in [("first", FIRST_COUNT), ("second", SECOND_COUNT)]:
        sent = sum(of["after"][1][port] - of["before"][1][port] for of in stretches)
        found[f"rate {name}"] = sent * bits / sum(of["after"][0] - of["before"][0] for of in stretches)
        came = [wait for of in stretches for wait in of["waits"][str(PROBES[name])]]
        found[f"p50 {name}"], found[f"p99 {name}"] = percentile(came, 50), percentile(came, 99)
        if own := sorted(of["own"][name] for of in stretches if name in of["own"]):
            found[f"own p99 {name}"] = own[len(own) // 2]
    return found


def beside(world, arguments):
    part = Part("beside", "A saturated link with `altq top --json`, `altq web` with 16 clients of which 8 read "
                          "nothing, and /metrics each second; and without",
                ["path", "what", "without", "with", "ratio", "worst", "wanted"])
    seconds, rate = arguments.seconds or 10, 100 * MBIT
    payload = FULL - UDP_HEADERS[4]
    turns = dict.fromkeys(PLACES, 0)

    def stretch(service, probes, looked):
        """Some seconds of a link that has its load already, with those who look or without."""
        with contextlib.ExitStack() as stack:
            looking = None
            if looked:
                looking = Looking(world, service)
                stack.callback(looking.end)
            # Who comes and who goes has work to do at first.
            time.sleep(1.5)
            ask(probes)
            seen, before = looking and looking.counts(), world.counts("b")
            time.sleep(seconds)
            found = {"before": before, "after": world.counts("b"), "waits": ask(probes)}
            if looking:
                then, seen = seen, looking.counts()
                found["seen"] = {key: seen[key] - then[key] for key in ("top", "events", "metrics")}
                if seen["failed"] or min(found["seen"].values()) < 0.7 * seconds:
                    raise Failure(f"those who look saw too little: {found['seen']} {seen['failed'][:1]}")
        for name in PROBES:
            came = len(found["waits"][str(PROBES[name])])
            if came < min(PROBES_LEAST, PROBE_RATE * seconds / 4):
                raise Failure(f"of the probes in class {name} only {came} came")
        classes = (top(service, window_s=10, flows=0) or {}).get("classes", [])
        found["own"] = {one["name"]: one["sojourn_ns"]["p99"] for one in classes if one["name"] in PROBES}
        return found

    def measure(path):
        service = Service(world, path, probed(path, rate), options=["--interval", "200ms"], supervise=False)
        if "probes" not in world.sinks:
            words = [*LOAD, "times", *map(str, PROBES.values())]
            world.sinks["probes"] = world.start("b", words, "ready", stdin=subprocess.PIPE)
        probes, turn = world.sinks["probes"], turns[path]
        turns[path] += 1
        long = STRETCHES * (seconds + 10) + 60
        with contextlib.ExitStack() as stack:
            service.start()
            stack.callback(service.end)
            stack.enter_context(world.single())
            world.sink("b")
            for port, times in [(FIRST_COUNT, 0.4), (SECOND_COUNT, 1.1)]:
                load = world.flood("a", world.to(path), port, payload, rate * times / 8 / (FULL + OVERHEAD), long)
                stack.callback(world.drop, load)
            for port in PROBES.values():
                words = [*LOAD, "probe", world.to(path), str(port), "--rate", str(PROBE_RATE), "--for", str(long)]
                stack.callback(world.drop, world.start("a", words, "ready"))
            # Queues fill.
            time.sleep(2)
            # Every second round begins with those who look, so that neither kind is always later.
            kinds = [(at + turn) % 2 for at in range(STRETCHES)]
            stretches = [(looked, stretch(service, probes, looked)) for looked in kinds]
        found = {}
        for looked, kind in enumerate(["without", "with"]):
            figures = pooled([of for had, of in stretches if had == looked], payload * 8)
            found |= {f"{kind} {key}": value for key, value in figures.items()}
        return {"value": found["with rate first"], **found, "seen": [of["seen"] for had, of in stretches if had]}

    paths = [path for path in PLACES if not arguments.paths or path in arguments.paths]
    found = interleaved(part, arguments, "beside", paths, measure)
    for path in paths:
        if path in part.skipped:
            continue
        for name in PROBES:
            for key, what, wanted in [("rate", "Mbit/s", OFF), ("p50", "p50, ms", OFF), ("p99", "p99, ms", OFF),
                                      ("own p99", "altq's own p99, ms", STEP)]:
                without, with_all = (valid(found[path], f"{kind} {key} {name}") for kind in ("without", "with"))
                compared(part, path, f"{name}: {what}", without, with_all, 1e-6, wanted)
    part.notes.append(f"A round is one link that never stops: those who look come and go {STRETCHES // 2} times, and "
                      "the stretches of a kind are one figure. Ratios: medians of the rounds' own, and the worst. "
                      "p50, p99: of datagrams that are timed from end to end. altq's own has steps of 1/32. A round "
                      "in which those who look got less than 7 answers in 10 s does not count.")
    return part


def loop(world, arguments):
    part = Part("loop", "What a loop keeps of a packet for those who watch, by `altq bench engine`: ns of processor "
                        "time a packet",
                ["load", "engine alone", "with waits", "with flows", "flows cost", "worst", "wanted"])
    one_class = ["--scheduler", "priq", "--depth", "2", "--queue", "drop_tail", "--flows"]
    loads = {
        "10 classes, saturated": ["--classes", "10", "--mode", "saturated"],
        "10 classes, one at a time": ["--classes", "10", "--mode", "one-at-a-time"],
        "1,000 classes, one at a time": ["--classes", "1000", "--mode", "one-at-a-time"],
        "a class of 50 flows": [*one_class, "--classes", "50", "--mode", "saturated"],
        "a class of 10,000 flows in turn": [*one_class, "--classes", "10000", "--mode", "saturated"],
    }

    def measure(choice):
        load, watch = choice
        words = [world.altq, "bench", "engine", *loads[load], "--watch", watch, "--runs", "5", "--json"]
        done = subprocess.run(words, capture_output=True, text=True, env=ENVIRONMENT, check=False)
        if done.returncode == 2:
            raise Lacks(f"this altq has no `bench engine --watch`: {done.stderr.strip().splitlines()[0]}")
        if done.returncode:
            raise Failure(f"altq bench: {done.stderr.strip()[-300:]}")
        return {"value": json.loads(done.stdout)["ns_per_packet"]}

    kept = ["nothing", "delays", "flows"]
    found = interleaved(part, arguments, "loop", [(load, watch) for load in loads for watch in kept], measure)
    for load in loads:
        if any((load, watch) in part.skipped for watch in kept):
            continue
        alone, delays, flows = (valid(found[load, watch]) for watch in kept)
        costs = {at: flows[at] - delays[at] for at in flows if at in delays}
        if not alone or not costs:
            part.row(load, *["-"] * 6, verdict="INVALID")
            continue
        # Each packet in turn is of a flow that has just lost its counter: the most that it can cost.
        usual = not load.startswith("a class of 10,000")
        part.row(load, f"{median(alone):.1f}", f"{median(delays):.1f}", f"{median(flows):.1f}", f"{median(costs):.1f}",
                 f"{max(costs.values()):.1f}", f"{PACKET_NS:.0f}" if usual else "-",
                 verdict=("held" if median(costs) <= PACKET_NS else "missed") if usual else "-")
    part.notes.append("Waits are counted by every loop. The history is another thread's work. The last load has no "
                      "flow that keeps a counter. benches/instructions counts the same in instructions.")
    return part


def every(runs, key="value"):
    """The values of all runs by round: beside ten thousand classes that send the processors are busy
    on purpose."""
    return {run["round"]: run[key] for run in runs if run.get(key) is not None}


def sending(world, service, classes, stack):
    """Datagrams to all classes of a service, until the stack ends; returns when all have sent."""
    world.ip("a", "route replace 10.64.0.0/10 via 10.9.3.2 dev br\n")
    words = [*LOAD, "spread", "--classes", str(classes), "--rate", str(1.2 * classes), "--for", "100000"]
    stack.callback(world.drop, world.start("a", words, "ready"))
    end = time.monotonic() + 30
    while True:
        link = top(service, window_s=10, flows=0)
        busy = sum(one["window"]["sent_packets"] > 0 for one in link["classes"]) if link else 0
        if busy >= classes:
            return
        if time.monotonic() > end:
            raise Failure(f"only {busy} of {classes} classes have sent")
        time.sleep(0.5)


def program(service, words):
    """Seconds that a program takes, and the bytes that it prints."""
    begun = time.monotonic()
    done = service.altq(*words)
    took = time.monotonic() - begun
    if done.returncode:
        raise Failure(f"altq {' '.join(words)}: {done.stderr.strip()[-300:]}")
    return {"value": took, "bytes": len(done.stdout)}


def redraws(world, service):
    """Seconds that `altq top` takes from a key to a screen that is wholly another one."""
    terminal = Terminal(world, service.host, [world.altq, "top", "--socket", str(service.socket)])
    try:
        terminal.until(b"wan", 20)
        used, begun = processor_time(terminal.process.pid), time.monotonic()
        took = [terminal.redraw(key) for key in (b"G", b"g") * 10]
        used = (processor_time(terminal.process.pid) - used) / (time.monotonic() - begun)
    finally:
        terminal.end()
    return {"value": max(took), "usual": percentile(took, 50), "processor": used}


SCROLL = """new Promise(done => {
  const box = document.getElementById("tree");
  let count = 0;
  const step = () => {
    box.scrollTop = count * 997 % box.scrollHeight;
    if (++count > 60) done(count); else requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
})"""
# The rows that are seen after some movements of the list, small and large: names that are not those of
# their places, and figures that are not shown.
ROWS = """(async () => {
  const box = $("tree"), wrong = [];
  for (const by of [31, 90, -10, -200, 997, -3000, 15, 1e9, -400, -31, -1e9, 60]) {
    box.scrollTop += by;
    await new Promise(done => setTimeout(done, 250));
    for (const row of document.querySelectorAll("#rows .row:not([hidden])")) {
      const place = Number(row.getAttribute("aria-posinset")) - 1;
      const seen = row.getBoundingClientRect().top - document.getElementById("space").getBoundingClientRect().top;
      if (Math.round(seen / tree.height) !== place || row.cells.text.textContent !== tree.rows[place]?.name
          || getComputedStyle(row.cells.got).visibility !== "visible") wrong.push(by + ": " + row.innerText);
    }
  }
  return wrong;
})()"""
SHOWN = ("document.getElementById('live').textContent.startsWith('live') && "
         "document.querySelectorAll('#space .row:not([hidden])').length > 5")


def page(world, service):
    """What the page takes: memory beyond that of a blank page, and time of its thread for the figures
    of a second, in one piece, and for a frame that scrolls."""
    browser = Browser(world, service.host)
    try:
        shown = browser.page(1280, 800)
        shown.until("document.readyState === 'complete'", 10)
        blank = browser.renderers()
        shown.open(f"http://127.0.0.1:{PORT}/")
        shown.until(SHOWN, 30)
        # A page from elsewhere gets a process of its own; that of the blank page ends.
        def own():
            now = browser.renderers()
            beyond = sum(size for child, size in blank.items() if child not in now)
            return sum(size for child, size in now.items() if child not in blank) - beyond

        before, begun, heap, held = shown.metrics(), time.monotonic(), 0, 0
        while time.monotonic() < begun + 15:
            time.sleep(1)
            heap, held = max(heap, shown.metrics()["JSHeapUsedSize"]), max(held, own())
        # An event comes each second.
        events = time.monotonic() - begun
        after = shown.metrics()
        frames = shown.value(SCROLL)
        scrolled = shown.metrics()
        moved = own()
        if held <= 0:
            raise Failure("the page has no process of its own")
        wrong = shown.value(ROWS)
        if wrong:
            raise Failure(f"the page: rows are wrong after a movement: {wrong[:3]}")
        # The trace takes memory as well.
        task = browser.longest_task(5)
    finally:
        browser.end()
    return {"value": held, "moved": moved, "heap": heap, "task": task,
            "event": (after["TaskDuration"] - before["TaskDuration"]) / events,
            "scroll": (scrolled["TaskDuration"] - after["TaskDuration"]) / frames}


def tree(world, arguments):
    classes = arguments.classes
    part = Part("tree", f"{classes} classes that all send: what it takes to look at them",
                ["what", "median", "worst", "wanted", "MB"])

    def row(name, values, worst, unit, form, most, size=None):
        if not values:
            part.row(name, "-", "-", "-", "-", verdict="INVALID")
            return
        part.row(name, form.format(median(values) * unit), form.format(max(worst.values()) * unit),
                 "-" if most is None else form.format(most * unit), "-" if size is None else f"{size / 1e6:.2f}",
                 verdict="-" if most is None else "held" if median(values) <= most else "missed")

    with contextlib.ExitStack() as stack:
        service = Service(world, "bridge", many(classes), options=["--interval", "1s"], supervise=False)
        service.start()
        stack.callback(service.end)
        sending(world, service, classes, stack)
        web = Web(world, service)
        stack.callback(web.end)
        paths = ["/stat.json", "/history.json", "/metrics", "/events"]
        programs = {"altq top --once": ["top", "--once"], "altq top --once --json": ["top", "--once", "--json"]}

        def measure(choice):
            if choice in programs:
                return program(service, programs[choice])
            if choice == "redraw":
                return redraws(world, service)
            if choice == "page":
                return page(world, service)
            status, size, took = web.inside.get(choice)
            if status != 200:
                raise Failure(f"{choice} is answered with {status}")
            return {"value": took, "bytes": size}

        found = interleaved(part, arguments, "tree", [*programs, "redraw", *paths, "page"], measure)
        memory = {"altq run": resident(service.process.pid), "altq web": resident(web.process.pid)}
    for name in [*programs, *paths]:
        runs = found[name]
        size = max(every(runs, "bytes").values(), default=0)
        row(f"{name}, ms", every(runs), every(runs), 1e3, "{:.0f}", None, size)
    runs = found["redraw"]
    for name, key, unit, form, most in [("another screen, the usual of 20 keys, ms", "usual", 1e3, "{:.1f}", None),
                                        ("another screen, the slowest of 20 keys, ms", "value", 1e3, "{:.1f}", REDRAW),
                                        ("of a processor", "processor", 1, "{:.2f}", None)]:
        row(f"altq top, {name}", every(runs, key), every(runs, key), unit, form, most)
    if "page" not in part.skipped:
        runs = found["page"]
        for name, key, unit, form, most in [
                ("the page beyond a blank one, MB", "value", 1e-6, "{:.1f}", PAGE_BYTES),
                ("the same after 60 screens of scrolling, MB", "moved", 1e-6, "{:.1f}", PAGE_BYTES),
                ("its script's heap, MB", "heap", 1e-6, "{:.1f}", PAGE_BYTES),
                ("the page, all figures of a second, ms", "event", 1e3, "{:.1f}", None),
                ("the page, its longest task, ms", "task", 1e3, "{:.1f}", PAGE_FRAME),
                ("the page, a frame that scrolls by a screen, ms", "scroll", 1e3, "{:.1f}", PAGE_FRAME)]:
            row(name, every(runs, key), every(runs, key), unit, form, most)
    for name, size in memory.items():
        part.row(f"{name}, MB", f"{size / 1e6:.1f}", "-", "-", "-")
    histories(world, arguments, part)
    part.notes.append("Every run counts: the processors are busy on purpose. Another screen: from a key until the "
                      "terminal has it. Figures of all classes come each second, in parts; between two tasks "
                      "the browser can draw. A frame that scrolls has the names of a screen; figures follow "
                      "when the list rests.")
    return part


def histories(world, arguments, part):
    """Rows about the memory of two histories: they may differ by what was asked for."""
    classes, sizes = arguments.classes, (2, 10)
    # A busy class takes some 20 bytes a second (crates/monitor/src/slice.rs).
    fill = 1.5 * sizes[1] * 1e6 / (20 * classes)
    if fill > 180:
        part.skipped["history"] = f"{classes} classes would take {fill:.0f} s to fill a history of {sizes[1]} MB"
        return

    def measure(choice):
        options = ["--interval", "1s", "--history", f"{choice[1]}Mbytes"]
        service = Service(world, "bridge", many(classes), options=options)
        with contextlib.ExitStack() as stack:
            service.start()
            stack.callback(service.end)
            sending(world, service, classes, stack)
            time.sleep(fill)
            return {"value": service.resident()}

    # Two processes with equal histories differ by up to some MB, so one pair says little.
    three = argparse.Namespace(**{**vars(arguments), "rounds": 3})
    choices = [("history", size) for size in sizes]
    found = interleaved(part, three, "history", choices, measure)
    small, large = (every(found[choice]) for choice in choices)
    for choice, held in zip(choices, (small, large)):
        shown = f"{median(held) / 1e6:.1f}" if held else "-"
        part.row(f"altq run --history {choice[1]}Mbytes, MB", shown, "-", "-", "-")
    if pairs := {at: large[at] - small[at] for at in large if at in small}:
        more, asked = median(pairs), (sizes[1] - sizes[0]) * 1e6
        part.row("what the larger one takes more, MB", f"{more / 1e6:.1f}",
                 f"{max(pairs.values()) / 1e6:.1f}", f"{asked * 1.1 / 1e6:.1f}", "-",
                 verdict="held" if more <= asked * 1.1 else "missed")
