"""What can be asked besides generations: models, probes, metrics."""

from typing import Any

from aiohttp import web
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from gateway.dispatcher import Dispatcher
from gateway.metrics import GatewayMetrics
from gateway.readiness import Readiness
from gateway.served_model import DEFAULT_NAME, ServedModel
from gateway.sse import to_json


class InfoHandler:
    def __init__(
        self,
        dispatcher: Dispatcher,
        readiness: Readiness,
        metrics: GatewayMetrics,
        model: ServedModel,
    ) -> None:
        self._dispatcher = dispatcher
        self._readiness = readiness
        self._metrics = metrics
        self._model = model

    async def models(self, _request: web.Request) -> web.Response:
        """The model's own name first, then the one that always works."""
        names = dict.fromkeys((self._model.name, DEFAULT_NAME))
        return _json({"object": "list", "data": [self._model_json(name) for name in names]})

    async def model(self, request: web.Request) -> web.Response:
        """Names may contain slashes.

        Raises:
            UnknownModel: it isn't this deployment's.
        """
        name = request.match_info["model"]
        self._model.require(name)
        return _json(self._model_json(name))

    async def health(self, _request: web.Request) -> web.Response:
        """The process is alive; nothing more."""
        return _json({"status": "ok"})

    async def ready(self, _request: web.Request) -> web.Response:
        """503 with the reason until requests would be served."""
        obstacle = self._readiness.obstacle(self._dispatcher.now_s())
        if obstacle is None:
            return _json({"ready": True})
        return _json({"ready": False, "reason": obstacle}, status=503)

    async def metrics(self, _request: web.Request) -> web.Response:
        return web.Response(
            body=self._metrics.expose(), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4}
        )

    def _model_json(self, name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": self._model.created_s,
            "owned_by": "baton",
            "max_model_len": self._model.max_context,
        }


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(status=status, text=to_json(value), content_type="application/json")
