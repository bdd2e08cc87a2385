import pytest

from core.cost_model import CostModel, DecodeCost, PrefillCost
from router.candidate import Candidate
from router.demand import Demand
from router.load_view import LoadView, Placement
from router.prediction import (
    ASSUMED_ANSWER_TOKENS,
    decode_step_s,
    decode_wait_s,
    prefill_s,
    prefill_wait_s,
    tpot_s,
    transfer_s,
)
from tests.router.world import COST, GATEWAY, LAYOUT, card, route
from wire.messages import MemberState, WorkerLoad

CARD = card("decode-0")


def worker(
    load: WorkerLoad | None = None, *, cost: CostModel = COST, max_batch: int = 64
) -> tuple[Candidate, LoadView]:
    view = LoadView(covered_after_s=0.25)
    view.add_worker(CARD)
    view.heartbeat(CARD.peer.process, load or WorkerLoad(blocks_free=100), 0.0)
    candidate = Candidate(
        card=card("decode-0", cost=cost),
        state=MemberState.ALIVE,
        figures=view.figures(CARD.peer.process),
        max_batch=max_batch,
        step_tokens=512,
    )
    return candidate, view


def hold(view: LoadView, requests: int, blocks: int, load: WorkerLoad) -> None:
    """So many requests decode there, and a heartbeat has told of them."""
    for number in range(requests):
        view.place(
            Placement(
                attempt=route(f"held-{number}").attempt,
                gateway=GATEWAY.process,
                decode=CARD.peer.process,
                prefill=None,
                prompt_tokens=100,
                choices=1,
                blocks=blocks,
                assigned_s=0.0,
                expires_s=1e6,
            )
        )
    view.heartbeat(CARD.peer.process, load, 10.0)


def demand(prompt: int = 100, max_tokens: int = 16, choices: int = 1) -> Demand:
    return Demand.of(route(prompt=prompt, max_tokens=max_tokens, choices=choices), CARD)


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "choices", "blocks"),
    [
        # (of the prompt, to begin, at the end); 16 tokens a block, the last token has no KV
        (15, 1, 1, (1, 1, 1)),
        (16, 1, 1, (1, 1, 1)),
        (16, 2, 1, (1, 2, 2)),
        (17, 16, 1, (2, 2, 2)),
        (17, 17, 1, (2, 2, 3)),
        (4_000, 10_000, 1, (250, 251, 256)),  # ends at the context of 4096
        (32, 17, 3, (2, 5, 5)),  # the prompt's full blocks are shared
        (40, 20, 3, (3, 5, 8)),  # its last one isn't
    ],
)
def test_demand_in_blocks(
    prompt: int, max_tokens: int, choices: int, blocks: tuple[int, int, int]
) -> None:
    need = demand(prompt, max_tokens, choices)
    assert (need.prompt_blocks, need.begin_blocks, need.end_blocks) == blocks
    assert need.transfer_bytes == blocks[0] * LAYOUT.block_bytes
    assert need.context_tokens == prompt * choices


def test_prefill_is_counted_in_chunks() -> None:
    free, _ = worker()
    assert prefill_s(free, 0) == 0.0
    assert prefill_s(free, 512) == pytest.approx(0.010 + 0.512)
    assert prefill_s(free, 513) == pytest.approx(0.020 + 0.513)


def test_prefill_shares_its_steps_with_the_decodes() -> None:
    busy, _ = worker(WorkerLoad(decode_batch=4, decode_context_tokens=1_000, blocks_free=50))
    step_s = 0.020 + 4 * 0.001 + 0.001
    assert decode_step_s(busy) == pytest.approx(step_s)
    assert prefill_s(busy, 513) == pytest.approx(2 * (0.010 + step_s) + 0.513)


def test_many_short_prompts_see_less_context_than_one_long() -> None:
    cost = CostModel(prefill=PrefillCost(base_s=0.0, per_token_s=0.0, per_token_context_s=1e-6))
    free, _ = worker(cost=cost)
    assert prefill_s(free, 1_000) == pytest.approx(cost.prefill.seconds(1_000))
    assert prefill_s(free, 1_000, prompts=10) == pytest.approx(10 * cost.prefill.seconds(100))


