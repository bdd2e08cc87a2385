from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given, strategies as st

from core.config import RouterConfig
from core.cost_model import CostModel, DecodeCost, PrefillCost, TransferCost
from router.admission import Declined
from router.candidate import Candidate
from router.demand import Demand
from router.load_view import LoadView
from router.policy import Choice, LeastTtft
from router.prediction import decode_wait_s, prefill_s, prefill_wait_s, tpot_s, transfer_s
from tests.router.world import COST, card, config, process, route
from wire.messages import MemberState, RefusalKind, Route, RoutePath, WorkerLoad

CONFIG = config(local_prefill_tokens=32, max_queue_ms=30_000).router


def candidate(
    name: str,
    load: WorkerLoad | None = None,
    *,
    state: MemberState = MemberState.ALIVE,
    cost: CostModel = COST,
    transport: str = "nixl",
    blocks: int = 100,
    pool: str | None = None,
) -> Candidate:
    described = card(name, cost=cost, transport=transport, blocks=blocks, pool=pool)
    view = LoadView(covered_after_s=0.0)
    view.add_worker(described)
    if load is not None:
        view.heartbeat(described.peer.process, load, 0.0)
    return Candidate(
        card=described,
        state=state,
        figures=view.figures(described.peer.process),
        max_batch=64,
        step_tokens=512,
    )


def queue(tokens: int, free: int = 100) -> WorkerLoad:
    return WorkerLoad(prefill_tokens_queued=tokens, waiting=1 if tokens else 0, blocks_free=free)


def batch(sequences: int, free: int = 50) -> WorkerLoad:
    return WorkerLoad(running=sequences, decode_batch=sequences, blocks_free=free)


def choose(
    wanted: Route,
    prefill: Sequence[Candidate],
    decode: Sequence[Candidate],
    router: RouterConfig = CONFIG,
) -> tuple[str, str | None]:
    """Names of D and P ("local" is None); the refusal's kind and reason where there is one."""
    made = LeastTtft(router).choose(wanted, prefill, decode)
    if isinstance(made, Declined):
        return made.kind, made.reason
    return names(made)


def names(made: Choice) -> tuple[str, str | None]:
    return made.decode.process.name, None if made.prefill is None else made.prefill.process.name


P0, P1 = candidate("prefill-0"), candidate("prefill-1")
D0, D1 = candidate("decode-0"), candidate("decode-1")


def test_a_long_prompt_goes_through_a_pair() -> None:
    assert choose(route(prompt=200), [P0], [D0]) == ("decode-0", "prefill-0")


def test_the_shorter_queue_is_taken() -> None:
    assert choose(route(), [candidate("prefill-0", queue(50)), P1], [D0])[1] == "prefill-1"


def test_the_faster_worker_may_have_the_longer_queue() -> None:
    fast = CostModel(prefill=PrefillCost(base_s=0.001, per_token_s=0.0001))
    quick = candidate("prefill-1", queue(500), cost=fast)
    assert choose(route(prompt=1_000), [candidate("prefill-0", queue(100)), quick], [D0])[1] == (
        "prefill-1"
    )


def test_the_transfer_counts() -> None:
    far = CostModel(prefill=COST.prefill, transfer=TransferCost(latency_s=5.0))
    assert choose(route(), [candidate("prefill-0", cost=far), P1], [D0])[1] == "prefill-1"


def test_equals_go_to_the_first_by_name() -> None:
    assert choose(route(), [P0, P1], [D0, D1]) == ("decode-0", "prefill-0")
    assert choose(route(prompt=10), [], [D0, D1]) == ("decode-0", None)


def test_of_decode_workers_that_are_ready_in_time_the_less_loaded_is_taken() -> None:
    assert choose(route(), [P0], [candidate("decode-0", batch(5)), D1])[0] == "decode-1"


def test_a_decode_worker_that_is_ready_before_the_prefill_worker_costs_nothing() -> None:
    """decode-0 has no free blocks yet, but will long before P has come to the prompt; and decodes
    faster."""
    fast = CostModel(decode=DecodeCost(base_s=0.001, per_sequence_s=0.0))
    soon = candidate("decode-0", batch(10, free=0), cost=fast)
    busy = candidate("prefill-0", queue(20_000))
    assert 0.0 < decode_wait_s(soon, Demand.of(route(), soon.card)) < prefill_wait_s(busy)
    assert choose(route(), [busy], [soon, D1])[0] == "decode-0"
    assert choose(route(), [P0], [soon, D1])[0] == "decode-1"


def test_a_short_prompt_is_prefilled_where_it_is_quicker() -> None:
    short, long = route(prompt=32), route(prompt=33)
    assert choose(short, [P0], [D0]) == ("decode-0", None)
    assert choose(long, [P0], [D0]) == ("decode-0", "prefill-0")
    busy = candidate("decode-0", queue(400))
    assert choose(short, [P0], [busy]) == ("decode-0", "prefill-0")


