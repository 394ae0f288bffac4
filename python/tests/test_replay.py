"""Replays of tables, and tables of other libraries where they are installed."""

import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import altq

POLICY = altq.Policy("link wan { rate 8Mbit/s scheduler fifo class a {} class b { default } }")
PACKETS = {"time_ns": [0, 0, 500_000], "class": ["a", "b", "a"], "bytes": [100, 200, 100]}


def test_a_dict_of_columns():
    ran = altq.replay(POLICY, PACKETS)
    left = ran.departures
    # A byte takes 1 us: the first two one after the other, then a gap until 0.5 ms.
    assert left["time_ns"].tolist() == [0, 100_000, 500_000]
    assert left["wire_end_ns"].tolist() == [100_000, 300_000, 600_000]
    assert left["delay_ns"].tolist() == [0, 100_000, 0]
    assert left["id"].tolist() == [0, 1, 2] and len(ran.drops) == 0
    assert ran.report["schema"] == "altq.replay/1" and ran.report["to_ns"] == 600_000
    assert ran.classes["a"]["sent_bytes"] == 200 and ran.classes["wan"]["sent_packets"] == 3


def test_options_and_further_columns():
    packets = {**PACKETS, "id": [7, 8, 9], "flow": ["x", "y", "x"], "dscp": [46, 0, 0], "ecn": [1, 0, 3], "segments": [1, 2, 1]}
    ran = altq.replay(POLICY, packets, wire_rate_bit_s=4_000_000, from_ns=1, to_ns=450_000)
    # Twice as long on a wire of half the rate.
    assert ran.departures["wire_end_ns"].tolist() == [200_000, 600_000, 800_000]
    assert ran.departures["id"].tolist() == [7, 8, 9]
    assert ran.classes["wan"]["sent_packets"] == 1 and ran.report["marks"] == ["wire_slower_than_link"]


def test_marks_are_a_column():
    text = "link wan { rate 8Mbit/s scheduler fifo \
        class a { meter bucket { cir 8Mbit/s cbs 100 green dscp ef red dscp 1 } } class b { default } }"
    packets = {"time_ns": [0, 0, 0], "class": ["a", "a", "b"], "bytes": [100, 50, 50], "dscp": [10, 10, 10]}
    # The bucket of 100 bytes is full for the first packet and empty for the second (ef is 46).
    assert altq.replay(altq.Policy(text), packets).departures["dscp"].tolist() == [46, 1, 10]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"colour": [1, 2, 3]}, 'no column "colour"'),
        ({"time_ns": None}, "column time_ns is missing"),
        ({"class": None}, "column class is missing"),
        ({"bytes": None}, "column bytes is missing"),
        ({"bytes": [1, 2]}, "column bytes has 2 values, and time_ns has 3"),
        ({"id": [1]}, "column id has 1 values"),
        ({"time_ns": [5, 4, 6]}, "row 1, time_ns: 4 is earlier than 5.*sort the table"),
        ({"ecn": [0, 9, 0]}, "row 1, ecn: 9 is not a whole number from 0 to 3"),
        ({"flow": [1, 2**32, 3]}, "row 1, flow"),
        ({"class": ["a", "b", "bb"]}, 'no class "bb"; did you mean "b"'),
    ],
)
def test_what_is_wrong_is_said(change, said):
    packets = {name: values for name, values in {**PACKETS, **change}.items() if values is not None}
    with pytest.raises(altq.PacketError, match=said):
        altq.replay(POLICY, packets)


def test_wrong_options():
    with pytest.raises(altq.PacketError, match="Arrow C stream"):
        altq.replay(POLICY, [1, 2])
    for options in [{"tx_ring": 0}, {"tx_queues": 65}, {"to_ns": 0}, {"wire_rate_bit_s": 0}, {"timer": "soon"}]:
        with pytest.raises(ValueError):
            altq.replay(POLICY, PACKETS, **options)


