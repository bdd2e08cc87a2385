"""Keeps other web pages out of a gateway that asks nobody for a key.

A browser lets any page send a plain POST to 127.0.0.1, and lets a page whose name is made to point
at 127.0.0.1 (DNS rebinding) read the answers too. Programs send no `Origin`, and name the host
that they really connect to.
"""

from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from core.config import GatewayConfig
from core.errors import Forbidden
from gateway.auth import is_loopback


def same_origin(config: GatewayConfig) -> Middleware:
    """Middleware that refuses foreign origins and, on loopback, foreign host names. Where a key
    is wanted there is nothing to refuse: a foreign page doesn't have it."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if config.api_key is None:
            _refuse_foreign(request, config.host)
        return await handler(request)

    return check


def _refuse_foreign(request: web.Request, bound_host: str) -> None:
    name = _host_name(request.host)
    if not (is_loopback(name) or name == bound_host):
        raise Forbidden(f"This server answers at {bound_host}, not as '{name}'.")
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc.lower() != request.host.lower():
        raise Forbidden(f"Pages of {origin} may not use this server without an API key.")


def _host_name(host: str) -> str:
    """Of `name:port`, `[::1]:port` or a bare name."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return host
