"""Sweeps: a case with many values and many seeds, on this host or on a Ray cluster."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from . import _altq
from .case import Case, _word

_TRIES = 3
"""How often runs may lose the process of Ray that does them, before they are tried one by one; and
how often one run alone may."""
_LOST = (
    "WorkerCrashedError",
    "NodeDiedError",
    "LocalRayletDiedError",
    "OutOfMemoryError",
    "ObjectLostError",
)
"""What Ray says where a process or a host is gone."""
_CALL_S = 0.5
"""How long a call of Ray is to take."""
_MOST = 1000
"""The most tasks of a call."""
_WAIT_S = 1.0
"""How often the driver looks whether the cluster has grown."""


@dataclass(frozen=True)
class Sweep:
    """What came out of a sweep."""

    table: _altq.Table
    """A row for each run: values, ``sample``, ``seed``, ``error`` and the figures (docs/sweeps.md).
    Rates are bit/s, times ns; a figure that there was nothing to measure for is missing."""
    summary: dict
    """The means with their 95 % confidence intervals, point by point (``altq.sweep/1``)."""
    folder: Path | None
    """Where the results are; ``None`` if no folder was given."""

    @property
    def points(self) -> list[dict]:
        """The points: ``values``, ``row``, ``column``, ``samples``, ``failed``, ``met`` (whether
        the rules hold; ``None`` without rules), ``figures``."""
        return self.summary["points"]

    @property
    def failed(self) -> int:
        """How many runs have no figures; the column ``error`` says why."""
        return self.summary["failed"]

    def __repr__(self) -> str:
        runs, failed = self.summary["runs"], self.failed
        return f"<altq.Sweep of {runs} runs of {len(self.points)} points, {failed} failed>"


def sweep(
    case: Case | str | PathLike[str],
    grid: Mapping[str, Any] | None = None,
    *,
    table: str | PathLike[str] | Iterable[Mapping[str, Any]] | None = None,
    samples: int = 1,
    seed: int | None = None,
    until: str | Sequence[str] = (),
    figures: str | Sequence[str] = (),
    show: str | Sequence[str] = (),
    row: str | None = None,
    column: str | None = None,
    out: str | PathLike[str] | None = None,
    jobs: int | None = None,
    ray: bool | str | Mapping[str, Any] | None = None,
    shard: str | None = None,
    chunk: int | None = None,
    timeout_s: float | None = None,
    most_events: int | None = None,
    again: bool = False,
    progress: bool | Callable[[int, int], None] = False,
) -> Sweep | None:
    """Runs a case with many values, each with many seeds, as ``altq sweep`` does.

    ``case``: a case, or the path of one. ``grid``: values of the case by name; each is one value,
    a list of values, or a text such as ``"2..20Mbit/s:10"``; the points are all combinations, the
    last name changing fastest. ``table``: points that are no grid: the path of a CSV file, or a
    dict of values for each.

    ``samples``: runs of each point. ``seed``: that of the first; each has the seed after that of
    the one before. ``until``: rules such as ``"ci95(voice.p99) < 1%"``; a point ends once all of
    them hold, after ``samples`` runs at the latest. ``figures``: the figures to keep, with ``*``
    and ``?``; it is a warning if no run has one. ``show``: those of the summary. ``row``,
    ``column``: only these of the case.

    ``out``: the folder of the results; what is there already is not run again. Without it nothing
    is kept. ``shard="17/400"`` does one part of the work, and returns ``None``; once all are done
    the call without it returns the whole.

    ``jobs``: worker processes of this host, one per processor if it is left out. ``ray``: runs on
    Ray instead: ``True`` for a cluster that is connected, or else one that Ray starts here; a
    text is the address of a cluster, a dict has arguments of ``ray.init``. The case must have the
    same path on all hosts, and altq must be installed there. The results are the same bytes
    either way.

    ``chunk``: runs that go to a process at once, after which rules are looked at (100; with rules
    20). ``timeout_s``: the longest that a run may take; one that takes longer twice is a row with
    an error, as is one that kills its process three times. ``most_events``: the most events of a
    run, the same on every host. ``again``: does again what failed. ``progress``: shows on
    standard error how far it is, or calls a function with the runs that are done, and all runs.

    Raises :class:`CaseError` if case, values or rules are wrong. Ctrl-C ends it; with ``out`` the
    same call goes on where it was.
    """
    if shard is not None and out is None:
        raise ValueError("a shard needs a folder for its results: out=...")
    text, path, fixed = None, case, {}
    if isinstance(case, Case):
        (text, path), fixed = case._case.source, case.values
    values: dict[str, Any] = {name: [word] for name, word in fixed.items()}
    values.update(grid or {})
    with tempfile.TemporaryDirectory(prefix="altq-sweep-") as folder:
        todo = _altq.Sweep(
            # Hosts of a cluster look for the files of the case in the same folder.
            Path(path).absolute(),
            text,
            [(name, _values(each)) for name, each in values.items()],
            Path(out) if out is not None else Path(folder),
            table=_lines(table),
            samples=samples,
            seed=seed,
            until=_list(until),
            figures=_list(figures),
            row=row,
            column=column,
            chunk=chunk,
            shard=shard,
            again=again,
            timeout_s=timeout_s,
            most_events=most_events,
        )
        told = progress if callable(progress) else _Line() if progress else None
        try:
            if ray is None or ray is False:
                todo.run(jobs or len(os.sched_getaffinity(0)), told)
            else:
                # Rules are looked at task by task.
                _on_ray(todo, ray, timeout_s, not until, told)
        finally:
            if isinstance(told, _Line):
                told.end()
        if shard is not None:
            return None
        summary = json.loads(todo.gather(_list(show)))
        for figure in summary["missing"]:
            warnings.warn(f"no run has a figure {figure!r}", stacklevel=2)
        return Sweep(todo.table(), summary, Path(out) if out is not None else None)


def _list(words: str | Sequence[str]) -> list[str]:
    return [words] if isinstance(words, str) else list(words)


def _values(value: Any) -> str | list[str]:
    """A text as ``altq sweep`` takes it, or values one by one."""
    if isinstance(value, str):
        return value
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Iterable):
        return [_word(each) for each in value]
    return [_word(value)]


def _lines(table: Any) -> Path | list[list[tuple[str, str]]] | None:
    if table is None:
        return None
    if isinstance(table, (str, PathLike)):
        return Path(table)
    return [[(name, _word(value)) for name, value in line.items()] for line in table]


class _Line:
    """How far a sweep is, on one line of standard error."""

    def __init__(self) -> None:
        self._shown = False

    def __call__(self, done: int, whole: int) -> None:
        part = 100 * done // whole if whole else 100
        sys.stderr.write(f"\raltq.sweep: {done} of {whole} runs, {part} %")
        sys.stderr.flush()
        self._shown = True

    def end(self) -> None:
        if self._shown:
            sys.stderr.write("\n")


def _remote(job: str, runs: list[str], timeout_s: float | None) -> tuple[list[str], float]:
    """Does runs in a process of Ray: in a process below it, so that a run can kill only that. A text
    of answers for each, and the seconds that it took."""
    begun = time.monotonic()
    return _altq.sweep_runs(job, runs, timeout_s), time.monotonic() - begun


@dataclass
class _Item:
    """Runs that are asked for together, and what is to be done with the answers."""

    runs: list[str]
    count: int
    keep: Callable[[list[str]], None]
    tries: int = 0


def _on_ray(
    todo: _altq.Sweep,
    where: bool | str | Mapping[str, Any],
    timeout_s: float | None,
    batches: bool,
    told: Callable[[int, int], None] | None,
) -> None:
    try:
        import ray
    except ImportError as error:
        raise ImportError("ray=... needs Ray: pip install 'altq[ray]'") from error
    started = not ray.is_initialized()
    if not started and where is not True:
        raise ValueError("Ray is connected to a cluster already: ray=True uses that one")
    if started:
        words = {"log_to_driver": False, "include_dashboard": False}
        if isinstance(where, str):
            words = {"address": where, "log_to_driver": False}
        elif isinstance(where, Mapping):
            words = dict(where)
        ray.init(**words)
    try:
        _Cluster(ray, todo, timeout_s, batches, told).run()
    finally:
        if started:
            ray.shutdown()


class _Cluster:
    """Hands the tasks of a sweep to Ray: two calls for each processor of the cluster at a time, so
    that none waits for work and the queue stays short; and in each call as many tasks as take about
    half a second, so that calls cost little. What a lost process or host had begun is done again.
    """

    def __init__(
        self, ray: Any, todo: _altq.Sweep, timeout_s: float | None, batches: bool, told: Any
    ) -> None:
        self.ray, self.todo, self.timeout_s, self.told = ray, todo, timeout_s, told
        # Tries are counted here, because Ray's own do not tell runs apart.
        self.remote = ray.remote(max_retries=0, num_cpus=1)(_remote)
        self.job = ray.put(todo.job)
        self.lost = tuple(
            getattr(ray.exceptions, name) for name in _LOST if hasattr(ray.exceptions, name)
        )
        self.batches, self.batch = batches, 1
        self.flying: dict[Any, list[_Item]] = {}
        self.done, self.whole = todo.begin()
        self._tell(0)

    def run(self) -> None:
        try:
            while self._fill():
                self._take()
        except BaseException:
            for ref in self.flying:
                self.ray.cancel(ref, force=True)
            raise

    def _fill(self) -> bool:
        room = 2 * max(1, int(self.ray.cluster_resources().get("CPU", 1)))
        while len(self.flying) < room:
            items = []
            while len(items) < self.batch and (task := self.todo.next()) is not None:
                at, count, in_vain = task
                if in_vain:
                    self._tell(count)
                else:
                    items.append(_Item(self.todo.runs(at), count, self._keeper(at, count)))
            if not items:
                break
            self._send(items)
        return bool(self.flying)

    def _send(self, items: list[_Item]) -> None:
        runs = [text for item in items for text in item.runs]
        self.flying[self.remote.remote(self.job, runs, self.timeout_s)] = items

    def _keeper(self, at: int, count: int) -> Callable[[list[str]], None]:
        def keep(answers: list[str]) -> None:
            self.todo.put(at, answers)
            self._tell(count)

        return keep

    def _take(self) -> None:
        ready, _ = self.ray.wait(list(self.flying), num_returns=1, timeout=_WAIT_S)
        for ref in ready:
            items = self.flying.pop(ref)
            try:
                answers, seconds = self.ray.get(ref)
            except self.ray.exceptions.RayTaskError as error:
                # The task itself raised: an error of altq, or of how it is installed there.
                raise error.as_instanceof_cause() from None
            except self.lost as error:
                self._lost(items, type(error).__name__)
                continue
            if self.batches:
                fit = int(_CALL_S * len(items) / max(seconds, 1e-6))
                self.batch = max(1, min(fit, 2 * self.batch, _MOST))
            at = 0
            for item in items:
                item.keep(answers[at : at + len(item.runs)])
                at += len(item.runs)

    def _lost(self, items: list[_Item], how: str) -> None:
        """The process or the host is gone. Each task is tried again alone; one that has lost some
        of them, run by run."""
        if len(items) > 1:
            for item in items:
                self._send([item])
            return
        item = items[0]
        item.tries += 1
        if item.tries < _TRIES:
            self._send([item])
            return
        if item.count == 1:
            item.keep([_altq.sweep_error(f"it killed its worker process {_TRIES} times: {how}")])
            return
        single = [one for some in item.runs for one in _altq.sweep_split(some)]
        answers: dict[int, list[str]] = {}

        def part(place: int) -> Callable[[list[str]], None]:
            def keep_part(answer: list[str]) -> None:
                answers[place] = answer
                if len(answers) == len(single):
                    item.keep([text for at in range(len(single)) for text in answers[at]])

            return keep_part

        for place, one in enumerate(single):
            self._send([_Item([one], 1, part(place))])

    def _tell(self, runs: int) -> None:
        self.done += runs
        if self.told is not None:
            self.told(self.done, self.whole)


__all__ = ["Sweep", "sweep"]
