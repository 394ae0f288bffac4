"""The part of benches/service that lasts: an hour in which everything happens again and again."""
import contextlib
import json
import pathlib
import subprocess
import time

from changes_world import RATE, Changing, turning, unequal
from paths_result import FULL, UDP_HEADERS, Part
from paths_world import FIRST_COUNT, OVERHEAD, SECOND, SECOND_COUNT, Failure, Watch, end
from service_world import PLACES, Socket

# The history fills for six hours, up to what --history says. This much is full in five minutes, so
# that whatever else grows is seen: a second takes some 350 bytes.
HISTORY = "100kbytes"
# Growth of the memory held after five minutes.
GROWTH = 0.01
# Each path's datagrams have a port of their own.
PORTS = {"nfqueue": FIRST_COUNT, "bridge": SECOND_COUNT}
# What goes down and up again: the interface, and its host.
ENDS = {"nfqueue": ("router", "wan"), "bridge": ("middle", "b")}
# Seconds between two policies, and between two flaps.
POLICIES, FLAPS = 10, 60


def memory(pid):
    """Memory of a process that is its own (RssAnon), that of mapped files, and both (VmRSS), in bytes."""
    lines = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    kept = {word: int(lines[word].split()[0]) * 1024 for word in ("VmRSS", "RssAnon", "RssFile", "RssShmem")}
    return {"own": kept["RssAnon"], "files": kept["RssFile"] + kept["RssShmem"], "all": kept["VmRSS"]}


class Soaked:
    """A service under load, and what is seen of it."""

    def __init__(self, world, path, length, stack):
        self.world, self.path = world, path
        self.service = Changing(world, path, turning(path, 0), ["--history", HISTORY])
        self.answers, self.policies, self.refused, self.wrong, self.over_time = 0, 0, [], [], []
        self.early = self.final = None
        self.service.start()
        stack.callback(self.service.end)
        # A worker that has just begun has no counters yet.
        begun = time.monotonic()
        while not self.service.ask(op="stat"):
            if time.monotonic() > begun + 10:
                raise Failure("there are no counters within ten seconds")
            time.sleep(0.05)
        to = world.to(path)
        self.load = world.flood("a", to, PORTS[path], FULL - UDP_HEADERS[4], 0.9 * RATE / 8 / (FULL + OVERHEAD),
                                length + 600)
        stack.callback(world.drop, self.load)
        with (world.scratch / f"{path}.tcp").open("w") as out, (world.scratch / f"{path}.err").open("w") as err:
            words = [world.altq, "traffic", "bulk", to, "--port", str(SECOND), "--duration", f"{int(length)}s",
                     "--quiet", "--json"]
            self.bulk = world.popen("a", words, stdout=out, stderr=err)
        stack.callback(world.drop, self.bulk)
        self.worker = self.service.worker()

    def both(self):
        """The memory of both processes. If the worker is another one, that is noted."""
        if (worker := self.service.worker()) != self.worker:
            self.wrong.append("another worker runs than at the start")
            # Why, in altq's own words.
            self.wrong += [line for line in self.service.log.read_text().splitlines() if "worker" in line][-5:]
            self.worker = worker
        return {"supervisor": memory(self.service.process.pid), "worker": memory(self.worker)}

    def ask(self):
        """A client's question. What it counts has to add up."""
        connection = Socket(self.service.socket)
        reply = connection.reply(op="stat")
        connection.close()
        if not (found := reply.get("result")):
            self.refused.append(str(reply.get("error")))
            return
        self.answers += 1
        self.wrong += unequal(found["links"][0])[:3]

    def change(self, number):
        """The next policy, and what `altq status` says then."""
        try:
            self.service.apply(turning(self.path, number))
            self.policies += 1
        except Failure as error:
            self.wrong.append(str(error))
        if (state := self.service.state()) != "shaping":
            self.wrong.append(f"it is {state} after policy {number}")

    def flap(self):
        host, interface = ENDS[self.path]
        self.world.ip(host, f"link set dev {interface} down\n")
        time.sleep(0.5)
        self.world.ip(host, f"link set dev {interface} up\n")

    def look(self):
        """At the end: the same worker, which shapes."""
        if (state := self.service.state()) != "shaping":
            self.wrong.append(f"it is {state} at the end")
        self.final = self.both()
        self.early = self.early or self.final


