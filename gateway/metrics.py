"""What /metrics shows: the gateway's own counters, and the workers as the router reports them.

The names are a contract with dashboards and autoscalers; those made for vLLM find theirs under
`vllm:` too.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from core.request_lifecycle import RequestState
from gateway.request_record import RequestRecord
from wire.messages import HandoffReport, MemberState, MemberView, Role

TTFT_BUCKETS_S = (
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
TPOT_BUCKETS_S = (
    0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5,
)  # fmt: skip
HANDOFF_BUCKETS_S = (
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
)  # fmt: skip
E2E_BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)

VLLM_ALIASES = {
    "baton_requests_running": "vllm:num_requests_running",
    "baton_requests_waiting": "vllm:num_requests_waiting",
    "baton_prompt_tokens": "vllm:prompt_tokens",
    "baton_generated_tokens": "vllm:generation_tokens",
    "baton_ttft_seconds": "vllm:time_to_first_token_seconds",
    "baton_tpot_seconds": "vllm:request_time_per_output_token_seconds",
    "baton_e2e_seconds": "vllm:e2e_request_latency_seconds",
    "baton_choices_finished": "vllm:request_success",
    "baton_kv_usage_ratio": "vllm:kv_cache_usage_perc",
}

WAITING = frozenset({RequestState.RECEIVED, RequestState.ROUTED, RequestState.RESERVED})


class Live(Protocol):
    """What is true now: read at each scrape."""

    def states(self) -> Iterable[RequestState]:
        """Of all requests that haven't ended."""
        ...

    def members(self) -> Sequence[MemberView]: ...


@dataclass(frozen=True, slots=True)
class LiveFigures(Collector):
    """Gauges computed from the present, so that they can't drift from it."""

    live: Live

    def collect(self) -> Iterator[Metric]:
        states = list(self.live.states())
        waiting = sum(state in WAITING for state in states)
        yield _gauge(
            "baton_requests_running", "Requests being prefilled or decoded", len(states) - waiting
        )
        yield _gauge("baton_requests_waiting", "Requests not being served yet", waiting)
        members = [m for m in self.live.members() if m.state is not MemberState.DEAD]
        yield from _worker_gauges(members)
        yield from _worker_counters(members)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _worker_gauges(members: Sequence[MemberView]) -> Iterator[Metric]:
    blocks = GaugeMetricFamily("baton_kv_blocks", "KV blocks", labels=["worker", "state"])
    up = GaugeMetricFamily("baton_worker_up", "1: takes work", labels=["worker", "pool", "state"])
    running = GaugeMetricFamily("baton_worker_running", "Attempts running", labels=["worker"])
    waiting = GaugeMetricFamily("baton_worker_waiting", "Attempts waiting", labels=["worker"])
    clean = GaugeMetricFamily(
        "baton_integrity_ok", "1: check_integrity() was clean when last idle", labels=["worker"]
    )
    used = total = 0
    for member in members:
        name, load = member.card.peer.process.name, member.load
        blocks.add_metric([name, "free"], load.blocks_free)
        blocks.add_metric([name, "owned"], load.blocks_owned)
        blocks.add_metric([name, "receiving"], load.blocks_receiving)
        blocks.add_metric([name, "quarantined"], load.blocks_quarantined)
        up.add_metric([name, member.card.pool, member.state], member.state is MemberState.ALIVE)
        running.add_metric([name], load.running)
        waiting.add_metric([name], load.waiting)
        clean.add_metric([name], not load.integrity_error)
        used += member.card.blocks_total - load.blocks_free
        total += member.card.blocks_total
    # Both ends count a transfer; D's is the one that lasts from the reservation on.
    transfers = sum(m.load.transfers_open for m in members if Role.DECODE in m.card.roles)
    yield from (blocks, up, running, waiting, clean)
    yield _gauge("baton_kv_transfers_open", "KV transfers under way", transfers)
    yield _gauge("baton_kv_usage_ratio", "Share of all KV blocks in use", used / max(1, total))


_WORKER_COUNTERS = {
    "transfers_failed_total": "KV transfers that ended without the KV",
    "stale_messages_total": "Late messages ignored",
    "preemptions_total": "Requests preempted",
    "steps_total": "Forward passes",
    "step_seconds_total": "Time in forward passes",
    "idle_checks_total": "Times check_integrity() ran",
}


