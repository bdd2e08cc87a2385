"""Whether requests would be served now, and if not, why."""

from gateway.membership_view import MembershipView
from wire.messages import Role


class Readiness:
    """At first only a generation that went the whole way makes it ready; later it is ready while
    any decode worker takes work (alone, it serves locally)."""

    def __init__(self, membership: MembershipView) -> None:
        self._membership = membership
        self._warm = False
        self.phase = "starting"

    def warming(self, phase: str) -> None:
        """How far the start has come, in words for the operator."""
        self.phase = phase

    def warmed(self) -> None:
        self._warm = True

    def obstacle(self, now_s: float) -> str | None:
        """Why not; None: ready."""
        if not self._warm:
            return self.phase
        if not self._membership.is_fresh(now_s):
            return "the router is silent"
        if not self._membership.serving(Role.DECODE):
            return "no decode worker is alive"
        return None
