"""Any order, any repetition, any loss of workers: the same answer, and exactly one end."""

from hypothesis import given, settings, strategies as st

from core.request import FinishReason, SampledToken
from gateway.session_actions import Finished
from gateway.session_events import Begin, PeerUnreachable, SessionEvent, WorkerGone
from tests.gateway.session_world import D, P, World
from wire.messages import (
    HandoffReport,
    Message,
    Peer,
    PrefillReport,
    Progress,
    Stage,
    TokenItem,
    Tokens,
)

LENGTH = FinishReason.LENGTH
LOSSES: list[SessionEvent] = [
    WorkerGone(D.process, proven=False),
    PeerUnreachable(D.address),
]


def script(
    world: World, texts: list[str], first: int, sender_p: Peer | None
) -> list[tuple[Peer, Message]]:
    """All messages of an attempt that generates `texts` from position `first` on."""
    attempt = world.session.attempt
    prefiller = sender_p or D
    report = PrefillReport(attempt=attempt, queue_ms=1.0, prefill_ms=1.0, cached_tokens=1)
    said: list[tuple[Peer, Message]] = [(prefiller, report)]
    said += [(D, Progress(attempt, stage)) for stage in Stage]
    said.append(
        (D, HandoffReport(attempt=attempt, handoff_ms=1.0, transfer_bytes=1, transport="tcp"))
    )
    for choice, text in enumerate(texts):
        for position in range(first, len(text)):
            last = position == len(text) - 1
            sampled = SampledToken(choice, position, ord(text[position]), LENGTH if last else None)
            sender = prefiller if position == first else D
            said.append((sender, Tokens((TokenItem(attempt, sampled),))))
    return said


ANSWERS = st.lists(st.text(alphabet="abE\ue000", min_size=1, max_size=8), min_size=1, max_size=3)
STOPS = st.lists(st.sampled_from(["E", "ab", "aEb", "bb"]), max_size=2)


def expected(texts: list[str], stops: list[str]) -> list[str]:
    world = World(choices=len(texts), stop=tuple(stops)).begin()
    for sender, message in script(world, texts, 0, P):
        world.hear(sender, message)
    assert isinstance(world.end(), Finished)
    return [world.text(choice) for choice in range(len(texts))]


@given(texts=ANSWERS, stops=STOPS, data=st.data())
def test_any_order_and_repetition_gives_the_same_answer_and_one_end(
    texts: list[str], stops: list[str], data: st.DataObject
) -> None:
    world = World(choices=len(texts), stop=tuple(stops)).begin()
    said = script(world, texts, 0, P)
    repeated = data.draw(st.lists(st.sampled_from(said), max_size=10))
    for sender, message in data.draw(st.permutations(said + repeated)):
        world.hear(sender, message)
    assert isinstance(world.end(), Finished)
    assert [world.text(choice) for choice in range(len(texts))] == expected(texts, stops)
    for choice in range(len(texts)):
        assert world.finish(choice) is not None
    assert world.started() == 1


@settings(max_examples=60)
@given(text=st.text(alphabet="abE", min_size=1, max_size=10), stops=STOPS, data=st.data())
def test_any_losses_give_the_same_answer_and_one_end(
    text: str, stops: list[str], data: st.DataObject
) -> None:
    world = World(stop=tuple(stops), max_attempts=10)
    world.do(Begin())
    late: list[tuple[Peer, Message]] = []
    losses = data.draw(st.integers(0, 4))
    for loss in range(losses + 1):
        if world.session.ended:
            break
        prefill = data.draw(st.sampled_from([None, P]))
        world.assign(D, prefill)
        generated = world.submits()[-1][1].request.generated
        had = len(generated[0] or ()) if generated else 0
        said = script(world, [text], had, prefill)
        order = data.draw(st.permutations(said + late))
        heard = len(order) if loss == losses else data.draw(st.integers(0, len(order)))
        for sender, message in order[:heard]:
            world.hear(sender, message)
        late = said
        if not world.session.ended:
            world.do(data.draw(st.sampled_from(LOSSES)))
    assert isinstance(world.end(), Finished)
    assert world.text() == expected([text], stops)[0]
