"""What `benches/same` gives to altq: random policies with their packets, and wrong inputs."""
import re
from random import Random

SCHEDULERS = {  # their words; `classic` is cbq with ALTQ's estimator
    "cbq": ["20% estimator exact", "40% excess (share|priority)"],
    "classic": ["estimator classic", "50% link-sharing (formal|top-level|ancestor-only)", "40% rounds (wrr|prr)",
                "30% efficient"],
    "hfsc": [],
    "htb": ["30% r2q 1..100"],
    "wfq": ["50% excess (proportional|equal)"],
    "drr": [],
    "priq": [],
    "fairq": [],
    "jobs": ["30% limit 20..400", "30% separate"],
    "fifo": [],
}
TREES = ["cbq", "classic", "hfsc", "htb"]  # their classes have classes below them without another scheduler
RED = ["40% weight (2|16|64|512)", "20% packetsize 100..1500", "40% variant (paper|altq)"]
QUEUES = {
    "drop_tail": [],
    "drop_head": [],
    "red": ["60% min {least}{unit}  max {most}{unit}", "40% probability (0.02|0.1|0.4)",
            "40% (ecn|ecn  harddrop|gentle)", *RED],
    "rio": ["30% low-min {least}{unit}  low-max {most}{unit}", "30% medium-min {least}{unit}  medium-max {most}{unit}",
            "30% high-min {least}{unit}  high-max {most}{unit}", "20% low-probability (0.02|0.1|0.4)",
            "20% high-probability (0.02|0.1|0.4)", "40% ecn", *RED],
    "blue": ["40% increment (0.01|0.125|0.5)", "40% decrement (0.0001|0.001|0.02)", "40% holdtime 1..900ms",
             "40% ecn"],
    "codel": ["50% target 1..20ms  interval 20..200ms", "40% ecn"],
    "fq_codel": ["50% target 1..20ms  interval 20..200ms", "40% ecn", "50% flows 1..2000", "40% quantum 256..9000",
                 "20% drop_batch 1..64"],
    "cake": ["70% (triple-isolate|dual-srchost|dual-dsthost|flows|hosts|srchost|dsthost|flowblind)", "40% rtt 5..300ms",
             "30% queues (8|64|200|4096)"],
    "pie": ["40% target 1..50ms", "30% tupdate 1..50ms", "30% max_burst 0..300ms", "40% (ecn|ecn  max_ecnth 0.2)",
            "30% derand"],
    "sfq": ["40% (hash flow|hash src|hash dst|perturb 1..10s)", "30% divisor 1..500", "30% flows 1..127",
            "30% depth 4..127", "30% quantum 256..9000", "30% new-flow (back|front)", "30% headdrop",
            "40% redflowlimit 40000..120000bytes  (ecn|ecn  harddrop|probability 0.1|min 4000bytes  max 16000bytes)"],
    "fairq": ["50% buckets 1..600", "40% hogs 10000..5000000bit/s"],
    "hashed_wfq": ["50% queues (1|2|64|2048)", "60% hash (dst|sport|flow)"],
    "two_level": ["40% prio_synack (on|off)"],
}
METERS = {
    "bucket": [],
    "srtcm": ["ebs 9000..60000bytes", "40% colour-aware", "60% yellow dscp af12"],
    "trtcm": ["pir {cir}..{most}bit/s  pbs 9000..60000bytes", "40% colour-aware", "60% yellow dscp af12"],
}
RATES = [64_000, 500_000, 1_000_000, 2_000_000, 10_000_000, 34_368_000, 100_000_000, 155_520_000, 1_000_000_000]
OVERHEADS = ["none", "ethernet", "ether-vlan", "docsis", "raw", "conservative", "pppoe-ptm", "bridged-ptm",
             "pppoa-vcmux", "pppoe-llcsnap", "ipoa-vcmux mpu 64", "4 bytes", "-8 bytes", "10 bytes atm",
             "22 bytes ptm", "38 bytes mpu 84"]