def _worker_counters(members: Sequence[MemberView]) -> Iterator[Metric]:
    for field, text in _WORKER_COUNTERS.items():
        name = f"baton_worker_{field.removesuffix('_total')}"
        family = CounterMetricFamily(name, text, labels=["worker"])
        for member in members:
            family.add_metric([member.card.peer.process.name], getattr(member.load, field))
        yield family


@dataclass(frozen=True, slots=True)
class Aliases(Collector):
    """The same figures under vLLM's names, with its one label."""

    registry: CollectorRegistry
    model: str

    def collect(self) -> Iterator[Metric]:
        for metric in list(self.registry.collect()):
            alias = VLLM_ALIASES.get(metric.name)
            if alias is None:
                continue
            renamed = Metric(alias, metric.documentation, metric.type)
            for sample in metric.samples:
                renamed.add_sample(
                    alias + sample.name.removeprefix(metric.name),
                    {"model_name": self.model, **sample.labels},
                    sample.value,
                )
            yield renamed


class GatewayMetrics:
    """Counters and histograms of one gateway process, in registries of its own."""

    def __init__(self, model: str) -> None:
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = registry = CollectorRegistry(auto_describe=False)
        self._aliases = CollectorRegistry(auto_describe=False)
        self._aliases.register(Aliases(registry, model))
        self._requests = Counter(
            "baton_requests", "Requests by how they ended", ["outcome"], registry=registry
        )
        for outcome in (
            RequestState.FINISHED,
            RequestState.CANCELLED,
            RequestState.REJECTED,
            RequestState.FAILED,
        ):
            self._requests.labels(outcome)
        self._choices = Counter(
            "baton_choices_finished", "Choices by reason", ["finished_reason"], registry=registry
        )
        self._prompt_tokens = Counter(
            "baton_prompt_tokens", "Prompt tokens of requests that began", registry=registry
        )
        self._generated_tokens = Counter(
            "baton_generated_tokens", "Tokens generated for clients", registry=registry
        )
        self._retries = Counter(
            "baton_attempts_lost", "Attempts given up for another", registry=registry
        )
        self._ignored = Counter(
            "baton_gateway_stale_messages", "Late or repeated messages ignored", registry=registry
        )
        self._ttft = _histogram("baton_ttft_seconds", "Receipt → first token", TTFT_BUCKETS_S, self)
        self._tpot = _histogram("baton_tpot_seconds", "Mean gap of tokens", TPOT_BUCKETS_S, self)
        self._e2e = _histogram("baton_e2e_seconds", "Receipt → end", E2E_BUCKETS_S, self)
        self._handoff = _histogram(
            "baton_handoff_seconds",
            "Last prefill chunk on P → first decode step on D",
            HANDOFF_BUCKETS_S,
            self,
        )
        self._transfer_bytes = Counter(
            "baton_kv_transfer_bytes", "KV bytes handed over", ["transport"], registry=registry
        )

    @property
    def registry(self) -> CollectorRegistry:
        return self._registry

    def watch(self, live: Live) -> None:
        """Show what is true now as well."""
        self._registry.register(LiveFigures(live))

    def request_ended(self, outcome: RequestState, record: RequestRecord) -> None:
        """From the one move of the life cycle that ends a request."""
        self._requests.labels(outcome).inc()
        if record.ttft_s is None or record.ended_s is None:
            return
        self._prompt_tokens.inc(record.prompt_tokens)
        self._generated_tokens.inc(record.completion_tokens)
        self._ttft.observe(record.ttft_s)
        if record.tpot_s is not None:
            self._tpot.observe(record.tpot_s)
        if outcome is RequestState.FINISHED:
            self._e2e.observe(record.ended_s - record.received_s)
        for reason in record.finish_reasons:
            self._choices.labels(reason).inc()

    def handed_over(self, report: HandoffReport) -> None:
        self._handoff.observe(report.handoff_ms / 1e3)
        self._transfer_bytes.labels(report.transport).inc(report.transfer_bytes)

    def attempt_lost(self) -> None:
        self._retries.inc()

    def ignored(self) -> None:
        self._ignored.inc()

    def expose(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self._registry) + generate_latest(self._aliases)


def _histogram(
    name: str, text: str, buckets_s: Sequence[float], metrics: GatewayMetrics
) -> Histogram:
    return Histogram(name, text, buckets=buckets_s, registry=metrics.registry)
