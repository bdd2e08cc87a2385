"""Who may ask: everybody on loopback, holders of the key otherwise."""

import hmac
import ipaddress

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from core.config import GatewayConfig
from core.errors import ConfigError, Unauthorized

OPEN_PATHS = frozenset({"/", "/health", "/ready"})
"""Without a key: the page (which asks for it) and what probes need."""
OPEN_PREFIX = "/pages/"


def is_loopback(host: str) -> bool:
    """Whether nobody outside this machine reaches a socket bound to `host`. Other names than
    `localhost` are not resolved: what they mean may change."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_key_beyond_loopback(config: GatewayConfig) -> None:
    """Raises:
    ConfigError: open to the network without a key.
    """
    if config.api_key == "":
        raise ConfigError("gateway.api_key", "an empty key is none")
    if config.api_key is None and not is_loopback(config.host):
        raise ConfigError(
            "gateway.api_key",
            f"other machines can reach {config.host or 'every interface'}, so a key is compulsory: "
            "add --api-key KEY (or BATON_API_KEY), or keep to --host 127.0.0.1",
        )


def bearer_auth(api_key: str | None) -> Middleware:
    """Middleware that wants `Authorization: Bearer KEY`; None lets everybody in."""
    wanted = None if api_key is None else api_key.encode()

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if wanted is not None and not _is_open(request.path):
            scheme, _, key = request.headers.get("Authorization", "").partition(" ")
            # Compared in constant time: how far a guess is right must not show.
            right = hmac.compare_digest(key.strip().encode("utf-8", "surrogateescape"), wanted)
            if scheme.lower() != "bearer" or not right:
                raise Unauthorized("A valid API key is needed: 'Authorization: Bearer KEY'.")
        return await handler(request)

    return check


def _is_open(path: str) -> bool:
    return path in OPEN_PATHS or path.startswith(OPEN_PREFIX)
