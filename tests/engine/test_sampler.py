"""The sampler against naive definitions, and its independence of everything but its arguments."""

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from core.errors import BugError
from core.ids import Attempt, Epoch, RequestId
from core.sampling import SamplingParams
from engine.sampler import Sampler, uniform
from engine.step_plan import Drawn, SampleSpec

ATTEMPT = Attempt(RequestId("req-1"), Epoch(1))


def spec(
    *,
    position: int = 0,
    choice: int = 0,
    prompt: tuple[int, ...] = (),
    output: tuple[int, ...] = (),
    banned: tuple[int, ...] = (),
    **params: Any,
) -> SampleSpec:
    return SampleSpec(
        attempt=ATTEMPT,
        choice=choice,
        position=position,
        params=SamplingParams(**params),
        prompt=prompt,
        output=output,
        banned=banned,
    )


def draw(row: list[float], wanted: SampleSpec) -> Drawn:
    logits = torch.tensor([row], dtype=torch.float32)
    return Sampler(len(row)).sample(logits, [wanted])[0]


def support(row: list[float], draws: int = 100, **params: Any) -> set[int]:
    """Every token that comes up in many draws."""
    logits = torch.tensor([row] * draws, dtype=torch.float32)
    specs = [spec(position=position, **params) for position in range(draws)]
    return {drawn.token for drawn in Sampler(len(row)).sample(logits, specs)}


# ---- greedy ------------------------------------------------------------------------------------


def test_greedy_takes_the_first_of_the_largest() -> None:
    assert draw([1.0, 3.0, 3.0, 2.0], spec(temperature=0.0)).token == 1
    assert draw([-math.inf, -5.0, -math.inf], spec(temperature=0.0)).token == 1
    assert draw([0.0, 1e-3], spec(temperature=1e-9)).token == 1


@given(st.lists(st.lists(st.integers(-4, 4), min_size=5, max_size=5), min_size=1, max_size=6))
def test_greedy_of_a_batch_is_argmax(rows: list[list[int]]) -> None:
    logits = torch.tensor(rows, dtype=torch.float32)
    drawn = Sampler(5).sample(logits, [spec(temperature=0.0)] * len(rows))
    assert [one.token for one in drawn] == [row.index(max(row)) for row in rows]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [[0.0, math.nan], [math.inf, 0.0], [-math.inf, -math.inf]])
def test_a_row_without_a_largest_logit_is_a_bug(bad: list[float], temperature: float) -> None:
    with pytest.raises(BugError, match="req-1#1"):
        draw(bad, spec(temperature=temperature))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_bans_that_leave_no_token_do_not_hold(temperature: float) -> None:
    """One request's parameters must not end the step of all others."""
    row, everything = [1.0, 2.0, 0.5], (0, 1, 2)
    params: dict[str, Any] = {"temperature": temperature, "logit_bias": ((0, 90.0),), "logprobs": 1}
    unbanned = draw(row, spec(**params))
    assert draw(row, spec(banned=everything, **params)) == unbanned
    assert unbanned.token == 0, "the bias holds nevertheless"
    with pytest.raises(BugError, match="req-1#1"):
        draw([math.nan, 0.0, 0.0], spec(banned=everything, **params))


def test_bans_that_leave_only_what_the_model_rules_out_do_not_hold() -> None:
    assert draw([1.0, -math.inf], spec(banned=(0,))).token == 0


def test_penalties_that_leave_no_token_do_not_hold() -> None:
    out_of_range = spec(temperature=0.0, prompt=(0, 1), repetition_penalty=1_000.0)
    assert draw([-3e38, -2e38], out_of_range).token == 1


def test_shapes_are_checked() -> None:
    for logits in (torch.zeros(2, 4), torch.zeros(1, 5), torch.zeros(1, 4, dtype=torch.float64)):
        with pytest.raises(BugError, match="shape"):
            Sampler(4).sample(logits, [spec()])
    assert Sampler(4).sample(torch.zeros(0, 4), []) == []


# ---- the draw ----------------------------------------------------------------------------------


def test_the_random_numbers_are_these() -> None:
    """Pinned: workers of different versions must agree on a seed's answer."""
    assert uniform(0, 0, 0) == 0.45407064605822545
    assert uniform(1, 0, 0) == 0.0854629661278502
    assert uniform(2**64 - 1, 63, 2**30) == 0.6326435162419493


