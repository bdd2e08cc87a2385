import pytest
from hypothesis import given, strategies as st

from core.config import Config, EngineConfig, PoolConfig, PoolRole
from core.errors import ConfigError
from router.pools import LengthRange, Pools
from tests.router.world import config, pool


def serving(pools: Pools, prompt_tokens: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    segment = pools.segments[pools.index_of(prompt_tokens)]
    return segment.prefill, segment.decode


def test_the_default_pools_serve_every_length() -> None:
    pools = Pools(Config())
    assert serving(pools, 1) == serving(pools, 10**6) == (("prefill",), ("decode",))
    assert pools.prefilled_locally == ()


def test_rules_hold_at_both_their_ends() -> None:
    pools = Pools(
        config(pool("prefill"), pool("decode-short", high=99), pool("decode-long", low=100))
    )
    assert serving(pools, 99) == (("prefill",), ("decode-short",))
    assert serving(pools, 100) == (("prefill",), ("decode-long",))


def test_a_pool_of_both_roles_prefills_and_decodes() -> None:
    assert serving(Pools(config(pool("both"))), 5) == (("both",), ("both",))


@pytest.mark.parametrize(
    ("pools", "limit", "hole"),
    [
        ((pool("decode", low=10),), None, "1 to 9 tokens"),
        ((pool("decode", high=500),), None, "501 tokens and more"),
        ((pool("decode", high=500),), 800, "501 to 800 tokens"),
        (
            (pool("decode-a", high=99), pool("decode-b", low=200)),
            None,
            "100 to 199 tokens",
        ),
        (
            (pool("decode-a", low=5, high=99), pool("both", low=200)),
            None,
            "1 to 4 tokens and 100 to 199 tokens",
        ),
        # Two pools without the role, side by side, are one hole.
        (
            (pool("prefill-a", high=50), pool("decode", low=101), pool("prefill-b")),
            None,
            "1 to 100 tokens",
        ),
        # Nobody is at home there.
        ((pool("decode-a", high=99), pool("decode-b", low=100, replicas=0)), None, "100 tokens"),
    ],
)
def test_a_hole_is_refused_with_its_range(
    pools: tuple[PoolConfig, ...], limit: int | None, hole: str
) -> None:
    with pytest.raises(ConfigError, match=f"^pools: .*{hole}"):
        Pools(config(*pools, max_context=limit))


def test_no_hole_beyond_the_models_context() -> None:
    pools = Pools(config(pool("decode", high=500), max_context=500))
    assert serving(pools, 501) == serving(pools, 500)


def test_lengths_without_a_prefill_pool_are_prefilled_locally() -> None:
    pools = Pools(config(pool("prefill", low=64, high=1_000), pool("decode")))
    assert pools.prefilled_locally == (LengthRange(1, 63), LengthRange(1_001, None))
    assert serving(pools, 63) == ((), ("decode",))


def test_pools_with_unequal_blocks_are_refused() -> None:
    tree = Config(
        pools=(
            PoolConfig(name="prefill", role=PoolRole.PREFILL),
            PoolConfig(name="decode", role=PoolRole.DECODE, engine=EngineConfig(block_tokens=32)),
        )
    )
    with pytest.raises(ConfigError, match=r"pools\[1\]\.engine\.block_tokens.*32.*16"):
        Pools(tree)


@given(
    rules=st.lists(
        st.tuples(
            st.sampled_from(["prefill", "decode", "both"]),
            st.integers(0, 60),
            st.none() | st.integers(1, 60),
        ).filter(lambda rule: rule[2] is None or rule[1] <= rule[2]),
        max_size=5,
    ),
    prompt_tokens=st.integers(1, 100),
)
def test_segments_agree_with_the_rules(
    rules: list[tuple[str, int, int | None]], prompt_tokens: int
) -> None:
    pools = [pool(f"{r}-p{i}", r, low, high) for i, (r, low, high) in enumerate(rules)]
    index = Pools(config(*pools, pool("decode-all")))
    matching = [
        p
        for p in pools
        if p.match.min_prompt_tokens <= prompt_tokens
        and prompt_tokens <= (p.match.max_prompt_tokens or 10**9)
    ]
    prefill, decode = serving(index, prompt_tokens)
    assert prefill == tuple(p.name for p in matching if p.role is not PoolRole.DECODE)
    assert decode == (
        *(p.name for p in matching if p.role is not PoolRole.PREFILL),
        "decode-all",
    )
