"""Policies of benches/kernel: generated ones, with what tc is to say of them, and those of examples/."""
import collections
import dataclasses
import pathlib
import re

from paths_world import FIRST_COUNT, SECOND_COUNT

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples"
# The rate of the links, in bit/s: a kilobit a second for each of 5,000 classes, and more.
RATE = 1_000_000_000
# The queues that the kernel has, but drop_tail.
QUEUES = ("drop_head { limit 100packets }", "codel {}", "fq_codel {}", "pie {}", "sfq {}", "red { limit 400000bytes }",
          "cake {}")


@dataclasses.dataclass
class Policy:
    """A policy, another one that changes rates of it, and the classes of each: how many there are of
    a kind with these rates. `more`: how many of that kind altq may add: the link, hfsc's root, the two
    of the switch."""
    name: str
    leaves: int
    text: str
    changed: str
    classes: dict | None = None
    changed_classes: dict | None = None
    more: int = 3
    may_be_refused: bool = False


def link(scheduler, words):
    return (f"link wan {{\n    device wan\n    path kernel\n    rate {RATE}bit/s\n    scheduler {scheduler}\n"
            + "\n".join(words) + "\n}\n")


def rules(leaves):
    """A rule for each of the first 200 leaves but the last, which is the default."""
    return [f"    match dport {2000 + at} -> c{at}" for at in range(min(leaves - 1, 200))]


def shape(leaves, number, share):
    """A rate for a leaf, as a whole number of kbit/s. Few others have it."""
    most = RATE // leaves // 1000 * share // 100
    return (most - number % max(most // 2, 1)) * 1000


def htb(leaves, nested=False, queue=None):
    """A tree of htb: leaves below the link, or below inner classes of about as many leaves each."""
    def made(share):
        found, words = collections.Counter(), []
        each = max(int(leaves ** 0.5), 1) if nested else leaves
        for first in range(0, leaves, each):
            inside = [shape(leaves, at, share) for at in range(first, min(first + each, leaves))]
            if nested:
                words.append(f"    class inner{first} {{ rate {sum(inside)}bit/s  ceil {RATE}bit/s")
                found["htb", (sum(inside), RATE)] += 1
            for at, rate in enumerate(inside, first):
                more = f"  queue {queue}" if queue else "  queue drop_tail { limit 100packets }"
                words.append(f"    class c{at} {{ rate {rate}bit/s  ceil {RATE // 2}bit/s{more}"
                             f"{'  default' if at == leaves - 1 else ''} }}")
                found["htb", (rate, RATE // 2)] += 1
            if nested:
                words.append("    }")
        return link("htb", words + rules(leaves)), found
    (text, found), (changed, other) = made(90), made(60)
    name = f"htb, {leaves} classes{', nested' if nested else ''}{f', {queue.split()[0]}' if queue else ''}"
    return Policy(name, leaves, text, changed, found, other)


def hfsc(leaves):
    def made(share):
        rates = [shape(leaves, at, share) for at in range(leaves)]
        words = [f"    class c{at} {{ linkshare {rate}bit/s  queue drop_tail {{ limit 100packets }}"
                 f"{'  default' if at == leaves - 1 else ''} }}" for at, rate in enumerate(rates)]
        return link("hfsc", words + rules(leaves)), collections.Counter(("hfsc", (rate,)) for rate in rates)
    (text, found), (changed, other) = made(90), made(60)
    return Policy(f"hfsc, {leaves} classes", leaves, text, changed, found, other)


def flat(scheduler, leaves, word, values):
    """A scheduler whose classes stand side by side and have no rates."""
    def made(turn):
        words = [f"    class c{at} {{ {word} {values(at, turn)}  queue drop_tail {{ limit 100packets }}"
                 f"{'  default' if at == leaves - 1 else ''} }}" for at in range(leaves)]
        return link(scheduler, words + rules(leaves))
    return Policy(f"{scheduler}, {leaves} classes", leaves, made(0), made(1))


def alone(queue):
    """A link with one class."""
    def made(rate):
        return (f"link wan {{\n    device wan\n    path kernel\n    rate {rate}bit/s\n    scheduler fifo\n"
                f"    class all {{ default  queue {queue} }}\n}}\n")
    return Policy(f"fifo, {queue.split()[0]}", 1, made(RATE // 10), made(RATE // 20))


def examples():
    """Those of examples/ whose words the kernel has; the others are refused, with the reason."""
    found = []
    for file in sorted(EXAMPLES.glob("*/*.altq")):
        text = file.read_text()
        # What they bridge becomes what leaves by one of the router's two interfaces.
        text = re.sub(r"device bridge (lan|core)0 \w+", "device wan\n    path kernel", text)
        text = re.sub(r"device bridge \w+ (lan|core)0", "device lan\n    path kernel", text)
        if "device" not in text:
            text = text.replace("{\n    rate ", "{\n    device wan\n    path kernel\n    rate ", 1)
        leaves = len(re.findall(r"^\s*class ", text, re.MULTILINE))
        found.append(Policy(f"examples/{file.parent.name}/{file.name}", leaves, text, text, may_be_refused=True))
    return found


def all_of_them(most):
    """All policies with at most so many classes."""
    sizes = [size for size in (2, 10, 100, 1000, 5000) if size <= most]
    found = [htb(size, nested) for size in sizes for nested in (False, True) if size > 2 or not nested]
    found += [htb(10, True, queue) for queue in QUEUES]
    found += [hfsc(size) for size in sizes]
    found += [flat("drr", size, "quantum", lambda at, turn: 1514 + (at + 3 * turn) % 7) for size in sizes]
    found += [flat("wfq", size, "weight", lambda at, turn: 1 + (at + 3 * turn) % 7) for size in sizes if size <= 1000]
    found += [flat("priq", size, "priority", lambda at, turn: at + turn) for size in (2, 8, 15)]
    found += [alone(queue) for queue in QUEUES]
    return [policy for policy in found if policy.leaves <= most] + examples()


def two(scheduler, first, second, queue="drop_tail { limit 100packets }"):
    """Two classes, told apart by port, and one for the rest."""
    return (f"    scheduler {scheduler}\n    class first {{ {first}  queue {queue} }}\n"
            f"    class second {{ {second}  queue {queue} }}\n"
            f"    class rest {{ {REST[scheduler]}  default  queue {queue} }}\n"
            f"    match dport {FIRST_COUNT} -> first\n    match dport {SECOND_COUNT} -> second\n")


REST = {"hfsc": "linkshare 5%", "drr": "quantum 1514", "priq": "priority 7"}
# What the two floods send, as parts of the link's rate, and the policy's words.
SHARED = {
    "hfsc 20:75": ((0.4, 1.1), two("hfsc", "linkshare 20%", "linkshare 75%")),
    "hfsc, realtime": ((0.5, 1.1), two("hfsc", "realtime 30%  linkshare 5%", "linkshare 90%")),
    "drr 1:3": ((0.9, 1.1), two("drr", "quantum 1514", "quantum 4542")),
    "fq_codel, two flows": ((0.8, 1.2), "    scheduler fifo\n    class all { default  queue fq_codel {} }\n"),
    "cake, two flows": ((0.8, 1.2), "    scheduler fifo\n    class all { default  queue cake { flows } }\n"),
    "sfq, two flows": ((0.8, 1.2), "    scheduler fifo\n    class all { default  queue sfq {} }\n"),
    "priq, the first before": ((0.6, 1.1), two("priq", "priority 15", "priority 8")),
}
