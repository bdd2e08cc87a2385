"""Both roles with their real schedulers over a network that reorders, delays, cancels and kills."""

import pytest
from hypothesis import given, settings, strategies as st

from core.ids import Attempt
from tests.decode_node.two_workers import D, P, TwoWorkers, request
from wire.messages import Cancel, Fault


@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 100])
@pytest.mark.parametrize("local", [False, True])
def test_a_request_is_answered_whole(tokens: int, local: bool) -> None:
    world = TwoWorkers()
    asked = request(1, tokens)
    world.submit(asked, local=local)
    world.run()
    assert world.complete(asked.attempt)
    assert world.transfers_ended == (0 if local else 2)
    world.at_rest()


def test_choices_share_one_prefill() -> None:
    world = TwoWorkers()
    asked = request(1, 40, choices=3)
    world.submit(asked)
    world.run()
    assert world.complete(asked.attempt)
    world.at_rest()


def test_one_token_moves_no_more_kv_than_it_must() -> None:
    world = TwoWorkers()
    asked = request(1, 20, max_tokens=1)
    world.submit(asked)
    world.run()
    assert world.complete(asked.attempt)
    assert world.failed == []
    world.at_rest()


def test_a_request_beyond_the_pool_is_reported_not_hung() -> None:
    world = TwoWorkers(blocks=4)
    asked = request(1, 500)
    world.submit(asked)
    world.run()
    assert [failed.fault for failed in world.failed] == [Fault.CAPACITY]
    world.at_rest()


def test_cancel_overtaking_submit_and_prefill_wins() -> None:
    world = TwoWorkers()
    asked = request(1, 20)
    for worker in (P, D):
        world.send_from_gateway(worker, Cancel(asked.attempt, "gone"))
    world.run()
    world.submit(asked)
    world.run()
    assert world.tokens == {}
    world.at_rest()


def test_a_dead_prefill_worker_fails_the_attempt_and_frees_everything() -> None:
    world = TwoWorkers()
    asked = request(1, 100)
    world.submit(asked)
    world.run_until_writes_wait()
    world.kill_p(proven=True)
    world.run()
    assert [failed.attempt for failed in world.failed] == [asked.attempt]
    assert world.failed[0].fault is Fault.PEER
    world.at_rest()


def test_an_unproven_loss_keeps_the_blocks_in_quarantine() -> None:
    world = TwoWorkers()
    asked = request(1, 100)
    world.submit(asked)
    world.run_until_writes_wait()
    world.kill_p(proven=False)
    world.run()
    assert len(world.failed) == 1
    assert world.d.scheduler.load().blocks_quarantined > 0
    world.kill_p(proven=True)
    world.run()
    world.at_rest()


def test_a_prefill_lost_on_its_way_is_asked_about_until_it_is_released() -> None:
    world = TwoWorkers()
    asked = request(1, 40)
    world.submit(asked)
    while not world.wires.get((D.address, P.address)):
        world.move(*world.moves()[0])
    world.break_wire()
    world.run()
    assert [failed.attempt for failed in world.failed] == [asked.attempt]
    world.at_rest()


def test_flipped_bytes_are_recomputed_never_answered() -> None:
    world = TwoWorkers()
    asked = request(1, 40)
    world.submit(asked)
    for _ in range(500):
        moves = world.moves()
        if not moves:
            break
        kind, what = moves[0]
        world.move(kind, what)
        if kind == "land_write":
            block = next(b for b, held in world.d.memory.items() if held is not None)
            world.d.memory[block] = (asked.attempt, 99)
            break
    world.run()
    assert world.complete(asked.attempt)
    world.at_rest()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_interleaving_ends_each_request_once(data: st.DataObject) -> None:
    world = TwoWorkers(blocks=data.draw(st.integers(12, 24)))
    asked = [
        request(
            number,
            data.draw(st.sampled_from([1, 15, 16, 17, 33, 70])),
            max_tokens=data.draw(st.sampled_from([1, 2, 5, 20])),
            choices=data.draw(st.sampled_from([1, 1, 2])),
        )
        for number in range(data.draw(st.integers(1, 4)))
    ]
    cancelled: set[Attempt] = set()
    for one in asked:
        world.submit(one, local=data.draw(st.booleans()))
    for _ in range(data.draw(st.integers(0, 120))):
        moves = world.moves()
        if not moves:
            break
        world.move(*data.draw(st.sampled_from(moves)))
        event = data.draw(st.integers(0, 60))
        if event == 0:
            one = data.draw(st.sampled_from(asked))
            cancelled.add(one.attempt)
            for worker in (P, D):
                world.send_from_gateway(worker, Cancel(one.attempt, "test"))
        elif event == 1 and world.p_alive:
            world.kill_p(proven=True)
        elif event == 2:
            world.tick(0.5)
        elif event == 3:
            world.break_wire()
    world.run()
    for _ in range(3):  # what was lost with a connection is asked for again
        world.tick(4.5)
        world.run()
    lost = {failed.attempt for failed in world.failed}
    assert len(lost) == len(world.failed), "an attempt failed twice"
    for one in asked:
        if one.attempt not in cancelled and one.attempt not in lost and world.p_alive:
            assert world.complete(one.attempt)
    world.at_rest()
