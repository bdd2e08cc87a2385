"""What the router owes a request an answer to, since when, and when to ask again."""

from wire.messages import Refusal, RefusalKind

RESUME_PATIENCE_S = 30.0
"""A request that lost its worker waits this long for another before it is refused: a worker's
restart takes seconds, and the client has waited or read already. A first attempt that is too
much for now is refused at once."""
RESTART_PATIENCE_S = 12.0
"""Any request waits so long for a worker where there is none: a lost one is being restarted."""
ROUTER_PATIENCE_S = 5.0
"""The same while the router may have been restarted and not yet know its workers."""
ROUTER_SILENCE_S = 15.0
"""A question that is answered by nothing for this long is given up."""
ASK_AGAIN_MIN_S, ASK_AGAIN_MAX_S = 0.05, 1.0
"""Pause between two questions after a refusal, whatever the router says."""


class RouterQuestion:
    """The times of one question after the other; it is open until `answered`."""

    def __init__(self, now_s: float) -> None:
        self._open_since_s: float | None = None
        self._ask_again_s: float | None = None
        self._patient_until_s = now_s
        self._begun_s = now_s

    def asked(self, now_s: float) -> None:
        self._open_since_s, self._ask_again_s = now_s, None

    @property
    def is_open(self) -> bool:
        """The router owes an answer."""
        return self._open_since_s is not None

    def postpone(self, until_s: float) -> None:
        """To be asked then, and not before."""
        self._open_since_s, self._ask_again_s = None, until_s

    def repeated(self, now_s: float) -> None:
        """Asked anew because the connection broke: the router's silence goes on counting, but
        its next answer may come from one that hasn't heard from its workers yet."""
        self._patient_until_s = max(self._patient_until_s, now_s + ROUTER_PATIENCE_S)

    def answered(self) -> None:
        self._open_since_s = self._ask_again_s = None

    def be_patient(self, now_s: float) -> None:
        """The request has lost its worker."""
        self._patient_until_s = now_s + RESUME_PATIENCE_S

    def waits_after(self, refusal: Refusal, now_s: float) -> bool:
        """Whether this refusal isn't final; then `is_due` says when to ask again."""
        wait_s = min(max(refusal.retry_after_s, ASK_AGAIN_MIN_S), ASK_AGAIN_MAX_S)
        self.answered()
        patient_until_s = self._patient_until_s
        if refusal.kind is RefusalKind.NO_WORKER:
            patient_until_s = max(patient_until_s, self._begun_s + RESTART_PATIENCE_S)
        if refusal.kind is RefusalKind.TOO_LONG or now_s + wait_s >= patient_until_s:
            return False
        self._ask_again_s = now_s + wait_s
        return True

    def is_due(self, now_s: float) -> bool:
        return self._ask_again_s is not None and now_s >= self._ask_again_s

    def is_silent(self, now_s: float) -> bool:
        since_s = self._open_since_s
        return since_s is not None and now_s >= since_s + ROUTER_SILENCE_S

    def wake_s(self) -> float | None:
        """When `is_due` or `is_silent` will be true; None: neither."""
        if self._ask_again_s is not None:
            return self._ask_again_s
        return None if self._open_since_s is None else self._open_since_s + ROUTER_SILENCE_S