def test_paths_are_respected() -> None:
    assert choose(route(prompt=5, path=RoutePath.REMOTE), [P0], [D0]) == ("decode-0", "prefill-0")
    assert choose(route(prompt=900, path=RoutePath.LOCAL), [P0], [D0]) == ("decode-0", None)
    kind, reason = choose(route(path=RoutePath.REMOTE), [], [D0])
    assert kind == RefusalKind.NO_WORKER
    assert "no prefill worker" in str(reason)


def test_without_prefill_workers_everything_is_local() -> None:
    assert choose(route(prompt=1_000), [], [D0]) == ("decode-0", None)
    suspect = candidate("prefill-0", state=MemberState.SUSPECT)
    assert choose(route(prompt=1_000), [suspect], [D0]) == ("decode-0", None)


def test_without_decode_workers_nothing_is() -> None:
    assert choose(route(), [P0], [])[0] == RefusalKind.NO_WORKER


def test_pairs_need_a_transport_in_common() -> None:
    tcp = candidate("prefill-1", transport="tcp")
    loaded = candidate("prefill-0", queue(5_000))
    assert choose(route(), [loaded, tcp], [D0]) == ("decode-0", "prefill-0")
    assert choose(route(), [tcp], [D0]) == ("decode-0", None)
    tcp_decode = candidate("decode-1", batch(9), transport="tcp")
    assert choose(route(), [loaded, tcp], [D0, tcp_decode]) == ("decode-1", "prefill-1")


def test_nobody_hands_over_to_itself() -> None:
    one, two = candidate("both-0", pool="both"), candidate("both-1", pool="both")
    assert choose(route(prompt=500), [one], [one]) == ("both-0", None)
    assert choose(route(path=RoutePath.REMOTE), [one, two], [one, two]) == ("both-1", "both-0")
    assert choose(route(path=RoutePath.REMOTE), [one], [one])[0] == RefusalKind.NO_WORKER


def test_a_worker_of_both_roles_prefills_long_prompts_itself() -> None:
    both = candidate("both-0", pool="both")
    assert choose(route(prompt=500), [P0], [both]) == ("both-0", None)
    loaded = candidate("both-0", queue(5_000), pool="both")
    assert choose(route(prompt=500), [P0], [loaded]) == ("both-0", "prefill-0")


def test_workers_it_was_lost_on_are_avoided() -> None:
    assert choose(route(avoid=(process("decode-0"),)), [P0], [D0, D1])[0] == "decode-1"
    assert choose(route(avoid=(process("prefill-0"),)), [P0, P1], [D0])[1] == "prefill-1"
    # The only prefill worker is avoided, and the decode worker can do without.
    assert choose(route(avoid=(process("prefill-0"),)), [P0], [D0]) == ("decode-0", None)


def test_avoided_workers_are_better_than_none() -> None:
    both = (process("decode-0"), process("prefill-0"))
    assert choose(route(avoid=both), [P0], [D0]) == ("decode-0", None)
    remote = route(avoid=both, path=RoutePath.REMOTE)
    assert choose(remote, [P0], [D0]) == ("decode-0", "prefill-0")
    # The next life of the same worker isn't avoided.
    reborn = route(avoid=(process("decode-0", 2),))
    assert choose(reborn, [P0], [D0, D1])[0] == "decode-0"


def test_a_suspect_decodes_only_where_nobody_else_could() -> None:
    suspect = candidate("decode-0", state=MemberState.SUSPECT)
    assert choose(route(), [P0], [suspect, candidate("decode-1", batch(40))])[0] == "decode-1"
    assert choose(route(avoid=(process("decode-1"),)), [P0], [suspect, D1])[0] == "decode-1"
    assert choose(route(), [P0], [suspect])[0] == "decode-0"


def test_a_worker_that_could_never_hold_it_is_no_choice() -> None:
    small = candidate("decode-0", blocks=10)
    assert choose(route(prompt=200), [P0], [small, candidate("decode-1", batch(40))])[0] == (
        "decode-1"
    )
    tight = candidate("prefill-0", blocks=10)
    assert choose(route(prompt=200), [tight], [D0]) == ("decode-0", None)


