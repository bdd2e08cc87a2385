from engine.engine_load import EngineLoad
from launch.worker_figures import WorkerFigures


def engine_load() -> EngineLoad:
    return EngineLoad(
        running=1,
        waiting=2,
        prefill_tokens_queued=3,
        decode_batch=4,
        decode_context_tokens=5,
        blocks_free=6,
        blocks_owned=7,
        blocks_receiving=8,
        blocks_quarantined=9,
        preemptions_total=10,
        steps_total=11,
        step_seconds_total=1.5,
        integrity_error="bad",
        idle_checks_total=12,
    )


def test_a_heartbeat_has_the_engines_figures_and_the_transfers() -> None:
    figures = WorkerFigures()
    figures.transfer_ended(100, failed=False)
    figures.transfer_ended(0, failed=True)
    figures.stale_messages_total += 1
    load = figures.load(engine_load(), transfers_open=3)
    assert (load.transfer_bytes_total, load.transfers_total) == (100, 2)
    assert (load.transfers_failed_total, load.stale_messages_total) == (1, 1)
    assert (load.blocks_quarantined, load.transfers_open) == (9, 3)
    assert load.integrity_error == "bad"
