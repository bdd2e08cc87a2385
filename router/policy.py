"""Who serves a request: the pair of workers with the least predicted time to first token.

For a prefill worker P and a decode worker D

    TTFT(P, D) = max(D's wait for blocks, P's queue) + prefill on P + transfer

since P's queue moves on while D waits. For a prompt prefilled on D itself the transfer falls away
and both waits are D's. Equal predictions go to the lesser predicted TPOT, then to the local way,
then by name. The search is exact but not over all pairs: given P, only D's wait matters, and the
least is best.

A prompt is prefilled on D if it is short (`router.local_prefill_tokens`), if D is a prefill worker
as well, if no prefill worker can take it, or if it was asked for. Workers that the request was
lost on before are chosen only when nobody else is there, suspects for decoding only after those.
A decode worker whose blocks outside of quarantine wouldn't do is no choice while that lasts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from core.config import RouterConfig
from router.admission import (
    Declined,
    fits_decode,
    fits_prefill,
    holds_now,
    no_worker,
    overloaded,
    quarantined,
    too_long,
)
from router.candidate import Candidate
from router.demand import Demand
from router.prediction import (
    decode_wait_s,
    prefill_s,
    prefill_wait_s,
    tpot_s,
    transfer_s,
)
from wire.messages import MemberState, Route, RoutePath


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A pair (or, with `prefill` None, D alone) and what is predicted for it."""

    decode: Candidate
    prefill: Candidate | None
    ttft_s: float
    tpot_s: float
    wait_s: float
    """Of ttft_s, what others' work takes; an idle deployment has none."""

    def rank(self) -> tuple[float, float, bool, str, str]:
        prefill = "" if self.prefill is None else self.prefill.process.name
        return (
            self.ttft_s,
            self.tpot_s,
            self.prefill is not None,
            self.decode.process.name,
            prefill,
        )


class Policy(Protocol):
    """Pure: the same arguments give the same answer."""

    def choose(
        self, route: Route, prefill: Sequence[Candidate], decode: Sequence[Candidate]
    ) -> Choice | Declined:
        """Pick from the candidates whose pools match, in order of name: workers that are alive or
        suspect."""
        ...


class LeastTtft:
    """The policy described at the top of this module."""

    def __init__(self, config: RouterConfig) -> None:
        self._config = config

    def choose(
        self, route: Route, prefill: Sequence[Candidate], decode: Sequence[Candidate]
    ) -> Choice | Declined:
        if not decode:
            return no_worker("no decode worker is alive", self._config)
        demand = Demand.of(route, decode[0].card)
        fitting = [d for d in decode if fits_decode(demand, d)]
        if not fitting:
            return too_long(route, demand, decode)
        holding = [d for d in fitting if holds_now(demand, d)]
        if not holding:
            return quarantined(demand, fitting, self._config)
        decoders = _preferred(holding, route)
        remote = None
        if route.path is not RoutePath.LOCAL:
            remote = _best_remote(demand, _prefillers(prefill, route, demand), decoders)
        if remote is None and route.path is RoutePath.REMOTE:
            return no_worker("no prefill worker is alive that could serve it", self._config)
        best = remote
        if route.path is not RoutePath.REMOTE:
            local = _best_local(demand, self._may_prefill(route, decoders, remote is not None))
            if best is None or (local is not None and local.rank() < best.rank()):
                best = local
        if best is None:
            return no_worker("no worker is alive that could serve it", self._config)
        return overloaded(best.ttft_s, best.wait_s, route, self._config) or best

    def _may_prefill(
        self, route: Route, decoders: Sequence[Candidate], remote: bool
    ) -> Sequence[Candidate]:
        """Decode workers that may prefill this prompt themselves."""
        short = route.prompt_tokens <= self._config.local_prefill_tokens
        if short or not remote or route.path is RoutePath.LOCAL:
            return decoders
        return [d for d in decoders if d.prefills]


def _preferred(fitting: Sequence[Candidate], route: Route) -> Sequence[Candidate]:
    """The best group that isn't empty: alive; alive but avoided; suspect."""
    alive = [d for d in fitting if d.state is MemberState.ALIVE]
    fresh = [d for d in alive if d.process not in route.avoid] if route.avoid else alive
    return fresh or alive or fitting


def _prefillers(prefill: Sequence[Candidate], route: Route, demand: Demand) -> Sequence[Candidate]:
    """Alive and not avoided. Only where a prefill worker was asked for may it be an avoided one:
    else the decode worker can do it."""
    alive = [p for p in prefill if p.state is MemberState.ALIVE and fits_prefill(demand, p)]
    if not route.avoid:
        return alive
    fresh = [p for p in alive if p.process not in route.avoid]
    return fresh or (alive if route.path is RoutePath.REMOTE else [])


def _best_local(demand: Demand, decoders: Sequence[Candidate]) -> Choice | None:
    best: tuple[float, float, Candidate] | None = None
    for d in decoders:
        wait_s = max(decode_wait_s(d, demand), prefill_wait_s(d))
        ttft_s = wait_s + prefill_s(d, demand.prompt_tokens)
        # Of equals the lesser TPOT, then the first by name, which is the order they come in.
        if best is None or (ttft_s, tpot_s(d, demand)) < (best[0], tpot_s(best[2], demand)):
            best = (ttft_s, wait_s, d)
    if best is None:
        return None
    ttft_s, wait_s, d = best
    return Choice(decode=d, prefill=None, ttft_s=ttft_s, tpot_s=tpot_s(d, demand), wait_s=wait_s)


def _best_remote(
    demand: Demand, prefillers: Sequence[Candidate], decoders: Sequence[Candidate]
) -> Choice | None:
    if not prefillers:
        return None
    ready = _by_wait(demand, decoders)
    best: tuple[float, float, Candidate] | None = None
    for p in prefillers:
        wait_s = next(
            (wait_s for wait_s, d in ready.get(p.card.transport, ()) if not _same(p, d)), None
        )
        if wait_s is None:
            continue
        queue_s = max(wait_s, prefill_wait_s(p))
        ttft_s = queue_s + prefill_s(p, demand.prompt_tokens) + transfer_s(p, demand)
        # Equals go to the first by name, as the candidates come in that order.
        if best is None or ttft_s < best[0]:
            best = (ttft_s, queue_s, p)
    if best is None:
        return None
    ttft_s, queue_s, p = best
    # To the client all partners that are ready before P is are equal.
    partners = [
        (tpot_s(d, demand), d.process.name, d)
        for wait_s, d in ready[p.card.transport]
        if wait_s <= queue_s and not _same(p, d)
    ]
    tpot, _, d = min(partners, key=lambda entry: entry[:2])
    return Choice(decode=d, prefill=p, ttft_s=ttft_s, tpot_s=tpot, wait_s=queue_s)


def _by_wait(
    demand: Demand, decoders: Sequence[Candidate]
) -> dict[str, list[tuple[float, Candidate]]]:
    """Per transport, as a pair needs one in common, the decode workers with their waits, least
    first: for any P the first that isn't P itself is its best partner."""
    ready: dict[str, list[tuple[float, Candidate]]] = {}
    for d in decoders:
        ready.setdefault(d.card.transport, []).append((decode_wait_s(d, demand), d))
    for waits in ready.values():
        waits.sort(key=lambda entry: entry[0])
    return ready


def _same(p: Candidate, d: Candidate) -> bool:
    """A worker of both roles: a hand-over to itself would be local prefill."""
    return p.process.name == d.process.name
