"""One deployment's place in the state directory, held by a lock that dies with its holder.

    logs/<role>.jsonl            rotated JSON logs        (a second deployment: logs-2/)
    run/deployment.json          its processes, for `baton status`     (run/deployment-2.json)
    run/deployment.lock          locked while it lives                 (run/deployment-2.lock)
    run/deployment/              key file and role specs, mode 0700    (run/deployment-2/)
    models/                      prepared models, shared by all

Any number of deployments may share a state directory, each in the first slot that is free: the
lock (flock) is released by the kernel when the launcher dies, so a stale file is never believed.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from core.errors import SetupError

MAX_SLOTS = 32
DEFAULT_STATE_DIR = Path("~/.cache/baton")


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """One process, with the names that outsiders rely on."""

    role: str
    name: str
    pid: int | None
    """None while it isn't running (backing off)."""
    address: str
    state: str


@dataclass(frozen=True, slots=True)
class DeploymentFile:
    """What `run/deployment.json` says."""

    run_id: str
    url: str
    model: str
    started_at: str
    processes: tuple[ProcessRow, ...]


def state_dir(configured: str | None) -> Path:
    """The directory for logs, caches and run files."""
    return Path(configured or DEFAULT_STATE_DIR).expanduser().absolute()


def _name(number: int) -> str:
    return "deployment" if number == 1 else f"deployment-{number}"


class RunSlot:
    """The slot that this launcher holds, from `acquire` to `release`."""

    def __init__(self, root: Path, number: int, lock_fd: int) -> None:
        self.number = number
        self.private_dir = root / "run" / _name(number)
        self.log_dir = root / ("logs" if number == 1 else f"logs-{number}")
        self.run_file = root / "run" / f"{_name(number)}.json"
        self._lock_fd = lock_fd

    @classmethod
    def acquire(cls, root: Path) -> "RunSlot":
        """Take the first free slot and clear away what a killed launcher left in it.

        Raises:
            SetupError: the directory can't be written, or MAX_SLOTS deployments run already.
        """
        try:
            (root / "run").mkdir(parents=True, exist_ok=True)
            for number in range(1, MAX_SLOTS + 1):
                lock_fd = _try_lock(root / "run" / f"{_name(number)}.lock")
                if lock_fd is None:
                    continue
                slot = cls(root, number, lock_fd)
                slot._clear()
                slot.private_dir.mkdir(mode=0o700)
                return slot
        except OSError as error:
            raise SetupError(
                f"the state directory {root} can't be written: {error.strerror or error}; "
                "choose another with --state-dir"
            ) from error
        raise SetupError(f"{MAX_SLOTS} deployments share {root} already; use --state-dir")

    def write(self, deployment: DeploymentFile) -> None:
        """Replace the run file, whole or not at all."""
        draft = self.run_file.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(deployment), indent=1) + "\n", encoding="utf-8")
        draft.replace(self.run_file)

    def release(self) -> None:
        """Remove what only mattered while the deployment ran, and let go of the slot."""
        self._clear()
        os.close(self._lock_fd)

    def _clear(self) -> None:
        self.run_file.unlink(missing_ok=True)
        shutil.rmtree(self.private_dir, ignore_errors=True)


def running_deployments(root: Path) -> Iterator[DeploymentFile]:
    """Every deployment that lives and uses this state directory, in order of its slot."""
    for number in range(1, MAX_SLOTS + 1):
        lock = root / "run" / f"{_name(number)}.lock"
        if not lock.exists() or not _is_locked(lock):
            continue
        found = _read(root / "run" / f"{_name(number)}.json")
        if found is not None:
            yield found


def _try_lock(path: Path) -> int | None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def _is_locked(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False  # gone meanwhile, or another user's
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _read(path: Path) -> DeploymentFile | None:
    """None where the launcher hasn't written it yet, or has just removed it."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        rows = tuple(ProcessRow(**row) for row in fields.pop("processes"))
        return DeploymentFile(**fields, processes=rows)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
