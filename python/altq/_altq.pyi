"""The compiled part of altq. Times are whole nanoseconds, lengths bytes at layer 3, rates bit/s."""

from collections.abc import Callable
from os import PathLike
from typing import Any, Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

__version__: str

class Policy:
    """A policy; see altq.Policy, which adds to it what its document says."""

    def __new__(cls, source: str | PathLike[str], *, language: str | None = None, name: str = "policy.altq") -> Self: ...
    def document(self) -> str:
        """The document altq.check/1 as JSON."""
    def text(self) -> str:
        """The policy in the native language, whichever it was read from."""
    def warnings(self) -> str:
        """Warnings, each with its line and a caret; empty if there are none."""

@final
class Departure:
    """A packet that leaves."""

    @property
    def class_name(self) -> str:
        """The name of its class."""
    @property
    def class_id(self) -> int:
        """The number of its class."""
    @property
    def length(self) -> int:
        """Its bytes at layer 3."""
    @property
    def wire_length(self) -> int:
        """The bytes that the link charges for it."""
    @property
    def handle(self) -> int:
        """The number that enqueue was given, or counted."""
    @property
    def arrived_ns(self) -> int:
        """When it arrived, in ns."""
    @property
    def delay_ns(self) -> int:
        """How long it waited, in ns."""
    @property
    def dscp(self) -> int:
        """Its DSCP, 0 to 63."""
    @property
    def ecn(self) -> int:
        """Its ECN field, 0 to 3; 3 is congestion experienced."""

@final
class Engine:
    """The engine of one link: which packet leaves next, and when.

    It has no clock: each call says what time it is, and times never go back. `link` says which, if
    the policy has several; `timer` is "exact", or so many ticks a second; `seed` that of queues that
    drop at random. With `keep_drops`, `drops` has each packet that was lost; without, they are only
    counted. An engine may be used by one thread at a time.
    """

    def __new__(
        cls,
        policy: Policy,
        *,
        link: str | None = None,
        timer: str | int | None = None,
        seed: int = 1,
        keep_drops: bool = False,
    ) -> Self: ...
    @property
    def classes(self) -> list[str]:
        """The names of the classes by number, the link itself first."""
    @property
    def now_ns(self) -> int:
        """The latest time that the engine has seen, in ns."""
    @property
    def backlog(self) -> int:
        """Packets that wait."""
    @property
    def rate_bit_s(self) -> int:
        """The link's rate, in bit/s."""
    def enqueue(
        self,
        now_ns: int,
        packet_class: str | int,
        length: int,
        *,
        flow: int = 0,
        dscp: int = 0,
        ecn: int = 0,
        segments: int = 1,
        handle: int | None = None,
    ) -> bool:
        """A packet arrives. True if it is queued, False if it is dropped.

        `packet_class` is the class's name or number, `length` 1 to 65535 bytes. `flow` (32 bits)
        tells flows apart where the queue does, `segments` is the number of packets on the wire that
        it stands for, `handle` (32 bits) comes back in the departure; without one packets are
        counted from 0. Raises PacketError.
        """
    def dequeue(self, now_ns: int) -> Departure | None:
        """The packet that leaves now; None if none may. Raises PacketError."""
    def next_wakeup(self) -> int | None:
        """The earliest time at which dequeue may return a packet if nothing else happens, in ns; None:
        only after an arrival or a change."""
    def enqueue_many(
        self,
        times: ArrayLike,
        classes: ArrayLike | str | int,
        lengths: ArrayLike | int,
        *,
        flow: ArrayLike | None = None,
        dscp: ArrayLike | None = None,
        ecn: ArrayLike | None = None,
        segments: ArrayLike | None = None,
    ) -> int:
        """Packets arrive, in the order of time. A class or a length may be one for all. Returns how
        many packets were dropped. Raises PacketError before any is queued."""
    def dequeue_many(self, now_ns: int, most: int | None = None) -> Table:
        """The packets that leave now, at most so many: time_ns, class, bytes, handle, arrived_ns,
        delay_ns."""
    def run(
        self,
        times: ArrayLike,
        classes: ArrayLike | str | int,
        lengths: ArrayLike | int,
        *,
        flow: ArrayLike | None = None,
        dscp: ArrayLike | None = None,
        ecn: ArrayLike | None = None,
        segments: ArrayLike | None = None,
        until_ns: int | None = None,
    ) -> Table:
        """Packets arrive, and leave on a wire of the link's rate that sends one after another, until
        nothing more can happen or until `until_ns`. Another run goes on from there. Returns what left:
        time_ns (handed over to the wire), class, bytes, handle, arrived_ns, delay_ns (from arrival to
        hand-over), wire_end_ns (the last bit has left). Other threads of Python go on meanwhile, and
        Ctrl-C ends it. Raises PacketError before any packet is queued."""
    def counters(self, of: str | int | None = None) -> dict[str, Any]:
        """The counters of a class with all below it, or of all classes by name. Packets and bytes:
        received = sent + dropped + backlog. `dropped` has the packets by reason."""
    def drops(self) -> Table:
        """The packets lost since the last call: time_ns, class, bytes, id (the handle), reason. Only
        with `keep_drops`."""
    def set_rate(self, now_ns: int, rate_bit_s: int) -> None:
        """Another rate of the link, while packets wait. Raises PolicyError."""
    def set_class(self, now_ns: int, packet_class: str | int, words: str) -> None:
        """Other words for a class, while its packets wait, such as "share 30% borrow": those of a
        policy, all that it has. Its queue stays. Raises PolicyError."""

