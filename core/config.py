"""The one configuration tree: frozen, sectioned, passed in. `scaling.yaml` is its file.

`core/config_file.py` reads the file and the command line's overrides into it.
"""

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """Frozen, and refuses keys it doesn't know."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)


class PoolRole(StrEnum):
    PREFILL = "prefill"
    DECODE = "decode"
    BOTH = "both"


class ModelConfig(Section):
    """Which model, under which name, in which precision."""

    source: str = "demo"
    """`demo` (SmolLM2-135M of the `demo` extra), a GGUF file, a Hugging Face directory, or
    `random:llama?layers=4,...`."""
    served_name: str | None = None
    """Name in the API; default: the model's own. `default` always works too."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Of weights, activations and KV."""
    max_context: Count | None = None
    """Longest prompt + answer, in tokens; default: the model's own limit."""


class EngineConfig(Section):
    """One worker's engine; a pool may override any of it."""

    block_tokens: Annotated[int, Field(ge=16, multiple_of=16)] = 16
    kv_bytes: Annotated[int, Field(ge=1 << 20)] = 1 << 30
    max_batch: Count = 64
    """Sequences in one step."""
    step_tokens: Count = 512
    """Token budget of one step: decodes first, then prefill chunks."""
    max_step_ms: Positive = 500.0
    """No step is planned to take longer than this."""
    watermark: Annotated[float, Field(ge=0.0, lt=0.5)] = 0.02
    """Share of the pool kept for the growth of running requests when new ones ask."""


class MatchConfig(Section):
    """Which requests a pool takes, by prompt length in tokens."""

    min_prompt_tokens: Annotated[int, Field(ge=0)] = 0
    max_prompt_tokens: Count | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max_prompt_tokens is not None and self.max_prompt_tokens < self.min_prompt_tokens:
            raise ValueError("max_prompt_tokens is below min_prompt_tokens")
        return self


class PoolConfig(Section):
    """A named group of equal workers."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,31}$")]
    role: PoolRole
    replicas: Annotated[int, Field(ge=0, le=256)] = 1
    match: MatchConfig = MatchConfig()
    engine: EngineConfig | None = None
    """Default: the top-level engine section."""
    cores: tuple[int, ...] | None = None
    """CPU cores for the pool's workers, dealt out evenly; default: chosen by the launcher."""


class TransportConfig(Section):
    """How KV moves."""

    kind: Literal["nixl", "tcp"] = "nixl"
    allow_fallback: bool = False
    """Whether a worker without UCX may fall back to tcp (said loudly) instead of ending."""
    lease_ms: Positive = 5_000.0
    """A transfer without progress or renewal for this long is given up."""
    poll_interval_ms: Positive = 0.5
    """Between polls while a transfer is open; nothing polls otherwise."""


class RouterConfig(Section):
    """Membership and choice."""

    heartbeat_ms: Positive = 250.0
    suspect_after_ms: Positive = 1_500.0
    dead_after_ms: Positive = 5_000.0
    local_prefill_tokens: Annotated[int, Field(ge=0)] = 32
    """Prompts up to this length may be prefilled on the decode worker when that is predicted to
    be quicker; longer ones only when no prefill worker is alive."""
    max_queue_ms: Positive = 300_000.0
    """A request whose predicted TTFT lies, because of others' work, beyond this or beyond its own
    deadline is answered 429 at once."""

    @model_validator(mode="after")
    def _patient(self) -> Self:
        if not self.heartbeat_ms < self.suspect_after_ms < self.dead_after_ms:
            raise ValueError(
                "heartbeat_ms must be below suspect_after_ms, and that below dead_after_ms"
            )
        return self


class GatewayConfig(Section):
    """HTTP."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    api_key: str | None = None
    """Wanted from every client as a bearer token; compulsory beyond loopback."""
    max_body_bytes: Count = 4 << 20
    max_attempts: Count = 4
    """Tries of one request over worker failures."""
    default_max_tokens: Count = 1_024
    """For chat requests that name none."""


class SloClassConfig(Section):
    """A named set of targets; a request names the class or brings its own figures."""

    ttft_ms: Positive = 2_000.0
    tpot_ms: Positive = 100.0
    deadline_ms: Positive = 600_000.0


class LaunchConfig(Section):
    """Processes of one host."""

    pin_cores: bool = True
    ready_timeout_s: Positive = 300.0
    restart_backoff_s: Positive = 0.5
    restart_backoff_max_s: Positive = 30.0
    stop_grace_s: Positive = 4.0
    hung_grace_s: Annotated[float, Field(ge=0)] = 5.0
    """A router or worker that runs, yet has shown no sign of life for `router.dead_after_ms`, is
    killed and started again unless it comes back within this. 0: never (debuggers stop it too)."""


def default_pools() -> tuple[PoolConfig, ...]:
    return (
        PoolConfig(name="prefill", role=PoolRole.PREFILL),
        PoolConfig(name="decode", role=PoolRole.DECODE),
    )


def default_slo_classes() -> dict[str, SloClassConfig]:
    return {
        "interactive": SloClassConfig(ttft_ms=500.0, tpot_ms=50.0),
        "standard": SloClassConfig(),
        "batch": SloClassConfig(ttft_ms=30_000.0, tpot_ms=1_000.0, deadline_ms=3_600_000.0),
    }


class Config(Section):
    """The whole deployment."""

    model: ModelConfig = ModelConfig()
    engine: EngineConfig = EngineConfig()
    pools: Annotated[tuple[PoolConfig, ...], Field(min_length=1)] = Field(
        default_factory=default_pools
    )
    transport: TransportConfig = TransportConfig()
    router: RouterConfig = RouterConfig()
    gateway: GatewayConfig = GatewayConfig()
    slo_classes: dict[str, SloClassConfig] = Field(default_factory=default_slo_classes)
    launch: LaunchConfig = LaunchConfig()
    state_dir: str | None = None
    """Logs, caches, run files; default: `baton` under the user's cache directory."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        names = [pool.name for pool in self.pools]
        if len(set(names)) != len(names):
            raise ValueError(f"pools: names must differ, not {names}")
        if "standard" not in self.slo_classes:
            raise ValueError(
                "slo_classes: 'standard' is missing; it serves requests that name none"
            )
        if not any(p.role is not PoolRole.PREFILL and p.replicas for p in self.pools):
            raise ValueError("pools: at least one decode worker is needed (role decode or both)")
        return self

    def engine_of(self, pool: PoolConfig) -> EngineConfig:
        return pool.engine or self.engine
