"""What one session is asked to generate: one prompt, `n` choices."""

from dataclasses import dataclass

from core.ids import RequestId
from core.sampling import SamplingParams
from core.slo import Slo
from wire.messages import RoutePath


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A checked request in token ids. `stop` holds the stop strings, which stay in the gateway;
    everything else goes to the workers as it is."""

    request: RequestId
    prompt: tuple[int, ...]
    sampling: SamplingParams
    slo: Slo
    stop: tuple[str, ...] = ()
    tenant: str = ""
    cache_salt: str = ""
    path: RoutePath = RoutePath.ANY
    continues_prompt: bool = True
    """The text goes on from the prompt's (completions), rather than being a message of its own:
    says whose the first space of a SentencePiece vocabulary is."""
    warm_up: bool = False
    """The gateway's own, at start: not counted in the metrics."""
