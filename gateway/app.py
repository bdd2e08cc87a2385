"""The HTTP application around a dispatcher, and its socket."""

import errno

from aiohttp import web

from core.config import Config, GatewayConfig
from core.errors import SetupError
from gateway.auth import bearer_auth
from gateway.dispatcher import Dispatcher
from gateway.errors import answer_errors
from gateway.generation_handler import GenerationHandler
from gateway.info_handler import InfoHandler
from gateway.metrics import GatewayMetrics
from gateway.page_handler import PageHandler
from gateway.preparation import Preparation
from gateway.readiness import Readiness
from gateway.same_origin import same_origin
from gateway.served_model import ServedModel

STOP_TIMEOUT_S = 1.0
"""For answers to leave when the process ends; the launcher waits little longer."""


def build_app(
    *,
    config: Config,
    model: ServedModel,
    dispatcher: Dispatcher,
    readiness: Readiness,
    metrics: GatewayMetrics,
) -> web.Application:
    """All routes. `dispatcher.run` must be running for generations to come back."""
    limit = config.gateway.max_body_bytes
    app = web.Application(
        client_max_size=limit,
        middlewares=[
            answer_errors,
            same_origin(config.gateway),
            bearer_auth(config.gateway.api_key),
        ],
    )
    generations = GenerationHandler(dispatcher, Preparation(model, config), model, limit)
    info = InfoHandler(dispatcher, readiness, metrics, model)
    pages = PageHandler()
    app.add_routes(
        [
            web.post("/v1/chat/completions", generations.chat),
            web.post("/v1/completions", generations.completion),
            web.get("/v1/models", info.models),
            web.get("/v1/models/{model:.+}", info.model),
            web.get("/health", info.health),
            web.get("/ready", info.ready),
            web.get("/metrics", info.metrics),
            web.get("/", pages.index),
            web.get("/pages/{name}", pages.file),
        ]
    )
    return app


class Site:
    """The application at its port."""

    def __init__(self, runner: web.AppRunner, url: str) -> None:
        self._runner = runner
        self.url = url

    @classmethod
    async def start(cls, app: web.Application, config: GatewayConfig) -> "Site":
        """Listen at the configured host and port (0 picks a free one).

        Raises:
            SetupError: the port is taken, or the host isn't this machine's.
        """
        # A handler whose client closes its connection is cancelled: so is its request, everywhere.
        runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=STOP_TIMEOUT_S
        )
        await runner.setup()
        try:
            await web.TCPSite(runner, config.host, config.port).start()
        except OSError as error:
            await runner.cleanup()
            raise _no_socket(config, error) from error
        host, port = runner.addresses[0][:2]
        shown = f"[{host}]" if ":" in host else host
        return cls(runner, f"http://{shown}:{port}")

    async def stop(self) -> None:
        await self._runner.cleanup()


def _no_socket(config: GatewayConfig, error: OSError) -> SetupError:
    place = f"{config.host}:{config.port}"
    if error.errno == errno.EADDRINUSE:
        return SetupError(
            f"gateway.port: {place} is taken by another process; choose another (--port)"
        )
    return SetupError(f"gateway.host: can't listen at {place}: {error.strerror or error}")
