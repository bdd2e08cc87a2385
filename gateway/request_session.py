"""One request's life at the gateway. Pure: events and the time in, actions out.

The gateway holds the request, workers are disposable: when one is lost the session asks for
another assignment with the next epoch and sends the tokens already delivered along, so that the
answer goes on where it stopped. Exactly one of Finished, Failed and Cancelled comes out.
"""

from collections.abc import Callable

from core.errors import BatonError, BugError, DeadlineExceeded, NoWorker
from core.ids import Attempt, Epoch, ProcessId
from core.lifecycle import Lifecycle
from core.request import SampledToken
from core.request_lifecycle import REQUEST_TABLE, RequestAction, RequestEvent, RequestState
from gateway.attempt_state import AttemptState
from gateway.choice_stream import ChoiceStream, Delta, Detokenizer
from gateway.fault_errors import fault_error, refusal_error
from gateway.generation import Generation
from gateway.lost_attempts import LostAttempts
from gateway.request_record import RequestRecord
from gateway.router_question import RouterQuestion
from gateway.session_actions import (
    AttemptLost,
    Cancelled,
    Failed,
    Finished,
    Ignored,
    SessionAction,
    Started,
    ToRouter,
    Usage,
)
from gateway.session_events import (
    Begin,
    Broken,
    ClientGone,
    Heard,
    PeerUnreachable,
    RouterUnreachable,
    SessionEvent,
    Tick,
    WorkerGone,
)
from gateway.session_messages import ask_router, cancels, submit
from wire.messages import (
    Assignment,
    AttemptFailed,
    Fault,
    HandoffReport,
    Message,
    Peer,
    PrefillReport,
    Progress,
    Refusal,
    Settled,
    Stage,
    Tokens,
)

Actions = list[SessionAction]


