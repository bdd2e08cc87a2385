"""Who may ask."""

import pytest

from core.config import GatewayConfig
from core.errors import ConfigError
from gateway.auth import is_loopback, require_key_beyond_loopback
from tests.gateway.conftest import StartGateway


async def test_a_key_is_wanted_where_there_is_one(start_gateway: StartGateway) -> None:
    gateway = await start_gateway(api_key="s3crét")
    for header in (None, "Bearer wrong", "Basic s3crét", "s3crét", "Bearer"):
        headers = {} if header is None else {"Authorization": header}
        for path in ("/v1/models", "/metrics"):
            async with gateway.http.get(path, headers=headers) as response:
                assert response.status == 401
                assert (await response.json())["error"]["code"] == "invalid_api_key"
                assert response.headers["WWW-Authenticate"] == "Bearer"
    async with gateway.http.get(
        "/v1/models", headers={"Authorization": "Bearer s3crét"}
    ) as response:
        assert response.status == 200
    for path in ("/", "/health", "/ready", "/pages/chat.js"):
        async with gateway.http.get(path) as response:
            assert response.status != 401


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("192.168.1.4", False),
        ("example.org", False),
    ],
)
def test_beyond_loopback_a_key_is_needed(host: str, local: bool) -> None:
    assert is_loopback(host) is local
    require_key_beyond_loopback(GatewayConfig(host=host, api_key="k"))
    if local:
        require_key_beyond_loopback(GatewayConfig(host=host))
    else:
        with pytest.raises(ConfigError, match="api_key"):
            require_key_beyond_loopback(GatewayConfig(host=host))
    with pytest.raises(ConfigError, match="empty"):
        require_key_beyond_loopback(GatewayConfig(host=host, api_key=""))
