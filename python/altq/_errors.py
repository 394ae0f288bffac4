"""Exceptions. Each names what is wrong and a way out; those about texts show the line and a caret."""

from __future__ import annotations


class Error(Exception):
    """Anything that altq refuses."""


class PolicyError(Error, ValueError):
    """A policy is refused, or cannot be used in this way.

    Printed, it is what ``altq check`` prints: each finding with its file, line and column, the line
    with a caret, the reason, and the way out. ``diagnostics`` has the findings as dicts with the
    keys ``severity``, ``code``, ``message``, ``file``, ``line``, ``column`` and ``help``; it is
    empty if the error is not about the policy's text.
    """

    def __init__(self, message: str, diagnostics: list[dict] | None = None) -> None:
        super().__init__(message)
        self.diagnostics = diagnostics or []


class CaseError(Error, ValueError):
    """A case is refused; printed, it has the line with a caret."""


class PacketError(Error, ValueError):
    """A packet or a list of packets is refused: its time, its class, its length, or another field."""


class LimitError(Error, RuntimeError):
    """A run was ended by a limit before its time, and has no result."""