@final
class Table:
    """A table that does not change. pandas, polars, DuckDB and pyarrow take it by the Arrow C stream,
    as in polars.DataFrame(table) or pandas.DataFrame.from_arrow(table)."""

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
    def __len__(self) -> int: ...
    def __getitem__(self, name: str) -> NDArray[Any]:
        """A column as an array of numpy: a copy. Names are texts. Where a number is missing there is
        nan, and None where a text is."""
    def codes(self, name: str) -> tuple[NDArray[np.int32], list[str]]:
        """Of a column of names: the place of each row's name, and the list of names."""
    def to_dict(self) -> dict[str, NDArray[Any]]:
        """A dict with an array for each column, as replay takes it."""
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

@final
class Histogram:
    """A distribution of times in ns, in fixed memory. Percentiles are within 1/32 of the true value,
    mean (rounded down) and maximum exact. Sums of histograms are those of all their values; pickle
    and JSON carry one to another host.

    >>> delays = Histogram([1_000_000, 3_000_000])
    >>> len(delays), delays.mean_ns, delays.max_ns
    (2, 2000000, 3000000)
    """

    def __new__(cls, values: ArrayLike | None = None) -> Self: ...
    def add(self, values: ArrayLike) -> None:
        """Adds times: whole numbers of ns."""
    def __add__(self, other: Histogram) -> Histogram: ...
    def __len__(self) -> int:
        """How many times there are."""
    @property
    def mean_ns(self) -> int | None:
        """The mean; None without times."""
    @property
    def max_ns(self) -> int | None:
        """The longest; None without times."""
    def percentile_ns(self, per_cent: float) -> int | None:
        """The percentile, 0 to 100, by nearest rank; None without times."""
    def to_json(self) -> str:
        """The histogram as JSON."""
    @staticmethod
    def from_json(text: str) -> Histogram:
        """The histogram that to_json has written. Raises ValueError."""

