"""What benches/changes changes: `altq run --supervise` with a folder for its state, policies that
follow one another, and a hold on the one who writes changes down (strace)."""
import contextlib
import json
import pathlib
import subprocess
import time

from paths_world import (CONTROL, ENVIRONMENT, FIRST_COUNT, OVERHEAD, SECOND, SECOND_COUNT, Failure, Lacks,
                         die_with_parent, end)
from service_world import LISTEN, PLACES, Service, Socket

# The rate of the link, in bit/s.
RATE = 200_000_000
# Of the policies that follow one another: one without the class `extra`, and one with it.
OLD, NEW = 0, 2

# How long, in seconds, the supervisor is held up before a step.
HELD = 0.6
# The steps by which the supervisor writes a change down: on what, which call, and for the how manieth
# time since it was attached to. Until the new file gets its name the old one counts.
STEPS = {
    "the new file is opened": ("new", "openat", 1),
    "it is written": ("new", "write", 1),
    "it is opened for fsync": ("new", "openat", 2),
    "it is brought to the disk": ("new", "fsync", 1),
    "it gets its name": ("new", "rename", 1),
    "the folder is opened": ("folder", "openat", 1),
    "the folder is brought to the disk": ("folder", "fsync", 1),
    "the worker is told": ("folder", "close", 1),
}
RENAMED = list(STEPS).index("it gets its name")


def turning(path, number):
    """One of four policies that follow one another: rates move, a class comes and goes, and another
    scheduler serves a class. Datagrams to LISTEN always have the class `first`. Those to FIRST_COUNT
    have one that is made anew when the scheduler changes, and those to SECOND_COUNT one that comes
    and goes. All of them are guaranteed more than is sent. Their queues together hold fewer
    packets than a link has slots for at the least (4096, less those on the way), so that any of them
    may follow any other. What `altq traffic` says to its server has the class `first` too: with the
    losses of an overloaded `rest` the server takes its client for gone."""
    moved, more, other = [(False, False, False), (True, False, False), (True, True, False),
                          (False, True, True)][number % 4]
    quantum = "" if other else "quantum 3000  "
    lines = [
        f"link wan {{\n    device {PLACES[path][1]}\n    rate {RATE}bit/s\n    overhead {OVERHEAD} bytes\n"
        "    scheduler cbq",
        f"    class first {{ share {20 if moved else 10}%  borrow  priority 5",
        "        queue drop_tail { limit 400packets } }",
        f"    class second {{ share {30 if moved else 40}%  borrow  queue drop_tail {{ limit 1100packets }} }}",
        f"    class inner {{ share 20%  borrow  scheduler {'fifo' if other else 'drr'}",
        f"        class left {{ {quantum}queue drop_tail {{ limit 500packets }} }}",
        "        class right { queue drop_tail { limit 100packets } }\n    }",
    ]
    if more:
        lines.append("    class extra { share 10%  borrow  queue drop_tail { limit 500packets } }")
    lines.append("    class rest { share 15%  borrow  default  queue drop_tail { limit 800packets } }")
    rules = {LISTEN: "first", CONTROL: "first", SECOND: "second", FIRST_COUNT: "left"}
    rules |= {SECOND_COUNT: "extra"} if more else {}
    lines += [f"    match dport {port} -> {name}" for port, name in rules.items()]
    return "\n".join(lines) + "\n}\n"


def names(number):
    """The names of the link and its classes under a policy of `turning`, sorted."""
    always = ["first", "inner", "left", "rest", "right", "second", "wan"]
    return sorted(always + ["extra"] * (number % 4 in (2, 3)))


