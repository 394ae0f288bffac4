"""Policies: what is written, what is wrong with it, and what it promises."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from os import PathLike

from . import _altq
from ._errors import PolicyError


@dataclass(frozen=True)
class Diagnostic:
    """A finding about a policy."""

    severity: str
    """``error`` or ``warning``; a policy that could be read has warnings only."""
    code: str
    """A stable name of this kind of finding."""
    message: str
    """What is wrong."""
    file: str
    """The file, or the name that the text was given."""
    line: int
    """The line, from 1."""
    column: int
    """The column in characters, from 1."""
    help: str | None = None
    """The way out."""

    def __str__(self) -> str:
        text = f"{self.file}:{self.line}:{self.column}: {self.severity}: {self.message}"
        return f"{text}; {self.help}" if self.help else text


@dataclass(frozen=True)
class Promise:
    """What a class is promised."""

    guaranteed_bit_s: int
    """The rate that it can count on, in bit/s; 0 if it is guaranteed none."""
    ceiling_bit_s: int
    """The highest rate that it may reach in the long run, in bit/s."""
    conforming_ns: int | None
    """The longest delay of a packet whose source keeps to the guarantee, in ns; None: no bound."""
    queue_full_ns: int | None
    """The longest delay of the last packet of a full queue, in ns; None: no bound."""
    assumes: str
    """What the bounds assume, or why there are none."""


@dataclass(frozen=True)
class Class:
    """A class of a link."""

    name: str
    """Its name, unique in its link."""
    id: int
    """Its number: the link itself is 0."""
    parent: str | None
    """The class above; None for the link itself."""
    scheduler: str
    """The scheduler that serves it."""
    queue: str | None
    """The kind of its queue; None if it holds no packets of its own."""
    promise: Promise
    """What it is promised."""


@dataclass(frozen=True)
class Link:
    """A link of a policy."""

    name: str
    """Its name."""
    rate_bit_s: int
    """Its rate, in bit/s."""
    mtu_bytes: int
    """Its largest packet at layer 3, in bytes."""
    classes: tuple[Class, ...]
    """Its classes by number, the link itself first."""


class Policy(_altq.Policy):
    """A policy, read and checked.

    ``source`` is the text of a policy, or a path (``pathlib.Path``) to a file. A text is in the
    native language unless ``language`` says otherwise (``native`` or ``altq``); of a file the name
    tells. ``name`` is what messages call a text.

    Raises :class:`PolicyError` for a policy with errors.

    >>> policy = Policy("link wan { rate 1Mbit/s scheduler fifo class a {} class b { default } }")
    >>> [each.name for each in policy.classes]
    ['wan', 'a', 'b']
    """

    def __new__(
        cls, source: str | PathLike[str], *, language: str | None = None, name: str = "policy.altq"
    ) -> Policy:
        self = super().__new__(cls, source, language=language, name=name)
        self._made = (source, language, name)
        return self

    def __reduce__(self) -> tuple:
        """Pickled, it is its text or its path, which is read again."""
        return _again, (type(self), *self._made)

    @cached_property
    def check(self) -> dict:
        """The document that ``altq check --json`` prints (``altq.check/1``)."""
        return json.loads(self.document())

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """The links, in the order of the policy."""
        return tuple(_link(link) for link in self.check["links"])

    def link(self, name: str | None = None) -> Link:
        """The link of this name; without a name the only one."""
        names = ", ".join(link.name for link in self.links)
        if name is None and len(self.links) > 1:
            raise PolicyError(f"the policy has several links; say which by its name: {names}")
        found = [link for link in self.links if name in (None, link.name)]
        if not found:
            raise PolicyError(f"the policy has no link {name!r}; its links: {names}")
        return found[0]

    @property
    def classes(self) -> tuple[Class, ...]:
        """The classes of the only link; of several links, ``policy.link(name).classes``."""
        return self.link().classes

    @property
    def promises(self) -> dict[str, Promise]:
        """What each class of the only link is promised, by its name."""
        return {each.name: each.promise for each in self.classes}

    @cached_property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Warnings and advice."""
        return tuple(Diagnostic(**finding) for finding in self.check["diagnostics"])


def _again(cls: type[Policy], source: str | PathLike[str], language: str | None, name: str) -> Policy:
    return cls(source, language=language, name=name)


def _link(link: dict) -> Link:
    classes = tuple(_class(number, each) for number, each in enumerate(link["classes"]))
    return Link(link["name"], link["rate_bit_s"], link["mtu_bytes"], classes)


def _class(number: int, each: dict) -> Class:
    bound = each["delay_bound_ns"]
    promise = Promise(
        each["guaranteed_bit_s"], each["ceiling_bit_s"], bound["conforming"], bound["queue_full"], bound["assumes"]
    )
    queue = each.get("queue", {}).get("kind")
    return Class(each["name"], number, each["parent"], each["scheduler"], queue, promise)
