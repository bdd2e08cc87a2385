"""What Prometheus reads."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from core.request_lifecycle import RequestState
from gateway.metrics import VLLM_ALIASES, GatewayMetrics
from tests.gateway.conftest import Gateway
from tests.gateway.fake_deployment import D, P, view
from wire.messages import (
    Fault,
    MemberState,
    MemberView,
    Progress,
    RefusalKind,
    Role,
    Stage,
    WorkerLoad,
)


class NobodyThere:
    def states(self) -> list[RequestState]:
        return []

    def members(self) -> list[MemberView]:
        return []


CHAT = {"messages": [{"role": "user", "content": "hello there"}]}


def test_every_alias_has_a_source() -> None:
    own = GatewayMetrics("m")
    own.watch(NobodyThere())
    names = {family.name for family in own.registry.collect()}
    assert set(VLLM_ALIASES) <= names


async def scrape(gateway: Gateway) -> dict[tuple[str, tuple[str, ...]], float]:
    """Value by (sample name, label values in the order of the labels' names)."""
    async with gateway.http.get("/metrics") as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = await response.text()
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def ask(gateway: Gateway, **body: object) -> int:
    async with gateway.http.post("/v1/chat/completions", json={**CHAT, **body}) as response:
        await response.read()
        return response.status


async def test_every_request_ends_in_one_outcome(gateway: Gateway) -> None:
    deployment = gateway.deployment
    assert await ask(gateway) == 200
    deployment.fail_at = (0, Fault.US)
    assert await ask(gateway) == 500
    deployment.fail_at = None
    deployment.refusal = (RefusalKind.OVERLOADED, "full", 1.0)
    assert await ask(gateway) == 429
    samples = await scrape(gateway)
    outcomes = {
        labels[0]: value
        for (name, labels), value in samples.items()
        if name == "baton_requests_total"
    }
    assert outcomes == {"finished": 1, "failed": 1, "rejected": 1, "cancelled": 0}


async def test_tokens_times_and_transfers(gateway: Gateway) -> None:
    await ask(gateway)
    samples = await scrape(gateway)
    prompt = gateway.deployment.submits[0].request.prompt
    assert samples["baton_prompt_tokens_total", ()] == len(prompt)
    assert samples["baton_generated_tokens_total", ()] == 14
    assert samples["baton_kv_transfer_bytes_total", ("memory",)] == 4096
    assert samples["baton_handoff_seconds_sum", ()] == pytest.approx(0.003)
    for name in ("ttft", "tpot", "handoff"):
        assert samples[f"baton_{name}_seconds_count", ()] == 1
    assert samples["baton_choices_finished_total", ("stop",)] == 1
    assert not any(name.endswith("_created") for name, _ in samples)


async def test_what_runs_and_waits_is_read_from_the_life_cycles(gateway: Gateway) -> None:
    deployment = gateway.deployment
    deployment.hold_at = 2
    async with gateway.http.post("/v1/chat/completions", json={**CHAT, "stream": True}) as response:
        await response.content.readline()
        samples = await scrape(gateway)
        assert samples["baton_requests_running", ()] == 1
        assert samples["baton_requests_waiting", ()] == 0
        deployment.go_on.set()
        await response.read()
    samples = await scrape(gateway)
    assert samples["baton_requests_running", ()] == 0


async def test_workers_as_the_router_sees_them(gateway: Gateway) -> None:
    load = WorkerLoad(
        blocks_free=60, blocks_owned=30, blocks_receiving=9, blocks_quarantined=1, transfers_open=2,
        preemptions_total=5, integrity_error="two owners",
    )  # fmt: skip
    gateway.deployment.change_members(
        view(P, Role.PREFILL, MemberState.DEAD), view(D, Role.DECODE, load=load)
    )
    await gateway.dispatcher.membership.next_update()
    samples = await scrape(gateway)
    blocks = {
        labels: value for (name, labels), value in samples.items() if name == "baton_kv_blocks"
    }
    assert blocks == {
        ("free", "decode-0"): 60,
        ("owned", "decode-0"): 30,
        ("receiving", "decode-0"): 9,
        ("quarantined", "decode-0"): 1,
    }
    assert samples["baton_kv_transfers_open", ()] == 2
    assert samples["baton_worker_preemptions_total", ("decode-0",)] == 5
    assert samples["baton_integrity_ok", ("decode-0",)] == 0
    assert samples["baton_kv_usage_ratio", ()] == pytest.approx(0.4)


async def test_boards_made_for_vllm_find_their_names(gateway: Gateway) -> None:
    await ask(gateway)
    samples = await scrape(gateway)
    model = "org/fake-1b"
    assert samples["vllm:num_requests_running", (model,)] == 0
    assert samples["vllm:num_requests_waiting", (model,)] == 0
    assert samples["vllm:generation_tokens_total", (model,)] == 14
    assert samples["vllm:time_to_first_token_seconds_count", (model,)] == 1
    assert samples["vllm:time_to_first_token_seconds_bucket", ("+Inf", model)] == 1
    assert samples["vllm:request_success_total", ("stop", model)] == 1
    assert samples["vllm:kv_cache_usage_perc", (model,)] == pytest.approx(0.1)


async def test_lost_attempts_are_counted(gateway: Gateway) -> None:
    gateway.deployment.fail_at = (2, Fault.PEER)
    assert await ask(gateway) == 200
    assert (await scrape(gateway))["baton_attempts_lost_total", ()] == 1


async def test_late_messages_are_counted(gateway: Gateway) -> None:
    await ask(gateway)
    over = gateway.deployment.settled[0]
    gateway.deployment.say(D, Progress(over, Stage.DECODING))
    samples = await scrape(gateway)
    assert samples["baton_gateway_stale_messages_total", ()] == 1
