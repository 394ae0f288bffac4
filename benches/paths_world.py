"""What benches/paths measures in: network namespaces, the shapers, the programs that make load, and
the judgement whether the host kept time. Everything made here ends with the process that made it."""
import contextlib
import ctypes
import json
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
LIBC = ctypes.CDLL(None, use_errno=True)
LOAD = [sys.executable, "-B", str(HERE / "paths_load.py")]
ENVIRONMENT = {**os.environ, "LC_ALL": "C.UTF-8", "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}

# Ports of the server: control and all that has no class of its own, TCP and requests of two classes.
CONTROL, FIRST, SECOND = 2587, 5001, 5002
# Ports at which datagrams of the two classes are counted.
FIRST_COUNT, SECOND_COUNT = 5003, 5004
# The classes of every policy here, and the parts of the link that they are guaranteed, in per cent.
# What is left over they share in the same proportion.
SHARES = {"first": 20, "second": 75, "rest": 5}
PORTS = {"first": [FIRST, FIRST_COUNT], "second": [SECOND, SECOND_COUNT]}
# Bytes before a packet of layer 3 that the kernel's HTB charges: the Ethernet header.
OVERHEAD = 14
# Bytes that the kernel's HTB may send at once: what its link sends in a millisecond, as altq's does
# after idle time, but two packets at least.
BURST_S, BURST_LEAST = 0.001, 3028

# A host keeps time as `altq traffic` judges it (docs/traffic.md): a timer of 2 ms is late by more
# than 10 ms at most one time in a hundred, and never by more than 100 ms, and other machines take at
# most 5 % of the processors' time; here other processes may not take more either.
BEAT, LATE_P99, LATE_MAX, STOLEN = 0.002, 0.010, 0.100, 0.05


class Lacks(Exception):
    """The host lacks something; what could not be measured is skipped."""


class Failure(Exception):
    """A run came to no figure."""


def call(words, text=None):
    """Runs a program to its end and returns what it printed."""
    try:
        done = subprocess.run(words, input=text, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    except FileNotFoundError as error:
        raise Lacks(f"{words[0]} is not installed") from error
    if done.returncode:
        raise Failure(f"{' '.join(words)}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout


def die_with_parent():
    LIBC.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG


def private_mounts():
    """Moves this process to mounts of its own, which end with it and its children. Namespaces made
    by `ip netns` are mounts, and locks of programs lie below /run, so nothing is left of either,
    even if this process is killed."""
    if LIBC.unshare(0x00020000):  # CLONE_NEWNS
        raise Lacks(f"mounts of its own: {os.strerror(ctypes.get_errno())}")
    call(["mount", "--make-rprivate", "/"])
    call(["mount", "-t", "tmpfs", "altq-paths", os.path.realpath("/var/run")])


def processor_times():
    """Ticks of all processors since boot: busy, taken by other machines, all (proc(5))."""
    user, nice, system, idle, iowait, irq, softirq, stolen = map(
        int, pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    busy = user + nice + system + irq + softirq
    return busy, stolen, busy + idle + iowait + stolen


def processes():
    """All processes but those of this program and of the kernel: for each number its name, and the
    ticks of processor time that it and its ended children have used (proc(5))."""
    found, parents, own = {}, {}, str(os.getpid())
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            number, _, rest = stat.read_text().partition(" (")
            name, _, fields = rest.rpartition(") ")
            fields = fields.split()
            parents[number] = fields[1]
            found[number] = (name, sum(map(int, fields[11:15])))

    def other(number):
        # Threads of the kernel are children of number 2. Children of children, as the workers of a
        # supervisor, belong to this program as well.
        while number in parents:
            if number in ("2", own):
                return False
            number = parents[number]
        return True
    return {number: of for number, of in found.items() if other(number)}


def used(before, after):
    """Ticks of processor time by name that processes have used in between."""
    spent = {}
    for number, (name, ticks) in after.items():
        spent[name] = spent.get(name, 0) + ticks - before.get(number, (name, 0))[1]
    return {name: ticks for name, ticks in spent.items() if ticks > 0}


def others():
    """How many other processes there are, and the names of those that used more than 1 % of a
    processor in half a second."""
    before = processes()
    time.sleep(0.5)
    after = processes()
    spent = used({**after, **before}, after)
    return len(after), sorted(name for name, ticks in spent.items() if ticks > os.sysconf("SC_CLK_TCK") * 0.005)


class Watch:
    """Watches while something is measured whether the host keeps time. `why` says why it did not,
    `busy` how many processors were busy."""

    def __enter__(self):
        self.why, self.late, self.stop = [], [], threading.Event()
        self.before, self.others = processor_times(), processes()
        self.thread = threading.Thread(target=self.beat, daemon=True)
        self.thread.start()
        return self

    def beat(self):
        LIBC.prctl(29, 1, 0, 0, 0)  # PR_SET_TIMERSLACK, in ns, of this thread
        due = time.monotonic()
        while not self.stop.is_set():
            due += BEAT
            time.sleep(max(0, due - time.monotonic()))
            now = time.monotonic()
            self.late.append(now - due)
            # Several beats that were missed are one that was late.
            due = max(due, now - BEAT)

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()
        busy, stolen, ticks = (now - then for now, then in zip(processor_times(), self.before))
        self.busy = busy / max(ticks, 1) * os.cpu_count()
        late = sorted(self.late)
        if late and (p99 := late[int(len(late) * 0.99)]) > LATE_P99:
            self.why.append(f"the host ran {p99 * 1e3:.0f} ms late one time in a hundred")
        elif late and late[-1] > LATE_MAX:
            self.why.append(f"the host once ran {late[-1] * 1e3:.0f} ms late")
        if stolen > STOLEN * ticks:
            self.why.append(f"other machines took {stolen / ticks:.0%} of the processors' time")
        spent = used(self.others, processes())
        if sum(spent.values()) > STOLEN * ticks:
            most = max(spent, key=spent.get)
            part = min(sum(spent.values()) / ticks, 1)
            self.why.append(f"other processes took {part:.0%} of the processors' time, most of it {most}")


def quantum(rate, part):
    """The bytes that a class of htb may borrow in its turn. All classes have had theirs in 0.8 s at
    the most: if that took longer, a run of seconds would see whose turn it was, not the shares."""
    return max(1600, min(2000 * part, rate * part // 20_000))


def policy(device, rate, scheduler="htb", limit=1000, path=None, match="port"):
    """A policy of three classes in altq's language, in the words of a scheduler. `match`: the key
    that is compared with the ports of a class."""
    burst = max(int(rate / 8 * BURST_S), BURST_LEAST)
    words = {
        "htb": lambda part, rest: f"rate {rate * part // 100}bit/s  ceil {rate}bit/s  burst {burst}  cburst {burst}  "
                                  f"quantum {quantum(rate, part)}  prio {0 if rest else 1}",
        "cbq": lambda part, rest: f"share {part}%  borrow  priority {7 if rest else 1}",
        "hfsc": lambda part, rest: f"linkshare {rate * part // 100}bit/s",
    }[scheduler]
    lines = [f"link wan {{\n    device {device}\n    rate {rate}bit/s\n    overhead {OVERHEAD} bytes\n"
             f"    scheduler {scheduler}"]
    lines += [f"    path {path}"] if path else []
    for name, part in SHARES.items():
        rest = name not in PORTS
        lines.append(f"    class {name} {{ {words(part, rest)}  queue drop_tail {{ limit {limit}packets }}"
                     f"{'  default' if rest else ''} }}")
    lines += [f"    match {match} {','.join(map(str, ports))} -> {name}" for name, ports in PORTS.items()]
    return "\n".join(lines) + "\n}\n"


def kernel_htb(device, rate, limit=1000):
    """The same policy, with `dport`, as commands of `tc -batch`."""
    burst = max(int(rate / 8 * BURST_S), BURST_LEAST)
    bucket = f"burst {burst}b cburst {burst}b"
    lines = [f"qdisc add dev {device} root handle 1: htb default 13",
             f"class add dev {device} parent 1: classid 1:1 htb rate {rate}bit ceil {rate}bit {bucket} quantum 200000"]
    for at, (name, part) in enumerate(SHARES.items(), 1):
        lines.append(f"class add dev {device} parent 1:1 classid 1:1{at} htb rate {rate * part // 100}bit "
                     f"ceil {rate}bit {bucket} quantum {quantum(rate, part)} prio {1 if name in PORTS else 0}")
        lines.append(f"qdisc add dev {device} parent 1:1{at} handle 1{at}: pfifo limit {limit}")
        for family, ip, prio in [("ip", "ip", 1), ("ipv6", "ip6", 2)]:
            lines += [f"filter add dev {device} parent 1: protocol {family} prio {prio} u32 match {ip} dport {port} "
                      f"0xffff flowid 1:1{at}" for port in PORTS.get(name, [])]
    return "\n".join(lines) + "\n"


class Shaper:
    """A shaper that runs: its process, if it has one, and the last line that it printed."""

    def __init__(self, process=None, out=None):
        self.process, self.out, self.last = process, out, None

    def processor_time(self):
        """Seconds of processor time of all its threads so far."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident(self):
        """Bytes of memory that it holds."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024

    def lines(self):
        """Every whole line that it has printed."""
        text = self.out.read_text()
        return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]


class World:
    """Host `a` and host `b`, with two ways between them: over a router, and over a machine `middle`
    without addresses.

        a `rt` 10.9.1.1 — `lan` [router] `wan` — `rt` b 10.9.2.2
        a `br` 10.9.3.1 — `a`   [middle] `b`   — `br` b 10.9.3.2
    """

    HOSTS = ["a", "router", "middle", "b"]
    # Host, interface, host and interface at the other end, the network, the number in it.
    WIRES = [("a", "rt", 1, 1, "router", "lan", 9), ("router", "wan", 2, 9, "b", "rt", 2)]

    def __init__(self, altq):
        self.altq, self.processes = str(altq), []
        self.token = secrets.token_hex(16)
        self.environment = {**ENVIRONMENT, "ALTQ_TOKEN": self.token}
        self.folder = tempfile.TemporaryDirectory(prefix="altq-paths-")
        self.scratch = pathlib.Path(self.folder.name)
        self.number = 0
        self.sinks = {}

    def __enter__(self):
        try:
            self.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        # A second Ctrl-C does not keep the rest from being taken away.
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(name, signal.SIG_IGN)
        for process in reversed(self.processes):
            end(process)
        for host in self.HOSTS:
            subprocess.run(["ip", "netns", "del", host], capture_output=True, env=ENVIRONMENT, check=False)
        self.folder.cleanup()

    def make(self):
        for host in self.HOSTS:
            call(["ip", "netns", "add", host])
        for host, own, net, number, other, theirs, last in self.WIRES:
            self.wire((host, own, f"1{net}:{number}"), (other, theirs, f"1{net}:{last}"))
            for at, interface, last_number in [(host, own, number), (other, theirs, last)]:
                self.address(at, interface, net, last_number)
            self.neighbours((host, own, number), (other, theirs, last), net)
        self.wire(("a", "br", "13:1"), ("middle", "a", "13:9"))
        self.wire(("b", "br", "13:2"), ("middle", "b", "13:8"))
        for host, number in [("a", 1), ("b", 2)]:
            self.address(host, "br", 3, number)
        self.neighbours(("a", "br", 1), ("b", "br", 2), 3)
        self.ip("a", "route add default via 10.9.1.9\nroute add ::/0 via fd09:1::9\n")
        self.ip("b", "route add default via 10.9.2.9\nroute add ::/0 via fd09:2::9\n")
        for host in self.HOSTS:
            # What one connection learns of a way is not used for the next.
            self.set(host, "ipv4/tcp_no_metrics_save", 1)
        self.forwarding(True)
        ports = [f"{any_address}:{port}" for port in (CONTROL, FIRST, SECOND) for any_address in self.any_addresses()]
        words = [word for port in ports for word in ("--listen", port)]
        words = [self.altq, "traffic", "server", *words, "--max-rate", "100Gbit/s", "--max-duration", "200000s"]
        self.start("b", words, "listening")

    @staticmethod
    def any_addresses():
        return ["0.0.0.0"] + ["[::]"] * os.path.exists("/proc/net/if_inet6")

    def wire(self, one, other):
        """A wire between two interfaces, each a host, a name and the end of its hardware address."""
        (host, name, mac), (there, peer, theirs) = one, other
        call(["ip", "-n", host, "link", "add", "name", name, "address", hardware(mac), "type", "veth",
              "peer", "name", peer, "address", hardware(theirs), "netns", there])
        for at, interface in [(host, name), (there, peer)]:
            # The hosts send little by themselves: they have no link-local addresses. In their first
            # seconds they report multicast groups.
            self.ip(at, f"link set dev lo up\n"
                        f"link set dev {interface} addrgenmode none\nlink set dev {interface} up\n")

    def address(self, host, interface, net, number):
        self.ip(host, f"addr add 10.9.{net}.{number}/24 dev {interface}\n"
                      f"addr add fd09:{net}::{number}/64 dev {interface} nodad\n")

    def neighbours(self, one, other, net):
        """Each end knows the other's hardware address from the start."""
        for (host, interface, _), (_, _, number) in [(one, other), (other, one)]:
            mac = hardware(f"1{net}:{number}")
            self.ip(host, "".join(f"neigh add {address} lladdr {mac} dev {interface} nud permanent\n"
                                  for address in [f"10.9.{net}.{number}", f"fd09:{net}::{number}"]))

    def ip(self, host, batch):
        call(["ip", "-n", host, "-batch", "-"], batch)

    def inside(self, host, words, text=None):
        return call(["ip", "netns", "exec", host, *words], text)

    def set(self, host, name, value):
        self.inside(host, ["sh", "-c", f"echo {value} > /proc/sys/net/{name}"])

    def forwarding(self, on):
        """Whether the router forwards."""
        self.set("router", "ipv4/ip_forward", int(on))
        self.set("router", "ipv6/conf/all/forwarding", int(on))

    @contextlib.contextmanager
    def single(self, host="a"):
        """Hosts build no super-packets meanwhile: what a call hands over in one is cut before it
        leaves."""
        interfaces = {"a": ["rt", "br"], "b": ["rt", "br"], "router": ["lan", "wan"]}[host]
        most = {}
        for name in interfaces:
            link = json.loads(call(["ip", "-n", host, "-d", "-j", "link", "show", "dev", name]))[0]
            most[name] = link["gso_max_segs"]
            self.ip(host, f"link set dev {name} gso_max_segs 1\n")
        try:
            yield
        finally:
            for name, segments in most.items():
                self.ip(host, f"link set dev {name} gso_max_segs {segments}\n")

    @contextlib.contextmanager
    def nat(self):
        """The router hides the hosts before it behind its own address (IPv4) meanwhile."""
        rule = ["-w", "-t", "nat", "{}", "POSTROUTING", "-o", "wan", "-j", "MASQUERADE"]
        table = "table ip paths { chain post { type nat hook postrouting priority 100; oifname wan masquerade; } }"
        undo = ["iptables", *[word.replace("{}", "-D") for word in rule]]
        try:
            self.inside("router", ["iptables", *[word.replace("{}", "-A") for word in rule]])
        except (Failure, Lacks) as first:
            undo = ["nft", "delete", "table", "ip", "paths"]
            try:
                self.inside("router", ["nft", "-f", "-"], table)
            except (Failure, Lacks) as second:
                raise Lacks(f"no NAT here: {first}; {second}") from second
        try:
            yield
        finally:
            self.inside("router", undo)

    def to(self, path, family=4):
        """The address of host b on the way that a path shapes."""
        net = 3 if path.startswith(("bridge", "xdp")) else 2
        return f"10.9.{net}.2" if family == 4 else f"fd09:{net}::2"

    def popen(self, host, words, **options):
        words = ["ip", "netns", "exec", host, *words]
        process = subprocess.Popen(words, env=self.environment, start_new_session=True,
                                   **{"stdin": subprocess.DEVNULL, "preexec_fn": die_with_parent, **options})
        self.processes.append(process)
        return process

    def start(self, host, words, sign, **options):
        """Starts a program and waits until it has printed a line that begins with `sign`."""
        self.number += 1
        said = self.scratch / f"{self.number}.err"
        with open(said, "w") as stderr:
            process = self.popen(host, words, stdout=subprocess.PIPE, stderr=stderr, text=True, **options)
        line = process.stdout.readline()
        if not line.startswith(sign):
            raise Failure(f"{' '.join(words)}: {line}{said.read_text().strip()}")
        return process

    def drop(self, process):
        """Ends a program that this world has started, if it has not ended."""
        end(process)
        if process in self.processes:
            self.processes.remove(process)

    def sink(self, host):
        """The program that counts the datagrams that arrive at a host."""
        if host not in self.sinks:
            words = [*LOAD, "sink", str(FIRST_COUNT), str(SECOND_COUNT)]
            self.sinks[host] = self.start(host, words, "ready", stdin=subprocess.PIPE)
        return self.sinks[host]

    def counts(self, host):
        """The time in seconds, and the datagrams that have arrived at a host so far, by port."""
        process = self.sink(host)
        process.stdin.write("\n")
        process.stdin.flush()
        line = json.loads(process.stdout.readline())
        return line["at"] / 1e9, {int(port): count for port, count in line["count"].items()}

    def flood(self, host, address, port, payload, rate, seconds, segments=1, **options):
        """Starts a sender of datagrams, and returns when it sends; `sent` waits for its end."""
        words = [*LOAD, "flood", address, str(port), "--payload", str(payload), "--rate", str(rate),
                 "--segments", str(segments), "--for", str(seconds)]
        return self.start(host, words, "ready", **options)

    def sent(self, process):
        """What a sender has sent, when it has ended: datagrams, and datagrams a second."""
        out = process.stdout.read()
        process.wait()
        end(process)
        self.processes.remove(process)
        if process.returncode:
            raise Failure(f"the sender of datagrams ended with exit code {process.returncode}")
        line = json.loads(out)
        return line["sent"], line["sent"] / line["seconds"]

    def traffic(self, host, words):
        """The result of a client of `altq traffic` (altq.traffic/1)."""
        words = ["ip", "netns", "exec", host, self.altq, "traffic", *words, "--json", "--quiet"]
        process = subprocess.Popen(words, env=self.environment, start_new_session=True, preexec_fn=die_with_parent,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.processes.append(process)
        out, err = process.communicate()
        self.processes.remove(process)
        # 3: the result is INVALID, and says why.
        if process.returncode not in (0, 3) or not out.strip():
            raise Failure(f"altq traffic {words[6]}: {' '.join(err.split())}")
        return json.loads(out.strip().splitlines()[-1])

    @contextlib.contextmanager
    def shaped(self, path, rate, device=None, scheduler="htb", limit=1000, match="dport", **options):
        """A path shapes meanwhile what goes from a to b, or what `device` says: `none`, `htb` (the
        kernel's own), `bridge`, `xdp` (a bridge by AF_XDP), `nfqueue` or `kernel`; the last four are
        altq's and may end with `+realtime`. altq compares the same ports as the kernel's htb, unless
        `match` says otherwise."""
        kind, _, realtime = path.partition("+")
        if kind == "none":
            yield Shaper()
        elif kind == "htb":
            try:
                self.inside("router", ["tc", "-batch", "-"], kernel_htb("wan", rate, limit))
            except Failure as error:
                call(["sh", "-c", "ip netns exec router tc qdisc del dev wan root || true"])
                raise Lacks(f"the kernel's HTB: {error}") from error
            try:
                yield Shaper()
            finally:
                self.inside("router", ["tc", "qdisc", "del", "dev", "wan", "root"])
        else:
            where = ("middle", "bridge a b") if kind in ("bridge", "xdp") else ("router", "wan")
            by = "kernel" if kind == "kernel" else None
            text = policy(device or where[1], rate, scheduler, limit, by, match)
            with self.altq_run(where[0], text, bool(realtime), kind == "xdp", **options) as shaper:
                yield shaper

    @contextlib.contextmanager
    def altq_run(self, host, text, realtime, xdp=False, interval="200ms", more=(), **options):
        self.number += 1
        file, out, err = (self.scratch / f"{self.number}.{kind}" for kind in ("altq", "jsonl", "err"))
        file.write_text(text)
        words = [self.altq, "run", str(file), "--json", "--interval", interval] + ["--realtime"] * realtime
        words += ["--xdp", "on"] * xdp + list(more)
        with open(out, "w") as stdout, open(err, "w") as stderr:
            process = self.popen(host, words, stdout=stdout, stderr=stderr, **options)
        shaper = Shaper(process, out)
        begun = time.monotonic()
        # The first line comes when packets are shaped.
        while "\n" not in out.read_text():
            if (code := process.poll()) is not None:
                self.processes.remove(process)
                raise (Lacks if code in (6, 7) else Failure)(f"altq run: {err.read_text().strip()}")
            if time.monotonic() > begun + 15:
                raise Failure("altq run printed nothing within 15 s")
            time.sleep(0.02)
        try:
            yield shaper
        finally:
            ended = process.poll()
            end(process, signal.SIGINT)
            self.processes.remove(process)
            lines = shaper.lines()
            shaper.last = lines[-1] if lines else None
        if ended is not None or process.returncode:
            raise Failure(f"altq run ended with exit code {process.returncode}: {err.read_text().strip()[-300:]}")


def hardware(text):
    net, number = text.split(":")
    return f"02:00:00:00:{int(net):02x}:{int(number):02x}"


def end(process, by=signal.SIGTERM):
    """Ends a process that this program has started."""
    if process.poll() is None:
        process.send_signal(by)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None and not pipe.closed:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
