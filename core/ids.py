"""Names of things: requests, attempts, processes.

A request keeps one id for life; each attempt to serve it has an *epoch*; each start of a
process has an *incarnation*. Together they tell a late message from a current one.
"""

import secrets
from dataclasses import dataclass
from typing import NewType

RequestId = NewType("RequestId", str)
Epoch = NewType("Epoch", int)
"""The attempt at a request, from 1. A retry raises it; whatever carries an older one is stale."""
Incarnation = NewType("Incarnation", int)
"""A random 48-bit number drawn once per process start. Compared for equality only."""
WorkerName = NewType("WorkerName", str)
"""`prefill-0`, `decode-1`: stable over restarts, while the incarnation changes."""


@dataclass(frozen=True, slots=True, order=True)
class Attempt:
    """One try at serving a request: what tokens, transfers and cancels are keyed by."""

    request: RequestId
    epoch: Epoch

    def __str__(self) -> str:
        return f"{self.request}#{self.epoch}"

    def next(self) -> "Attempt":
        return Attempt(self.request, Epoch(self.epoch + 1))


@dataclass(frozen=True, slots=True, order=True)
class ProcessId:
    """A process of the deployment in one of its lives."""

    name: WorkerName
    incarnation: Incarnation

    def __str__(self) -> str:
        return f"{self.name}@{self.incarnation:x}"


def new_request_id(prefix: str = "req") -> RequestId:
    return RequestId(f"{prefix}-{secrets.token_hex(12)}")


def new_incarnation() -> Incarnation:
    return Incarnation(secrets.randbits(48))
