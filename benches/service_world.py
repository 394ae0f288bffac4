"""What benches/service measures: `altq run --supervise` with its processes, its control socket, and
a stream of numbered datagrams through it."""
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time

from paths_world import ENVIRONMENT, HERE, SECOND, Failure, Lacks, end, policy

STREAM = [sys.executable, "-B", str(HERE / "service_load.py")]
# Numbered datagrams a second: a gap is known to a millisecond.
STREAM_RATE = 1000
LISTEN = 5005
# Where each path is shaped: the host, the device, the link's other direction.
PLACES = {"nfqueue": ("router", "wan"), "bridge": ("middle", "bridge a b")}


class Socket:
    """A connection to the control socket."""

    def __init__(self, path, timeout=10.0):
        self.connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.connection.settimeout(timeout)
        self.connection.connect(str(path))
        self.rest = b""

    def ask(self, **request):
        """The result of a request; `None` if it is answered with an error."""
        return self.reply(**request).get("result")

    def reply(self, **request):
        """The reply to a request."""
        self.connection.sendall(json.dumps(request).encode() + b"\n")
        while b"\n" not in self.rest:
            more = self.connection.recv(1 << 20)
            if not more:
                raise OSError("the control socket was closed")
            self.rest += more
        line, _, self.rest = self.rest.partition(b"\n")
        return json.loads(line)

    def close(self):
        self.connection.close()


def resident(pid):
    """Bytes of memory that a process holds."""
    return int(pathlib.Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0]) * 1024


class States(threading.Thread):
    """Asks for the state of the links every few milliseconds, and notes when it changes:
    (time, state), where `None` is: nobody answers."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.changes, self.stopping = path, [], threading.Event()

    def run(self):
        connection = None
        while not self.stopping.is_set():
            state = None
            try:
                connection = connection or Socket(self.path, 0.5)
                found = connection.ask(op="status")
                state = min((link["state"] for link in found["links"]), default=None) if found else None
            except (OSError, ValueError):
                if connection:
                    connection.close()
                connection = None
            if not self.changes or self.changes[-1][1] != state:
                self.changes.append((time.monotonic(), state))
            time.sleep(0.004)

    def end(self):
        self.stopping.set()
        self.join()
        return self.changes


class Service:
    """`altq run --supervise`, in a host of the world; or without a supervisor."""

    def __init__(self, world, path, text=None, rate=100_000_000, options=(), supervise=True):
        self.world, self.path, self.supervise = world, path, supervise
        self.host, device = PLACES[path]
        world.number += 1
        self.file = world.scratch / f"{world.number}.altq"
        self.socket = world.scratch / f"{world.number}.sock"
        self.log = world.scratch / f"{world.number}.log"
        self.state_folder = self.file.with_suffix(".state")
        self.file.write_text(text or policy(device, rate))
        self.options, self.process = list(options), None

    def start(self, **options):
        """Starts it, and returns in how many seconds it shaped."""
        words = [self.world.altq, "run", str(self.file), "--supervise" if self.supervise else "--quiet", "--socket",
                 str(self.socket), "--state", str(self.state_folder), *self.options]
        began = time.monotonic()
        with open(self.log, "a") as log:
            self.process = self.world.popen(self.host, words, stdout=subprocess.DEVNULL, stderr=log, **options)
        self.until("shaping", 30)
        return time.monotonic() - began

    def until(self, state, seconds):
        begun = time.monotonic()
        while self.state() != state:
            if (code := self.process.poll()) is not None:
                raise (Lacks if code in (6, 7) else Failure)(f"altq run: {self.log.read_text().strip()[-400:]}")
            if time.monotonic() > begun + seconds:
                raise Failure(f"altq run is not {state} within {seconds} s: {self.log.read_text().strip()[-400:]}")
            time.sleep(0.005)

    def state(self):
        try:
            connection = Socket(self.socket, 1)
            found = connection.ask(op="status")
            connection.close()
            return min((link["state"] for link in found["links"]), default=None) if found else None
        except (OSError, ValueError):
            return None

    def worker(self):
        """The number of the worker's process."""
        number = self.process.pid
        for child in pathlib.Path(f"/proc/{number}/task/{number}/children").read_text().split():
            with contextlib.suppress(OSError):
                # Programs of the firewall are children for a moment as well.
                if b"--supervise" not in (line := pathlib.Path(f"/proc/{child}/cmdline").read_bytes()) and b"run" in line:
                    return int(child)
        raise Failure("there is no worker")

    def resident(self):
        """Bytes of memory of both processes, or of the one."""
        return resident(self.process.pid) + (resident(self.worker()) if self.supervise else 0)

    def end(self):
        """Ends it, and returns in how many seconds it ended."""
        began = time.monotonic()
        end(self.process)
        self.world.processes.remove(self.process)
        return time.monotonic() - began

    def killed(self):
        """Takes note that the supervisor was killed."""
        self.process.wait(10)
        self.world.processes.remove(self.process)

    def altq(self, *words, text=None):
        """A command that talks to it: its exit code, and what it printed."""
        done = subprocess.run([self.world.altq, *words, "--socket", str(self.socket)], input=text,
                              capture_output=True, text=True, env=ENVIRONMENT, check=False)
        return done

    def left(self):
        """What is left of it in its host, when it has ended: rules of the firewall, bridges, programs for what
        comes in, and promiscuous mode."""
        found = []
        for words in (["iptables-save"], ["ip6tables-save"], ["nft", "list", "ruleset"], ["ip", "-o", "link"],
                      ["tc", "qdisc"]):
            try:
                text = self.world.inside(self.host, words)
            except (Failure, Lacks):
                continue
            found += [f"{words[0]}: {line.strip()}" for line in text.splitlines()
                      if "altq" in line or "NFQUEUE" in line or "PROMISC" in line or "qdisc ingress" in line]
        return found