def tcp(soaked):
    """Goodput of the TCP connection, in bit/s; notes if it has none."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        soaked.bulk.wait(60)
    text, said = ((soaked.world.scratch / f"{soaked.path}.{end}").read_text().strip() for end in ("tcp", "err"))
    # 3: the host did not keep time for all of its flow.
    if soaked.bulk.poll() in (0, 3) and text:
        return json.loads(text.splitlines()[-1])["flows"][0]["goodput_bit_s"]
    soaked.wrong.append(f"altq traffic bulk ended with exit code {soaked.bulk.poll()}: {said[-300:]}")
    end(soaked.bulk)
    return 0


def soak(world, arguments):
    length = arguments.soak
    part = Part("soak", f"{length:g} s at 200 Mbit/s: datagrams and TCP, a client that asks every 100 ms, "
                        f"a policy every {POLICIES} s, a link that flaps every {FLAPS} s",
                ["path", "process", "MB early", "MB at the end", "growth", "wanted", "own", "answers", "policies",
                 "wrong"])
    early = 300 if length >= 600 else length / 5
    paths = [path for path in PLACES if not arguments.paths or path in arguments.paths]
    with contextlib.ExitStack() as stack, Watch() as watch:
        all_of_it = [Soaked(world, path, length, stack) for path in paths]
        begun, number, flaps = time.monotonic(), 0, 0
        while (passed := time.monotonic() - begun) < length:
            for soaked in all_of_it:
                soaked.ask()
                if passed >= early and not soaked.early:
                    soaked.early = soaked.both()
            if passed >= (number + 1) * POLICIES:
                number += 1
                for soaked in all_of_it:
                    soaked.change(number)
                    if number % 6 == 0:
                        soaked.over_time.append([round(passed), soaked.both()])
            # Between two policies.
            elif passed >= (flaps + 1) * FLAPS + POLICIES / 2:
                flaps += 1
                for soaked in all_of_it:
                    soaked.flap()
            time.sleep(0.1)
        for soaked in all_of_it:
            soaked.look()
        goodput = [tcp(soaked) for soaked in all_of_it]
    for soaked, rate in zip(all_of_it, goodput):
        for process in ("supervisor", "worker"):
            first, final = soaked.early[process], soaked.final[process]
            growth = final["all"] / first["all"] - 1
            part.row(soaked.path, process, f"{first['all'] / 1e6:.2f}", f"{final['all'] / 1e6:.2f}", f"{growth:+.2%}",
                     f"{GROWTH:.0%}", f"{final['own'] / first['own'] - 1:+.2%}", soaked.answers, soaked.policies,
                     len(soaked.wrong),
                     verdict="held" if growth <= GROWTH and not soaked.wrong and not soaked.refused else "missed")
        part.notes += [f"{soaked.path}: {text}" for text in soaked.wrong[:10]]
        part.notes.append(f"{soaked.path}: TCP carried {rate / 1e6:.1f} Mbit/s; {len(soaked.refused)} questions were "
                          "refused.")
        part.notes += [f"{soaked.path}: refused: {text}" for text in dict.fromkeys(soaked.refused)]
        part.runs.append({"choice": soaked.path, "why": [], "early": soaked.early, "final": soaked.final,
                          "over_time": soaked.over_time, "answers": soaked.answers, "policies": soaked.policies,
                          "tcp_bit_s": rate, "wrong": soaked.wrong})
    part.notes.append(f"early: after {early:g} s. own: growth without mapped files. The links went down and up {flaps} "
                      "times. In every answer the packets of each class add up.")
    part.notes += [f"the host did not keep time: {why}" for why in watch.why]
    return part
