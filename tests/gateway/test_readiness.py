"""Ready or why not."""

from gateway.membership_view import STALE_AFTER_S, MembershipView
from gateway.readiness import Readiness
from tests.gateway.conftest import Gateway
from tests.gateway.fake_deployment import D, P, view
from wire.messages import MemberState, Role


async def ready(gateway: Gateway) -> tuple[int, str | None]:
    async with gateway.http.get("/ready") as response:
        return response.status, (await response.json()).get("reason")


async def test_ready_says_what_is_missing(gateway: Gateway) -> None:
    gateway.readiness.warming("waiting for a decode worker")
    assert await ready(gateway) == (503, "waiting for a decode worker")
    gateway.readiness.warmed()
    assert await ready(gateway) == (200, None)
    gateway.deployment.change_members(view(P, Role.PREFILL, MemberState.DEAD), view(D, Role.DECODE))
    await gateway.dispatcher.membership.next_update()
    assert await ready(gateway) == (200, None), "alone, D serves locally"
    gateway.deployment.change_members(view(P, Role.PREFILL), view(D, Role.DECODE, MemberState.DEAD))
    await gateway.dispatcher.membership.next_update()
    assert await ready(gateway) == (503, "no decode worker is alive")
    async with gateway.http.get("/health") as response:
        assert response.status == 200


def test_a_silent_router_is_an_obstacle() -> None:
    membership = MembershipView()
    readiness = Readiness(membership)
    assert readiness.obstacle(0.0) == "starting"
    readiness.warmed()
    assert readiness.obstacle(0.0) == "the router is silent"
    membership.update((view(D, Role.DECODE),), 1.0)
    assert readiness.obstacle(1.0) is None
    assert readiness.obstacle(1.0 + STALE_AFTER_S) == "the router is silent"