class Stream:
    """Numbered datagrams from host a to host b by a path."""

    def __init__(self, world, path, seconds, port=LISTEN, rate=STREAM_RATE):
        self.world, self.rate = world, rate
        if port not in world.sinks:
            world.sinks[port] = world.start("b", [*STREAM, "listen", str(port)], "ready", stdin=subprocess.PIPE)
        self.receiver = world.sinks[port]
        self.come()
        words = [*STREAM, "stream", world.to(path), str(port), "--rate", str(rate), "--for", str(seconds)]
        self.sender = world.start("a", words, "ready")

    def come(self):
        """Numbers and times of what has come since the last call."""
        self.receiver.stdin.write("\n")
        self.receiver.stdin.flush()
        return json.loads(self.receiver.stdout.readline())

    def end(self):
        """How many were sent, lost, and came twice; and the times at which they came."""
        if self.sender.poll() is None:
            self.sender.terminate()
        line = json.loads(self.sender.stdout.read())
        self.world.drop(self.sender)
        time.sleep(0.5)
        come = self.come()
        numbers = {number for number, _ in come}
        return {"sent": line["sent"], "lost": line["sent"] - len(numbers), "twice": len(come) - len(numbers),
                "times": sorted(at for _, at in come)}


def gap(times, since, until):
    """The longest time without a datagram that begins after `since` and before `until`, in seconds."""
    longest = 0.0
    for one, other in zip(times, times[1:]):
        if other > since and one < until:
            longest = max(longest, other - one)
    return longest


@contextlib.contextmanager
def bulk(world, path, seconds):
    """A TCP connection that sends all it can meanwhile, in the class `second`. Gives a list that at
    the end has its goodput, in bit/s."""
    found = []
    out, err = world.scratch / "bulk.json", world.scratch / "bulk.err"
    words = [world.altq, "traffic", "bulk", world.to(path), "--port", str(SECOND), "--duration", f"{seconds}s",
             "--quiet", "--json"]
    with open(out, "w") as stdout, open(err, "w") as stderr:
        process = world.popen("a", words, stdout=stdout, stderr=stderr)
    try:
        time.sleep(0.5)
        yield found
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds + 30)
        text = out.read_text().strip()
        # 3: the host did not keep time.
        if process.returncode not in (0, 3) or not text:
            raise Failure(f"altq traffic bulk ended with exit code {process.returncode}: {err.read_text()[-300:]}")
        found.append(json.loads(text.splitlines()[-1])["flows"][0]["goodput_bit_s"])
    finally:
        world.drop(process)


class Memory:
    """A group of processes with a limit to their memory (cgroup), which goes with this value."""

    def __init__(self):
        base = pathlib.Path("/sys/fs/cgroup")
        old = (base / "memory").is_dir()
        self.folder = (base / "memory" if old else base) / f"altq-service-{os.getpid()}"
        self.limit, self.usage = (("memory.limit_in_bytes", "memory.usage_in_bytes") if old
                                  else ("memory.max", "memory.current"))
        try:
            self.folder.mkdir()
        except OSError as error:
            raise Lacks(f"no cgroup can be made: {error}") from error
        if not (self.folder / self.limit).exists():
            self.folder.rmdir()
            raise Lacks("the cgroups of this host have no limit of memory")

    def enter(self):
        """Moves the calling process there, with the children that it will have."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def used(self):
        return int((self.folder / self.usage).read_text())

    def set(self, most):
        (self.folder / self.limit).write_text(str(most))

    def end(self):
        for _ in range(100):
            try:
                return self.folder.rmdir()
            except OSError:
                time.sleep(0.05)
        return None
