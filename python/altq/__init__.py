"""altq: who gets how much of a link, from Python.

Times are whole nanoseconds, lengths bytes at layer 3, rates bit/s, everywhere.

- :class:`Policy`: a policy, with classes, promises and diagnostics
- :class:`Engine`: the engine of one link, packet by packet, by arrays, or as a whole run
- :func:`replay`: a table of packets through one link
- :class:`Case`: cases of the simulator
- :class:`Histogram`: times in fixed memory, which can be merged
- :func:`sweep`: a case with many values and seeds, on this host or on Ray
- :mod:`altq.gym`: environments for learning schedulers (needs gymnasium)
"""

from ._altq import Departure, Engine, Histogram, Table, __version__
from ._errors import CaseError, Error, LimitError, PacketError, PolicyError
from .case import Case, Replay, Result, replay
from .policy import Class, Diagnostic, Link, Policy, Promise
from .sweeps import Sweep, sweep

__all__ = [
    "Case",
    "CaseError",
    "Class",
    "Departure",
    "Diagnostic",
    "Engine",
    "Error",
    "Histogram",
    "LimitError",
    "Link",
    "PacketError",
    "Policy",
    "PolicyError",
    "Promise",
    "Replay",
    "Result",
    "Sweep",
    "Table",
    "__version__",
    "replay",
    "sweep",
]