def test_tables_go_in_by_the_arrow_stream():
    small = altq.Policy("link l { rate 8Mbit/s scheduler fifo class a { default queue drop_tail { limit 1packets } } }")
    lost = altq.replay(small, {"time_ns": [0, 0, 0], "class": ["a"] * 3, "bytes": [100] * 3}).drops
    assert lost["id"].tolist() == [2] and lost.to_dict()["reason"].tolist() == ["queue_full"]
    # It is read as a table, and its last column is not one of a list of packets.
    with pytest.raises(altq.PacketError, match='no column "reason"'):
        altq.replay(small, lost)
    assert type(lost.__arrow_c_stream__()).__name__ == "PyCapsule"
    assert type(lost.__arrow_c_schema__()).__name__ == "PyCapsule"


def test_pandas():
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    ran = altq.replay(POLICY, pandas.DataFrame(PACKETS))
    # A frame of which rows were left out: pandas hands on its index as a column.
    more = pandas.DataFrame({name: [values[0], *values] for name, values in PACKETS.items()})
    again = altq.replay(POLICY, more[more.index > 0])
    assert again.departures["time_ns"].tolist() == ran.departures["time_ns"].tolist()
    frame = pandas.DataFrame.from_arrow(ran.departures)
    assert frame["class"].tolist() == ["a", "b", "a"] and frame["delay_ns"].tolist() == [0, 100_000, 0]


def test_polars():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(PACKETS)
    for packets in [frame, frame.with_columns(polars.col("class").cast(polars.Categorical)), polars.concat([frame[:1], frame[1:]], rechunk=False)]:
        out = polars.DataFrame(altq.replay(POLICY, packets).departures)
        assert out["class"].to_list() == ["a", "b", "a"] and out["wire_end_ns"].to_list() == [100_000, 300_000, 600_000]
    with pytest.raises(altq.PacketError, match="column bytes has 1 rows without a value"):
        altq.replay(POLICY, frame.with_columns(polars.Series("bytes", [1, None, 3])))
    with pytest.raises(altq.PacketError, match="column bytes is of type Float64"):
        altq.replay(POLICY, frame.with_columns(polars.col("bytes").cast(polars.Float64)))
    with pytest.raises(altq.PacketError, match="column bytes"):
        altq.replay(POLICY, frame.with_columns(polars.Series("bytes", [1, -2, 3])))


def test_duckdb():
    duckdb = pytest.importorskip("duckdb")
    left = altq.replay(POLICY, PACKETS).departures
    rows = duckdb.from_arrow(left).aggregate("class, sum(bytes)::bigint", "class").order("1").fetchall()
    assert rows == [("a", 200), ("b", 200)]
    packets = duckdb.sql("select i * 1000000 as time_ns, 'a' as class, 100 as bytes from range(3) r(i)")
    assert altq.replay(POLICY, packets).departures["time_ns"].tolist() == [0, 1_000_000, 2_000_000]


# A job in the background of a shell ignores Ctrl-C, so the program says that it wants it.
LONG = """
import signal, numpy as np, altq
signal.signal(signal.SIGINT, signal.default_int_handler)
policy = altq.Policy("link wan { rate 8Mbit/s scheduler fifo class a { default } }")
times = np.arange(20_000_000) * 1000
print("begun", flush=True)
try:
    while True:
        %s
except KeyboardInterrupt:
    print("stopped")
"""


@pytest.mark.parametrize(
    "run",
    [
        'altq.replay(policy, {"time_ns": times, "class": np.ones(len(times), np.int64), "bytes": np.full(len(times), 1)})',
        'altq.Engine(policy).run(times, "a", 1)',
    ],
)
def test_ctrl_c_ends_it(run):
    program = subprocess.Popen([sys.executable, "-c", LONG % run], stdout=subprocess.PIPE, text=True)
    assert program.stdout.readline() == "begun\n"
    time.sleep(0.3)
    program.send_signal(signal.SIGINT)
    begin = time.monotonic()
    try:
        out, _ = program.communicate(timeout=60)
    finally:
        program.kill()
    assert out == "stopped\n" and time.monotonic() - begin < 10
