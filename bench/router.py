"""How long the router takes to decide: the pure objects, without sockets.

    python -m bench.router [--workers 64] [--decisions 5000] [--repeats 5] [--json FILE]

Half of the workers prefill, half decode; prompts of 1 to 3,000 tokens arrive at a rate the
deployment can bear, heartbeats four times a second, and each request is settled after a while. Only
the handling of a Route is timed: in thread CPU time, which a neighbour on the machine can't
lengthen much, and in wall time beside it.
"""

import argparse
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.figures import Conditions, Figure, percentile, report
from core.config import Config
from core.cost_model import CostModel, PrefillCost
from core.ids import Attempt, Epoch, Incarnation, ProcessId, RequestId, WorkerName
from core.kv_layout import KvLayout
from core.slo import Slo
from router.events import FromPeer, Tick
from router.router import Outcome, Router
from wire.messages import (
    Heartbeat,
    Peer,
    Register,
    Role,
    Route,
    Settled,
    WorkerCard,
    WorkerLoad,
)

ARRIVAL_S = 0.002
STAY_REQUESTS = 500
"""How many requests are open at any time."""
HEARTBEAT_S = 0.25
BLOCKS = 10_000
LAYOUT = KvLayout(layers=32, kv_heads=8, head_dim=128, block_tokens=16, dtype="bfloat16")
COST = CostModel(prefill=PrefillCost(base_s=0.002, per_token_s=2e-5, per_token_context_s=1e-9))
GATEWAY = Peer(ProcessId(WorkerName("gateway"), Incarnation(1)), "tcp://gateway")


@dataclass(slots=True)
class Timings:
    """Of each decision, in µs."""

    cpu_us: list[float] = field(default_factory=list)
    wall_us: list[float] = field(default_factory=list)


def workers(count: int) -> Iterator[WorkerCard]:
    for number in range(count):
        role = (Role.PREFILL, Role.DECODE)[number % 2]
        name = f"{role}-{number // 2}"
        yield WorkerCard(
            peer=Peer(ProcessId(WorkerName(name), Incarnation(1)), f"tcp://{name}"),
            pool=role,
            roles=(role,),
            model="bench",
            fingerprint="bench",
            max_context=8_192,
            layout=LAYOUT,
            blocks_total=BLOCKS,
            transport="nixl",
            cost=COST,
        )


def route(number: int, prompt_tokens: int) -> Route:
    return Route(
        attempt=Attempt(RequestId(f"r{number}"), Epoch(1)),
        gateway=GATEWAY,
        prompt_tokens=prompt_tokens,
        max_tokens=256,
        choices=1,
        slo=Slo(),
        deadline_left_ms=600_000.0,
    )


def decide(count: int, decisions: int, seed: int) -> tuple[Timings, Router]:
    """Run so many decisions among so many workers."""
    draw = random.Random(seed)
    cards = list(workers(count))
    router = Router(process=ProcessId(WorkerName("router"), Incarnation(1)), config=Config())
    for card in cards:
        router.handle(FromPeer(card.peer.process, Register(card)), 0.0)
    timings, now_s, beat_s = Timings(), 0.0, 0.0
    for number in range(decisions):
        now_s += ARRIVAL_S
        if now_s >= beat_s:
            beat_s = now_s + HEARTBEAT_S
            router.handle(Tick(), now_s)
            for card in cards:
                load = WorkerLoad(
                    prefill_tokens_queued=draw.randrange(2_000), waiting=1, blocks_free=BLOCKS
                )
                router.handle(
                    FromPeer(card.peer.process, Heartbeat(load, card.peer.address)), now_s
                )
        event = FromPeer(GATEWAY.process, route(number, draw.randint(1, 3_000)))
        wall_ns, cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
        router.handle(event, now_s)
        timings.cpu_us.append((time.thread_time_ns() - cpu_ns) / 1e3)
        timings.wall_us.append((time.perf_counter_ns() - wall_ns) / 1e3)
        if number >= STAY_REQUESTS:
            settled = Settled(route(number - STAY_REQUESTS, 1).attempt)
            router.handle(FromPeer(GATEWAY.process, settled), now_s)
    return timings, router


def measure(count: int, decisions: int, repeats: int) -> list[Figure]:
    """
    Raises:
        SystemExit: a decision was a refusal, so that the figures wouldn't mean what they say.
    """
    runs = []
    for seed in range(repeats):
        timings, router = decide(count, decisions, seed)
        served = router.outcomes[Outcome.REMOTE] + router.outcomes[Outcome.LOCAL]
        if served != decisions:
            raise SystemExit(f"{decisions - served} of {decisions} requests were refused")
        runs.append(timings)
    return [
        Figure.median_of(
            f"decision_p50_us_{count}", [percentile(r.cpu_us, 50) for r in runs], "us"
        ),
        Figure.median_of(
            f"decision_p99_us_{count}", [percentile(r.cpu_us, 99) for r in runs], "us"
        ),
        Figure.median_of(
            f"decision_p99_wall_us_{count}", [percentile(r.wall_us, 99) for r in runs], "us"
        ),
    ]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.router")
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--decisions", type=int, default=5_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    figures = measure(options.workers, options.decisions, options.repeats)
    conditions = Conditions.collect(
        model="none",
        repeats=options.repeats,
        workers=options.workers,
        decisions=options.decisions,
        open_requests=STAY_REQUESTS,
        clock="thread CPU time, but for wall",
    )
    report("router", figures, conditions, options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
