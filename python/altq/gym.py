"""Environments for learning schedulers: one link, and a program that says which class sends next.

Each class that has packets of its own keeps the queue that the policy gives it. The policy's
scheduler has no part in it: its place is taken by the program. A step lasts until the chosen packet
has left the wire, and on to the next arrival if nothing waits then.

**Action**: the place of a class in ``classes``. A class without packets lets the wire idle until the
next packet arrives. ``info["action_mask"]`` has a 1 for each class with packets.

**Observation**, float32, for each class five numbers (:data:`FEATURES`):

===  ================  ==========================================================
 0   backlog_packets   packets that wait
 1   backlog_bytes     their bytes at layer 3
 2   head_delay_ms     for how long the oldest of them has waited, in milliseconds
 3   sent_bytes        bytes sent in the last step
 4   dropped_packets   packets dropped in the last step
===  ================  ==========================================================

**Reward**: minus the cost of the step. A packet that waits costs the weight of its class a
millisecond; a packet that is dropped costs ``drop_cost`` times that weight at once. The sum over an
episode is minus the weighted delay of all packets, in packets times milliseconds, and of drops.

Episodes do not end by themselves: after ``steps`` steps they are truncated. The same seed gives the
same traffic, whatever the actions are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from ._altq import Policy as _Policy
from ._altq import Worlds

FEATURES = ("backlog_packets", "backlog_bytes", "head_delay_ms", "sent_bytes", "dropped_packets")
"""What is observed of each class."""

_LOAD = 0.95
"""The part of the link that traffic offers if none is given."""


@dataclass(frozen=True)
class Traffic:
    """How the packets of a class arrive."""

    rate_bit_s: int
    """Its rate at layer 3, in bit/s; of ``onoff`` while it is on."""
    bytes: int = 1000
    """Length of each packet at layer 3, 1 to 65535 bytes."""
    kind: str = "poisson"
    """``poisson``: gaps from the exponential distribution; ``constant``: equal gaps; ``onoff``: equal
    gaps while on, where times on and off are from the exponential distribution."""
    on_ns: int = 0
    """The mean time on, in ns, of ``onoff``."""
    off_ns: int = 0
    """The mean time off, in ns, of ``onoff``."""


def default_traffic(policy: _Policy, link: str | None = None) -> dict[str, Traffic]:
    """Poisson arrivals of 1000 bytes that offer 95 % of the link's rate, divided among the classes as
    their guarantees are, or equally where the scheduler guarantees nothing."""
    lanes = Worlds.lanes(policy, link)
    rate = policy.link(link).rate_bit_s
    total = sum(guarantee or 0 for _, guarantee in lanes)
    part = {name: (guarantee or 0) / total if total else 1 / len(lanes) for name, guarantee in lanes}
    return {name: Traffic(max(1, int(rate * _LOAD * share))) for name, share in part.items() if share > 0}


def _worlds(
    policy: _Policy,
    link: str | None,
    traffic: Mapping[str, Traffic] | None,
    weights: Mapping[str, float] | None,
    drop_cost: float,
    steps: int,
    count: int,
) -> Worlds:
    traffic = default_traffic(policy, link) if traffic is None else traffic
    rows = [(name, t.kind, t.rate_bit_s, t.bytes, t.on_ns, t.off_ns) for name, t in traffic.items()]
    return Worlds(policy, link, rows, list((weights or {}).items()), drop_cost, steps, count)


def _space(classes: int) -> spaces.Box:
    return spaces.Box(0.0, np.inf, (classes, len(FEATURES)), np.float32)


class LinkEnv(gymnasium.Env):
    """One link. ``policy`` gives classes, queues, rate and overhead; ``link`` says which link, if it
    has several; ``traffic`` has a :class:`Traffic` for each class by name (:func:`default_traffic` if
    it is left out); ``weights`` what a packet of each class costs a millisecond (1), ``drop_cost``
    what its drop costs, in milliseconds (100); ``steps`` is the length of an episode.
    """

    metadata = {"render_modes": []}

    def __init__(
        self,
        policy: _Policy,
        *,
        link: str | None = None,
        traffic: Mapping[str, Traffic] | None = None,
        weights: Mapping[str, float] | None = None,
        drop_cost: float = 100.0,
        steps: int = 10_000,
        render_mode: None = None,
    ) -> None:
        self._worlds = _worlds(policy, link, traffic, weights, drop_cost, steps, 1)
        self.classes: list[str] = self._worlds.names
        """The names of the classes, in the order of actions and observations."""
        self.render_mode = render_mode
        self._shape = (len(self.classes), len(FEATURES))
        self.observation_space = _space(len(self.classes))
        self.action_space = spaces.Discrete(len(self.classes))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begins an episode at time 0. Without a seed its traffic is drawn anew."""
        super().reset(seed=seed)
        self._worlds.reset([int(self.np_random.integers(2**63)) if seed is None else seed])
        return self._seen(), self._info()

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Lets a class send a packet. The episode never terminates; it is truncated at its end."""
        reward, over = self._worlds.step_one(action)
        return self._seen(), reward, False, over, self._info()

    @property
    def now_ns(self) -> int:
        """The virtual time, in ns."""
        return self._worlds.now_ns[0]

    def counters(self) -> dict[str, dict[str, int]]:
        """Of each class, since the beginning of the episode: packets arrived, sent and dropped, and
        bytes sent."""
        return _counters(self._worlds, 0)

    def _seen(self) -> np.ndarray:
        return self._worlds.observe().reshape(self._shape)

    def _info(self) -> dict[str, Any]:
        return {"action_mask": self._worlds.masks()}


class VectorEnv(gymnasium.vector.VectorEnv):
    """Several links side by side, all stepped at once by compiled code. Arguments as of
    :class:`LinkEnv`. An environment whose episode was truncated begins another with the next step,
    which ignores its action and has the reward 0 (``AutoresetMode.NEXT_STEP``).
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(
        self,
        policy: _Policy,
        num_envs: int,
        *,
        link: str | None = None,
        traffic: Mapping[str, Traffic] | None = None,
        weights: Mapping[str, float] | None = None,
        drop_cost: float = 100.0,
        steps: int = 10_000,
    ) -> None:
        self._worlds = _worlds(policy, link, traffic, weights, drop_cost, steps, num_envs)
        self.num_envs = num_envs
        self.classes: list[str] = self._worlds.names
        """The names of the classes, in the order of actions and observations."""
        self._shape = (num_envs, len(self.classes), len(FEATURES))
        self._never = np.zeros(num_envs, dtype=np.bool_)
        self._always = np.ones(num_envs, dtype=np.bool_)
        self.single_observation_space = _space(len(self.classes))
        self.single_action_space = spaces.Discrete(len(self.classes))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begins an episode in each. With one seed the environments have it and those that follow."""
        super().reset(seed=seed if isinstance(seed, int) else None)
        if isinstance(seed, int):
            seeds = [seed + at for at in range(self.num_envs)]
        else:
            given = [None] * self.num_envs if seed is None else list(seed)
            seeds = [int(self.np_random.integers(2**62)) if each is None else each for each in given]
        self._worlds.reset(seeds)
        return self._seen(), self._info()

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Lets a class of each link send a packet."""
        # Fractions are refused: cut off, they would be other actions.
        whole = np.asarray(actions).astype(np.int64, casting="same_kind", copy=False)
        rewards, over = self._worlds.step(whole)
        return self._seen(), rewards, self._never.copy(), over, self._info()

    def counters(self, env: int) -> dict[str, dict[str, int]]:
        """As :meth:`LinkEnv.counters`, of one of the links."""
        return _counters(self._worlds, env)

    def _seen(self) -> np.ndarray:
        return self._worlds.observe().reshape(self._shape)

    def _info(self) -> dict[str, Any]:
        mask = self._worlds.masks().reshape(self._shape[:2])
        return {"action_mask": mask, "_action_mask": self._always.copy()}


def _counters(worlds: Worlds, env: int) -> dict[str, dict[str, int]]:
    keys = ("arrived_packets", "sent_packets", "dropped_packets", "sent_bytes")
    return {name: dict(zip(keys, row)) for name, row in zip(worlds.names, worlds.totals(env))}
