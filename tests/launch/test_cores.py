import pytest
from hypothesis import given, strategies as st

from core.config import PoolConfig, PoolRole
from core.errors import ConfigError
from launch.cores import CorePlan, deal_cores, format_cores, worker_names

P, D, B = PoolRole.PREFILL, PoolRole.DECODE, PoolRole.BOTH


def pool(role: PoolRole, replicas: int = 1, cores: tuple[int, ...] | None = None) -> PoolConfig:
    return PoolConfig(name=role.value, role=role, replicas=replicas, cores=cores)


def test_two_cores_are_one_each() -> None:
    plan = deal_cores([0, 1], [pool(P), pool(D)])
    assert plan == CorePlan((0,), (0,), {"prefill-0": (0,), "decode-0": (1,)})


def test_one_core_serves_everything() -> None:
    plan = deal_cores([5], [pool(P, 2), pool(D, 2)])
    assert {plan.router, plan.gateway, *plan.workers.values()} == {(5,)}


def test_decode_has_a_core_each_and_prefill_the_rest() -> None:
    plan = deal_cores(range(8), [pool(P, 2), pool(D, 3)])
    assert plan.workers == {
        "prefill-0": (0, 1, 2),
        "prefill-1": (3, 4),
        "decode-0": (5,),
        "decode-1": (6,),
        "decode-2": (7,),
    }
    assert plan.gateway == plan.router == (0, 1, 2, 3, 4)


def test_more_decode_workers_than_cores_share() -> None:
    plan = deal_cores([0, 1], [pool(P), pool(D, 3)])
    assert plan.workers["prefill-0"] == (0,)
    assert [plan.workers[f"decode-{i}"] for i in range(3)] == [(1,)] * 3


def test_without_prefill_workers_one_core_is_kept_for_the_services() -> None:
    plan = deal_cores(range(4), [pool(P, 0), pool(B)])
    assert plan.workers == {"both-0": (1, 2, 3)}
    assert plan.gateway == plan.router == (0,)


def test_named_cores_are_the_pools_own() -> None:
    plan = deal_cores(range(4), [pool(P), pool(D, 2, cores=(3, 0))])
    assert plan.workers == {"decode-0": (0,), "decode-1": (3,), "prefill-0": (1, 2)}
    assert plan.gateway == (1, 2)


def test_a_core_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match=r"pools\[1\]\.cores: core 9 isn't .* use 0-1,4"):
        deal_cores([4, 0, 1], [pool(P), pool(D, 1, cores=(1, 9))])
    with pytest.raises(ConfigError, match="no core is named"):
        deal_cores([0], [pool(D, 1, cores=())])


CORES = st.lists(st.integers(0, 200), min_size=1, max_size=24, unique=True)


@given(CORES, st.integers(0, 6), st.integers(1, 6), st.integers(0, 2))
def test_prefill_and_decode_are_apart(
    available: list[int], prefill: int, decode: int, both: int
) -> None:
    pools = [pool(P, prefill), pool(D, decode), pool(B, both)]
    plan = deal_cores(available, pools)
    assert set(plan.workers) == {name for one in pools for name in worker_names(one)}
    for cores in (plan.router, plan.gateway, *plan.workers.values()):
        assert cores
        assert cores == tuple(sorted(set(cores)))
        assert set(cores) <= set(available)
    decoding = [c for name, c in plan.workers.items() if not name.startswith("prefill")]
    prefilling = [c for name, c in plan.workers.items() if name.startswith("prefill")]
    decode_cores = {core for cores in decoding for core in cores}
    if len(available) >= 2:
        for cores in (plan.router, plan.gateway, *prefilling):
            assert not decode_cores & set(cores)
    if prefill and len(available) > len(decoding):
        assert all(len(cores) == 1 for cores in decoding)
        assert len(decode_cores) == len(decoding)  # exclusive
        used = decode_cores | {c for cores in prefilling for c in cores}
        assert used == set(available) or len(prefilling) == 0
    for group in (decoding, prefilling):
        sizes = [len(cores) for cores in group]
        assert not sizes or max(sizes) - min(sizes) <= 1


@given(CORES, st.data())
def test_named_cores_are_always_respected(available: list[int], data: st.DataObject) -> None:
    named = data.draw(st.lists(st.sampled_from(available), min_size=1, unique=True))
    plan = deal_cores(available, [pool(P, 2), pool(D, 3, cores=tuple(named))])
    decode_cores = {c for name, cores in plan.workers.items() if "decode" in name for c in cores}
    assert decode_cores <= set(named)
    if set(available) - set(named):
        assert not decode_cores & set(plan.gateway)
        assert not set(named) & set(plan.workers["prefill-0"] + plan.workers["prefill-1"])


@given(st.sets(st.integers(0, 40), max_size=20))
def test_formatted_cores_mean_the_same(cores: set[int]) -> None:
    text = format_cores(sorted(cores))
    read: set[int] = set()
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        read.update(range(int(low), int(high or low) + 1))
    assert read == cores