def test_a_worker_whose_quarantine_leaves_too_little_is_no_choice() -> None:
    """200 + 16 tokens need 14 blocks."""
    kept = candidate("decode-0", WorkerLoad(blocks_free=13, blocks_quarantined=87))
    assert choose(route(), [P0], [kept, candidate("decode-1", batch(40))])[0] == "decode-1"
    suspect = candidate("decode-1", state=MemberState.SUSPECT)
    assert choose(route(), [P0], [kept, suspect])[0] == "decode-1"
    enough = candidate("decode-0", WorkerLoad(blocks_free=14, blocks_quarantined=86))
    assert choose(route(), [P0], [enough])[0] == "decode-0"
    # What it can't hold at once it doesn't prefill either.
    both = candidate("both-0", WorkerLoad(blocks_free=12, blocks_quarantined=88), pool="both")
    assert choose(route(), [both], [D0]) == ("decode-0", None)


def test_a_quarantine_that_leaves_too_little_everywhere_is_an_overload() -> None:
    kept = candidate("decode-0", WorkerLoad(blocks_free=13, blocks_quarantined=87))
    small = candidate("decode-1", blocks=10)
    made = LeastTtft(CONFIG).choose(route(), [P0], [kept, small])
    assert isinstance(made, Declined)
    assert made.kind is RefusalKind.OVERLOADED
    assert made.retry_after_s == CONFIG.dead_after_ms / 1e3
    assert "needs 14 KV blocks, and no worker has more than 13" in made.reason
    assert choose(route(max_tokens=2_000), [P0], [kept])[0] == RefusalKind.TOO_LONG


def test_too_long_says_what_would_fit() -> None:
    kind, reason = choose(route(prompt=1_000, max_tokens=602), [P0], [D0])
    assert kind == RefusalKind.TOO_LONG
    assert "at most 1601 tokens of prompt and answer fit" in str(reason)
    assert choose(route(prompt=1_000, max_tokens=601), [P0], [D0])[0] == "decode-0"


def test_a_prompt_beyond_the_context_is_too_long() -> None:
    kind, reason = choose(route(prompt=4_096), [P0], [candidate("decode-0", blocks=1_000)])
    assert kind == RefusalKind.TOO_LONG
    assert "at most 4095 fit" in str(reason)


def test_a_prompt_beyond_all_blocks_is_too_long() -> None:
    kind, reason = choose(route(prompt=2_000, max_tokens=1), [P0], [D0])
    assert kind == RefusalKind.TOO_LONG
    assert "at most 1600 tokens fit as a prompt" in str(reason)
    assert choose(route(prompt=1_600, max_tokens=1), [P0], [D0])[0] == "decode-0"


def test_many_choices_are_counted() -> None:
    wanted = route(prompt=800, max_tokens=400, choices=4)
    kind, reason = choose(wanted, [P0], [D0])
    assert kind == RefusalKind.TOO_LONG
    assert "at most 993 tokens of prompt and answer fit in each of 4 choices" in str(reason)
    assert choose(route(prompt=800, max_tokens=193, choices=4), [P0], [D0])[0] == "decode-0"


def test_overload_is_said_with_an_honest_delay() -> None:
    busy = candidate("prefill-0", queue(40_000))
    made = LeastTtft(CONFIG).choose(route(prompt=200), [busy], [D0])
    assert isinstance(made, Declined)
    assert made.kind is RefusalKind.OVERLOADED
    # Come back then, and the queue is just short enough (give or take a begun chunk).
    drained = int(40_000 - made.retry_after_s * 40_000 / prefill_wait_s(busy))
    assert choose(route(prompt=200), [candidate("prefill-0", queue(drained - 20))], [D0])[0] == (
        "decode-0"
    )
    sooner = candidate("prefill-0", queue(drained + 600))
    assert choose(route(prompt=200), [sooner], [D0])[0] == RefusalKind.OVERLOADED


def test_what_its_own_deadline_makes_hopeless_is_refused_at_once() -> None:
    busy = candidate("prefill-0", queue(20_000))
    patient, hurried = route(prompt=200), route(prompt=200, deadline_ms=5_000.0)
    assert choose(patient, [busy], [D0])[0] == "decode-0"
    made = LeastTtft(CONFIG).choose(hurried, [busy], [D0])
    assert isinstance(made, Declined)
    assert "the limit is 5 s" in made.reason


def test_a_request_that_is_slow_by_itself_is_taken_when_nothing_is_before_it() -> None:
    slow = CostModel(prefill=PrefillCost(per_token_s=1.0))
    assert choose(route(prompt=100), [candidate("prefill-0", cost=slow)], [D0])[0] == "decode-0"
    made = LeastTtft(CONFIG).choose(
        route(prompt=100), [candidate("prefill-0", queue(5), cost=slow)], [D0]
    )
    assert isinstance(made, Declined)
    assert made.retry_after_s == pytest.approx(5.0, abs=0.1)


