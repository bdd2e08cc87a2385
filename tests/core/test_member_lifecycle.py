import pytest

from core.errors import IllegalTransition
from core.lifecycle import Lifecycle
from core.member_lifecycle import MEMBER_TABLE, MemberAction, MemberEvent, MemberStage


def life() -> Lifecycle[MemberStage, MemberEvent, MemberAction]:
    return Lifecycle(MEMBER_TABLE, "decode-0@1")


def test_every_stage_but_the_last_answers_every_event() -> None:
    for stage in MemberStage:
        for event in MemberEvent:
            assert ((stage, event) in MEMBER_TABLE.rows) == (stage is not MemberStage.GONE)


def test_proof_is_reported_exactly_when_a_member_goes() -> None:
    for (_, _), (after, actions) in MEMBER_TABLE.rows.items():
        assert (MemberAction.REPORT_PROVEN in actions) == (after is MemberStage.GONE)


def test_a_loss_is_reported_on_the_way_into_lost_only() -> None:
    lost = {MemberStage.LOST, MemberStage.LOST_DRAINING}
    for (before, _), (after, actions) in MEMBER_TABLE.rows.items():
        assert (MemberAction.REPORT_LOST in actions) == (after in lost and before not in lost)


def test_who_is_back_in_reach_is_reminded_or_welcomed() -> None:
    for (before, _), (after, actions) in MEMBER_TABLE.rows.items():
        if after is MemberStage.ALIVE and before is not after:
            assert actions in ((MemberAction.REMIND,), (MemberAction.WELCOME,))


def test_a_leaving_worker_never_gets_back_among_the_alive() -> None:
    leaving = {MemberStage.DRAINING, MemberStage.LOST_DRAINING}
    for (before, _), (after, _) in MEMBER_TABLE.rows.items():
        if before in leaving:
            assert after in leaving | {MemberStage.GONE}


def test_a_lost_worker_comes_back_by_registering_not_by_a_heartbeat() -> None:
    member = life()
    member.fire(MemberEvent.SILENT, 1.0)
    assert member.fire(MemberEvent.BEAT, 2.0) == (MemberAction.ASK_REREGISTER,)
    after_beat = member.state
    assert after_beat is MemberStage.LOST
    assert member.fire(MemberEvent.REGISTER, 3.0) == (MemberAction.WELCOME,)
    after_register = member.state
    assert after_register is MemberStage.ALIVE


def test_the_gone_do_nothing_any_more() -> None:
    member = life()
    member.fire(MemberEvent.EXITED, 1.0, "reaped")
    with pytest.raises(IllegalTransition, match="reaped"):
        member.fire(MemberEvent.BEAT, 2.0)
