"""Results of benches/paths: what is wanted, runs in turn, medians, ratios, tables."""
import statistics

from paths_world import Failure, Lacks, Watch

WANTED = {
    "goodput": {"bridge": 0.95, "nfqueue": 0.90},  # of that under the kernel's HTB
    "packets": 0.90,            # the best path's, of those under the kernel's HTB
    "round trip": {"": 25e-6, "realtime": 15e-6},  # added to that under the kernel's HTB
    "overload": 0.90,           # of the best rate without overload
    "kept": 0.98,               # of what a class within its guarantee sent, delivered under overload
    "shares": 0.02,             # off the policy
    "memory": 0.01,             # growth of the memory held after five minutes
}
# A packet of 64 bytes on Ethernet: check sequence 4, header 14, IPv4 20, UDP 8, and this payload.
SMALL = 18
# Bytes of headers in packets of 1500 bytes: IP with UDP, IP with TCP and its time stamps.
UDP_HEADERS, TCP_HEADERS = {4: 28, 6: 48}, {4: 52, 6: 72}
FULL = 1500
GBIT, MBIT = 1_000_000_000, 1_000_000


# How often a run is made again: if something else disturbed it, and if it failed.
DISTURBED, FAILED = 3, 1


class Part:
    """A part's result: its table, every run, and whether all that is wanted held."""

    def __init__(self, name, title, heads):
        self.name, self.title, self.heads = name, title, heads
        self.rows, self.runs, self.notes, self.skipped, self.verdicts = [], [], [], {}, []

    def row(self, *cells, verdict="-"):
        self.rows.append([*map(str, cells), verdict])
        self.verdicts.append(verdict)

    def text(self):
        table = [[*self.heads, ""], *self.rows]
        widths = [max(len(row[at]) for row in table) for at in range(len(table[0]))]
        lines = ["", self.title]
        for row in table:
            lines.append("  ".join([row[0].ljust(widths[0]),
                                    *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))]).rstrip())
        for why in dict.fromkeys(self.skipped.values()):
            choices = [choice for choice, reason in self.skipped.items() if reason == why]
            names = dict.fromkeys(choice if isinstance(choice, str) else choice[0] for choice in choices)
            lines.append(f"SKIPPED {'; '.join(names)}: {why}")
        reasons = sorted({reason for run in self.runs for reason in run["why"]})
        lines += [f"INVALID runs: {reason}" for reason in reasons[:8]]
        return "\n".join(lines + self.notes)

    def json(self):
        return {"part": self.name, "rows": [dict(zip([*self.heads, "verdict"], row)) for row in self.rows],
                "skipped": {str(choice): why for choice, why in self.skipped.items()}, "notes": self.notes,
                "runs": self.runs}


def interleaved(part, arguments, what, choices, measure):
    """Measures every choice once a round, each round from another one on. A run that other machines
    or processes disturbed, or in which the host did not keep time, is made up to three times again,
    and one that failed otherwise once. `later` in a run is called when it is no longer watched, and
    gives the rest of it. The runs that count, by choice."""
    found = {choice: [] for choice in choices}
    for number in range(arguments.rounds):
        first = number % len(choices)
        for choice in choices[first:] + choices[:first]:
            disturbed = failed = 0
            while choice not in part.skipped:
                run = {"value": None, "why": []}
                with Watch() as watch:
                    try:
                        run |= measure(choice)
                    except Lacks as error:
                        part.skipped[choice] = str(error)
                    except Failure as error:
                        run["why"] = [str(error)]
                run["why"] = run["why"] + watch.why
                if (later := run.pop("later", None)) and not run["why"]:
                    try:
                        run |= later()
                    except Failure as error:
                        run["why"] = [str(error)]
                run |= {"what": what, "choice": choice, "round": number, "busy_processors": round(watch.busy, 3)}
                if choice not in part.skipped:
                    part.runs.append(run)
                    disturbed, failed = disturbed + bool(watch.why), failed + (not watch.why)
                    if not run["why"] or disturbed > DISTURBED or failed > FAILED:
                        break
            if choice not in part.skipped:
                found[choice].append(run)
                name, why = choice if isinstance(choice, str) else ", ".join(map(str, choice)), "; ".join(run["why"])
                arguments.say(f"{part.name}, {what}, round {number + 1}: {name}: {run['value']} {why}")
    return found


def valid(runs, key="value"):
    """The values of valid runs by round; none if half of the runs or more are not valid."""
    values = {run["round"]: run[key] for run in runs if not run["why"] and run.get(key) is not None}
    return values if 2 * len(values) > len(runs) else {}


def median(values):
    return statistics.median(values.values())


def named(rate):
    for unit, name in [(GBIT, "Gbit/s"), (MBIT, "Mbit/s"), (1000, "kbit/s")]:
        if rate >= unit:
            return f"{rate / unit:g} {name}"
    return f"{rate} bit/s"


def against(part, found, show, wanted, label, unit=1.0):
    """A row for each choice: its median, its ratio to that of the kernel's HTB, and the worst of the
    rounds. `wanted` says the least ratio for a choice, or None."""
    base = valid(found.get("htb", []))
    ratios = {}
    for choice, runs in found.items():
        if choice in part.skipped:
            continue
        values = valid(runs)
        if not values:
            part.row(label, choice, "-", "-", "-", "-", verdict="INVALID")
            continue
        cells, verdict = ["-", "-", "-"], "-"
        if base and choice not in ("htb", "none", "alone"):
            ratios[choice] = ratio = median(values) / median(base)
            worst = min((values[at] / base[at] for at in values if at in base), default=ratio)
            least = wanted(choice)
            cells = [f"{ratio:.3f}", f"{worst:.3f}", "-" if least is None else f"{least:.2f}"]
            verdict = "-" if least is None else "held" if ratio >= least else "missed"
        part.row(label, choice, show(median(values) * unit), *cells, verdict=verdict)
    return ratios


def chosen(arguments, paths, part):
    """The paths to measure: those asked for, and the ones that they are compared with."""
    for path in list(paths):
        if path.startswith("kernel") and arguments.no_kernel:
            part.skipped[path] = arguments.no_kernel
    always = {"htb", "none", "alone"}
    keep = [path for path in paths if not arguments.paths or path in arguments.paths or path in always]
    return keep + [path for path in arguments.paths or [] if path not in paths and path.split("+")[0] in paths]
