"""The generation that proves the way before the deployment calls itself ready."""

import asyncio
import logging
from collections.abc import Callable

from core.config import Config, PoolRole
from core.errors import BatonError, PeerError
from core.ids import new_request_id
from core.sampling import SamplingParams
from core.slo import Slo
from gateway.answer import Answer
from gateway.dispatcher import Dispatcher
from gateway.generation import Generation
from gateway.served_model import ServedModel
from wire.messages import Role, RoutePath

PROMPT_TOKENS = 40
"""Some KV blocks and a part of one, whatever the block size's usual values."""
ANSWER_TOKENS = 4
DEADLINE_MS = 60_000.0
PAUSE_S = 0.25

_log = logging.getLogger(__name__)


def warm_up_path(config: Config) -> RoutePath:
    """Over both pools and the transfer, where there is a prefill pool."""
    prefill = any(pool.role is PoolRole.PREFILL and pool.replicas for pool in config.pools)
    return RoutePath.REMOTE if prefill else RoutePath.LOCAL


def warm_up_generation(model: ServedModel, path: RoutePath) -> Generation:
    length = max(1, min(PROMPT_TOKENS, model.max_context - ANSWER_TOKENS))
    return Generation(
        request=new_request_id("warmup"),
        prompt=tuple(token % model.vocab for token in range(1, length + 1)),
        sampling=SamplingParams(temperature=0.0, max_tokens=ANSWER_TOKENS, ignore_eos=True),
        slo=Slo(deadline_ms=DEADLINE_MS),
        path=path,
        warm_up=True,
    )


async def warm_up(
    dispatcher: Dispatcher, model: ServedModel, config: Config, progress: Callable[[str], None]
) -> None:
    """Return once a generation has succeeded on the way that requests will take.

    Workers may still be loading, or fail and be restarted: it is tried until it works, and
    `progress` is told what it waits for. The launcher limits the time.
    """
    path = warm_up_path(config)
    roles = (Role.PREFILL, Role.DECODE) if path is RoutePath.REMOTE else (Role.DECODE,)
    failure = ""
    while True:
        missing = [role for role in roles if not dispatcher.membership.serving(role)]
        if missing:
            progress(f"waiting for a {missing[0]} worker")
            await dispatcher.membership.next_update()
            continue
        progress("warming up")
        try:
            await _generate(dispatcher, warm_up_generation(model, path))
            return
        except BatonError as error:
            if error.message != failure:
                _log.warning("the warm-up failed and is tried again: %s", error)
            failure = error.message
            progress(f"warming up: {error.message}")
            await asyncio.sleep(PAUSE_S)


async def _generate(dispatcher: Dispatcher, generation: Generation) -> None:
    async with Answer(dispatcher, [generation]) as answer:
        while not answer.ended:
            await answer.next()
        served = answer.record
        if generation.path is RoutePath.REMOTE and not served.transfer_bytes:
            raise PeerError(f"no KV came to {served.decode} from {served.prefill}")
        if answer.usage.completion_tokens != ANSWER_TOKENS:
            raise PeerError(f"{answer.usage.completion_tokens} tokens came, not {ANSWER_TOKENS}")
