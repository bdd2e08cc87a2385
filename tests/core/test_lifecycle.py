from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given, strategies as st

from core.attempt_lifecycle import DECODE_TABLE, PREFILL_TABLE
from core.errors import IllegalTransition
from core.lifecycle import STORY_STEPS, Lifecycle, Table
from core.member_lifecycle import MEMBER_TABLE
from core.request_lifecycle import REQUEST_TABLE
from core.transfer_lifecycle import RECEIVE_TABLE, SEND_TABLE

TABLES: list[Table[Any, Any, Any]] = [
    REQUEST_TABLE,
    PREFILL_TABLE,
    DECODE_TABLE,
    SEND_TABLE,
    RECEIVE_TABLE,
    MEMBER_TABLE,
]


def members(one: StrEnum) -> set[Any]:
    return set(type(one).__members__.values())


class Light(StrEnum):
    RED = "red"
    GREEN = "green"
    DARK = "dark"


class Press(StrEnum):
    GO = "go"
    CUT = "cut"


class Sound(StrEnum):
    BELL = "bell"


GO: tuple[Light, tuple[Sound, ...]] = (Light.GREEN, (Sound.BELL,))
CUT: tuple[Light, tuple[Sound, ...]] = (Light.DARK, ())
ROWS = {(Light.RED, Press.GO): GO, (Light.RED, Press.CUT): CUT, (Light.GREEN, Press.CUT): CUT}


def lights(rows: dict[tuple[Light, Press], tuple[Light, tuple[Sound, ...]]]) -> Any:
    return Table(
        name="light",
        initial=Light.RED,
        finals=frozenset({Light.DARK}),
        everywhere=frozenset({Press.CUT}),
        rows=rows,
    )


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (ROWS | {(Light.DARK, Press.GO): GO}, "final state dark has a row for go"),
        ({(Light.RED, Press.GO): GO, (Light.RED, Press.CUT): CUT}, "green has no row for cut"),
        (
            {(Light.RED, Press.CUT): CUT, (Light.GREEN, Press.CUT): CUT},
            "unreachable states: green",
        ),
    ],
)
def test_a_table_with_a_hole_is_refused_when_it_is_made(rows: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        lights(rows)


def test_a_table_cant_be_changed() -> None:
    table = lights(dict(ROWS))
    with pytest.raises(TypeError):
        table.rows[Light.GREEN, Press.GO] = GO


def test_a_move_gives_its_actions_and_is_remembered() -> None:
    light = Lifecycle(lights(ROWS), "crossing 7")
    assert light.can(Press.GO)
    assert light.fire(Press.GO, 1.5, "nobody waits") == (Sound.BELL,)
    assert light.state == "green"
    assert not light.can(Press.GO)
    assert not light.ended
    assert light.fire(Press.CUT, 2.0) == ()
    assert light.ended
    assert [str(step) for step in light.story] == [
        "1.500000 s: red --go--> green (nobody waits)",
        "2.000000 s: green --cut--> dark",
    ]


def test_an_illegal_move_changes_nothing_and_tells_the_story() -> None:
    light = Lifecycle(lights(ROWS), "crossing 7")
    light.fire(Press.GO, 1.0)
    with pytest.raises(IllegalTransition) as caught:
        light.fire(Press.GO, 2.0, "again")
    assert light.state is Light.GREEN
    assert len(light.story) == 1
    told = str(caught.value)
    assert "light of crossing 7: no move for 'go' in state 'green' (again)" in told
    assert "1.000000 s: red --go--> green" in told


def test_the_story_keeps_the_latest_moves_only() -> None:
    rows = {
        (Light.RED, Press.GO): (Light.RED, ()),
        (Light.RED, Press.CUT): (Light.GREEN, ()),
        (Light.GREEN, Press.CUT): CUT,
    }
    light = Lifecycle(lights(rows), "crossing 7")
    for number in range(STORY_STEPS + 5):
        light.fire(Press.GO, float(number))
    assert [step.now_s for step in light.story] == [
        float(number) for number in range(5, STORY_STEPS + 5)
    ]


PAIRS = [
    pytest.param(table, state, event, id=f"{table.name}-{state}-{event}")
    for table in TABLES
    for state in sorted(members(table.initial))
    for event in sorted(members(next(iter(table.everywhere))))
]


@pytest.mark.parametrize(("table", "state", "event"), PAIRS)
def test_every_pair_is_a_row_or_an_error_that_changes_nothing(
    table: Table[Any, Any, Any], state: Any, event: Any
) -> None:
    life = Lifecycle(table, "subject")
    life.state = state
    row = table.rows.get((state, event))
    if row is None:
        assert not life.can(event)
        with pytest.raises(IllegalTransition):
            life.fire(event, 0.0)
        assert life.state is state
        assert life.story == ()
    else:
        assert life.fire(event, 0.0) == row[1]
        assert life.state is row[0]
        assert isinstance(row[0], type(table.initial))
        assert len(life.story) == 1


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_an_end_can_be_reached_from_everywhere(table: Table[Any, Any, Any]) -> None:
    ends = set(table.finals)
    for _ in members(table.initial):
        ends |= {before for (before, _), (after, _) in table.rows.items() if after in ends}
    assert ends == members(table.initial)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_any_walk_ends_once_and_stays_there(table: Table[Any, Any, Any]) -> None:
    events = sorted(members(next(iter(table.everywhere))))

    @given(st.lists(st.sampled_from(events), max_size=60))
    def walk(presses: list[Any]) -> None:
        life, ends = Lifecycle(table, "subject"), 0
        for event in presses:
            before = life.ended
            if life.can(event):
                assert not before
                life.fire(event, 0.0)
            ends += life.ended and not before
        assert ends <= 1
        assert life.ended == (life.state in table.finals)

    walk()
