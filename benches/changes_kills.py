"""The parts of benches/changes about what is kept: changes that are confirmed or taken back while
processes are killed, and the order of what reaches the disk."""
import contextlib
import os
import re
import signal
import subprocess
import time

from changes_world import HELD, NEW, OLD, RENAMED, STEPS, Changing, held, names, strace, turning, until_held
from paths_result import Part, interleaved, valid
from paths_world import Failure, die_with_parent, end
from service_parts import of
from service_world import Socket

# How far off its deadline a change may be taken back, in seconds: docs/apply.md promises a quarter
# of a second. Reading the disk and asking takes some of it as well.
EARLY, LATE = 0.05, 0.25
# How long a change waits that is interrupted while it is made, in seconds.
WAIT = 3.0
VICTIMS = ["supervisor", "worker", "both", "client"]
# When a change is interrupted that nothing holds up, in seconds after it was asked for.
MOMENTS = [number * 0.004 for number in range(20)]
TEXTS = {"old": OLD, "new": NEW}


def boot():
    """Seconds since the boot: the clock of deadlines."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def sleep_until(moment):
    time.sleep(max(0.0, moment - boot()))


class Trial:
    """A service of which one policy is old and another one new."""

    def __init__(self, world, path):
        self.world, self.path = world, path
        self.old, self.new = turning(path, OLD), turning(path, NEW)
        self.service, self.fresh = Changing(world, path, self.old), True

    def settle(self):
        """The old policy runs, and nothing waits."""
        service = self.service
        if not self.fresh and service.process.poll() is None:
            # A supervisor whose workers keep ending waits longer and longer before the next one.
            service.end()
            service.start()
        self.fresh = True
        if service.process.poll() is not None:
            if service.process in self.world.processes:
                service.killed()
            service.start()
        service.until("shaping", 20)
        if self.stands()[1]:
            service.altq("rollback")
        service.apply(self.old)
        self.wrong("old", False)

    def stands(self):
        """Which policy runs by its text, and whether a change waits."""
        policy, status = self.service.ask(op="policy"), self.service.ask(op="status")
        if not policy or not status:
            return None, None
        text = policy["text"]
        word = "old" if text == self.old else "new" if text == self.new else "neither"
        return word, status["confirm_pending_s"] is not None

    def wrong(self, *expected):
        """What is not as it should be: nothing if soon the text, what the loop has, and what waits are
        those of one policy. Without an expectation either policy will do, and the new one waits."""
        begun, found = time.monotonic(), None
        while time.monotonic() < begun + 4:
            word, waits = self.stands()
            if word in TEXTS:
                classes = self.service.classes()
                found = f"the {word} policy runs with the classes {', '.join(classes)}" + ", and waits" * waits
                if (word, waits) == (expected or (word, word == "new")) and classes == names(TEXTS[word]):
                    return None
            else:
                found = f"the policy that runs is {word}"
            time.sleep(0.01)
        return f"{found}; wanted: {' '.join(map(str, expected)) or 'one of them, whole'}"

    def taken_back(self, deadline):
        """How many seconds after its deadline a change is taken back."""
        connection, until = None, deadline + 8
        try:
            while boot() < until:
                try:
                    connection = connection or Socket(self.service.socket, 1)
                    found = connection.ask(op="policy")
                    if found and found["text"] == self.old:
                        return boot() - deadline
                except (OSError, ValueError):
                    if connection:
                        connection.close()
                    connection = None
                time.sleep(0.003)
        finally:
            if connection:
                connection.close()
        raise Failure("a change is not taken back within eight seconds of its deadline")

    def apply(self, wait):
        """Applies the new policy, and returns when it is to be taken back."""
        self.service.apply(self.new, "--confirm", f"{wait:g}s")
        return self.deadline()

    def deadline(self):
        """When the change that waits is to be taken back."""
        deadline = self.service.deadline()
        if deadline is None:
            raise Failure("no change waits on disk")
        return deadline

    def ask_to_apply(self):
        """Begins to apply the new policy."""
        service = self.service
        words = [self.world.altq, *service.words(self.new, "--confirm", f"{WAIT:g}s"), "--socket", str(service.socket)]
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                start_new_session=True, preexec_fn=die_with_parent)

    def kill(self, victim, client=None):
        """Kills one of the processes, or two, and returns the number of the worker that ran."""
        service = self.service
        self.fresh = self.fresh and victim != "worker"
        worker = service.worker()
        pids = {"supervisor": [service.process.pid], "worker": [worker], "both": [service.process.pid, worker],
                "client": [client.pid] if client else []}[victim]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return worker

    def again(self, victim, worker):
        """Starts it again where the supervisor is gone; waits for the next worker where that was."""
        service = self.service
        if victim in ("supervisor", "both"):
            service.gone(worker)
            service.start()
        elif victim == "worker":
            begun = time.monotonic()
            while True:
                with contextlib.suppress(Failure):
                    if service.worker() != worker:
                        break
                if time.monotonic() > begun + 10:
                    raise Failure("no worker follows one that was killed")
                time.sleep(0.005)
            service.until("shaping", 20)


def of_kind(trial, kind):
    """A change that nobody interrupts while it is made: what came of it, and how far off its deadline
    it was taken back."""
    service, off = trial.service, None
    if kind == "confirmed":
        deadline = trial.apply(2)
        done = service.altq("confirm")
        sleep_until(deadline + 0.6)
        wrong = trial.wrong("new", False) or (f"altq confirm: {done.stderr}" if done.returncode else None)
    elif kind in ("never confirmed", "confirmed late"):
        deadline = trial.apply(2)
        off = trial.taken_back(deadline)
        wrong = trial.wrong("old", False)
        if kind == "confirmed late" and (code := service.altq("confirm").returncode) != 5:
            wrong = f"altq confirm ends with {code}, not 5"
    elif kind == "all killed, begun late":
        deadline = trial.apply(1)
        worker = trial.kill("both")
        sleep_until(deadline + 0.2)
        trial.again("both", worker)
        wrong = trial.wrong("old", False)
    else:
        victim = kind.partition(" ")[0]
        deadline = trial.apply(4)
        trial.again(victim, trial.kill(victim))
        wrong = trial.wrong("new", True) or ("it begins after the deadline" if boot() > deadline else None)
        off = trial.taken_back(deadline)
        wrong = wrong or trial.wrong("old", False)
    return {"value": off or 0.0, "off": off, "wrong": wrong}


def interrupted(trial, victim, step):
    """A process is killed while the supervisor is held up before a step of writing a change down."""
    service, off = trial.service, None
    with held(service, step, trial.world.scratch / "strace.log"):
        client = trial.ask_to_apply()
        until_held(service)
        worker = trial.kill(victim, client)
    client.wait(30)
    trial.again(victim, worker)
    # The supervisor that lives makes the change for a client that is gone, and none for a worker that
    # is. One that was killed has left the old file, or the new one.
    new = victim == "client" or (victim != "worker" and list(STEPS).index(step) > RENAMED)
    wrong = trial.wrong("new" if new else "old", new)
    if new and not wrong:
        off = trial.taken_back(trial.deadline())
        wrong = trial.wrong("old", False)
    return {"value": off or 0.0, "off": off, "wrong": wrong}


def at_any_moment(trial, victim):
    """A process is killed some milliseconds after a change was asked for, for each of MOMENTS."""
    wrong, stood = [], {"old": 0, "new": 0}
    for moment in MOMENTS:
        client = trial.ask_to_apply()
        time.sleep(moment)
        worker = trial.kill(victim, client)
        client.wait(30)
        trial.again(victim, worker)
        if found := trial.wrong():
            wrong.append(f"{moment * 1e3:.0f} ms: {found}")
        stood[trial.stands()[0] or "old"] += 1
        trial.settle()
    return {"value": float(stood["new"]), "off": None, "wrong": "; ".join(wrong) or None, "stood": stood}


def reverts(world, arguments):
    part = Part("reverts", "Changes that are to be confirmed: what runs in the end, and when they were taken back",
                ["what", "killed", "times", "right", "off the deadline, ms", "wanted"])
    path = (arguments.paths or ["bridge"])[0]
    trial = Trial(world, path)
    kinds = ["confirmed", "never confirmed", "confirmed late", "worker killed", "supervisor killed", "both killed",
             "all killed, begun late"]
    with contextlib.ExitStack() as stack:
        trial.service.start()
        stack.callback(lambda: trial.service.process in world.processes and trial.service.end())

        def measure(choice):
            trial.settle()
            if isinstance(choice, str):
                return of_kind(trial, choice)
            victim, step = choice
            return at_any_moment(trial, victim) if step == "any moment" else interrupted(trial, victim, step)

        found = interleaved(part, arguments, "kinds", kinds, measure)
        found |= interleaved(part, arguments, "moments", [(victim, "any moment") for victim in VICTIMS], measure)
        steps = [(victim, step) for victim in VICTIMS for step in STEPS]
        found |= interleaved(part, arguments, "steps", steps, measure)
    rows = {(kind, "-"): [kind] for kind in kinds}
    rows |= {("at any moment", victim): [(victim, "any moment")] for victim in VICTIMS}
    rows |= {(f"before any of {len(STEPS)} steps", victim): [(victim, step) for step in STEPS] for victim in VICTIMS}
    for (what, victim), choices in rows.items():
        runs = [run for choice in choices if choice not in part.skipped for run in found[choice]]
        if not runs:
            continue
        # What is wrong is so on a host that runs late as well.
        wrong = [run["wrong"] for run in runs if run.get("wrong")]
        done = [run for run in runs if "wrong" in run]
        off = {number: run["off"] for number, run in enumerate(runs) if not run["why"] and run.get("off") is not None}
        # What was held up began to wait when it went on.
        late = LATE + (HELD if victim == "client" and len(choices) > 1 else 0)
        held_off = all(-EARLY <= value <= late for value in off.values())
        each = len(MOMENTS) if what == "at any moment" else 1
        right = len(done) - len(wrong) if each == 1 else "not all" if wrong else "all"
        invalid = any(not valid(found[choice]) for choice in choices if choice not in part.skipped)
        part.row(what, victim, len(done) * each, right, of(off) if off else "-", f"{late * 1e3:.0f}" if off else "-",
                 verdict="missed" if wrong or not held_off else "INVALID" if invalid else "held")
        part.notes += [f"{what}, {victim}: {text}" for text in dict.fromkeys(wrong)]
    part.notes.append("Median (worst). A change is whole if its text, the classes of the loop and what waits are those "
                      f"of one policy. Steps: {'; '.join(STEPS)}. The supervisor is held up before one (strace), and "
                      "processes are killed meanwhile.")
    return part


# A line of strace -f: the process; the call that begins or goes on; the rest.
CALL = re.compile(r"^(\d+)\s+(?:<\.\.\. (\w+) resumed>|(\w+)\()(.*)$")


def order(log, folder):
    """The steps that a supervisor's calls on the disk and to its worker are. A call counts when it is
    done, but for an answer to the worker, which counts when it begins."""
    begun, steps = {}, []
    for line in log.splitlines():
        found = CALL.match(line)
        if not found:
            continue
        pid, resumed, call, rest = found.groups()
        if resumed:
            call, rest = resumed, begun.pop(pid, "") + rest
        elif '{\\"kept\\"' in rest:
            steps.append("answer")
        if rest.endswith("<unfinished ...>"):
            begun[pid] = rest.removesuffix("<unfinished ...>")
            continue
        if call.startswith("rename"):
            step = "rename" if f'"{folder}/' in rest else None
        elif f"<{folder}>" in rest:
            step = f"{call} of the folder"
        else:
            step = call if f"<{folder}/" in rest else None
        if step and re.search(r"= -1 E", rest):
            step += " failed"
        # A long text may take several writes.
        if step and steps[-1:] != [step]:
            steps.append(step)
    return steps


def traced(service, log, words):
    """What the supervisor asks of the disk while a command runs."""
    process = strace(service, log, ["-f", "-s", "64", "-e", "trace=write,sendto,sendmsg,fsync,fdatasync,/^rename"])
    try:
        before = settled(service, log)
        service.done(*words)
        time.sleep(0.3)
    finally:
        end(process)
    return order(log.read_text()[before:], service.folder)


def settled(service, log):
    """Waits until what came before is done: a service shapes before its first policy is kept. The
    length of what strace saw until then. A call that began before this counts for nothing."""
    begun, seen, quiet = time.monotonic(), -1, 0
    while quiet < 6:
        if time.monotonic() > begun + 10:
            raise Failure("the one who keeps changes writes for ten seconds without a change")
        time.sleep(0.05)
        now = len(log.read_text()) if any(service.folder.glob("*.json")) else -1
        quiet = quiet + 1 if now == seen >= 0 else 0
        seen = now
    return seen


def fsyncs(world, arguments):
    part = Part("fsyncs", "What the one who keeps changes does, in order", ["command", "calls"])
    path = (arguments.paths or ["bridge"])[0]
    # A worker that is late on a busy host, and ended for that, would be told more.
    service = Changing(world, path, turning(path, OLD), ["--watchdog", "10s"])
    kept = ["write", "fsync", "rename", "fsync of the folder"]
    with contextlib.ExitStack() as stack:
        service.start()
        stack.callback(service.end)
        for name, words, wanted in [
                ("apply --confirm", lambda: service.words(turning(path, NEW), "--confirm", "60s"),
                 [*kept, "answer", "answer"]),
                ("confirm", lambda: ["confirm"], [*kept, "answer"]),
                ("apply", lambda: service.words(turning(path, OLD)), ["answer", *kept, "answer"]),
                ("apply --confirm again", lambda: service.words(turning(path, NEW), "--confirm", "60s"),
                 [*kept, "answer", "answer"]),
                ("rollback", lambda: ["rollback"], ["answer", *kept, "answer"])]:
            found = traced(service, world.scratch / "strace.log", words())
            part.row(name, ", ".join(found) or "none", verdict="held" if found == wanted else "missed")
            part.runs.append({"choice": name, "why": [], "calls": found, "wanted": wanted})
            if found != wanted:
                part.notes.append(f"{name}: wanted {', '.join(wanted)}")
    part.notes.append("answer: the worker is told. It makes a change after the first answer, so one that is to be "
                      "confirmed is on the disk before it is made; any other is kept once it is made.")
    return part