def test_random_numbers_are_uniform_and_unrelated() -> None:
    draws = 20_000
    for key in (
        lambda i: (7, 0, i),
        lambda i: (i, 0, 0),
        lambda i: (7, i, 3),
        lambda i: (i, 0, i),
    ):
        numbers = [uniform(*key(i)) for i in range(draws)]
        assert all(0.0 <= number < 1.0 for number in numbers)
        counts = Counter(int(number * 20) for number in numbers)
        expected = draws / 20
        # 19 degrees of freedom: beyond 50.8 in one of 10,000 cases.
        assert sum((counts[cell] - expected) ** 2 / expected for cell in range(20)) < 50.8
        mean = sum(numbers) / draws
        lagged = sum((a - mean) * (b - mean) for a, b in itertools.pairwise(numbers))
        assert abs(lagged / draws * 12) < 4 / math.sqrt(draws)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_come_up_by_their_probability(temperature: float) -> None:
    row = [0.0, 1.0, -1.0, 2.0, -math.inf, 0.5, 1.5, -2.0]
    weights = [math.exp(value / temperature) for value in row]
    draws = 6_000
    logits = torch.tensor([row] * draws, dtype=torch.float32)
    specs = [spec(position=i, seed=11, temperature=temperature) for i in range(draws)]
    counts = Counter(drawn.token for drawn in Sampler(len(row)).sample(logits, specs))
    expected = [weight / sum(weights) * draws for weight in weights]
    assert counts[4] == 0
    squares = [(counts[i] - e) ** 2 / e for i, e in enumerate(expected) if e]
    assert sum(squares) < 27.9  # 6 degrees of freedom: 1 in 10,000


def test_a_large_vocabulary_is_drawn_from_evenly() -> None:
    """Over the borders of the blocks in which the draw is searched, and the rest behind them."""
    size, draws = 256 * 3 + 5, 20_000
    logits = torch.zeros(1, size).expand(draws, size)
    drawn = Sampler(size).sample(logits, [spec(position=i, seed=5) for i in range(draws)])
    counts = Counter(one.token for one in drawn)
    expected = draws / size
    chi_square = sum((counts[i] - expected) ** 2 / expected for i in range(size))
    assert abs(chi_square - (size - 1)) < 4 * math.sqrt(2 * (size - 1))


@given(
    st.lists(st.sampled_from([0.0, -1.0, 2.5, -math.inf]), min_size=1, max_size=700),
    st.integers(0, 2**20),
)
def test_the_draw_inverts_the_distribution(values: list[float], position: int) -> None:
    row = [*values, 0.0]
    token = draw(row, spec(position=position)).token
    weights = np.exp(np.array(row))
    ends = np.cumsum(weights)
    target = uniform(0, 0, position) * ends[-1]
    assert weights[token] > 0
    assert ends[token] - weights[token] - 1e-9 <= target <= ends[token] + 1e-9


PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.sampled_from([0.0, 0.7, 1.0, 1.9]),
        "top_k": st.integers(0, 12),
        "top_p": st.sampled_from([0.1, 0.5, 0.9, 1.0]),
        "min_p": st.sampled_from([0.0, 0.05, 0.5]),
        "seed": st.integers(0, 2**64 - 1),
        "repetition_penalty": st.sampled_from([0.8, 1.3]),
        "presence_penalty": st.sampled_from([-1.0, 0.5]),
        "frequency_penalty": st.sampled_from([-1.0, 0.5]),
        "logit_bias": st.just(((3, 4.0), (0, -100.0))),
        "logprobs": st.sampled_from([0, 3]),
    },
)


