"""Whether a worker's KV memory can hold what it may be asked for. Pure: the launcher checks it
before anything is started, the worker with the layout it really uses."""

from core.config import EngineConfig
from core.errors import ConfigError
from core.kv_layout import KvLayout
from core.size import format_size


def check_pool(
    engine: EngineConfig, layout: KvLayout, max_context: int, place: str = "engine.kv_bytes"
) -> None:
    """Whether `engine.kv_bytes` hold one request of maximal length, and the next token's block.

    Raises:
        ConfigError: they don't; says what would fit. `place` is the key to blame.
    """
    blocks = engine.kv_bytes // layout.block_bytes
    needed = layout.blocks_for(max_context) + 1
    if blocks < needed:
        fits = max(0, (blocks - 1) * layout.block_tokens)
        least_mib = -(-needed * layout.block_bytes >> 20)
        remedy = f"give at least {least_mib}MiB"
        raise ConfigError(
            place,
            f"{format_size(engine.kv_bytes)} hold {blocks} KV blocks of "
            f"{format_size(layout.block_bytes)}; a request of {max_context} tokens needs {needed}: "
            + (f"{remedy}, or model.max_context of at most {fits}" if fits else remedy),
        )
