"""The engine. On a link of 8 Mbit/s a byte takes a microsecond, so times are easy to work out."""

import numpy as np
import pytest

import altq

FIFO = altq.Policy("link wan { rate 8Mbit/s regulator none scheduler fifo class a {} class b { default } }")
PRIQ = altq.Policy(
    "link wan { rate 8Mbit/s regulator none scheduler priq class a { priority 1 default } class b { priority 9 } }"
)
SMALL = altq.Policy(
    "link wan { rate 8Mbit/s scheduler fifo class a { default queue drop_tail { limit 2packets } } }"
)


def test_one_packet_after_another():
    engine = altq.Engine(FIFO)
    assert engine.classes == ["wan", "a", "b"] and engine.rate_bit_s == 8_000_000
    assert engine.enqueue(5, "a", 100, dscp=46, ecn=1, handle=77)
    assert engine.enqueue(7, 2, 200)
    assert engine.backlog == 2
    first = engine.dequeue(9)
    assert (first.class_name, first.class_id, first.length, first.handle) == ("a", 1, 100, 77)
    assert (first.arrived_ns, first.delay_ns, first.dscp, first.ecn) == (5, 4, 46, 1)
    # The first packet counts too, so the second has the number 1.
    second = engine.dequeue(10)
    assert (second.class_name, second.handle, second.delay_ns) == ("b", 1, 3)
    assert engine.dequeue(11) is None and engine.next_wakeup() is None
    assert engine.now_ns == 11


def test_priorities_decide():
    engine = altq.Engine(PRIQ)
    engine.enqueue_many([0, 0, 0], ["a", "b", "a"], 100)
    assert [engine.dequeue(1).handle for _ in range(3)] == [1, 0, 2]


def test_the_engine_says_when_it_may_send():
    policy = altq.Policy("link l { rate 1Mbit/s regulator 125bytes scheduler fifo class a { default } }")
    engine = altq.Engine(policy)
    engine.enqueue_many([0, 0], "a", 250)
    assert engine.dequeue(0).handle == 0
    # The bucket of 125 bytes is empty, and 1 Mbit/s brings 125 bytes a millisecond.
    assert engine.dequeue(0) is None
    assert engine.next_wakeup() == 1_000_000
    assert engine.dequeue(1_000_000).handle == 1


def test_a_run_sends_on_a_wire():
    engine = altq.Engine(FIFO)
    table = engine.run(np.array([0, 0, 0]), ["a", "b", "a"], np.array([100, 200, 300]))
    assert table.columns == ["time_ns", "class", "bytes", "handle", "arrived_ns", "delay_ns", "wire_end_ns"]
    assert table["time_ns"].tolist() == [0, 100_000, 300_000]
    assert table["wire_end_ns"].tolist() == [100_000, 300_000, 600_000]
    assert table["delay_ns"].tolist() == [0, 100_000, 300_000]
    assert table["class"].tolist() == ["a", "b", "a"]
    assert len(table) == 3 and table["bytes"].dtype == np.uint32
    codes, names = table.codes("class")
    assert [names[code] for code in codes] == ["a", "b", "a"]


def test_a_run_goes_on_where_the_last_one_ended():
    engine = altq.Engine(FIFO)
    first = engine.run([0, 0], 1, [1000, 1000], until_ns=500_000)
    assert first["time_ns"].tolist() == [0] and engine.now_ns == 500_000 and engine.backlog == 1
    # The wire is busy until 1 ms; then the one that waits leaves, then the new one.
    second = engine.run([600_000], 1, 1000)
    assert second["time_ns"].tolist() == [1_000_000, 2_000_000]
    assert second["handle"].tolist() == [1, 2]
    with pytest.raises(altq.PacketError, match="after until_ns"):
        engine.run([9_000_000], 1, 1000, until_ns=8_000_000)


def test_batches_are_single_calls():
    random = np.random.default_rng(1)
    times = np.cumsum(random.integers(0, 1000, 500))
    classes, lengths = random.integers(1, 3, 500), random.integers(40, 1500, 500)
    many, one = altq.Engine(PRIQ), altq.Engine(PRIQ)
    dropped = many.enqueue_many(times, classes, lengths)
    kept = [one.enqueue(int(t), int(c), int(n)) for t, c, n in zip(times, classes, lengths)]
    assert dropped == kept.count(False)
    table = many.dequeue_many(10**9, 100)
    rest = many.dequeue_many(10**9)
    handles = [*table["handle"], *rest["handle"]]
    left = iter(lambda: one.dequeue(10**9), None)
    assert handles == [each.handle for each in left] and len(table) == 100


def test_drops_are_told_and_counted():
    engine = altq.Engine(SMALL, keep_drops=True)
    assert [engine.enqueue(at, "a", 100) for at in range(3)] == [True, True, False]
    drops = engine.drops()
    assert drops.to_dict()["id"].tolist() == [2] and drops["reason"].tolist() == ["queue_full"]
    assert drops["time_ns"].tolist() == [2] and len(engine.drops()) == 0
    engine.dequeue(3)
    counters = engine.counters("a")
    assert (counters["received_packets"], counters["sent_packets"], counters["dropped_packets"]) == (3, 1, 1)
    assert (counters["backlog_packets"], counters["backlog_bytes"]) == (1, 100)
    assert counters["dropped"] == {"queue_full": 1}
    everything = engine.counters()
    assert everything["wan"]["received_bytes"] == 300 and list(everything) == ["wan", "a"]
    with pytest.raises(ValueError, match="keep_drops=True"):
        altq.Engine(SMALL).drops()