loads = st.builds(
    WorkerLoad,
    running=st.integers(0, 80),
    waiting=st.integers(0, 5),
    prefill_tokens_queued=st.sampled_from([0, 100, 5_000, 60_000]),
    decode_batch=st.integers(0, 80),
    decode_context_tokens=st.integers(0, 10_000),
    blocks_free=st.integers(0, 100),
    blocks_quarantined=st.sampled_from([0, 0, 20, 90]),
)
costs = st.sampled_from([COST, CostModel(), CostModel(prefill=PrefillCost(per_token_s=0.0001))])
transports = st.sampled_from(["nixl", "nixl", "tcp"])
states = st.sampled_from([MemberState.ALIVE, MemberState.ALIVE, MemberState.SUSPECT])


def workers(prefix: str, least: int) -> st.SearchStrategy[list[Candidate]]:
    one = st.tuples(loads, states, costs, transports, st.integers(1, 150))
    return st.lists(one, min_size=least, max_size=4).map(
        lambda rows: [
            candidate(f"{prefix}-{i}", load, state=state, cost=cost, transport=via, blocks=blocks)
            for i, (load, state, cost, via, blocks) in enumerate(rows)
        ]
    )


@given(
    prefill=workers("prefill", 0),
    decode=workers("decode", 1),
    both=workers("both", 0),
    prompt=st.integers(1, 2_000),
    choices=st.integers(1, 3),
    path=st.sampled_from(RoutePath),
    avoid=st.lists(st.sampled_from(["prefill-0", "decode-0", "decode-1", "both-0"]), max_size=3),
)
def test_the_search_finds_what_trying_all_pairs_finds(
    prefill: list[Candidate],
    decode: list[Candidate],
    both: list[Candidate],
    prompt: int,
    choices: int,
    path: RoutePath,
    avoid: list[str],
) -> None:
    wanted = route(
        prompt=prompt,
        choices=choices,
        path=path,
        avoid=tuple(process(name) for name in avoid),
        deadline_ms=1e12,
    )
    can_prefill = sorted([*prefill, *both], key=lambda c: c.process.name)
    can_decode = sorted([*decode, *both], key=lambda c: c.process.name)
    unlimited = CONFIG.model_copy(update={"max_queue_ms": 1e12})
    made = LeastTtft(unlimited).choose(wanted, can_prefill, can_decode)
    expected = by_trying_all(wanted, can_prefill, can_decode)
    if expected is None:
        assert isinstance(made, Declined)
    else:
        assert isinstance(made, Choice)
        assert made.ttft_s == expected[0]
        assert names(made) == expected[1]


def by_trying_all(
    wanted: Route, prefill: list[Candidate], decode: list[Candidate]
) -> tuple[float, tuple[str, str | None]] | None:
    """The rules again, one by one and over all pairs: (TTFT in s, names of D and P)."""
    demand = Demand.of(wanted, decode[0].card)
    decode = [d for d in decode if demand.end_blocks <= usable_blocks(d)]
    prefill = [p for p in prefill if demand.prompt_blocks <= usable_blocks(p)]
    alive = [d for d in decode if d.state is MemberState.ALIVE]
    decode = [d for d in alive if d.process not in wanted.avoid] or alive or decode
    prefill = [p for p in prefill if p.state is MemberState.ALIVE]
    last_resort = prefill if wanted.path is RoutePath.REMOTE else []
    prefill = [p for p in prefill if p.process not in wanted.avoid] or last_resort
    pairs = [] if wanted.path is RoutePath.LOCAL else list(product(prefill, decode))
    # Equals: prefill workers by name, their partners by TPOT and name.
    remote = min(
        (
            (remote_ttft_s(p, d, demand), p.process.name, tpot_s(d, demand), d.process.name)
            for p, d in pairs
            if p.process != d.process and p.card.transport == d.card.transport
        ),
        default=None,
    )
    alone = min(
        (
            (local_ttft_s(d, demand), tpot_s(d, demand), d.process.name)
            for d in decode
            if wanted.path is not RoutePath.REMOTE
            and (wanted.prompt_tokens <= 32 or remote is None or d.prefills)
        ),
        default=None,
    )
    if alone is not None and (remote is None or alone[:2] <= (remote[0], remote[2])):
        return alone[0], (alone[2], None)
    return None if remote is None else (remote[0], (remote[3], remote[1]))


def usable_blocks(worker: Candidate) -> int:
    return worker.card.blocks_total - worker.figures.load.blocks_quarantined


def remote_ttft_s(p: Candidate, d: Candidate, demand: Demand) -> float:
    queue_s = max(decode_wait_s(d, demand), prefill_wait_s(p))
    return queue_s + prefill_s(p, demand.prompt_tokens) + transfer_s(p, demand)


def local_ttft_s(d: Candidate, demand: Demand) -> float:
    queue_s = max(decode_wait_s(d, demand), prefill_wait_s(d))
    return queue_s + prefill_s(d, demand.prompt_tokens)
