"""Models, health, metrics."""

from tests.gateway.conftest import Gateway


async def test_models(gateway: Gateway) -> None:
    async with gateway.http.get("/v1/models") as response:
        listed, always = (await response.json())["data"]
    assert always == {**listed, "id": "default"}
    assert listed == {
        "id": "org/fake-1b",
        "object": "model",
        "created": 1_700_000_000,
        "owned_by": "baton",
        "max_model_len": 512,
    }
    for path in ("org/fake-1b", "org%2Ffake-1b"):
        async with gateway.http.get(f"/v1/models/{path}") as response:
            assert await response.json() == listed
    async with gateway.http.get("/v1/models/default") as response:
        assert (await response.json())["id"] == "default"
    async with gateway.http.get("/v1/models/org/other") as response:
        assert response.status == 404
        assert (await response.json())["error"]["code"] == "model_not_found"


async def test_health_is_there_before_anything_else(gateway: Gateway) -> None:
    async with gateway.http.get("/health") as response:
        assert (response.status, await response.json()) == (200, {"status": "ok"})
    async with gateway.http.get("/ready") as response:
        assert response.status == 503
