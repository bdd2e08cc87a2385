"""What one child process is told at its start: a JSON file that only its owner can read."""

import json
import os
from enum import StrEnum
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from core.config import Config, PoolConfig
from core.errors import SetupError
from core.ids import Incarnation, ProcessId, WorkerName


class RoleKind(StrEnum):
    ROUTER = "router"
    GATEWAY = "gateway"
    WORKER = "worker"


class RoleSpec(BaseModel):
    """Everything a role needs to know; nothing is left to its environment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: RoleKind
    name: str
    incarnation: int
    config: Config
    pool: PoolConfig | None = None
    """The worker's own; None for gateway and router."""
    prepared_model: Path | None = None
    """The directory `prepare_model` made; None for the router."""
    key_file: Path
    router_address: str
    bind_host: str
    bind_port: int = 0
    """Of the process's channel; 0 picks one. The router's is fixed, so that it is found again."""
    cores: tuple[int, ...] = ()
    """CPU cores to run on; empty: wherever the system likes."""
    report_fd: int
    launcher_pid: int
    log_file: Path
    log_level: str = "INFO"

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.role is RoleKind.WORKER and self.pool is None:
            raise ValueError("a worker's spec names its pool")
        if self.role is not RoleKind.ROUTER and self.prepared_model is None:
            raise ValueError(f"a {self.role}'s spec names its prepared model")
        return self

    @property
    def process(self) -> ProcessId:
        return ProcessId(WorkerName(self.name), Incarnation(self.incarnation))

    def save(self, path: Path) -> None:
        """Write (or replace) the file, whole or not at all, readable by its owner only: the
        configuration holds the API key."""
        draft = path.with_suffix(".draft")
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            # Not model_dump_json: it writes an infinite limit of the configuration as null.
            json.dump(self.model_dump(), file, indent=1, default=str)
        draft.replace(path)

    @classmethod
    def load(cls, path: Path) -> "RoleSpec":
        """Read it back.

        Raises:
            SetupError: missing, or no spec.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise SetupError(f"can't read the role's spec {path}: {error.strerror}") from error
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part) for part in problem["loc"])
            raise SetupError(f"{path} is no role's spec: {place}: {problem['msg']}") from None
