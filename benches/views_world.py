"""What benches/views looks at and with: `altq web` and its clients, and `altq top` on a terminal."""
import contextlib
import fcntl
import http.client
import json
import os
import pathlib
import pty
import select
import struct
import subprocess
import sys
import termios
import time

from paths_world import HERE, Failure, Lacks, policy
from service_world import PLACES, Socket

LOAD = [sys.executable, "-B", str(HERE / "views_load.py")]
PACKETS = [sys.executable, "-B", str(HERE / "views_packets.py")]
# Where `altq web` listens, in the host's own network namespace.
PORT = 8017
# Ports of the probes in each class.
PROBES = {"first": 5006, "second": 5007}


def probed(path, rate):
    """The policy of benches/paths, with a port for probes in each class."""
    rules = "".join(f"    match port {port} -> {name}\n" for name, port in PROBES.items())
    return policy(PLACES[path][1], rate).removesuffix("}\n") + rules + "}\n"


def ask(process, line=""):
    """What a program answers to a line."""
    try:
        process.stdin.write(line + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())
    except (OSError, ValueError) as error:
        raise Failure(f"a program of the load has ended: {error}") from error


def processor_time(pid):
    """Seconds of processor time of a process so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Web:
    """`altq web` beside a service, in the same host."""

    def __init__(self, world, service, options=()):
        self.world, self.host = world, service.host
        world.number += 1
        self.log = world.scratch / f"{world.number}.web"
        words = [world.altq, "web", "--socket", str(service.socket), "--listen", f"127.0.0.1:{PORT}", *options]
        with open(self.log, "w") as log:
            self.process = world.popen(self.host, words, stdout=subprocess.DEVNULL, stderr=log)
        self.inside = Inside(world, self.host)
        try:
            # The history is there with the first answer of altq.
            self.until("/history.json", 20)
        except BaseException:
            self.end()
            raise

    def until(self, path, seconds):
        begun = time.monotonic()
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.inside.get(path)[0] == 200:
                    return
            if (code := self.process.poll()) is not None:
                raise (Lacks if code in (6, 7) else Failure)(f"altq web: {self.log.read_text().strip()[-300:]}")
            if time.monotonic() > begun + seconds:
                raise Failure(f"altq web has no {path} within {seconds} s: {self.log.read_text().strip()[-300:]}")
            time.sleep(0.05)

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def end(self):
        self.inside.end()
        self.world.drop(self.process)


class Inside:
    """Asks `altq web` from its own network namespace, by a program that stays there."""

    PROGRAM = """
import http.client, json, sys, time
for line in sys.stdin:
    path, begun = line.strip(), time.monotonic()
    try:
        made = http.client.HTTPConnection('127.0.0.1', %d, timeout=20)
        made.request('GET', path)
        answer = made.getresponse()
        found = [answer.status, 0, 0.0]
        if path == '/events':
            # The first event ends with an empty line.
            while (text := answer.readline()) and not text.startswith(b'data: '):
                found[1] += len(text)
            found[1] += len(text)
        else:
            found[1] = len(answer.read())
        found[2] = time.monotonic() - begun
        made.close()
    except (OSError, http.client.HTTPException) as error:
        found = [0, 0, 0.0]
    print(json.dumps(found), flush=True)
"""

    def __init__(self, world, host):
        self.world = world
        words = [sys.executable, "-B", "-c", self.PROGRAM % PORT]
        self.process = world.popen(host, words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def get(self, path):
        """Status, bytes and seconds of an answer."""
        return ask(self.process, path)

    def end(self):
        self.world.drop(self.process)


class Looking:
    """All that may look at a service: `altq top --json`, `altq web` with sixteen clients of which
    eight read nothing, and who asks for /metrics each second."""

    CLIENTS, STALLED = 16, 8

    def __init__(self, world, service):
        self.world = world
        world.number += 1
        self.lines = world.scratch / f"{world.number}.top"
        self.web = Web(world, service)
        self.top = self.clients = None
        try:
            words = [world.altq, "top", "--json", "--socket", str(service.socket)]
            with open(self.lines, "w") as out:
                self.top = world.popen(service.host, words, stdout=out, stderr=subprocess.DEVNULL)
            words = [*LOAD, "watch", str(PORT), "--clients", str(self.CLIENTS), "--stalled", str(self.STALLED)]
            self.clients = world.start(service.host, words, "ready", stdin=subprocess.PIPE)
        except BaseException:
            self.end()
            raise

    def counts(self):
        """What has been seen so far."""
        found = ask(self.clients)
        if self.top.poll() is not None:
            raise Failure("altq top has ended")
        text = self.lines.read_text()
        return {"top": text.count("\n"), "events": min(found["events"]), "metrics": found["answers"],
                "failed": found["failed"], "again": found["again"]}

    def end(self):
        for process in (self.clients, self.top):
            if process:
                self.world.drop(process)
        self.web.end()


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, world, host, words, rows=24, columns=80):
        self.world = world
        self.own, program = pty.openpty()
        fcntl.ioctl(program, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        words = ["env", "TERM=xterm", "LC_ALL=C.UTF-8", *words]
        self.process = world.popen(host, words, stdin=program, stdout=program, stderr=subprocess.DEVNULL)
        os.close(program)
        self.seen = b""

    def ready(self, seconds):
        """Whether something comes within these seconds; it is kept."""
        if not select.select([self.own], [], [], seconds)[0]:
            return False
        try:
            self.seen += os.read(self.own, 1 << 16)
        except OSError as error:
            raise Failure("the program has left its terminal") from error
        return True

    def until(self, text, seconds):
        end = time.monotonic() + seconds
        while text not in self.seen:
            if not self.ready(0.2) and time.monotonic() > end:
                raise Failure(f"the terminal does not show {text.decode()} within {seconds} s")

    def redraw(self, key):
        """Seconds from a key until the screen is drawn anew: until nothing more comes for 10 ms."""
        while self.ready(0.05):
            pass
        self.seen = b""
        begun = time.monotonic()
        os.write(self.own, key)
        if not self.ready(5):
            raise Failure(f"key {key.decode()} draws nothing within 5 s")
        last = time.monotonic()
        while self.ready(0.01):
            last = time.monotonic()
        return last - begun

    def end(self):
        with contextlib.suppress(OSError):
            os.write(self.own, b"q")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(2)
        self.world.drop(self.process)
        os.close(self.own)


def top(service, **asked):
    """The link of an `altq.top/1` of a service; None while nothing was counted."""
    connection = Socket(service.socket, 30)
    try:
        found = connection.ask(op="top", **asked)
    finally:
        connection.close()
    return found["links"][0] if found else None


def stat(service):
    """The classes of an `altq.stat/1` of a service, the link first, once something was counted."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        connection = Socket(service.socket, 30)
        try:
            if (found := connection.ask(op="stat")) and found["links"][0]["classes"]:
                return found["links"][0]["classes"]
        finally:
            connection.close()
        time.sleep(0.05)
    raise Failure("altq stat has no counters")