class Changing(Service):
    """`altq run --supervise` that keeps its changes in a folder of its own."""

    def __init__(self, world, path, text, options=()):
        super().__init__(world, path, text, options=["--interval", "200ms", *options])
        self.folder = self.state_folder
        self.other = world.scratch / f"{self.file.stem}.other.altq"

    def words(self, text, *options):
        """The command that applies a policy."""
        self.other.write_text(text)
        return ["apply", str(self.other), *options]

    def done(self, *words):
        """Runs a command that is to succeed, and returns in how many seconds it did."""
        begun = time.monotonic()
        done = self.altq(*words)
        took = time.monotonic() - begun
        if done.returncode:
            raise Failure(f"altq {words[0]}: {done.stderr.strip()[-300:]}")
        return took

    def apply(self, text, *options):
        """Applies a policy, and returns in how many seconds that was done."""
        return self.done(*self.words(text, *options))

    def ask(self, **request):
        """The result of a request; None if nobody answers, or it is answered with an error."""
        try:
            connection = Socket(self.socket)
        except OSError:
            return None
        try:
            return connection.ask(**request)
        except (OSError, ValueError):
            return None
        finally:
            connection.close()

    def classes(self):
        """The names of the link and of the classes that its loop has, as it counted them last."""
        found = self.ask(op="stat")
        return sorted(of["name"] for of in found["links"][0]["classes"]) if found else []

    def kept(self):
        """The file in which changes are kept."""
        found = list(self.folder.glob("*.json"))
        if len(found) != 1:
            raise Failure(f"changes are kept in {len(found)} files, not one")
        return found[0]

    def deadline(self):
        """When the change that waits is taken back, as the disk has it, in seconds since the boot;
        None if none waits."""
        pending = json.loads(self.kept().read_text())["pending"]
        return (pending["begun"]["boot_ns"] + pending["wait_ns"]) / 1e9 if pending else None

    def gone(self, worker):
        """The supervisor was killed: waits until its worker has ended as well."""
        self.killed()
        begun = time.monotonic()
        while pathlib.Path(f"/proc/{worker}/exe").exists():
            if time.monotonic() > begun + 5:
                raise Failure("a worker outlives its supervisor by five seconds")
            time.sleep(0.005)

    def link(self):
        """The link in the counters."""
        found = self.ask(op="stat")
        if not found:
            raise Failure("altq does not tell its counters")
        return found["links"][0]


def unequal(link):
    """The classes whose packets do not add up. Sums of a class above others also have what classes
    did that are gone."""
    wrong = []
    for found in link["classes"]:
        lost = sum(found["dropped"].values())
        if found["received_packets"] != found["sent_packets"] + lost + found["backlog_packets"]:
            wrong.append(f"{found['name']}: {found['received_packets']} received are not {found['sent_packets']} sent, "
                         f"{lost} dropped and {found['backlog_packets']} waiting")
    return wrong


def strace(service, log, options):
    """Begins to watch calls of the supervisor, which is attached to when this returns."""
    words = ["strace", "-y", "-o", str(log), "-p", str(service.process.pid), *options]
    try:
        process = subprocess.Popen(words, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True, start_new_session=True,
                                   preexec_fn=die_with_parent)
    except FileNotFoundError as error:
        raise Lacks("strace is not installed") from error
    said = []
    for line in process.stderr:
        said.append(line.strip())
        if " attached" in line:
            return process
    end(process)
    raise Lacks(f"strace cannot watch processes here: {'; '.join(said)}")


@contextlib.contextmanager
def held(service, step, log):
    """Holds the supervisor up before a step of what it writes meanwhile."""
    what, call, count = STEPS[step]
    place = service.folder if what == "folder" else f"{service.kept()}.new"
    # Processors differ in which calls of this name they have.
    calls = "/^rename" if call == "rename" else call
    process = strace(service, log, ["-P", str(place), "-e", f"trace={calls}",
                                    "-e", f"inject={calls}:delay_enter={int(HELD * 1e6)}:when={count}"])
    try:
        yield
    finally:
        end(process)
    if log.read_text().count(f"{call}") < count:
        raise Failure(f"the supervisor was not held up where {step}")


def until_held(service):
    """Waits until the supervisor is held up: one of its threads stands still for strace, twice in a
    row, which is longer than strace needs for a call."""
    folder, begun, before = pathlib.Path(f"/proc/{service.process.pid}/task"), time.monotonic(), set()
    while time.monotonic() < begun + 10:
        now = {task.name for task in folder.iterdir() if (task / "stat").read_text().rpartition(") ")[2][0] == "t"}
        if now & before:
            return
        before = now
        time.sleep(HELD / 20)
    raise Failure("the supervisor is not held up within ten seconds")
