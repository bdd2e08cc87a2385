"""Which of the launcher's children hang: they run, yet nobody hears of them. Pure.

A worker is judged by the router's list of members, whenever one arrives: while no router speaks,
nobody knows who is silent. The router is judged by those lists, which it sends twice a second.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from core.config import Config
from core.ids import ProcessId
from launch.child_lifecycle import ChildState
from launch.supervision import ChildView, Found, Hung, Lost, StopGroup
from wire.messages import Members, MemberState, WorkerLost

TICK_S = 0.25
STALL_S = 1.0
"""Events further apart than this mean that the launcher itself was stopped."""
MIN_SILENCE_S = 3.0
"""A new router isn't held for silent, nor a worker it doesn't know yet for lost, before both had
time to see that their old connections broke and to make new ones."""

Verdict = Lost | Found | Hung


@dataclass(slots=True)
class _Standing:
    """Of one process. `lost_s`: since when it is missed, None while it isn't; `hung`: told."""

    heard_s: float
    lost_s: float | None = None
    hung: bool = False


class HangWatch:
    """Missed first (Lost), then either back (Found) or, after `launch.hung_grace_s`, Hung.

    Time in which the launcher itself didn't run is nobody's silence: what it knew before may be
    long untrue, so everybody's time begins anew.
    """

    def __init__(self, config: Config) -> None:
        self._worker_silence_s = config.router.dead_after_ms / 1e3
        self._silence_s = max(self._worker_silence_s, MIN_SILENCE_S)
        self._grace_s = config.launch.hung_grace_s
        self._router: ProcessId | None = None
        self._standings: dict[ProcessId, _Standing] = {}
        """Of whoever was ready and still runs."""
        self._last_s: float | None = None

    def watch(self, views: Sequence[ChildView], now_s: float) -> None:
        """Who is to be watched from now on. Gateways aren't: nothing tells of their life."""
        up = {
            view.process: view.group
            for view in views
            if view.process is not None
            and view.state in (ChildState.READY, ChildState.LOST)
            and view.group is not StopGroup.GATEWAY
        }
        self._standings = {who: self._standings.get(who) or _Standing(now_s) for who in up}
        router = next((who for who, group in up.items() if group is StopGroup.ROUTER), None)
        if router != self._router:
            self._router = router
            self._begin_anew(now_s)  # a new router has to get to know them first

    def tick(self, now_s: float) -> list[Verdict]:
        """Every TICK_S."""
        self._forgive_stall(now_s)
        standing = self._standings.get(self._router) if self._router else None
        if self._router is None or standing is None:
            return []
        silence_s = now_s - standing.heard_s
        if silence_s < self._silence_s:
            return []
        return self._missed(self._router, standing, f"no word from it for {silence_s:.0f} s", now_s)

    def members(self, router: ProcessId, members: Members, now_s: float) -> list[Verdict]:
        """What the router says of all workers; only the present router counts."""
        self._forgive_stall(now_s)
        if router != self._router or router not in self._standings:
            return []
        states = {view.card.peer.process: view.state for view in members.members}
        verdicts: list[Verdict] = []
        for who, standing in self._standings.items():
            state = MemberState.ALIVE if who == router else states.get(who)
            if state is None:
                if now_s - standing.heard_s >= self._silence_s:
                    why = "the router hears nothing from it"
                    verdicts += self._missed(who, standing, why, now_s)
            elif state is MemberState.DEAD:
                verdicts += self._silent(who, standing, now_s)
            else:
                verdicts += self._heard(who, standing, now_s)
        return verdicts

    def worker_lost(self, router: ProcessId, lost: WorkerLost, now_s: float) -> list[Verdict]:
        """The same of one worker, at once. A proven death is the launcher's own word."""
        self._forgive_stall(now_s)
        standing = self._standings.get(lost.process)
        if router != self._router or standing is None or lost.proven:
            return []
        return self._silent(lost.process, standing, now_s)

    # ---- one process ---------------------------------------------------------------------------

    def _heard(self, who: ProcessId, standing: _Standing, now_s: float) -> list[Verdict]:
        missed = standing.lost_s is not None
        standing.heard_s, standing.lost_s, standing.hung = now_s, None, False
        return [Found(who)] if missed else []

    def _silent(self, who: ProcessId, standing: _Standing, now_s: float) -> list[Verdict]:
        since_s = now_s if standing.lost_s is None else standing.lost_s
        silence_s = self._worker_silence_s + now_s - since_s
        return self._missed(who, standing, f"no heartbeat for {silence_s:.0f} s", now_s)

    def _missed(self, who: ProcessId, standing: _Standing, why: str, now_s: float) -> list[Verdict]:
        if standing.lost_s is None:
            standing.lost_s = now_s
            return [Lost(who, why)]
        patient = self._grace_s == 0 or now_s - standing.lost_s < self._grace_s
        if standing.hung or patient:
            return []
        standing.hung = True
        return [Hung(who, why)]

    # ---- time ----------------------------------------------------------------------------------

    def _forgive_stall(self, now_s: float) -> None:
        gap_s = 0.0 if self._last_s is None else now_s - self._last_s
        self._last_s = now_s
        if gap_s > STALL_S:
            self._begin_anew(now_s)

    def _begin_anew(self, now_s: float) -> None:
        for standing in self._standings.values():
            standing.heard_s = now_s
            if standing.lost_s is not None:
                standing.lost_s = now_s
