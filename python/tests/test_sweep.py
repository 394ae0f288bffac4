"""Sweeps: what they compute, what ends them, and what becomes of processes that die."""

import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path

import numpy
import pytest

import altq

CASE = """
name = "swept"
description = "A source on a link that has room for it or not."
duration = "1s"
policy = "link l { rate ${rate} scheduler fifo class all { default } }"
hosts = [{ name = "a" }, { name = "b" }]
links = [{ name = "l", from = "a", to = "b", policy = "l" }]

[values]
rate = "1Mbit/s"
size = 1000
shape = "poisson"

[[flows]]
name = "f"
kind = "udp"
from = "a"
to = "b"
size = "${size}"
shape = "${shape}"
rate = "800kbit/s"
"""


@pytest.fixture
def case(tmp_path: Path) -> Path:
    path = tmp_path / "case.toml"
    path.write_text(CASE)
    return path


def table(folder: Path) -> bytes:
    return (folder / "table.parquet").read_bytes()


def test_figures_by_hand(case):
    # 1000 bytes each 10 ms: 100 packets in a second. A packet takes 8 ms on 1 Mbit/s, so none waits,
    # and 16 ms on 500 kbit/s, where 62 end within the second and the 63rd is on its way.
    done = altq.sweep(case, {"rate": ["1Mbit/s", "500kbit/s"], "shape": "constant"})
    assert done.table.columns[:5] == ["rate", "rate_bit_s", "shape", "sample", "seed"]
    assert done.table["rate"].tolist() == ["1Mbit/s", "500kbit/s"]
    assert done.table["rate_bit_s"].tolist() == [1e6, 5e5]
    assert done.table["error"].tolist() == [None, None]
    assert done.table["all.max"][0] == 0 and done.table["all.max"][1] > 100e6
    sent = done.table["all.sent"]
    assert sent[0] == 100 and sent[1] in (62, 63), sent
    assert (done.failed, done.folder, len(done.points)) == (0, None, 2)
    assert done.points[1]["values"] == {"rate": "500kbit/s", "shape": "constant"}


def test_the_grid_takes_what_python_has(case):
    one = altq.sweep(case, {"size": numpy.arange(500, 700, 100), "rate": "1..3Mbit/s:3"}, samples=2)
    assert len(one.table) == 12
    assert one.table["size"].tolist() == [500.0] * 6 + [600.0] * 6
    lines = [{"size": size, "rate": f"{rate}Mbit/s"} for size in (500, 600) for rate in (1, 2, 3)]
    other = altq.sweep(case, table=lines, samples=2)
    assert other.points == one.points
    # The names of a line may stand in any order.
    lines[1:] = [dict(reversed(line.items())) for line in lines[1:]]
    assert altq.sweep(case, table=lines, samples=2).points == one.points
    # A case that has been given values, and a case that stands in no file.
    given = altq.sweep(altq.Case.load(case).with_(size=500), {"rate": "1..3Mbit/s:3"}, samples=2)
    assert given.table["all.sent"].tolist() == one.table["all.sent"][:6].tolist()
    text = altq.sweep(altq.Case.parse(CASE), {"size": 500, "rate": "1..3Mbit/s:3"}, samples=2)
    assert text.points == given.points


def test_a_run_is_that_of_the_case(case):
    done = altq.sweep(case, {"rate": "900kbit/s"}, samples=3, seed=5)
    assert done.table["seed"].tolist() == [5, 6, 7]
    run = altq.Case.load(case).with_(rate="900kbit/s").run(seed=6)
    assert run.of_class("all")["delay_ns"]["p99"] == done.table["all.p99"][1]


def test_the_same_bytes_whoever_does_it(case, tmp_path):
    grid = {"rate": "1..3Mbit/s:5", "size": [400, 900]}
    words = {"samples": 7, "chunk": 3}
    altq.sweep(case, grid, out=tmp_path / "one", jobs=1, **words)
    altq.sweep(case, grid, out=tmp_path / "two", jobs=3, samples=7)
    for shard in ("2/2", "1/2"):
        assert altq.sweep(case, grid, out=tmp_path / "shards", shard=shard, **words) is None
    altq.sweep(case, grid, out=tmp_path / "shards", **words)
    assert table(tmp_path / "one") == table(tmp_path / "two") == table(tmp_path / "shards")
    # What is there is not run again.
    told = []
    altq.sweep(case, grid, out=tmp_path / "one", progress=lambda *each: told.append(each), **words)
    assert told == [(70, 70)]


