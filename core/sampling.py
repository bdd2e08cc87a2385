"""How the next token is drawn from the logits: what a request may ask for."""

from dataclasses import dataclass, fields

from core.errors import ClientError

MAX_TOP_LOGPROBS = 20
MAX_CHOICES = 64
MAX_LOGIT_BIAS = 1_024
MAX_STOP_TOKENS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Sampling parameters in the OpenAI API's terms, plus the field's common extensions.

    Draws are counter-based: keyed by (seed, choice, position), so a request's answer depends
    on nothing else in the batch and survives replay on another worker. Stop *strings* live in
    the gateway; workers end on ids and lengths only.

    Args (units: tokens where a count):
        temperature: 0 is greedy. top_k: 0 is off. top_p, min_p: probabilities.
        repetition_penalty: multiplicative over prompt and output (CTRL, Keskar et al. 2019).
        presence_penalty, frequency_penalty: additive over output (OpenAI).
        logit_bias: (token id, bias) pairs. stop_token_ids: end without being shown.
        logprobs: None for none, else the number of top alternatives reported per token (0..20).
        choices: how many continuations of the one prompt (`n`).
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    max_tokens: int = 16
    ignore_eos: bool = False
    logprobs: int | None = None
    choices: int = 1

    def __post_init__(self) -> None:
        limits: dict[str, tuple[float, float]] = {
            "temperature": (0.0, 100.0),
            "top_k": (0, 1 << 30),
            "top_p": (1e-9, 1.0),
            "min_p": (0.0, 1.0),
            "seed": (0, (1 << 64) - 1),
            "repetition_penalty": (1e-3, 1e3),
            "presence_penalty": (-2.0, 2.0),
            "frequency_penalty": (-2.0, 2.0),
            "min_tokens": (0, 1 << 30),
            "max_tokens": (1, 1 << 30),
            "choices": (1, MAX_CHOICES),
        }
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if not low <= value <= high:  # also refuses NaN
                raise ClientError(f"{name} must be in [{low:g}, {high:g}], not {value}", param=name)
        if self.logprobs is not None and not 0 <= self.logprobs <= MAX_TOP_LOGPROBS:
            raise ClientError(
                f"top_logprobs must be in [0, {MAX_TOP_LOGPROBS}], not {self.logprobs}",
                param="top_logprobs",
            )
        if len(self.logit_bias) > MAX_LOGIT_BIAS:
            raise ClientError(
                f"logit_bias holds at most {MAX_LOGIT_BIAS} tokens, not {len(self.logit_bias)}",
                param="logit_bias",
            )
        if len(self.stop_token_ids) > MAX_STOP_TOKENS:
            raise ClientError(
                f"stop_token_ids holds at most {MAX_STOP_TOKENS} tokens, "
                f"not {len(self.stop_token_ids)}",
                param="stop_token_ids",
            )
        if any(not -100.0 <= bias <= 100.0 for _, bias in self.logit_bias):
            raise ClientError("logit_bias values must be in [-100, 100]", param="logit_bias")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def uses_history(self) -> bool:
        """Whether the draw depends on the tokens before it beyond the model's logits."""
        return (
            self.repetition_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )


FIELD_NAMES = frozenset(field.name for field in fields(SamplingParams))