def test_rates_and_words_change_while_packets_wait():
    engine = altq.Engine(FIFO)
    engine.run([0], 1, 1000)
    engine.set_rate(1_000_000, 16_000_000)
    # Now a byte takes half a microsecond.
    assert engine.run([2_000_000], 1, 1000)["wire_end_ns"].tolist() == [2_500_000]
    engine = altq.Engine(PRIQ)
    engine.enqueue_many([0, 0], ["a", "b"], 100)
    engine.set_class(1, "a", "priority 15")
    assert engine.dequeue(2).class_name == "a"
    with pytest.raises(altq.PolicyError, match="priorit"):
        engine.set_class(3, "a", "priority 99")
    with pytest.raises(altq.PolicyError, match="queue"):
        engine.set_class(3, "a", "priority 2 queue red {}")
    with pytest.raises(ValueError, match="set_rate"):
        engine.set_class(3, "wan", "priority 2")
    with pytest.raises(altq.PolicyError):
        engine.set_rate(3, 0)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda e: e.enqueue(10, "a", 0), "0 bytes; a length is 1 to 65535"),
        (lambda e: e.enqueue(10, "a", -5), "-5 bytes; a length is 1 to 65535"),
        (lambda e: e.enqueue(10, "a", 65_536), "65536 bytes; a length is 1 to 65535"),
        (lambda e: e.enqueue(9, "a", 100), "9 ns is earlier than 10 ns.*in the order of time"),
        (lambda e: e.enqueue(-1, "a", 100), "-1 ns is below 0"),
        (lambda e: e.dequeue(9), "9 ns is earlier than 10 ns"),
        (lambda e: e.enqueue(10, "aa", 100), 'no class "aa"; did you mean "a"?'),
        (lambda e: e.enqueue(10, 3, 100), "no class 3; link wan has classes 0 to 2"),
        (lambda e: e.enqueue(10, 1.5, 100), "by its name or its number"),
        (lambda e: e.enqueue(10, "a", 100, dscp=64), "dscp 64 is not a whole number from 0 to 63"),
        (lambda e: e.enqueue(10, "a", 100, ecn=4), "ecn 4 is not a whole number from 0 to 3"),
        (lambda e: e.enqueue(10, "a", 100, segments=0), "segments 0 is not a whole number from 1 to 100"),
        (lambda e: e.enqueue_many([10, 12, 11], "a", 100), "row 2, time_ns: 11 is earlier than 12"),
        (lambda e: e.enqueue_many([9], "a", 100), "9 ns is earlier than 10 ns"),
        (lambda e: e.enqueue_many([10, 10], ["a", "x"], 100), 'no class "x"'),
        (lambda e: e.enqueue_many([10, 10], ["a"], 100), "column class has 1 values, and time_ns has 2"),
        (lambda e: e.enqueue_many([10, 10], "a", [100, 0]), "row 1, bytes: 0 is not a whole number"),
        (lambda e: e.enqueue_many([10, 10], "a", [100, -1]), "row 1, bytes: -1 is below 0"),
        (lambda e: e.enqueue_many([10.5], "a", 100), "fractions.*rint"),
        (lambda e: e.enqueue_many([[10]], "a", 100), "has 2 dimensions"),
        (lambda e: e.enqueue_many(np.array(["2026-01-01"], "M8[ns]"), "a", 100), "has dates"),
        (lambda e: e.run([10], [7], 100), "no class 7"),
    ],
)
def test_what_is_wrong_is_refused_and_changes_nothing(call, said):
    engine = altq.Engine(FIFO)
    engine.enqueue(10, "b", 100)
    with pytest.raises(altq.PacketError, match=said.replace("?", r"\?")):
        call(engine)
    assert engine.now_ns == 10 and engine.backlog == 1
    assert engine.counters()["wan"]["received_packets"] == 1


def test_wrong_options():
    with pytest.raises(ValueError, match="ticks"):
        altq.Engine(FIFO, timer="often")
    with pytest.raises(ValueError, match="whole number of nanoseconds"):
        altq.Engine(FIFO, timer=1024)
    assert altq.Engine(FIFO, timer=100).next_wakeup() is None
    with pytest.raises(KeyError, match="columns: time_ns"):
        altq.Engine(FIFO).run([], "a", [])["times"]


def test_seeds_decide_by_chance():
    red = altq.Policy(
        "link l { rate 8Mbit/s scheduler fifo class a { default queue red { limit 60packets min 5packets max 15packets } } }"
    )

    def lost(seed):
        engine = altq.Engine(red, seed=seed, keep_drops=True)
        engine.run(np.arange(3000) * 900_000, "a", 1000)
        return engine.drops()["id"].tolist()

    assert lost(1) == lost(1) and lost(1) != lost(2)