@final
class Case:
    """A case; see altq.Case."""

    @staticmethod
    def load(path: str | PathLike[str]) -> Case: ...
    @staticmethod
    def parse(text: str, name: str = "case.toml") -> Case: ...
    def given(self, values: list[tuple[str, str]]) -> Case: ...
    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def rows(self) -> list[str]: ...
    @property
    def columns(self) -> list[str]: ...
    @property
    def values(self) -> list[tuple[str, str]]: ...
    @property
    def source(self) -> tuple[str, PathLike[str]]: ...
    def run(
        self,
        *,
        seed: int | None = None,
        row: str | None = None,
        column: str | None = None,
        jobs: int = 1,
        series: bool = False,
        most_events: int | None = None,
    ) -> str:
        """Runs the case; the document altq.result/1 as JSON."""

@final
class Worlds:
    """Links side by side for altq.gym."""

    def __new__(
        cls,
        policy: Policy,
        link: str | None,
        traffic: list[tuple[str, str, int, int, int, int]],
        weights: list[tuple[str, float]],
        drop_cost: float,
        steps: int,
        count: int,
    ) -> Self: ...
    @staticmethod
    def lanes(policy: Policy, link: str | None = None) -> list[tuple[str, int | None]]: ...
    @property
    def names(self) -> list[str]: ...
    @property
    def now_ns(self) -> list[int]: ...
    def reset(self, seeds: list[int]) -> None: ...
    def observe(self) -> NDArray[np.float32]: ...
    def masks(self) -> NDArray[np.int8]: ...
    def step_one(self, action: int) -> tuple[float, bool]: ...
    def step(self, actions: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]: ...
    def totals(self, link: int) -> list[list[int]]: ...

@final
class Sweep:
    """What is to be done of a sweep; see altq.sweep."""

    def __new__(
        cls,
        case: PathLike[str],
        text: str | None,
        axes: list[tuple[str, str | list[str]]],
        folder: PathLike[str],
        *,
        table: PathLike[str] | list[list[tuple[str, str]]] | None = None,
        samples: int = 1,
        seed: int | None = None,
        until: list[str] = ...,
        figures: list[str] = ...,
        row: str | None = None,
        column: str | None = None,
        chunk: int | None = None,
        shard: str | None = None,
        again: bool = False,
        timeout_s: float | None = None,
        most_events: int | None = None,
    ) -> Self: ...
    @property
    def points(self) -> int:
        """How many points there are."""
    @property
    def job(self) -> str:
        """What sweep_runs needs beside runs."""
    def run(self, jobs: int, progress: Callable[[int, int], None] | None = None) -> None:
        """Does what is missing, by processes of this host."""
    def begin(self) -> tuple[int, int]:
        """Begins to hand out tasks: the runs that are there already, and all runs."""
    def next(self) -> tuple[int, int, bool] | None:
        """The next task: its place, the number of its runs, True if nobody needs it any more."""
    def runs(self, at: int) -> list[str]:
        """The runs of a task, for sweep_runs."""
    def put(self, at: int, answers: list[str]) -> None:
        """Keeps what sweep_runs has answered for a task."""
    def gather(self, show: list[str]) -> str:
        """Writes the table and the summary; the document altq.sweep/1 as JSON."""
    def table(self) -> Table:
        """The table that was gathered."""

def sweep_worker() -> None:
    """A worker process: takes runs on standard input until that ends."""

def sweep_runs(job: str, runs: list[str], timeout_s: float | None = None) -> list[str]:
    """Does runs in a process of their own. A text for each of ``runs``, with a line for each run."""

def sweep_error(why: str) -> str:
    """The answer for a run that has no figures, for this reason."""

def sweep_split(runs: str) -> list[str]:
    """Some runs of one point, one by one."""

def replay(
    policy: Policy,
    packets: Any,
    *,
    link: str | None = None,
    wire_rate_bit_s: int | None = None,
    timer: str | int | None = None,
    tx_ring: int = 1,
    tx_queues: int = 1,
    from_ns: int = 0,
    to_ns: int | None = None,
    seed: int = 1,
) -> tuple[Table, Table, str]:
    """See altq.replay."""
