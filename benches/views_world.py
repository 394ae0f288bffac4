"""What benches/views looks at and with: `altq web` and its clients, `altq top` on a terminal, and a
browser that is asked by its pipe."""
import base64
import contextlib
import fcntl
import http.client
import json
import os
import pathlib
import pty
import select
import shutil
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


def children(pid):
    """Numbers of all processes below one."""
    above = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            above.setdefault(int(stat.read_text().rpartition(")")[2].split()[1]), []).append(int(stat.parent.name))
    found, unread = [], [pid]
    while unread:
        below = above.get(unread.pop(), [])
        found += below
        unread += below
    return found


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
            # The history begins with the second answer of altq.
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


class Browser:
    """Chromium without a window, which is asked by pipes (DevTools protocol, `--remote-debugging-pipe`:
    JSON that ends with a zero byte each)."""

    def __init__(self, world, host):
        program = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
        if not program:
            raise Lacks("there is no chromium (Debian: apt-get install chromium fonts-dejavu-core)")
        self.world, self.number, self.rest = world, 0, b""
        world.number += 1
        profile, log = world.scratch / f"{world.number}.chromium", world.scratch / f"{world.number}.browser"
        theirs_in, self.out = os.pipe()
        self.come, theirs_out = os.pipe()
        # It reads from descriptor 3 and writes to descriptor 4.
        words = ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "chromium", program, "--headless",
                 "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
                 "--disable-extensions", "--disable-background-networking", "--disable-component-update",
                 "--disable-quic", "--disable-sync", "--disable-features=SpareRendererForSitePerProcess",
                 "--lang=en-GB", f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        with open(log, "w") as stderr:
            self.process = world.popen(host, words, stdout=subprocess.DEVNULL, stderr=stderr,
                                       pass_fds=(theirs_in, theirs_out))
        os.close(theirs_in)
        os.close(theirs_out)

    def ask(self, method, session=None, seconds=30.0, **params):
        """The result of a command."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        try:
            os.write(self.out, json.dumps(message).encode() + b"\0")
            end = time.monotonic() + seconds
            while True:
                answer = self.next(end)
                if answer.get("id") == self.number:
                    break
        except OSError as error:
            raise Failure(f"the browser has ended: {error}") from error
        if "error" in answer:
            raise Failure(f"the browser: {method}: {answer['error'].get('message')}")
        return answer["result"]

    def next(self, end):
        while b"\0" not in self.rest:
            if not select.select([self.come], [], [], max(0.0, end - time.monotonic()))[0]:
                raise Failure("the browser does not answer")
            data = os.read(self.come, 1 << 20)
            if not data:
                raise Failure("the browser has ended")
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\0")
        return json.loads(line)

    def page(self, width, height, dark=False):
        """A blank page of this size."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        page.ask("Page.enable")
        page.ask("Performance.enable")
        page.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        theme = "dark" if dark else "light"
        page.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        return page

    def renderers(self):
        """Bytes of memory that the processes of pages have alone."""
        total = 0
        for child in children(self.process.pid):
            with contextlib.suppress(OSError):
                if b"--type=renderer" in pathlib.Path(f"/proc/{child}/cmdline").read_bytes():
                    text = pathlib.Path(f"/proc/{child}/smaps_rollup").read_text()
                    total += sum(int(line.split()[1]) * 1024 for line in text.splitlines()
                                 if line.startswith(("Private_Clean:", "Private_Dirty:")))
        return total

    def end(self):
        with contextlib.suppress(Failure):
            self.ask("Browser.close", seconds=5)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        self.world.drop(self.process)
        os.close(self.out)
        os.close(self.come)


class Page:
    """A page of the browser."""

    def __init__(self, browser, session, target):
        self.browser, self.session, self.target = browser, session, target

    def ask(self, method, **params):
        return self.browser.ask(method, self.session, **params)

    def open(self, address):
        found = self.ask("Page.navigate", url=address)
        if found.get("errorText"):
            raise Failure(f"the browser: {address}: {found['errorText']}")
        # The page has its elements only when it is read.
        self.until("document.readyState === 'complete'", 30)

    def value(self, expression):
        """The value of an expression in the page; of a promise, what it comes to."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise Failure(f"the page: {expression}: {found['exceptionDetails'].get('text')}")
        return found["result"].get("value")

    def until(self, expression, seconds):
        end = time.monotonic() + seconds
        while not self.value(expression):
            if time.monotonic() > end:
                raise Failure(f"the page: not within {seconds} s: {expression}")
            time.sleep(0.05)

    def metrics(self):
        """Figures of the page: seconds of its main thread (TaskDuration), bytes of its script's heap
        (JSHeapUsedSize) and others."""
        self.ask("Performance.enable")
        return {metric["name"]: metric["value"] for metric in self.ask("Performance.getMetrics")["metrics"]}

    def close(self):
        self.browser.ask("Target.closeTarget", targetId=self.target)

    def picture(self, path):
        """Writes what is seen into a file (PNG)."""
        pathlib.Path(path).write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))


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
