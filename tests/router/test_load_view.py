import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from core.errors import IndexCorrupt
from core.ids import Attempt, Epoch, ProcessId, RequestId
from router.load_view import LoadView, Placement
from tests.router.world import GATEWAY, card, process
from wire.messages import WorkerLoad

P, D = process("prefill-0"), process("decode-0")


def attempt(request: str, epoch: int = 1) -> Attempt:
    return Attempt(RequestId(request), Epoch(epoch))


def placement(
    request: str,
    *,
    decode: ProcessId = D,
    prefill: ProcessId | None = P,
    prompt: int = 100,
    choices: int = 1,
    at_s: float = 0.0,
    gateway: ProcessId = GATEWAY.process,
) -> Placement:
    return Placement(
        attempt=attempt(request),
        gateway=gateway,
        decode=decode,
        prefill=prefill,
        prompt_tokens=prompt,
        choices=choices,
        blocks=8 * choices,
        assigned_s=at_s,
        expires_s=at_s + 60.0,
    )


@pytest.fixture
def view() -> LoadView:
    view = LoadView(covered_after_s=0.25)
    view.add_worker(card("prefill-0"))
    view.add_worker(card("decode-0"))
    return view


def test_an_assignment_counts_at_once_on_both(view: LoadView) -> None:
    view.place(placement("a", choices=2))
    assert view.figures(P).queued_prefill_tokens == 100
    assert view.figures(P).sequences == 0
    decode = view.figures(D)
    assert decode.queued_prefill_tokens == 0
    assert (decode.sequences, decode.context_tokens, decode.blocks_free) == (2, 200, 84)
    view.check_integrity()


def test_local_prefill_queues_on_the_decode_worker(view: LoadView) -> None:
    view.place(placement("a", prefill=None))
    assert view.figures(D).queued_prefill_tokens == 100
    assert view.figures(P).queued_prefill_tokens == 0


def test_a_heartbeat_takes_over_what_it_surely_contains(view: LoadView) -> None:
    view.place(placement("old", prompt=100, at_s=0.0))
    view.place(placement("new", prompt=7, at_s=0.2))
    view.heartbeat(P, WorkerLoad(prefill_tokens_queued=60), 0.25)
    assert view.figures(P).queued_prefill_tokens == 60 + 7
    view.heartbeat(P, WorkerLoad(prefill_tokens_queued=5), 0.5)
    assert view.figures(P).queued_prefill_tokens == 5
    view.check_integrity()


def test_a_decode_worker_keeps_what_no_heartbeat_shows_yet(view: LoadView) -> None:
    """Its KV is still on its way, so the worker's batch is empty; it will decode there all the
    same."""
    view.place(placement("a"))
    view.heartbeat(D, WorkerLoad(blocks_free=100), 10.0)
    decode = view.figures(D)
    assert (decode.sequences, decode.context_tokens, decode.blocks_free) == (1, 100, 92)


def test_a_decode_worker_may_know_more_than_this_router(view: LoadView) -> None:
    view.place(placement("a"))
    load = WorkerLoad(decode_batch=9, decode_context_tokens=900, blocks_free=20)
    view.heartbeat(D, load, 10.0)
    decode = view.figures(D)
    assert (decode.sequences, decode.context_tokens, decode.blocks_free) == (9, 900, 20)


def test_quarantined_blocks_are_nobodys_to_promise(view: LoadView) -> None:
    view.place(placement("a"))
    view.heartbeat(D, WorkerLoad(blocks_free=70, blocks_quarantined=30), 10.0)
    assert (view.figures(D).blocks_usable, view.figures(D).blocks_free) == (70, 62)
    view.heartbeat(D, WorkerLoad(blocks_free=92), 10.5)
    assert (view.figures(D).blocks_usable, view.figures(D).blocks_free) == (100, 92)


def test_settled_is_forgotten_and_teaches_how_long_requests_stay(view: LoadView) -> None:
    view.place(placement("a", at_s=1.0))
    assert view.settle(attempt("a"), 3.0)
    assert view.figures(D).sequences == 0
    assert view.figures(P).queued_prefill_tokens == 0
    assert view.figures(D).mean_stay_s == pytest.approx(2.0)
    view.place(placement("b", at_s=3.0))
    view.settle(attempt("b"), 15.0)
    assert view.figures(D).mean_stay_s == pytest.approx(3.0)
    assert not view.settle(attempt("b"), 15.0)
    assert len(view) == 0


