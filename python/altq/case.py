"""Cases of the simulator, and replays of lists of packets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from os import PathLike
from typing import Any

from . import _altq


class Result:
    """What came out of a run of a case. Its document is ``altq.result/1``, as ``altq sim --json``
    prints it: rates in bit/s, times in ns.
    """

    def __init__(self, document: dict) -> None:
        self.document = document
        """The whole document."""

    @property
    def passed(self) -> bool:
        """True if every expectation of the case is met and the result can be trusted."""
        return self.valid and all(each["pass"] for each in self.expectations)

    @property
    def valid(self) -> bool:
        """False if the figures cannot be trusted; ``notes`` says why."""
        return self.document["valid"]

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.document["seed"]

    @property
    def expectations(self) -> list[dict]:
        """What the case expects, with what came out."""
        return self.document["expectations"]

    @property
    def figures(self) -> list[dict]:
        """The figures of a case with rows, with what was published."""
        return self.document.get("figures", [])

    @property
    def flows(self) -> list[dict]:
        """A dict for each flow."""
        return self.document["flows"]

    @property
    def classes(self) -> list[dict]:
        """A dict for each class."""
        return self.document["classes"]

    @property
    def series(self) -> list[dict]:
        """The runs over time, if ``run(series=True)`` was asked for."""
        return self.document.get("series", [])

    @property
    def notes(self) -> list[str]:
        """Remarks for the reader."""
        return self.document.get("notes", [])

    def flow(self, name: str) -> dict:
        """The flow of this name; of several rows or columns the first."""
        return _find("flow", self.flows, name)

    def of_class(self, name: str) -> dict:
        """The class of this name; of several links, rows or columns the first."""
        return _find("class", self.classes, name)

    def __repr__(self) -> str:
        words = "passed" if self.passed else "did not pass"
        return f"<altq.Result of {self.document['case']} at seed {self.seed}: {words}>"


def _find(what: str, rows: list[dict], name: str) -> dict:
    for row in rows:
        if row["name"] == name:
            return row
    names = ", ".join(dict.fromkeys(row["name"] for row in rows))
    raise KeyError(f"there is no {what} {name!r}; there are: {names}")


class Case:
    """A case: hosts, links, traffic, a policy, and what must come out. It does not change.

    >>> case = Case.load("cases/voice.toml")                                    # doctest: +SKIP
    >>> case.with_(rate="5Mbit/s").run(seed=7).flow("call")["delay_ns"]["p99"]  # doctest: +SKIP
    """

    def __init__(self, case: _altq.Case) -> None:
        self._case = case

    def __reduce__(self) -> tuple:
        """Pickled, it is its text, its path, and the values from outside."""
        return _again, (*self._case.source, self.values)

    @staticmethod
    def load(path: str | PathLike[str]) -> Case:
        """Reads and checks a case file. Raises :class:`CaseError`."""
        return Case(_altq.Case.load(path))

    @staticmethod
    def parse(text: str, name: str = "case.toml") -> Case:
        """Checks the text of a case. Files that it names are looked for in the folder of ``name``."""
        return Case(_altq.Case.parse(text, name))

    def with_(self, **values: str | int | float | bool) -> Case:
        """The same case with other usual values, which stand below ``[values]`` in its file.

        Raises :class:`CaseError` for a name that the case does not have, and for a value that is not
        of the usual one's type. Texts may have a unit (``rate="5Mbit/s"``) where the usual value has.
        """
        words = [(name, _word(value)) for name, value in values.items()]
        return Case(self._case.given(words))

    def run(
        self,
        seed: int | None = None,
        *,
        row: str | None = None,
        column: str | None = None,
        jobs: int = 1,
        series: bool = False,
        most_events: int | None = None,
    ) -> Result:
        """Runs the case in virtual time. The same case and seed give the same result everywhere.

        ``seed``: the case's own if it is left out. ``row``, ``column``: only these of a case that
        has several. ``jobs``: how many rows and columns run at a time. ``series``: keeps the run
        over time. ``most_events``: the run ends with :class:`LimitError` if it needs more. Other
        threads of Python go on meanwhile, and Ctrl-C ends the run.
        """
        text = self._case.run(
            seed=seed, row=row, column=column, jobs=jobs, series=series, most_events=most_events
        )
        return Result(json.loads(text))

    @property
    def name(self) -> str:
        """Its name."""
        return self._case.name

    @property
    def description(self) -> str:
        """What it is about."""
        return self._case.description

    @property
    def seed(self) -> int:
        """The seed that it runs with if none is given."""
        return self._case.seed

    @property
    def rows(self) -> list[str]:
        """The names of its rows."""
        return self._case.rows

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        return self._case.columns

    @property
    def values(self) -> dict[str, str]:
        """The values that ``with_`` has set."""
        return dict(self._case.values)

    def __repr__(self) -> str:
        return repr(self._case)


def _again(text: str, path: str | PathLike[str], values: dict[str, str]) -> Case:
    case = Case.parse(text, str(path))
    return case.with_(**values) if values else case


def _word(value: str | int | float | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    # Numbers of numpy print their type in repr, and not in str.
    return str(value)


@dataclass(frozen=True)
class Replay:
    """What came out of a replay."""

    departures: _altq.Table
    """What left: ``time_ns`` (handed over to the wire), ``class``, ``bytes``, ``id``, ``delay_ns``
    (from arrival to hand-over), ``wire_end_ns`` (the last bit has left), and ``dscp`` if the policy
    marks packets."""
    drops: _altq.Table
    """What was lost: ``time_ns``, ``class``, ``bytes``, ``id``, ``reason``."""
    report: dict
    """The document that ``altq replay --json`` prints (``altq.replay/1``)."""

    @property
    def classes(self) -> dict[str, dict]:
        """The report's row of each class, by name."""
        return {row["name"]: row for row in self.report["classes"]}


def replay(policy: _altq.Policy, packets: Any, **options: Any) -> Replay:
    """Sends a list of packets through the engine of one link, in virtual time, as ``altq replay``.

    ``packets`` is a dict of arrays, or any table that exports the Arrow C stream (a data frame of
    pandas or polars, a relation of DuckDB, a table of pyarrow, an :class:`altq.Table`), with the
    columns

    - ``time_ns``: when the packet arrives, whole nanoseconds, never decreasing
    - ``class``: the class's name, or its number
    - ``bytes``: its length at layer 3, 1 to 65535
    - and where wanted ``id`` (the row, if it is missing), ``flow`` (number or name), ``dscp``
      (0 to 63), ``ecn`` (0 to 3), ``high`` (0 or 1), ``segments`` and ``tx_queue``.

    Options: ``link`` (which, of several), ``wire_rate_bit_s`` (the link's rate), ``timer``
    (``"exact"``, or ticks a second), ``tx_ring`` (1 packet), ``tx_queues`` (1), ``from_ns`` (0) and
    ``to_ns`` (the end): the window that the report counts; ``seed`` (1).

    Raises :class:`PacketError`, with the row and a way out. Other threads of Python go on meanwhile,
    and Ctrl-C ends the replay.
    """
    departures, drops, report = _altq.replay(policy, packets, **options)
    return Replay(departures, drops, json.loads(report))
