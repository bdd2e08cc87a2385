"""The deployment's one CURVE key pair: who holds it belongs to the deployment.

The launcher makes it at start and hands the file's path to every process it starts. Each process
is a CURVE server for its own mailbox and a CURVE client of its peers', with the same pair, and
admits nobody who can't prove the same secret.
"""

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

import zmq

from core.errors import SetupError

KEY_CHARS = 40
"""A 32-byte key in Z85, as ZeroMQ writes it."""
FILE_MODE = 0o600


@dataclass(frozen=True, slots=True)
class DeploymentKeys:
    """A CURVE pair in Z85. Never printed, never logged, never part of a message."""

    public: bytes = field(repr=False)
    secret: bytes = field(repr=False)

    @classmethod
    def create(cls) -> "DeploymentKeys":
        public, secret = zmq.curve_keypair()
        return cls(public, secret)

    def save(self, path: Path) -> None:
        """Write the secret to a new file that only its owner can read.

        Raises:
            SetupError: the file exists already, or can't be written.
        """
        try:
            # O_EXCL: never into a file or through a link that somebody else has put there.
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
            with os.fdopen(fd, "wb") as file:
                file.write(self.secret + b"\n")
        except OSError as error:
            raise SetupError(f"can't write the key file {path}: {error.strerror}") from error

    @classmethod
    def load(cls, path: Path) -> "DeploymentKeys":
        """Read the pair back; the public half follows from the secret.

        Raises:
            SetupError: missing, not a key file, not ours, or readable by others (then whoever
                has read it could already be talking to us).
        """
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            with os.fdopen(fd, "rb") as file:
                _check_privacy(path, os.fstat(file.fileno()))
                text = file.read(KEY_CHARS + 2)
        except OSError as error:
            raise SetupError(f"can't read the key file {path}: {error.strerror}") from error
        secret = text.removesuffix(b"\n")
        if len(secret) != KEY_CHARS:
            raise SetupError(f"{path} is no key file")
        try:
            return cls(zmq.curve_public(secret), secret)
        except (zmq.ZMQError, ValueError) as error:
            raise SetupError(f"{path} is no key file") from error


def _check_privacy(path: Path, info: os.stat_result) -> None:
    if not stat.S_ISREG(info.st_mode):
        raise SetupError(f"the key file {path} is no regular file")
    if info.st_uid != os.geteuid():
        raise SetupError(f"the key file {path} belongs to user {info.st_uid}, not to us")
    if info.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        mode = stat.S_IMODE(info.st_mode)
        raise SetupError(f"the key file {path} has mode {mode:04o}; it must be {FILE_MODE:04o}")
