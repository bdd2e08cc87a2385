"""The edge of the sessions: who is told what, and that one request's bug is only its own."""

import asyncio

import pytest

from core.errors import BugError, CapacityError, ClientError
from core.ids import Attempt, Epoch, RequestId
from core.sampling import SamplingParams
from core.slo import Slo
from gateway.generation import Generation
from gateway.session_actions import Cancelled, Failed, Finished, Output
from tests.gateway.conftest import Gateway
from tests.gateway.fake_deployment import ROUTER, ROUTER_ADDRESS, D, P, make_peer, view
from wire.messages import Progress, Reregister, Role, Stage


def generation(name: str = "r", deadline_ms: float = 60_000.0) -> Generation:
    return Generation(
        request=RequestId(name),
        prompt=tuple(range(20)),
        sampling=SamplingParams(),
        slo=Slo(deadline_ms=deadline_ms),
    )


class Client:
    """Collects outputs; `end` waits for the last of them."""

    def __init__(self) -> None:
        self.outputs: list[Output] = []
        self._news = asyncio.Event()

    def __call__(self, output: Output) -> None:
        self.outputs.append(output)
        self._news.set()

    async def end(self) -> Output:
        async with asyncio.timeout(10):
            while not self.outputs or not isinstance(
                self.outputs[-1], Finished | Failed | Cancelled
            ):
                self._news.clear()
                await self._news.wait()
        return self.outputs[-1]


async def failure(client: Client) -> Exception:
    end = await client.end()
    assert isinstance(end, Failed)
    return end.error


async def test_a_session_from_open_to_end(gateway: Gateway) -> None:
    client = Client()
    gateway.dispatcher.open(generation(), client)
    assert len(list(gateway.dispatcher.states())) == 1
    assert isinstance(await client.end(), Finished)
    assert list(gateway.dispatcher.states()) == []
    gateway.dispatcher.abandon(RequestId("r"))
    assert isinstance(client.outputs[-1], Finished), "it is over: leaving changes nothing"


async def test_a_name_is_open_once(gateway: Gateway) -> None:
    gateway.deployment.hold_at = 0
    gateway.dispatcher.open(generation(), Client())
    with pytest.raises(BugError, match="open already"):
        gateway.dispatcher.open(generation(), Client())


async def test_the_deadline_is_kept_by_the_clock(gateway: Gateway) -> None:
    gateway.deployment.hold_at = 0
    client = Client()
    gateway.dispatcher.open(generation(deadline_ms=60.0), client)
    assert type(await failure(client)).__name__ == "DeadlineExceeded"


async def test_a_bug_of_one_session_ends_only_that(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.deployment.hold_at = 0
    broken, sound = Client(), Client()
    session = gateway.dispatcher.open(generation("broken"), broken)
    gateway.dispatcher.open(generation("sound"), sound)
    real = session.handle

    def faulty(event: object, now_s: float) -> object:
        if type(event).__name__ == "Heard":
            raise KeyError("oh")
        return real(event, now_s)  # type: ignore[arg-type]

    monkeypatch.setattr(session, "handle", faulty)
    assert "KeyError" in str(await failure(broken))
    assert RequestId("broken") in {attempt.request for attempt in gateway.deployment.settled}
    gateway.deployment.go_on.set()
    assert isinstance(await sound.end(), Finished)


async def test_a_broken_connection_to_a_worker_or_the_router(gateway: Gateway) -> None:
    deployment = gateway.deployment
    deployment.silent_router = True
    client = Client()
    gateway.dispatcher.open(generation(), client)
    deployment.silent_router, deployment.hold_at = False, 3
    deployment.lose_connection(ROUTER_ADDRESS)
    await deployment.until(lambda: len(deployment.submits) == 1)
    assert deployment.routes[0].attempt == deployment.routes[1].attempt
    deployment.lose_connection(D.address)
    await deployment.until(lambda: len(deployment.submits) == 2)
    deployment.go_on.set()
    assert isinstance(await client.end(), Finished)


async def test_a_replaced_worker_is_a_lost_one(gateway: Gateway) -> None:
    deployment = gateway.deployment
    deployment.hold_at = 3
    client = Client()
    gateway.dispatcher.open(generation(), client)
    await deployment.until(lambda: deployment.submits)
    again = make_peer("decode-0", incarnation=2)
    deployment.place(decode=again, prefill=P)
    deployment.change_members(view(P, Role.PREFILL), view(again, Role.DECODE))
    await deployment.until(lambda: len(deployment.routes) == 2)
    assert deployment.routes[1].avoid == (D.process,)
    assert D.address not in {address for address, _ in deployment.cancels}


async def test_messages_for_nobody_are_no_harm(gateway: Gateway) -> None:
    gateway.deployment.say(ROUTER, Reregister())
    over = Attempt(RequestId("over"), Epoch(1))
    gateway.deployment.say(D, Progress(over, Stage.DECODING))
    client = Client()
    gateway.dispatcher.open(generation(), client)
    assert isinstance(await client.end(), Finished)


async def test_closing_ends_everything_and_takes_no_more(gateway: Gateway) -> None:
    gateway.deployment.hold_at = 0
    client = Client()
    gateway.dispatcher.open(generation(), client)
    gateway.dispatcher.close()
    error = await failure(client)
    assert isinstance(error, CapacityError)
    assert not isinstance(error, ClientError)
    with pytest.raises(CapacityError):
        gateway.dispatcher.open(generation("late"), Client())
