"""The one model this deployment serves, as the API needs it."""

from dataclasses import dataclass
from pathlib import Path

from core.config import ModelConfig
from core.errors import UnknownModel
from engine.prepared_model import open_prepared
from engine.tokenizer import Tokenizer

DEFAULT_NAME = "default"
"""Always a name of the model, whatever else it is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """`max_context` is prompt and answer together, `vocab` one past the highest token id that the
    model takes, both in tokens. `created_s`: Unix time of this start."""

    name: str
    tokenizer: Tokenizer
    max_context: int
    vocab: int
    fingerprint: str
    created_s: int

    @classmethod
    def open(cls, directory: Path, config: ModelConfig, created_s: int) -> "ServedModel":
        """Raises:
        ModelError: no whole prepared model at `directory`.
        """
        spec = open_prepared(directory).spec
        limit = config.max_context or spec.max_context
        return cls(
            name=config.served_name or spec.name,
            tokenizer=Tokenizer.load(directory),
            max_context=min(limit, spec.max_context),
            vocab=spec.vocab,
            fingerprint=spec.fingerprint,
            created_s=created_s,
        )

    def require(self, name: str | None) -> None:
        """Raises:
        UnknownModel: `name` is none of this model's.
        """
        if name not in (None, DEFAULT_NAME, self.name):
            raise UnknownModel(
                f"The model '{name}' does not exist; this deployment serves '{self.name}'.",
                param="model",
            )