class RequestSession:
    """Serves one `Generation`. `handle` is the only way in."""

    def __init__(
        self,
        generation: Generation,
        gateway: Peer,
        new_detokenizer: Callable[[], Detokenizer],
        max_attempts: int,
        now_s: float,
    ) -> None:
        sampling = generation.sampling
        self._generation = generation
        self._gateway = gateway
        self._life = Lifecycle(REQUEST_TABLE, str(generation.request))
        self._choices = [
            ChoiceStream(choice, new_detokenizer(), generation.stop, sampling.min_tokens)
            for choice in range(sampling.choices)
        ]
        self._current = AttemptState(Attempt(generation.request, Epoch(0)), self._choices)
        self._losses = LostAttempts(max_attempts)
        self._deadline_s = now_s + generation.slo.deadline_ms / 1e3
        self._question = RouterQuestion(now_s)
        self.record = RequestRecord(received_s=now_s, prompt_tokens=len(generation.prompt))

    @property
    def state(self) -> RequestState:
        return self._life.state

    @property
    def attempt(self) -> Attempt:
        """The current try."""
        return self._current.attempt

    @property
    def ended(self) -> bool:
        return self._life.ended

    @property
    def wake_s(self) -> float:
        """When a Tick is due at the latest."""
        times_s = (self._deadline_s, self._question.wake_s(), self._current.gap.wake_s())
        return min(time_s for time_s in times_s if time_s is not None)

    @property
    def story(self) -> str:
        """How it came to its state, for the log."""
        return "; ".join(str(step) for step in self._life.story)

    def handle(self, event: SessionEvent, now_s: float) -> Actions:
        """Take one event.

        Raises:
            IllegalTransition: a bug of ours; the caller ends the request with `Broken`.
        """
        if self._life.ended:
            return [Ignored("after the end")] if isinstance(event, Heard) else []
        match event:
            case Begin():
                return self._fire(RequestEvent.ROUTE, now_s, "received")
            case Heard(sender, message):
                return self._hear(sender, message, now_s)
            case WorkerGone(process, proven):
                return self._worker_gone(process, proven, now_s)
            case PeerUnreachable(address):
                return self._unreachable(address, now_s)
            case RouterUnreachable():
                return self._router_unreachable(now_s)
            case ClientGone():
                return self._fire(RequestEvent.ABORT, now_s, "client gone", Cancelled())
            case Broken(error):
                return self._give_up(error, now_s)
            case Tick():
                return self._tick(now_s)

    # ---- the table's actions --------------------------------------------------------------------

    def _fire(
        self, event: RequestEvent, now_s: float, why: str, answer: SessionAction | None = None
    ) -> Actions:
        """Make the move and carry out what the table says, in its order; `answer` tells the
        client of an end, and comes last: the workers and the router shall know first."""
        done: Actions = []
        for action in self._life.fire(event, now_s, why):
            match action:
                case RequestAction.ASK_ROUTER:
                    done += self._next_attempt(now_s)
                case RequestAction.SUBMIT:
                    done += submit(
                        self._generation,
                        self._current,
                        self._gateway,
                        self._choices,
                        self._left_ms(now_s),
                    )
                case RequestAction.CANCEL_WORKERS:
                    done += cancels(self._current, self._losses, why)
                case RequestAction.SETTLE:
                    done.append(ToRouter(Settled(self.attempt)))
                case RequestAction.ANSWER:
                    pass
        if self._life.ended:
            if answer is None:
                raise BugError(f"{self.attempt} ended by '{event}' without an answer")
            self.record.ended_s = now_s
            done.append(answer)
        return done

    def _fire_if_possible(self, event: RequestEvent, now_s: float) -> Actions:
        """Progress that doesn't lead on in the present state is late and changes nothing."""
        return self._fire(event, now_s, "") if self._life.can(event) else []

    def _next_attempt(self, now_s: float) -> Actions:
        over: Actions = [ToRouter(Settled(self.attempt))] if self.attempt.epoch else []
        for choice in self._choices:
            choice.forget_early()
        self._current = AttemptState(self.attempt.next(), self._choices)
        pause_s = self._losses.pause_s()
        if pause_s:
            self._question.postpone(now_s + pause_s)
            return over
        return [*over, *self._ask(now_s)]

    def _ask(self, now_s: float) -> Actions:
        """Ask the router about the current attempt."""
        self._question.asked(now_s)
        return [self._route(now_s)]

    def _route(self, now_s: float) -> ToRouter:
        return ask_router(
            self._generation,
            self.attempt,
            self._gateway,
            self._choices,
            self._left_ms(now_s),
            self._losses.avoid,
        )

    # ---- messages -------------------------------------------------------------------------------

    def _hear(self, sender: ProcessId, message: Message, now_s: float) -> Actions:
        if isinstance(message, Tokens):
            ours = self._current.is_served_by(sender)
            if not ours:
                return [Ignored("a former worker's tokens")]
            return self._tokens(sender, message, now_s)
        if message.attempt != self.attempt:
            return [Ignored(f"stale {type(message).__name__}")]
        match message:
            case Assignment() | Refusal():
                return self._router_says(message, now_s)
            case AttemptFailed() if self._current.is_served_by(sender):
                return self._attempt_failed(sender, message, now_s)
            case Progress(_, stage) if self._current.is_served_by(sender):
                return self._progress(stage, now_s)
            case HandoffReport() if self._current.is_served_by(sender):
                self.record.transfer_bytes = message.transfer_bytes
                return []
            case PrefillReport() if self._current.is_served_by(sender):
                return self._prefill_report(message)
        return [Ignored(f"stray {type(message).__name__}")]

    def _awaits_assignment(self) -> bool:
        return self.state is RequestState.ROUTED and not self._current.assigned

    def _router_says(self, message: Assignment | Refusal, now_s: float) -> Actions:
        if not self._awaits_assignment():
            return [Ignored("second answer of the router")]
        if isinstance(message, Refusal):
            return self._refused(message, now_s)
        self._question.answered()
        self._current.assign(message)
        self.record.assigned(message, now_s)
        why = f"{self.record.prefill} → {self.record.decode}"
        return self._fire(RequestEvent.ASSIGNED, now_s, why)

    def _refused(self, refusal: Refusal, now_s: float) -> Actions:
        if self._question.waits_after(refusal, now_s):
            return []
        error = refusal_error(refusal)
        return self._fire(RequestEvent.REFUSED, now_s, refusal.reason, Failed(error))

    def _router_unreachable(self, now_s: float) -> Actions:
        if not self._awaits_assignment():
            return []
        self._question.repeated(now_s)
        return [self._route(now_s)] if self._question.is_open else []

    def _progress(self, stage: Stage, now_s: float) -> Actions:
        before = (self.state, self._current.decoding)
        done: Actions = []
        if stage is Stage.DECODING:
            self._current.decoding = True
            self._current.gap.heard(now_s)
            done += self._fire_if_possible(RequestEvent.DECODE_STARTED, now_s)
        else:
            done += self._fire_if_possible(RequestEvent.RESERVED, now_s)
            if stage is Stage.PREFILLING:
                done += self._fire_if_possible(RequestEvent.PREFILL_STARTED, now_s)
        changed = (self.state, self._current.decoding) != before
        return done if changed else [Ignored("late progress")]

    def _prefill_report(self, report: PrefillReport) -> Actions:
        if self.record.queue_ms is not None:
            return [Ignored("second prefill report")]  # the figures are of the first token
        self.record.prefilled(report)
        return []

    # ---- tokens ---------------------------------------------------------------------------------

    def _tokens(self, sender: ProcessId, message: Tokens, now_s: float) -> Actions:
        done: Actions = []
        if any(item.attempt == self.attempt for item in message.items):
            self._current.tokens_from(sender)
        for item in message.items:
            if self._life.ended:
                done.append(Ignored("after the end"))
            elif item.attempt != self.attempt:
                done.append(Ignored("stale token"))
            else:
                done += self._token(item.sampled, now_s)
        self._current.gap.heard(now_s)
        return done

    def _token(self, sampled: SampledToken, now_s: float) -> Actions:
        limits = self._generation.sampling
        if not (0 <= sampled.choice < limits.choices and 0 <= sampled.position < limits.max_tokens):
            return [Ignored("token out of place")]
        choice = self._choices[sampled.choice]
        if not choice.is_new(sampled.position):
            expected = self._current.is_first(sampled)
            return [] if expected else [Ignored("repeated token")]
        delta = choice.accept(sampled)
        return [] if delta is None else self._delivered(delta, now_s)

    def _delivered(self, delta: Delta, now_s: float) -> Actions:
        done = self._fire_if_possible(RequestEvent.FIRST_TOKEN, now_s)
        if self._current.decoding:
            done += self._fire_if_possible(RequestEvent.DECODE_STARTED, now_s)
        if self.record.first_token_s is None:
            done.append(Started())
        self.record.delivered(self._choices, now_s)
        if delta.text or delta.tokens or delta.finish is not None:
            done.append(delta)
        if all(choice.ended for choice in self._choices):
            done += self._completed(now_s)
        return done

    def _completed(self, now_s: float) -> Actions:
        # Workers know of their own ends; only a stop string leaves them generating.
        by_text = any(choice.stopped_by_text for choice in self._choices)
        stops = cancels(self._current, self._losses, "stop") if by_text else []
        record = self.record
        usage = Usage(record.prompt_tokens, record.completion_tokens, record.cached_tokens)
        why = "every choice has ended"
        return [*stops, *self._fire(RequestEvent.COMPLETED, now_s, why, Finished(usage))]

    # ---- losses ---------------------------------------------------------------------------------

    def _worker_gone(self, process: ProcessId, proven: bool, now_s: float) -> Actions:
        if proven:
            self._losses.process_ended(process, now_s)
        for peer in self._current.needed_peers():
            if peer.process == process:
                return self._lost(f"{process.name} is lost", peer, Fault.PEER, now_s)
        if self._losses.poisonous and not self._current.delivered:
            return self._give_up_poison(now_s)  # the proof of an earlier attempt's second death
        return []

    def _unreachable(self, address: str, now_s: float) -> Actions:
        for peer in self._current.needed_peers():
            if peer.address == address:
                why = f"{peer.process.name} doesn't answer"
                return self._lost(why, peer, Fault.PEER, now_s)
        return []

    def _attempt_failed(self, sender: ProcessId, failed: AttemptFailed, now_s: float) -> Actions:
        current = self._current
        if current.is_prefill_worker(sender) and not current.needs_prefill_worker():
            return [Ignored("late failure of the prefill worker")]
        if failed.fault is Fault.CALLER:
            return self._give_up(fault_error(failed.fault, failed.reason), now_s)
        why = f"{sender.name}: {failed.reason}"
        if failed.fault is Fault.US:
            return self._give_up(fault_error(failed.fault, why), now_s)
        blamed = current.blamed(sender, failed.fault)
        return self._lost(why, blamed, failed.fault, now_s)

    def _lost(self, why: str, blamed: Peer | None, fault: Fault, now_s: float) -> Actions:
        self._losses.add(self._current, blamed, now_s)
        if self._losses.poisonous:
            return self._give_up_poison(now_s)
        if not self._losses.exhausted:
            self._question.be_patient(now_s)
            lost = AttemptLost(self.attempt, why)
            return [lost, *self._fire(RequestEvent.ATTEMPT_LOST, now_s, why)]
        count = self._losses.fruitless
        story = f"{why}; given up after {count} attempts in a row without a new token"
        return self._give_up(fault_error(fault, story), now_s)

    def _give_up_poison(self, now_s: float) -> Actions:
        why = f"workers died on two attempts ({self._losses.dead}), so it isn't tried again"
        return self._give_up(fault_error(Fault.PEER, why), now_s)

    def _give_up(self, error: BatonError, now_s: float) -> Actions:
        return self._fire(RequestEvent.GIVE_UP, now_s, error.message, Failed(error))

    # ---- time -----------------------------------------------------------------------------------

    def _left_ms(self, now_s: float) -> float:
        return max(0.0, (self._deadline_s - now_s) * 1e3)

    def _tick(self, now_s: float) -> Actions:
        if now_s >= self._deadline_s:
            limit_ms = self._generation.slo.deadline_ms
            late = DeadlineExceeded(f"not finished within the deadline of {limit_ms:g} ms")
            return self._fire(RequestEvent.TIMEOUT, now_s, "deadline", Failed(late))
        if self._question.is_silent(now_s):
            return self._give_up(NoWorker("the router doesn't answer"), now_s)
        stall = self._current.gap.stall(now_s)
        if stall is not None:
            blamed = self._current.owes(stall.position)
            return self._lost(stall.why, blamed, Fault.PEER, now_s)
        return self._ask(now_s) if self._question.is_due(now_s) else []
