"""A model converted once into what workers map: spec, tokenizer, weights in the compute dtype.

Preparing runs in the launcher before any port is opened; nothing here loads torch unless there
is something to convert.
"""

import errno
import fcntl
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import xxhash

from core.errors import ModelError
from core.kv_layout import DTYPE_BYTES
from engine.model_spec import ModelSpec
from engine.weights.resolve import ModelSource, resolve

SPEC_FILE = "model.json"
WEIGHTS_FILE = "weights.safetensors"
RECORD_FILE = "prepared.json"
PREPARED_VERSION = 2
"""To be raised whenever the same source would be prepared differently."""

Progress = Callable[[str, int, int], None]
"""Told (what is being done, units done, units in all); all is 0 where it isn't known."""


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A directory with model.json, the tokenizer's files and weights.safetensors in `dtype`."""

    path: Path
    spec: ModelSpec
    dtype: str


def prepare_model(source: str, dtype: str, cache_dir: Path, progress: Progress) -> PreparedModel:
    """The prepared form of a model, converted now unless it has been already.

    A directory appears under its final name only when complete; of several processes one
    converts and the others wait.

    Args:
        source: `demo`, a GGUF file, a Hugging Face directory, or `random:...`.
        dtype: float32, bfloat16 or float16: of weights, activations and KV.
        cache_dir: created if need be.

    Raises:
        ModelError: the model is missing, damaged or unknown, or the cache can't be written.
    """
    if dtype not in DTYPE_BYTES:
        raise ModelError(f"unknown dtype '{dtype}'; known: {', '.join(DTYPE_BYTES)}")
    found = resolve(source)
    key = xxhash.xxh3_128_hexdigest(f"{PREPARED_VERSION}\0{found.kind}\0{found.identity}".encode())
    target = cache_dir / f"{key}-{dtype}"
    ready = _open_if_whole(target)
    if ready is not None:
        return ready
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with _locked(cache_dir / f".{target.name}.lock", progress):
            ready = _open_if_whole(target)
            return ready if ready is not None else _prepare(found, dtype, target, progress)
    except OSError as error:
        room = " (no space left for the prepared weights)" if error.errno == errno.ENOSPC else ""
        raise ModelError(f"{source}: can't be prepared in {cache_dir}: {error}{room}") from error


def open_prepared(path: Path) -> PreparedModel:
    """Open a directory that `prepare_model` has made.

    Raises:
        ModelError: it isn't one, or isn't whole.
    """
    try:
        record = json.loads((path / RECORD_FILE).read_text(encoding="utf-8"))
        if not isinstance(record, dict) or record.get("version") != PREPARED_VERSION:
            raise ModelError(f"{path}: prepared by another version of baton")
        held = (path / WEIGHTS_FILE).stat().st_size
        if held != record["weights_bytes"]:
            raise ModelError(
                f"{path / WEIGHTS_FILE}: has {held} bytes, expected {record['weights_bytes']}"
            )
        spec = ModelSpec.from_json((path / SPEC_FILE).read_text(encoding="utf-8"))
        return PreparedModel(path, spec, str(record["dtype"]))
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"{path}: not a prepared model: {error}") from error


def _open_if_whole(path: Path) -> PreparedModel | None:
    if not path.is_dir():
        return None
    try:
        return open_prepared(path)
    except ModelError:
        return None  # prepared again from the source, in its place


def _prepare(source: ModelSource, dtype: str, target: Path, progress: Progress) -> PreparedModel:
    """Convert beside the target and move there. The caller holds the lock."""
    draft = target.with_name(f".{target.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    try:
        _fill(source, dtype, draft, progress)
        shutil.rmtree(target, ignore_errors=True)
        draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return open_prepared(target)


def _fill(source: ModelSource, dtype: str, draft: Path, progress: Progress) -> None:
    progress("reading the model", 0, 0)
    weights = source.open()
    from engine.weights.prepared_file import write_prepared_file

    progress("writing the tokenizer", 0, 0)
    tokens = weights.write_tokenizer(draft)
    spec = weights.spec
    if tokens.vocab_size > spec.vocab:
        raise ModelError(
            f"{source.text}: the tokenizer has {tokens.vocab_size} tokens, the model only "
            f"{spec.vocab}"
        )
    digest = write_prepared_file(
        weights,
        dtype,
        draft / WEIGHTS_FILE,
        lambda done, total: progress("converting weights", done, total),
    )
    spec = replace(
        spec,
        bos_token_id=tokens.bos_token_id,
        eos_token_ids=tokens.eos_token_ids,
        fingerprint=_fingerprint(spec, dtype, digest),
    )
    (draft / SPEC_FILE).write_text(spec.to_json(), encoding="utf-8")
    record = {
        "version": PREPARED_VERSION,
        "source": source.text,
        "dtype": dtype,
        "weights_bytes": (draft / WEIGHTS_FILE).stat().st_size,
    }
    (draft / RECORD_FILE).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _fingerprint(spec: ModelSpec, dtype: str, digest: str) -> str:
    """Equal where KV is: same weights, shape and dtype, whatever the name or the special tokens."""
    shape = asdict(replace(spec, name="", max_context=1, bos_token_id=None, eos_token_ids=()))
    return xxhash.xxh3_128_hexdigest(json.dumps([shape, dtype, digest], sort_keys=True).encode())


@contextmanager
def _locked(path: Path, progress: Progress) -> Iterator[None]:
    """Hold an exclusive lock, which the kernel takes back when its holder dies."""
    with path.open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another process that prepares this model", 0, 0)
            fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)
