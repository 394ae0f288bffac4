"""Cases: what goes in, what comes out, what ends a run."""

import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import altq

ROOT = Path(__file__).parents[2]
CASE = """
name = "small"
description = "One source of datagrams on a link that has room for it."
duration = "${long}"
policy = "link l { rate 10Mbit/s scheduler fifo }"
hosts = [{ name = "a" }, { name = "b" }]
links = [{ name = "l", from = "a", to = "b", policy = "l", rate = "10Mbit/s" }]

[values]
rate = "1Mbit/s"
long = "2s"
size = 972

[[flows]]
name = "f"
kind = "udp"
from = "a"
to = "b"
size = "${size}"
rate = "${rate}"
"""


def test_a_case_runs():
    case = altq.Case.parse(CASE)
    assert (case.name, case.rows, case.values) == ("small", [], {})
    result = case.run()
    assert result.passed and result.valid and result.document["schema"] == "altq.result/1"
    flow = result.flow("f")
    assert flow["lost_packets"] == 0 and flow["sent_packets"] >= flow["received_packets"] > 0
    # What is offered fits, so it arrives, within one packet in 2 s. Of the 972 bytes of a packet 20
    # are IP's and 8 UDP's.
    assert abs(flow["goodput_bit_s"] - 1_000_000 * 944 / 972) <= 944 * 8 / 2
    assert result.of_class("l")["sent_packets"] == flow["received_packets"] + flow["under_way_packets"]
    assert result.series == [] and len(case.run(series=True).series) == 1
    with pytest.raises(KeyError, match="there are: f"):
        result.flow("g")


def test_values_come_from_outside():
    case = altq.Case.parse(CASE)
    faster = case.with_(rate="5Mbit/s").with_(size=472)
    assert faster.values == {"rate": "5Mbit/s", "size": "472"} and case.values == {}
    assert abs(faster.run().flow("f")["goodput_bit_s"] - 5_000_000 * 444 / 472) <= 444 * 8 / 2
    other = pickle.loads(pickle.dumps(faster))
    assert other.values == faster.values and other.run().document == faster.run().document
    with pytest.raises(altq.CaseError, match='did you mean "rate"'):
        case.with_(rtae=1)
    with pytest.raises(altq.CaseError, match=r"case.toml:12:8: size is a whole number(.|\n)*\^"):
        case.with_(size="big")


def test_seeds_repeat():
    # One row of a published case, with a column that draws random numbers.
    case = altq.Case.load(ROOT / "cases/published/allocation-10baset.toml")
    assert case.rows[:2] == ["off", "5"] and "classic" in case.columns
    one, again = (case.run(seed=3, row="5", column="classic") for _ in range(2))
    assert one.document == again.document and one.seed == 3
    # 0.47 Mbit/s were published for 5 %, and the case allows 5 % more or less.
    assert one.flow("tcp")["goodput_bit_s"] == pytest.approx(470_000, rel=0.05)
    with pytest.raises(altq.CaseError, match='no row "7"; rows: off, 5'):
        case.run(row="7")
    with pytest.raises(altq.CaseError, match="no column"):
        case.run(column="new")


def test_what_is_wrong_has_a_caret():
    with pytest.raises(altq.CaseError, match=r"case.toml:4:1: unknown field(.|\n)*\^"):
        altq.Case.parse(CASE.replace("duration", "durations"))
    with pytest.raises(altq.PolicyError, match=r"\^"):
        altq.Case.parse(CASE.replace("scheduler fifo", "scheduler fif")).run()
    with pytest.raises(altq.CaseError, match="none.toml"):
        altq.Case.load("none.toml")
    with pytest.raises(altq.CaseError, match="has no rows"):
        altq.Case.parse(CASE).run(row="5")


def test_limits_end_a_run():
    with pytest.raises(altq.LimitError, match="more than 100 events"):
        altq.Case.parse(CASE).run(most_events=100)


def test_other_threads_go_on():
    case = altq.Case.parse(CASE).with_(long="2000s")
    done = []
    thread = threading.Thread(target=lambda: done.append(case.run().flow("f")["lost_packets"]))
    thread.start()
    turns = 0
    while thread.is_alive():
        turns += 1
        time.sleep(0.001)
    assert done == [0] and turns > 5


def test_ctrl_c_ends_a_run():
    # A job in the background of a shell ignores Ctrl-C, so the program says that it wants it.
    program = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    program += f"import altq\ncase = altq.Case.parse({CASE!r}).with_(long='1000000s')\n"
    program += "print('begun', flush=True)\ntry:\n    case.run()\nexcept KeyboardInterrupt:\n    print('stopped')\n"
    running = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert running.stdout.readline() == "begun\n"
    time.sleep(0.3)
    running.send_signal(signal.SIGINT)
    begin = time.monotonic()
    try:
        out, _ = running.communicate(timeout=60)
    finally:
        running.kill()
    assert out == "stopped\n" and time.monotonic() - begin < 10