def test_another_epoch_settles_nothing(view: LoadView) -> None:
    view.place(placement("a"))
    assert not view.settle(attempt("a", 2), 1.0)
    assert view.figures(D).sequences == 1


def test_a_lost_decode_worker_takes_its_requests_along(view: LoadView) -> None:
    view.place(placement("a"))
    view.remove_worker(D)
    view.check_integrity()
    assert view.figures(P).queued_prefill_tokens == 0
    assert len(view) == 0


def test_a_lost_prefill_worker_leaves_them_where_they_decode(view: LoadView) -> None:
    view.place(placement("a"))
    view.remove_worker(P)
    view.check_integrity()
    assert view.figures(D).sequences == 1
    view.add_worker(card("prefill-0"))
    assert view.figures(P).queued_prefill_tokens == 0
    assert view.settle(attempt("a"), 1.0)
    view.check_integrity()


def test_a_lost_gateway_takes_only_its_own(view: LoadView) -> None:
    view.place(placement("a"))
    view.place(placement("b", gateway=process("gateway-2")))
    view.forget_gateway(GATEWAY.process)
    assert view.placement(RequestId("a")) is None
    assert view.figures(D).sequences == 1


def test_what_nobody_settles_ends_with_its_deadline(view: LoadView) -> None:
    view.place(placement("a"))
    assert view.expire(59.0) == 0
    assert view.expire(60.0) == 1
    assert view.figures(D).sequences == 0


def test_integrity_check_finds_a_false_sum(view: LoadView) -> None:
    view.place(placement("a"))
    view.figures(D).held.sequences += 1
    with pytest.raises(IndexCorrupt, match="decode-0@1"):
        view.check_integrity()


class LoadViewMachine(RuleBasedStateMachine):
    """Any order of events keeps the sums right, and nothing is left when all is settled."""

    requests: Bundle[str] = Bundle("requests")

    @initialize()
    def begin(self) -> None:
        self.view = LoadView(covered_after_s=0.25)
        self.now_s = 0.0
        self.names = 0
        self.here: set[str] = set()
        for name in ("prefill-0", "prefill-1", "decode-0", "decode-1"):
            self.come(name)

    @rule(name=st.sampled_from(["prefill-0", "prefill-1", "decode-0", "decode-1"]))
    def come(self, name: str) -> None:
        self.view.add_worker(card(name))
        self.here.add(name)

    @rule(name=st.sampled_from(["prefill-0", "prefill-1", "decode-0", "decode-1"]))
    def go(self, name: str) -> None:
        self.view.remove_worker(process(name))
        self.here.discard(name)

    @precondition(lambda self: any(name.startswith("decode") for name in self.here))
    @rule(
        target=requests,
        data=st.data(),
        prompt=st.integers(1, 500),
        choices=st.integers(1, 3),
    )
    def place(self, data: st.DataObject, prompt: int, choices: int) -> str:
        decode = data.draw(st.sampled_from(sorted(n for n in self.here if n.startswith("d"))))
        others = sorted(n for n in self.here if n.startswith("p"))
        prefill = data.draw(st.none() | st.sampled_from(others)) if others else None
        self.names += 1
        self.view.place(
            placement(
                f"r{self.names}",
                decode=process(decode),
                prefill=None if prefill is None else process(prefill),
                prompt=prompt,
                choices=choices,
                at_s=self.now_s,
            )
        )
        return f"r{self.names}"

    @rule(request=consumes(requests))
    def settle(self, request: str) -> None:
        self.view.settle(attempt(request), self.now_s)

    @rule(name=st.sampled_from(["prefill-0", "decode-1"]), free=st.integers(0, 100))
    def beat(self, name: str, free: int) -> None:
        self.view.heartbeat(process(name), WorkerLoad(blocks_free=free), self.now_s)

    @rule(seconds=st.sampled_from([0.1, 1.0, 30.0]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.view.expire(self.now_s)

    @invariant()
    def sound(self) -> None:
        self.view.check_integrity()

    def teardown(self) -> None:
        self.view.expire(self.now_s + 1e6)
        self.view.check_integrity()
        assert len(self.view) == 0


TestLoadViewMachine = LoadViewMachine.TestCase
TestLoadViewMachine.settings = settings(max_examples=40, stateful_step_count=40)