def test_a_rule_ends_points(case):
    done = altq.sweep(case, {"rate": "5Mbit/s"}, samples=400, until="ci95(all.rate) < 2%")
    assert 20 <= done.points[0]["samples"] < 400
    assert done.points[0]["figures"][0]["name"] == "all.rate"
    assert done.points[0]["met"] is True
    # Two samples of a random source are not the same to a millionth.
    unmet = altq.sweep(case, samples=2, until="ci95(all.mean) < 0.0001%")
    assert unmet.points[0]["met"] is False


def test_a_figure_that_no_run_has_is_a_warning(case):
    with pytest.warns(UserWarning, match="no run has a figure 'al.*'"):
        done = altq.sweep(case, figures=["all.rate", "al.*"])
    assert "all.rate" in done.table.columns and done.points[0]["met"] is None


def test_a_case_about_the_output_of_tc_is_refused(case, tmp_path):
    about = '\n[[figures]]\nname = "sent"\nmeasure = "counter"\nclass = "all"\ncounter = "bytes"\n'
    case.write_text(CASE + about)
    with pytest.raises(altq.CaseError, match="counters as `tc -s` prints them"):
        altq.sweep(case, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def children() -> list[int]:
    task = Path(f"/proc/{os.getpid()}/task")
    lists = [each / "children" for each in task.iterdir()]
    return [int(pid) for each in lists if each.exists() for pid in each.read_text().split()]


def test_workers_that_die_change_nothing(case, tmp_path):
    case.write_text(CASE.replace('"1s"', '"400s"'))
    grid, words = {"rate": "1..3Mbit/s:5"}, {"samples": 40, "chunk": 5, "most_events": 10**9}
    altq.sweep(case, grid, out=tmp_path / "whole", **words)
    killed, over = [], threading.Event()
    before = set(children())

    def kill():
        # Time enough for a worker to start, and few enough that no run counts as one that kills.
        while not over.wait(0.5) and len(killed) < 6:
            for pid in set(children()) - before:
                try:
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
                    break
                except ProcessLookupError:
                    pass

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        altq.sweep(case, grid, out=tmp_path / "killed", jobs=2, **words)
    finally:
        over.set()
        killer.join()
    assert killed
    assert table(tmp_path / "killed") == table(tmp_path / "whole")


def test_a_run_that_takes_too_long_is_a_row(case):
    long = CASE.replace('"1s"', '"${long}"').replace("[values]", '[values]\nlong = "1s"')
    case.write_text(long)
    done = altq.sweep(case, {"long": ["1s", "1000000s"]}, timeout_s=5)
    assert done.table["error"].tolist() == [None, "it took longer than 5 s"]
    assert numpy.isnan(done.table["all.rate"][1]) and done.failed == 1


def test_control_c_ends_it(case, tmp_path):
    case.write_text(CASE.replace('"1s"', '"1000000s"'))
    program = f"import altq; altq.sweep({str(case)!r}, samples=2, chunk=1, out={str(tmp_path / 'o')!r})"
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE)
    child = Path(f"/proc/{process.pid}/task")
    end = time.monotonic() + 30
    while True:
        lists = [each / "children" for each in child.iterdir()]
        if any(each.read_text() for each in lists if each.exists()):
            break
        assert time.monotonic() < end
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    _, said = process.communicate(timeout=30)
    assert b"KeyboardInterrupt" in said and time.monotonic() - begun < 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"grid": {"rat": "1Mbit/s"}}, "rat"),
        ({"grid": {"rate": "1..2:0"}}, "no number of values"),
        ({"grid": {"rate": []}}, "has no values"),
        ({"grid": {"rate": ["1Mbit/s", "1Mbit/s"]}}, "is there twice"),
        ({"table": [{"rate": "1Mbit/s"}, {"size": 3}]}, "line 1 of the table"),
        ({"table": []}, "a line for each point"),
        ({"until": "all.rate < 1%"}, "is no rule"),
        ({"until": "ci95(all.rate) < 1%"}, "at least 2 samples"),
        ({"until": "ci95(all.rate) < 2ms", "samples": 40}, "all.rate is a rate"),
        ({"until": "ci95(all.rat) < 1%", "samples": 40}, "did you mean"),
        ({"row": "x"}, "it has no row"),
    ],
)
def test_what_is_wrong_is_said(case, words, message):
    with pytest.raises(altq.CaseError, match=message):
        altq.sweep(case, words.pop("grid", None), **words)


