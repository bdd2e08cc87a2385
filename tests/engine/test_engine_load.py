"""The figures of the heartbeat."""

import dataclasses

from engine import events as ev
from engine.engine_load import EngineLoad
from tests.engine.engine_cases import (
    make_harness,
    make_request,
)
from wire.messages import WorkerLoad


def test_load_counts_what_is_there() -> None:
    harness = make_harness(blocks=16, step_tokens=32)
    harness.post(ev.AddLocal(make_request("decoding", 10)))
    harness.step()
    harness.post(ev.Reserve(make_request("receiving", 20)))
    harness.post(ev.AddLocal(make_request("prefilling", 100)))
    harness.step()
    harness.post(ev.AddLocal(make_request("waiting", 90)))
    load = harness.scheduler.load()
    assert dataclasses.replace(load, step_seconds_total=0.0) == EngineLoad(
        running=3,
        waiting=1,
        prefill_tokens_queued=(100 - 31) + 90,
        decode_batch=1,
        decode_context_tokens=12,
        blocks_free=16 - 1 - 2 - 7,
        blocks_owned=8,
        blocks_receiving=2,
        blocks_quarantined=0,
        preemptions_total=0,
        steps_total=2,
        step_seconds_total=0.0,
    )
    assert load.step_seconds_total > 0.0
    assert WorkerLoad(**dataclasses.asdict(load), transfers_open=0).running == 3
