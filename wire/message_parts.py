"""What messages are made of: the words and records that several of them share."""

from dataclasses import dataclass
from enum import StrEnum

from core.cost_model import CostModel
from core.ids import Attempt, ProcessId
from core.kv_layout import KvLayout
from core.request import SampledToken


class Role(StrEnum):
    PREFILL = "prefill"
    DECODE = "decode"


class RoutePath(StrEnum):
    """What the gateway asks the router for; anything but ANY is for warm-up and tests."""

    ANY = "any"
    REMOTE = "remote"
    LOCAL = "local"


class RefusalKind(StrEnum):
    OVERLOADED = "overloaded"
    NO_WORKER = "no_worker"
    TOO_LONG = "too_long"


class Fault(StrEnum):
    """Whose fault a failed attempt is; PEER and CAPACITY are worth another attempt."""

    CALLER = "caller"
    CAPACITY = "capacity"
    PEER = "peer"
    US = "us"


class MemberState(StrEnum):
    ALIVE = "alive"
    SUSPECT = "suspect"
    DRAINING = "draining"
    DEAD = "dead"


class Stage(StrEnum):
    """How far D has come with an attempt, for the gateway's life cycle."""

    RESERVED = "reserved"
    PREFILLING = "prefilling"
    DECODING = "decoding"


@dataclass(frozen=True, slots=True)
class Peer:
    """A process and the address its channel listens at (`tcp://127.0.0.1:port`)."""

    process: ProcessId
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCard:
    """What a worker is; sent once at registration."""

    peer: Peer
    pool: str
    roles: tuple[Role, ...]
    model: str
    fingerprint: str
    """Of weights, dtype, kernel set: equal fingerprints give equal answers and may share KV."""
    max_context: int
    layout: KvLayout
    blocks_total: int
    transport: str
    """URL scheme of its KV transport: nixl, tcp, memory."""
    cost: CostModel


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLoad:
    """How busy a worker is; sent with every heartbeat. Counters only grow within an incarnation."""

    running: int = 0
    waiting: int = 0
    prefill_tokens_queued: int = 0
    """Prompt tokens not yet computed, of running and waiting requests."""
    decode_batch: int = 0
    decode_context_tokens: int = 0
    blocks_free: int = 0
    blocks_owned: int = 0
    blocks_receiving: int = 0
    blocks_quarantined: int = 0
    transfers_open: int = 0
    transfer_bytes_total: int = 0
    """Bytes this worker wrote to peers (P) or received and verified (D)."""
    transfers_total: int = 0
    transfers_failed_total: int = 0
    stale_messages_total: int = 0
    preemptions_total: int = 0
    steps_total: int = 0
    step_seconds_total: float = 0.0
    integrity_error: str = ""
    """What `check_integrity()` found when the worker was last idle; empty is clean."""
    idle_checks_total: int = 0


@dataclass(frozen=True, slots=True)
class MemberView:
    """One worker as the router sees it."""

    card: WorkerCard
    load: WorkerLoad
    state: MemberState


@dataclass(frozen=True, slots=True, kw_only=True)
class KvTarget:
    """Where D wants the prompt's KV: its transport's address and its reserved blocks, in order.

    `held_blocks` leading blocks of the prompt are already on D; `blocks` are for the rest.
    """

    transport: str
    address: bytes
    layout: KvLayout
    held_blocks: int
    blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TokenItem:
    attempt: Attempt
    sampled: SampledToken