MATCHES = ["dscp ef,va", "proto tcp dport 80,443", "src 10.1.0.0/16", "src offices proto udp", "host 192.0.2.7",
           "sport 1000-1999", "ecn ce", "tos 0xb8/0xfc", "tcp-flags syn/syn+ack", "length 0-128bytes", "mark 0x10/0xf0",
           "vlan 12", "family ipv6 proto icmpv6", "dst 2001:db8::/32,!2001:db8:1::/48"]
SIZES = [[40], [64, 1500], [576], [1500], [40, 576, 1500, 1500], [200, 1000], list(range(40, 1501, 73))]


class RandomPolicy:
    """A policy in the native language (`text`), its packets (`arrivals`), and options of replay."""

    def __init__(self, seed, index):
        self.random = Random(f"{seed}/{index}")
        kind = list(SCHEDULERS)[index % len(SCHEDULERS)]
        self.rate = self.pick(RATES) if self.chance(70) else self.number(200_000, 300_000_000)
        if kind == "classic":
            self.rate = max(self.rate, 2_000_000)  # its estimator counts no slower classes
        self.mtu = self.pick([1500, 1500, 1500, 576, 9000])
        self.leaves, self.inner, self.control = [], [], False
        self.transmit_queues = kind == "fifo" and self.chance(50)
        self.text = self.link(kind)
        self.arrivals = self.packets()
        self.options = self.replay_options().split()

    def chance(self, percent):
        return self.random.random() * 100 < percent

    def pick(self, choices):
        return self.random.choice(choices)

    def number(self, low, high):
        return self.random.randint(low, max(low, high))

    def words(self, *templates):
        """Text from templates: `30% WORDS` appears with probability 0.3, `(a|b)` becomes one of the
        two, `1..9` a number from 1 to 9."""
        found = []
        for template in templates:
            percent, _, text = template.partition("% ") if re.match(r"\d+% ", template) else ("100", "", template)
            if text and self.chance(int(percent)):
                text = re.sub(r"\(([^()]*)\)", lambda choice: self.pick(choice[1].split("|")), text)
                found.append(re.sub(r"(\d+)\.\.(\d+)", lambda ends: str(self.number(int(ends[1]), int(ends[2]))), text))
        return "  ".join(found)

    # The link and its classes.

    def link(self, kind):
        regulator = "" if self.transmit_queues else "30% regulator (auto|altq|none|9000..60000 bytes)"
        words = self.words(f"rate {self.rate}bit/s", f"mtu {self.mtu}", f"60% overhead {self.pick(OVERHEADS)}",
                           regulator, f"8% {self.meter(self.rate)}", f"5% {self.queue()}")
        classes = self.classes(kind, self.rate, True, self.pick([1, 1, 2, 2, 3]), "    ")
        default = self.pick(self.leaves)
        classes = classes.replace(f"class {default} {{", f"class {default} {{ default ", 1)
        matches = self.random.sample(MATCHES, self.number(0, 5))
        rules = "".join(f"    match {match} -> {self.pick(self.leaves)}\n" for match in matches)
        other = self.words("5% link other { rate 5Mbit/s  scheduler fifo  default }")
        offices = "set offices { 10.2.0.0/16 2001:db8:7::/48 }"
        return f"{offices}\nlink wan {{\n    {words}  {self.scheduler(kind)}\n{classes}{rules}}}\n{other}\n"

    def scheduler(self, kind):
        words = self.words(*SCHEDULERS[kind])
        return f"scheduler {'cbq' if kind == 'classic' else kind}" + (f" {{ {words} }}" if words else "")

    def classes(self, kind, amount, base, depth, indent):
        """Classes of one scheduler that divide `amount` bit/s. `base`: whether that is guaranteed,
        so that a class's rate can be written as a part of its parent's."""
        count = self.number(2, 4) if depth > 1 else self.number(1, 6)
        weights = [self.number(1, 10) for _ in range(count)]
        whole = self.pick([100, 100, 90, 60])
        by = self.pick(["bandwidth", "bandwidth", "remaining", "weight", "nothing"])  # of wfq
        text = ""
        for weight in weights:
            name = f"c{len(self.leaves) + len(self.inner)}"
            percent = max(1, weight * whole // sum(weights))
            part = max(1, amount * percent // 100)
            parent = depth > 1 and self.chance(55)
            holds = parent and (kind not in TREES or self.chance(40))
            (self.inner if parent else self.leaves).append(name)
            words, guaranteed = self.class_words(kind, part, percent if base else None, parent and not holds, by)
            words = [words, self.words(f"10% {self.meter(part)}")]
            if not re.search(r"\b(maxdelay|fair-queue|buckets)\b", words[0]):
                words.append(self.words(f"{4 if parent else 65}% {self.queue()}"))
            inside, below = kind, ""
            if holds:
                inside = self.pick([other for other in SCHEDULERS if other != "classic" or part > 2_000_000])
                words.append(self.scheduler(inside))
            if parent:
                below = self.classes(inside, guaranteed or part, guaranteed is not None, depth - 1, indent + "    ")
                below = f"\n{below}{indent[1:]}"
            text += f"{indent}class {name} {{ {'  '.join(filter(None, words))}{below} }}\n"
        return text

    def class_words(self, kind, part, percent, inner, by):
        """Words of a class, and its guarantee in bit/s, or None.

        `part` is the rate meant for it, `percent` the same as a part of its parent's guarantee, or
        None; `inner`: whether classes of the same scheduler stand below it; `by` is the word by
        which the classes of wfq divide their place."""
        rate = f"(rate {part}bit/s|share {percent}% of parent)" if percent else f"rate {part}bit/s"
        leaf = "0" if inner else "40"
        if kind == "cbq":
            return self.words(rate, f"60% (borrow|borrow  ceiling {part}..{self.rate}bit/s)", f"{leaf}% priority 0..7",
                              f"15% packetsize 64..{self.mtu}", "20% maxburst 1..40"), part
        if kind == "classic":
            words = self.words(rate, "60% borrow", f"{leaf}% priority 0..7", f"15% packetsize 64..{self.mtu}",
                               "20% maxburst 1..40", "15% minburst 1..10", f"{leaf}% (|maxdelay 10..400ms)")
            if not inner and not self.control and self.chance(8):
                self.control, words = True, words + "  control"
            return words, part
        if kind == "hfsc":
            linear, two = f"{part}bit/s", f"{part}bit/s for 1..100ms then {part // 3 + 1}..{part}bit/s"
            curve = linear if inner else f"({linear}|{two}|{part // 3}bit/s for 1..100ms then {linear})"
            deadline = not inner and self.chance(40)
            share = f"{70 if deadline else 100}% linkshare {curve}"
            limit = "" if deadline else f"25% upperlimit {part}..{self.rate}bit/s"
            return self.words(f"realtime {curve}" if deadline else "", share, limit), part if deadline else None
        if kind == "htb":
            return self.words(rate, f"65% ceil {part}..{self.rate}bit/s", "30% burst 1600..40000",
                              "30% cburst 1600..40000", "30% quantum 500..20000", "10% overhead 0..40",
                              "10% mpu 0..100", f"{leaf}% prio 0..7"), part
        if kind == "wfq":
            police = f"12% police {part // 2 + 1}..{self.rate}bit/s(| burst 1500..50000)"
            if self.chance(25):
                return self.words(f"low-latency {part}bit/s(| burst 1500..50000)(|  level 1|  level 2)", police), part
            own = {"bandwidth": rate.replace("rate", "bandwidth").replace("share", "bandwidth"), "nothing": "",
                   "remaining": f"bandwidth remaining {percent or 5}%", "weight": "weight 1..50"}[by]
            shape = self.number(part, self.rate) if self.chance(20) else None
            words = self.words(own, f"shape {shape}bit/s" if shape else "", police, "10% fair-queue")
            return words, part if by == "bandwidth" else shape
        templates = {
            "drr": ["80% quantum (500..3000|1500..12000|9000..12000)"],
            "priq": ["85% priority 0..15"],
            "fairq": ["80% priority 0..7", f"70% bandwidth {part}bit/s", f"25% buckets 1..512  hogs 1..{part}bit/s"],
            "jobs": ["80% priority 0..15", "30% adc 5..200ms", "20% rdc 2"],
            "fifo": [],
        }
        return self.words(*templates[kind]), None

    def queue(self):
        kind, unit = self.pick(list(QUEUES)), self.pick(["packets", "packets", "bytes"])
        limit = self.number(12, 150) * (1 if unit == "packets" else 1000)
        least = self.number(limit // 10, limit // 3)
        templates = [word.format(least=least, most=f"{least + 1}..{limit}", unit=unit) for word in QUEUES[kind]]
        return f"queue {kind}" + self.pick(["", *[f" {{ limit {limit}{unit}  {self.words(*templates)} }}"] * 5])

    def meter(self, part):
        kind, cir = self.pick(list(METERS)), self.number(part // 3 + 1, part)
        templates = [word.format(cir=cir, most=2 * part) for word in METERS[kind]]
        words = self.words(f"cir {cir}bit/s  cbs 9000..60000bytes", *templates, "40% green dscp af11",
                           "red (drop|pass|dscp af13|dscp le)")
        return f"meter {kind} {{ {words} }}"

    # What comes to it.

    def packets(self):
        """Arrivals as CSV: bursts and pauses of some classes, at 0.3 to 3 times the rate."""
        columns = [name for name in ["flow", "dscp", "ecn", "src", "dst", "high"] if self.chance(70)]
        if self.chance(10):
            columns.append("segments")
        if self.transmit_queues and ("flow" not in columns or self.chance(50)):
            columns.append("tx_queue")
        receivers = self.leaves + (self.inner + ["wan"] if self.chance(20) else [])
        load, sizes = self.pick([0.3, 0.8, 0.95, 1.1, 1.5, 3.0]), self.pick(SIZES)
        longest, flows = self.pick([1, 4, 20, 60]), self.pick([1, 5, 40, 400])
        count = self.pick([200, 400, 600, 800, 1200, 2000])
        lines, now, active = [",".join(["time_ns", "class", "bytes", "id", *columns])], 0, receivers
        while len(lines) <= count:
            if self.chance(3):
                active = self.random.sample(receivers, self.number(1, len(receivers)))
            receiver, sent = self.pick(active), 0
            for _ in range(self.number(1, longest)):
                flow = self.number(0, flows - 1)
                segments = self.number(1, 40) if "segments" in columns and self.chance(50) else 1
                size = min(min(self.pick(sizes), self.mtu) * segments, 65535)
                values = {"flow": f"f{flow}", "dscp": self.pick([0, 0, 10, 12, 14, 46]), "ecn": self.number(0, 3),
                          "src": f"h{flow % 7}", "dst": f"d{flow % 3}", "high": int(self.chance(20)),
                          "segments": segments, "tx_queue": flow % 4}
                fields = [now, receiver, size, len(lines), *(values[name] for name in columns)]
                lines.append(",".join(map(str, fields)))
                sent += size
                now += self.number(0, 999) if self.chance(30) else 0
            pause = 2 * self.random.random() * sent * 8e9 / (self.rate * load)
            now += int(pause * (40 if self.chance(1) else 1))
        return "\n".join(lines) + "\n"

    def replay_options(self):
        return self.words("--link wan  --seed 1..999", "25% --timer (100|250|1000|10000)", "25% --tx-ring 2..32",
                          "--tx-queues 4" if self.transmit_queues else "", "10% --from 10ms  --to 20..2000ms",
                          f"10% --wire-rate {self.rate // 2}..{self.rate * 2}bit/s")


def busy_tree(seed, index):
    """A random tree of cbq in the native language, and arrivals as CSV: 20,000 packets at 1.2 to 3
    times the link's rate. Some classes always have packets, others at times. No queue overflows: which
    packets are dropped depends on the order too, and then classes have other packets to send."""
    random = Random(f"tree {seed}/{index}")
    rate, leaves, names = random.choice([2_000_000, 10_000_000, 100_000_000, 1_000_000_000]), [], []

    def classes(part, depth):
        count = random.randint(2, 4)
        weights = [random.randint(1, 10) for _ in range(count)]
        text = ""
        for weight in weights:
            name, own = f"c{len(names)}", max(1, part * weight // sum(weights))
            names.append(name)
            words = [f"rate {own}bit/s", random.choice(["", "borrow", "borrow"])]
            if words[1] and random.random() < 0.2:
                words.append(f"ceiling {random.randint(own, rate)}bit/s")
            if depth > 1 and random.random() < 0.5:
                words.append(classes(own, depth - 1))
            else:
                words.append(f"priority {random.randint(0, 7)}  queue drop_tail {{ limit 20000 packets }}")
                leaves.append(name)
            text += f"class {name} {{ {' '.join(words)} }}\n"
        return text

    excess = random.choice(["share", "priority"])
    text = f"link l {{ rate {rate}bit/s scheduler cbq {{ excess {excess} }}\n{classes(rate, random.randint(1, 3))}}}\n"
    text = text.replace(f"class {leaves[0]} {{", f"class {leaves[0]} {{ default", 1)
    sizes = {leaf: random.choice(SIZES) for leaf in leaves}
    always = random.sample(leaves, random.randint(1, len(leaves)))
    load, lines, now, active = random.uniform(1.2, 3), ["time_ns,class,bytes,id"], 0.0, always
    for number in range(20_000):
        if random.random() < 0.005:
            active = [leaf for leaf in leaves if leaf in always or random.random() < 0.5]
        leaf = random.choice(active)
        size = random.choice(sizes[leaf])
        lines.append(f"{int(now)},{leaf},{size},{number}")
        now += size * 8e9 / (rate * load)
    return text, "\n".join(lines) + "\n", leaves


# Wrong inputs, separated by ` | ` or line ends. LINK stands for a link of 10 Mbit/s with cbq around
# what follows, WFQ for one with wfq.
BAD_POLICIES = """
link l { rate 10Mbit/s schedulr cbq } | lnk l { } | link l | link l { rate 10Mbit/s scheduler cbk } | # nothing
link l { rate 1mbps scheduler cbq } | link l { rate 10 scheduler cbq } | link l { rate 5% scheduler cbq } | set a { }
link l { rate 1Mbit/s mtu 67 scheduler cbq } | link l { rate 1Mbit/s scheduler cbq overhead docsi }
link l { rate 1Mbit/s; scheduler cbq } | link l { rate 1Mbit/s scheduler cbq | link l { rate 1Mbit/s scheduler cbq } }
link l { rate 1Mbit/s rate 2Mbit/s scheduler cbq } | set a { 10.0.0.300 } | include "nowhere/at-all.altq"
LINK class a { shar 5% } | LINK class a { bandwidth 5% } | LINK class a { priority 9 } | LINK class a { share 101% }
LINK class a { share 60% } class b { share 50% } | LINK class a { share 50% class b { share 51% } } | LINK class a { }
LINK class a { share 5% default queue cake { flows hosts } } | LINK class a { share 5% queue red { weight 500 } }
LINK class a { share 5% queue fq_codel { quantum 100 } } | LINK class a { share 5% queue sfq { ecn } }
LINK class a { share 5% ceiling 6Mbit/s } | LINK class a { share 5% minburst 2 } | LINK class a { queue red { max 5 } }
LINK class a { scheduler drr class b { quantum 700 } } | LINK class a { scheduler priq class b { priority 16 } }
LINK class a { borrow default } match dport 80 -> b | LINK class a { borrow default } match src 10.0.0.0/40 -> a
LINK class a { borrow default } match proto icmp dport 80 -> a | LINK class a { borrow default } match dport 80
LINK class a { default } match dport 1-99 -> a match dport 80 -> a | LINK class a { borrow borrow shar 5% } borow
WFQ class a { bandwidth 6Mbit/s } class b { low-latency 5Mbit/s } | WFQ class a { weight 6 } class b { bandwidth 10% }
WFQ class a { low-latency 5% shape 1Mbit/s } | WFQ class a { police 1Mbit/s burst 0 } | WFQ class a { class b { } }
link l { rate 1Mbit/s scheduler hfsc class a { realtime 2Mbit/s } } | link l { rate 1Mbit/s scheduler fifo }
link l { rate 1Mbit/s scheduler htb class a { rate 600kbit/s ceil 500kbit/s } } | LINK meter bucket { cir 1Mbit/s }
"""
BAD_CONFS = [
    "interfase em0 cbq", "interface em0 bandwidth 10Mb cbq", "interface em0 hfsc", "interface em0 cbq cbq",
    "interface em0 cbq\nclass cbq em0 root NULL pbandwidth 100\nclass cbq em0 a rot pbandwidth 5",
    "filter em0 x 0 0 0 0 0", "interface em0 cbq\nclass cbq em0 root NULL pbandwidth 101", "queue q bandwidth 5%",
]
BAD_ARRIVALS = [
    "", "time_ns,class,bytes,id\n", "time_ns,class,bytes\n0,a,100\n", "time_ns,class,bytes,id\n5,a,100,1\n4,a,100,2\n",
    "time_ns,class,bytes,id\n0,b,100,1\n", "time_ns,class,bytes,id\n0,a,0,1\n", "time_ns,class,bytes,id\nx,a,100,1\n",
    "time_ns,class,bytes,id\n0,a,100,1\n1,a,1", "time_ns,class,bytes,id\n0,a,100,1",
    "time_ns,class,bytes,id,colour\n0,a,9,1,red\n",
]
WRONG_USE = """
frobnicate | chek x.altq | check | check nowhere.altq | check nowhere.altq --language basic | check --frob | convert
convert nowhere.altq --to pf | replay | replay nowhere.altq | replay nowhere.altq --arrivals nowhere.csv
replay examples/rsvp.cbq.conf --arrivals nowhere.csv | replay examples/rsvp.cbq.conf --arrivals x --timer 1024
replay examples/rsvp.cbq.conf --arrivals x --tx-ring 0 | replay examples/rsvp.cbq.conf --arrivals x --wire-rate fast
replay examples/rsvp.cbq.conf --arrivals x --stat ip | replay examples/rsvp.cbq.conf --arrivals x --json --stat tc
sim | sim nowhere.toml | sim cases | sim examples/rsvp.cbq.conf | sim cases/borrow.toml --row x
sim cases/borrow.toml --jobs 0 | sim cases/borrow.toml --column x | sim cases/borrow.toml --seed x
sim cases/borrow.toml --stat x | lab | lab nowhere.toml
lab cases/borrow.toml --peer fq | report | report nowhere.json | report cases/borrow.toml | run | run nowhere.altq
run nowhere.altq --interval x | traffic | traffic bulk | traffic udp 192.0.2.1 --rate x | bench | bench work
bench engine --scheduler x | bench engine --classes 0 | experiments | experiments run nowhere | experiments list nowhere
experiments list --cases nowhere
"""