def test_the_queue_is_what_the_heartbeat_says_and_what_came_since() -> None:
    load = WorkerLoad(prefill_tokens_queued=100, waiting=1, blocks_free=100)
    queued, _ = worker(load)
    assert prefill_wait_s(queued) == pytest.approx(0.010 + 0.100)
    assert prefill_wait_s(worker()[0]) == 0.0


def test_transfer_moves_whole_blocks() -> None:
    seconds = transfer_s(worker()[0], demand(17))
    assert seconds == pytest.approx(0.001 + 2 * LAYOUT.block_bytes / 1e9)


def test_tpot_has_the_request_in_it() -> None:
    busy, _ = worker(WorkerLoad(decode_batch=4, decode_context_tokens=1_000, blocks_free=50))
    assert tpot_s(busy, demand(500, choices=2)) == pytest.approx(0.020 + 6 * 0.001 + 2_000e-6)


def test_room_means_no_wait() -> None:
    assert decode_wait_s(worker()[0], demand()) == 0.0
    hundred = demand(1_590)
    assert hundred.begin_blocks == 100
    assert decode_wait_s(worker()[0], hundred) == 0.0


def test_the_wait_for_blocks_is_until_enough_have_left() -> None:
    busy, view = worker()
    hold(view, 10, 10, WorkerLoad(running=10, decode_batch=10, blocks_free=0))
    need = demand(300)
    assert need.begin_blocks == 19
    # 19 of 100 blocks are 1.9 of 10 requests; one leaves every tenth of a mean stay.
    first_guess_s = ASSUMED_ANSWER_TOKENS * decode_step_s(busy)
    assert decode_wait_s(busy, need) == pytest.approx(0.19 * first_guess_s)
    busy.figures.mean_stay_s = 5.0
    assert decode_wait_s(busy, need) == pytest.approx(0.19 * 5.0)


def test_who_waits_already_is_before_us() -> None:
    few, view = worker()
    hold(view, 10, 10, WorkerLoad(running=10, decode_batch=10, blocks_free=0))
    many, more = worker()
    hold(more, 30, 10, WorkerLoad(running=10, waiting=20, decode_batch=10, blocks_free=0))
    few.figures.mean_stay_s = many.figures.mean_stay_s = 5.0
    assert decode_wait_s(many, demand()) > decode_wait_s(few, demand())


def test_the_wait_for_a_place_in_the_batch() -> None:
    busy, view = worker(max_batch=10)
    hold(view, 10, 1, WorkerLoad(running=10, decode_batch=10, blocks_free=90))
    busy.figures.mean_stay_s = 5.0
    assert decode_wait_s(busy, demand()) == pytest.approx(0.5)
    # More choices than places are let in when everybody else has left.
    assert decode_wait_s(busy, demand(choices=12)) == pytest.approx(5.0)
    assert decode_wait_s(worker(max_batch=10)[0], demand(choices=12)) == 0.0


def test_a_restarted_router_reckons_with_what_the_heartbeat_says() -> None:
    busy, _ = worker(WorkerLoad(running=10, decode_batch=10, blocks_free=0))
    step_s = decode_step_s(busy)
    assert decode_wait_s(busy, demand(300)) == pytest.approx(0.19 * ASSUMED_ANSWER_TOKENS * step_s)


def test_an_idle_worker_whose_blocks_are_in_quarantine_has_a_finite_wait() -> None:
    free = CostModel(decode=DecodeCost(base_s=0.0, per_sequence_s=0.0))
    idle, _ = worker(WorkerLoad(blocks_free=0, blocks_quarantined=100), cost=free)
    assert decode_wait_s(idle, demand()) == 0.0
    assert decode_wait_s(worker(WorkerLoad(blocks_free=0))[0], demand()) > 0.0
