"""A browser that is asked by its pipes, and its pages."""
import base64
import contextlib
import json
import os
import pathlib
import select
import shutil
import subprocess
import time

from paths_world import Failure, Lacks


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

    def event(self, method, seconds=30.0):
        """The fields of the next event of this name."""
        end = time.monotonic() + seconds
        while (found := self.next(end)).get("method") != method:
            pass
        return found["params"]

    def longest_task(self, seconds):
        """The longest time in one piece that the main thread of a page was at work during so many
        seconds, in seconds of a processor. While it lasts, the page draws no frame."""
        self.ask("Tracing.start", transferMode="ReturnAsStream",
                 traceConfig={"includedCategories": ["toplevel", "__metadata"]})
        time.sleep(seconds)
        self.ask("Tracing.end")
        stream, text = self.event("Tracing.tracingComplete")["stream"], ""
        while True:
            piece = self.ask("IO.read", handle=stream)
            text += piece["data"]
            if piece["eof"]:
                break
        self.ask("IO.close", handle=stream)
        events = json.loads(text)["traceEvents"]
        main = {(one["pid"], one["tid"]) for one in events
                if one["name"] == "thread_name" and one["args"]["name"] == "CrRendererMain"}
        # A task that the end of the trace cuts off has no duration.
        tasks = [one.get("tdur", one.get("dur", 0)) for one in events
                 if one["name"] == "ThreadControllerImpl::RunTask" and (one["pid"], one["tid"]) in main]
        if not tasks:
            raise Failure("the browser's trace has no task of a page")
        return max(tasks) / 1e6

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
        """Bytes of memory that each process that shows pages has alone, by its number. The browser has
        pages of its own, which take some 50 MB."""
        held = {}
        for child in children(self.process.pid):
            with contextlib.suppress(OSError):
                if b"--type=renderer" in pathlib.Path(f"/proc/{child}/cmdline").read_bytes():
                    text = pathlib.Path(f"/proc/{child}/smaps_rollup").read_text()
                    held[child] = sum(int(line.split()[1]) * 1024 for line in text.splitlines()
                                      if line.startswith(("Private_Clean:", "Private_Dirty:")))
        return held

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