def test_wrong_arguments(case):
    with pytest.raises(ValueError, match="a shard needs a folder"):
        altq.sweep(case, shard="1/2")
    with pytest.raises(ValueError, match="is no shard"):
        altq.sweep(case, shard="3/2", out="nowhere")
    with pytest.raises(ValueError, match="above 0"):
        altq.sweep(case, timeout_s=0)
    with pytest.raises(ValueError, match="at least 1"):
        altq.sweep(case, samples=0)


class FakeRay:
    """What a sweep uses of Ray, in this process. Processes get lost as a test wants it."""

    class exceptions:
        class RayError(Exception):
            pass

        class RayTaskError(RayError):
            def as_instanceof_cause(self):
                return self.args[0]

        class WorkerCrashedError(RayError):
            pass

        class RaySystemError(RayError):
            pass

    def __init__(self, loses) -> None:
        self.loses, self.calls, self.most, self.open = loses, [], 0, 0

    def is_initialized(self):
        return True

    def cluster_resources(self):
        return {"CPU": 2.0}

    def put(self, value):
        return value

    def remote(self, **words):
        assert words == {"max_retries": 0, "num_cpus": 1}
        fake = self

        class Remote:
            def __init__(self, function):
                self.function = function

            def remote(self, *args):
                fake.open += 1
                fake.most = max(fake.most, fake.open)
                fake.calls.append((self.function, args))
                return len(fake.calls) - 1

        return Remote

    def wait(self, refs, num_returns, timeout):
        # The newest first: order does not matter.
        return refs[-1:], refs[:-1]

    def get(self, ref):
        function, args = self.calls[ref]
        self.open -= 1
        if self.loses(args[1]):
            raise self.exceptions.WorkerCrashedError
        return function(*args)

    def cancel(self, ref, force):
        pass


def on_fake(monkeypatch, loses, *args, **words):
    fake = FakeRay(loses)
    monkeypatch.setitem(sys.modules, "ray", fake)
    return altq.sweep(*args, ray=True, **words), fake


def test_processes_of_a_cluster_that_get_lost_change_nothing(case, tmp_path, monkeypatch):
    grid, words = {"rate": "1..3Mbit/s:5"}, {"samples": 12, "chunk": 4}
    altq.sweep(case, grid, out=tmp_path / "here", **words)
    seen = {}

    def often(runs):
        # Every third task is lost the first two times.
        seen[runs[0]] = seen.get(runs[0], 0) + 1
        return zlib.crc32(runs[0].encode()) % 3 == 0 and seen[runs[0]] <= 2

    on_fake(monkeypatch, often, case, grid, out=tmp_path / "there", **words)
    assert table(tmp_path / "there") == table(tmp_path / "here")

    def never(runs):
        return False

    _, fake = on_fake(monkeypatch, never, case, grid, out=tmp_path / "calm", **words)
    assert table(tmp_path / "calm") == table(tmp_path / "here")
    assert fake.most <= 4, "two calls for each of two processors"


def test_a_run_that_loses_its_process_again_and_again_is_a_row(case, monkeypatch):
    seed = '"seed":3,'

    def poison(runs):
        return any(seed in text or '"seed":1,"count":6' in text for text in runs)

    done, _ = on_fake(monkeypatch, poison, case, samples=6, seed=1)
    errors = done.table["error"].tolist()
    assert errors[2] == "it killed its worker process 3 times: WorkerCrashedError"
    assert [each is None for each in errors] == [True, True, False, True, True, True]
    assert done.failed == 1


def test_ray(case, tmp_path):
    pytest.importorskip("ray")
    grid, words = {"rate": "1..3Mbit/s:5"}, {"samples": 12, "chunk": 4}
    altq.sweep(case, grid, out=tmp_path / "here", **words)
    altq.sweep(case, grid, out=tmp_path / "ray", ray={"num_cpus": 2, "include_dashboard": False}, **words)
    assert table(tmp_path / "ray") == table(tmp_path / "here")