@given(st.lists(PARAMS, min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_a_row_stands_alone(many: list[dict[str, Any]], seed: int) -> None:
    logits = torch.randn(len(many), 300, generator=torch.Generator().manual_seed(seed))
    before = logits.clone()
    specs = [
        spec(position=i, choice=i % 2, prompt=(1, 2, 3), output=(3, 3, 9), banned=(7,), **params)
        for i, params in enumerate(many)
    ]
    together = Sampler(300).sample(logits, specs)
    assert torch.equal(logits, before)
    alone = [Sampler(300).sample(logits[i : i + 1], [one])[0] for i, one in enumerate(specs)]
    assert together == alone
    reversed_ = Sampler(300).sample(logits.flip(0), specs[::-1])
    assert together == reversed_[::-1]


def test_seed_choice_and_position_each_matter() -> None:
    row = [0.0] * 64
    keys = [(1, 0), (2, 0), (1, 1)]
    streams = {
        tuple(draw(row, spec(position=i, seed=seed, choice=choice)).token for i in range(8))
        for seed, choice in keys
    }
    assert len(streams) == 3
    assert draw(row, spec(position=1)).token != draw(row, spec(position=0)).token
    assert draw(row, spec(seed=9)) == draw(row, spec(seed=9))


# ---- truncation --------------------------------------------------------------------------------


def naive_support(row: list[float], params: SamplingParams) -> set[int]:
    """min_p, then top_k, then top_p over what is left, by the definitions."""
    highest = max(row)
    weights = {
        token: float(np.exp(np.float32(value - highest) / np.float32(params.temperature)))
        for token, value in enumerate(row)
    }
    kept = {t: w for t, w in weights.items() if w >= np.float32(params.min_p) and w > 0}
    order = sorted(kept, key=lambda token: (-kept[token], token))
    order = order[: params.top_k] if params.top_k else order
    if params.top_p < 1.0:
        total, mass, nucleus = sum(kept[t] for t in order), 0.0, []
        for token in order:
            nucleus.append(token)
            mass += kept[token]
            if mass >= params.top_p * total:
                break
        order = nucleus
    return set(order)


@given(
    row=st.lists(st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0]), min_size=2, max_size=12),
    temperature=st.sampled_from([0.5, 1.0, 2.0]),
    top_k=st.integers(0, 13),
    top_p=st.sampled_from([0.05, 0.3, 0.6, 0.9, 0.99, 1.0]),
    min_p=st.sampled_from([0.0, 0.01, 0.2, 0.7, 1.0]),
)
def test_truncation_is_by_the_definitions(
    row: list[float], temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    params: dict[str, Any] = {
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
    }
    allowed = naive_support(row, SamplingParams(**params))
    seen = support(row, draws=100, **params)
    assert seen <= allowed
    # Whatever holds a fifth of the weight comes up in 100 draws.
    weights = {token: math.exp(row[token] / temperature) for token in allowed}
    likely = {token for token, w in weights.items() if w > 0.2 * sum(weights.values())}
    assert likely <= seen


def test_equals_are_kept_by_lowest_id() -> None:
    assert support([0.0] * 8, top_k=3) == {0, 1, 2}
    assert support([0.0] * 8, top_p=0.5) == {0, 1, 2, 3}
    assert support([1.0, 0.0, 0.0, 2.0, 0.0], top_k=3) == {0, 1, 3}
    assert support([0.0, 5.0], top_p=0.01) == {1}


def test_minus_infinity_is_never_drawn() -> None:
    row = [-math.inf, 0.0, -math.inf, 0.0, -math.inf]
    for params in ({}, {"top_k": 4}, {"top_p": 0.999}, {"min_p": 0.01}, {"top_k": 5, "top_p": 0.9}):
        assert support(row, **params) == {1, 3}


def test_extreme_logits_stay_in_range() -> None:
    row = [3e38, -3e38, 2.9e38, 0.0]
    assert support(row, temperature=1e-4) == {0}
    assert support([1.0, 0.999], temperature=2e-5) == {0}


@pytest.mark.parametrize("scale", [0.01, 1.0, 8.0])
def test_a_real_vocabulary_is_truncated_alike(scale: float) -> None:
    logits = torch.randn(49_152, generator=torch.Generator().manual_seed(3)) * scale
    row = logits.tolist()
    for params in ({"top_k": 40}, {"top_p": 0.8}, {"min_p": 0.2}, {"top_k": 99, "top_p": 0.6}):
        allowed = naive_support(row, SamplingParams(**params))
        assert support(row, draws=20, **params) <= allowed


# ---- what comes before the draw ----------------------------------------------------------------


@given(
    row=st.lists(st.floats(-8, 8, width=16), min_size=8, max_size=8),
    prompt=st.lists(st.integers(0, 7), max_size=6),
    output=st.lists(st.integers(0, 7), max_size=6),
    repetition=st.sampled_from([0.5, 1.0, 1.7]),
    presence=st.sampled_from([-2.0, 0.0, 0.6]),
    frequency=st.sampled_from([-0.5, 0.0, 1.1]),
    banned=st.lists(st.integers(0, 6), max_size=3),
    bias=st.dictionaries(st.integers(0, 7), st.floats(-100, 100, width=16), max_size=3),
)
def test_penalties_by_the_definitions(
    row: list[float],
    prompt: list[int],
    output: list[int],
    repetition: float,
    presence: float,
    frequency: float,
    banned: list[int],
    bias: dict[int, float],
) -> None:
    expected = [value + bias.get(token, 0.0) for token, value in enumerate(row)]
    for token in banned:
        expected[token] = -math.inf
    for token in {*prompt, *output}:
        value = expected[token]
        expected[token] = value / repetition if value > 0 else value * repetition
    for token, count in Counter(output).items():
        expected[token] -= presence + frequency * count
    wanted = spec(
        temperature=0.0,
        prompt=tuple(prompt),
        output=tuple(output),
        banned=tuple(banned),
        logit_bias=tuple(bias.items()),
        repetition_penalty=repetition,
        presence_penalty=presence,
        frequency_penalty=frequency,
        logprobs=8,
    )
    drawn = draw(row, wanted)
    total = math.log(sum(math.exp(v - max(expected)) for v in expected)) + max(expected)
    assert drawn.logprobs is not None
    found = dict(drawn.logprobs.top)
    assert found.keys() == {t for t, v in enumerate(expected) if v > -math.inf}
    for token, logprob in found.items():
        assert logprob == pytest.approx(expected[token] - total, abs=2e-4, rel=1e-5)
    assert expected[drawn.token] == pytest.approx(max(expected), abs=2e-4, rel=1e-5)


def test_ids_beyond_the_vocabulary_have_no_effect() -> None:
    wanted = spec(
        temperature=0.0,
        prompt=(99,),
        output=(98,),
        banned=(97,),
        logit_bias=((96, 5.0),),
        repetition_penalty=2.0,
        presence_penalty=1.0,
    )
    assert draw([1.0, 2.0], wanted).token == 1


def test_a_bias_decides() -> None:
    assert draw([0.0, 1.0, 0.0], spec(temperature=0.0, logit_bias=((2, 9.0),))).token == 2
    assert support([0.0, 0.0, 0.0], logit_bias=((1, -100.0),)) == {0, 2}
    assert support([0.0, 0.0, 0.0], banned=(0,)) == {1, 2}


def test_logprobs_are_of_the_distribution_before_temperature() -> None:
    row = [0.0, 1.0, 2.0, 1.0]
    base = math.log(sum(map(math.exp, row)))
    drawn = draw(row, spec(temperature=0.3, top_k=1, logprobs=3))
    assert drawn.token == 2
    assert drawn.logprobs is not None
    assert drawn.logprobs.logprob == pytest.approx(2.0 - base, abs=1e-6)
    assert [token for token, _ in drawn.logprobs.top] == [2, 1, 3]
    assert drawn.logprobs.top[0][1] == drawn.logprobs.logprob
    none = draw(row, spec(logprobs=0)).logprobs
    assert none is not None
    assert none.top == ()
    assert draw(row, spec()).logprobs is None


@pytest.mark.gpu
def test_the_device_does_not_matter() -> None:
    logits = torch.randn(6, 49_152, generator=torch.Generator().manual_seed(1))
    logits[0, 7] = logits[0, 9] = 50.0
    greedy = [spec(temperature=0.0)] * 6
    mixed = [spec(position=i, top_p=0.9, logprobs=2) for i in range(6)]
    sampler = Sampler(49_152)
    for specs in (greedy, mixed):
        assert sampler.sample(logits.cuda(), specs) == sampler.sample(logits, specs)
    assert sampler.sample(logits.cuda(), greedy)[0].token == 7
    logits[3, 5] = math.nan
    with pytest.raises(BugError, match="req-1#1"):
        sampler.sample(logits.cuda(), greedy)
