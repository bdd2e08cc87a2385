"""A session with its surroundings played by hand: no clock, no network, letters for tokens."""

from core.ids import Attempt, Incarnation, ProcessId, RequestId, WorkerName
from core.request import FinishReason, SampledToken
from core.request_lifecycle import RequestState
from core.sampling import SamplingParams
from core.slo import Slo
from gateway.choice_stream import Delta
from gateway.generation import Generation
from gateway.request_session import RequestSession
from gateway.session_actions import (
    Cancelled,
    Failed,
    Finished,
    Ignored,
    SessionAction,
    Started,
    ToRouter,
    ToWorker,
)
from gateway.session_events import Begin, Heard, SessionEvent, Tick
from wire.messages import (
    Assignment,
    Cancel,
    Message,
    Peer,
    Progress,
    Route,
    Settled,
    Stage,
    Submit,
    TokenItem,
    Tokens,
)


def peer(name: str, incarnation: int = 1) -> Peer:
    process = ProcessId(WorkerName(name), Incarnation(incarnation))
    return Peer(process, f"tcp://{name}.{incarnation}")


GATEWAY, ROUTER = peer("gateway-0"), peer("router")
P, D = peer("prefill-0"), peer("decode-0")
ENDS = (Finished, Failed, Cancelled)


class LetterDetokenizer:
    """Token = code point. A private-use token is half a character: shown with the next."""

    def __init__(self) -> None:
        self._half = ""

    def push(self, token: int) -> str:
        if token >= 0xE000:
            self._half += chr(token)
            return ""
        text, self._half = self._half + chr(token), ""
        return text


class World:
    """Feeds one session and remembers everything it did."""

    def __init__(
        self,
        *,
        choices: int = 1,
        max_tokens: int = 64,
        stop: tuple[str, ...] = (),
        min_tokens: int = 0,
        deadline_ms: float = 10_000.0,
        max_attempts: int = 4,
    ) -> None:
        self.now_s = 100.0
        self.done: list[SessionAction] = []
        generation = Generation(
            request=RequestId("req-1"),
            prompt=(1, 2, 3),
            sampling=SamplingParams(
                choices=choices, max_tokens=max_tokens, min_tokens=min_tokens, seed=7
            ),
            slo=Slo(deadline_ms=deadline_ms),
            stop=stop,
        )
        self.session = RequestSession(
            generation, GATEWAY, LetterDetokenizer, max_attempts, self.now_s
        )

    # ---- going in -------------------------------------------------------------------------------

    def do(self, event: SessionEvent) -> list[SessionAction]:
        done = self.session.handle(event, self.now_s)
        self.done += done
        return done

    def hear(self, sender: Peer, message: Message) -> list[SessionAction]:
        return self.do(Heard(sender.process, message))

    def assign(self, decode: Peer = D, prefill: Peer | None = P) -> list[SessionAction]:
        return self.hear(ROUTER, assignment(self.session.attempt, decode, prefill))

    def begin(self, decode: Peer = D, prefill: Peer | None = P) -> "World":
        self.do(Begin())
        self.assign(decode, prefill)
        return self

    def stage(self, stage: Stage, sender: Peer = D) -> list[SessionAction]:
        return self.hear(sender, Progress(self.session.attempt, stage))

    def token(
        self,
        sender: Peer,
        position: int,
        letter: str,
        finish: FinishReason | None = None,
        choice: int = 0,
    ) -> list[SessionAction]:
        sampled = SampledToken(choice, position, ord(letter), finish)
        return self.hear(sender, Tokens((TokenItem(self.session.attempt, sampled),)))

    def wait(self) -> list[SessionAction]:
        """Until the session wants to be woken."""
        self.now_s = self.session.wake_s
        return self.do(Tick())

    # ---- coming out -----------------------------------------------------------------------------

    def state(self) -> RequestState:
        return self.session.state

    def text(self, choice: int = 0) -> str:
        return "".join(a.text for a in self.done if isinstance(a, Delta) and a.choice == choice)

    def finish(self, choice: int = 0) -> FinishReason | None:
        ends = [
            a.finish for a in self.done if isinstance(a, Delta) and a.choice == choice and a.finish
        ]
        assert len(ends) <= 1, "a choice ended twice"
        return ends[0] if ends else None

    def end(self) -> SessionAction:
        ends = [action for action in self.done if isinstance(action, ENDS)]
        assert len(ends) == 1, f"exactly one end, not {ends}"
        assert self.session.ended
        return ends[0]

    def routes(self) -> list[Route]:
        sent = [a.message for a in self.done if isinstance(a, ToRouter)]
        return [message for message in sent if isinstance(message, Route)]

    def settled(self) -> list[Attempt]:
        sent = [a.message for a in self.done if isinstance(a, ToRouter)]
        return [message.attempt for message in sent if isinstance(message, Settled)]

    def submits(self) -> list[tuple[Peer, Submit]]:
        return [
            (a.peer, a.message)
            for a in self.done
            if isinstance(a, ToWorker) and isinstance(a.message, Submit)
        ]

    def cancels(self) -> list[tuple[Peer, Cancel]]:
        return [
            (a.peer, a.message)
            for a in self.done
            if isinstance(a, ToWorker) and isinstance(a.message, Cancel)
        ]

    def ignored(self) -> int:
        return sum(isinstance(action, Ignored) for action in self.done)

    def started(self) -> int:
        return sum(isinstance(action, Started) for action in self.done)


def assignment(attempt: Attempt, decode: Peer = D, prefill: Peer | None = P) -> Assignment:
    return Assignment(
        attempt=attempt,
        decode=decode,
        prefill=prefill,
        predicted_ttft_ms=1.0,
        predicted_tpot_ms=1.0,
    )
