"""Preparing a model: once, atomically, quickly the second time, with errors that say what to do."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from core.errors import ModelError
from engine.prepared_model import (
    RECORD_FILE,
    SPEC_FILE,
    WEIGHTS_FILE,
    PreparedModel,
    open_prepared,
    prepare_model,
)
from engine.weights import prepared_file
from engine.weights.store import map_weights
from tests.engine.tokenizer_cases import sentencepiece_metadata
from tests.engine.weights.gguf_builder import write_tiny
from tests.engine.weights.safetensors_builder import tensors, write_directory

TINY = "random:llama?layers=1,hidden=32,vocab=300"


def prepare(source: str, cache: Path, dtype: str = "float32") -> PreparedModel:
    return prepare_model(source, dtype, cache, lambda what, done, total: None)


def files_of(prepared: PreparedModel) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in prepared.path.iterdir()}


def test_everything_a_worker_needs_is_there(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    prepared = prepare_model(TINY, "bfloat16", tmp_path, lambda *step: told.append(step))
    wanted = {SPEC_FILE, RECORD_FILE, WEIGHTS_FILE, "tokenizer.json", "tokenizer_config.json"}
    assert set(files_of(prepared)) == wanted
    assert prepared.spec.eos_token_ids == (258,)
    assert len(prepared.spec.fingerprint) == 32
    assert open_prepared(prepared.path) == prepared
    assert {tensor.dtype for tensor in map_weights(prepared).values()} == {torch.bfloat16}
    assert [what for what, _, _ in told][:2] == ["reading the model", "writing the tokenizer"]
    assert told[-1][0] == "converting weights"
    assert told[-1][1] == told[-1][2] > 0


def test_the_second_time_nothing_is_written(tmp_path: Path) -> None:
    first = prepare(TINY, tmp_path)
    before = files_of(first)
    assert prepare(TINY, tmp_path) == first
    assert files_of(first) == before


def test_the_second_time_is_quick_and_without_torch(tmp_path: Path) -> None:
    prepare(TINY, tmp_path)
    script = (
        "import sys, time; from pathlib import Path\n"
        "from engine.prepared_model import prepare_model\n"
        "begin = time.thread_time()\n"
        f"prepare_model({TINY!r}, 'float32', Path({str(tmp_path)!r}), print)\n"
        "print(time.thread_time() - begin, 'torch' in sys.modules, 'numpy' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    seconds, torch_loaded, numpy_loaded = done.stdout.split()
    assert float(seconds) < 0.05
    assert (torch_loaded, numpy_loaded) == ("False", "False")


def test_fingerprints_tell_weights_and_dtypes_apart_but_not_names(tmp_path: Path) -> None:
    general = sentencepiece_metadata()
    for name in ("a", "b"):
        write_tiny(tmp_path / f"{name}.gguf", general=general)
    one, same = (prepare(str(tmp_path / f"{name}.gguf"), tmp_path / "cache") for name in "ab")
    assert one.path != same.path
    assert one.spec.fingerprint == same.spec.fingerprint
    half = prepare(str(tmp_path / "a.gguf"), tmp_path / "cache", "bfloat16")
    other = prepare(TINY, tmp_path / "cache")
    assert len({one.spec.fingerprint, half.spec.fingerprint, other.spec.fingerprint}) == 3


def test_a_changed_file_is_prepared_anew(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_tiny(path, general=sentencepiece_metadata())
    first = prepare(str(path), tmp_path / "cache")
    os.utime(path, ns=(5, 5))
    assert prepare(str(path), tmp_path / "cache").path != first.path


def test_special_tokens_come_from_the_tokenizer(tmp_path: Path) -> None:
    write_tiny(tmp_path / "m.gguf", general=sentencepiece_metadata())
    spec = prepare(str(tmp_path / "m.gguf"), tmp_path / "cache").spec
    assert (spec.bos_token_id, spec.eos_token_ids) == (1, (2,))


def test_a_directory_s_ends_are_those_of_its_generation_config(tmp_path: Path) -> None:
    source = "random:qwen2?layers=2,hidden=32,vocab=300"
    tokenizer = prepare(source, tmp_path / "cache").path
    published, directory = tensors(source), tmp_path / "hf"
    write_directory(directory, published, shards=2)
    shutil.copy(tokenizer / "tokenizer.json", directory)
    (directory / "generation_config.json").write_text('{"eos_token_id": [258, 256]}')
    prepared = prepare(str(directory), tmp_path / "cache")
    assert set(prepared.spec.eos_token_ids) == {256, 258}
    assert prepared.spec.name == "hf"
    assert torch.equal(map_weights(prepared)["lm_head.weight"], published["lm_head.weight"])


def test_a_tokenizer_larger_than_the_model_is_refused(tmp_path: Path) -> None:
    general = sentencepiece_metadata()
    for key in ("tokens", "token_type", "scores"):
        values = general[f"tokenizer.ggml.{key}"]
        general[f"tokenizer.ggml.{key}"] = [*values, *values[-1:] * (276 - len(values))]
    tokens = general["tokenizer.ggml.tokens"]
    tokens[:] = [f"extra {i}" if text in tokens[:i] else text for i, text in enumerate(tokens)]
    write_tiny(tmp_path / "m.gguf", general=general)
    with pytest.raises(ModelError, match="tokenizer has 276 tokens, the model only 275"):
        prepare(str(tmp_path / "m.gguf"), tmp_path / "cache")


@pytest.mark.parametrize("damage", ["no record", "short weights", "no spec", "old version"])
def test_a_half_written_directory_is_made_whole(damage: str, tmp_path: Path) -> None:
    prepared = prepare(TINY, tmp_path)
    record = prepared.path / RECORD_FILE
    if damage == "no record":
        record.unlink()
    elif damage == "short weights":
        os.truncate(prepared.path / WEIGHTS_FILE, 5_000)
    elif damage == "no spec":
        (prepared.path / SPEC_FILE).unlink()
    else:
        record.write_text(json.dumps({**json.loads(record.read_text()), "version": 0}))
    with pytest.raises(ModelError, match=str(prepared.path)):
        open_prepared(prepared.path)
    assert prepare(TINY, tmp_path) == prepared
    assert open_prepared(prepared.path) == prepared


def test_a_draft_of_a_dead_process_is_no_obstacle(tmp_path: Path) -> None:
    prepared = prepare(TINY, tmp_path)
    draft = tmp_path / f".{prepared.path.name}.draft"
    prepared.path.rename(draft)
    (draft / "leftover").write_text("x")
    assert set(files_of(prepare(TINY, tmp_path))) == set(files_of(prepared))
    assert not draft.exists()


def test_a_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: object, dtype: object, path: Path, progress: object) -> str:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(prepared_file, "write_prepared_file", full)
        with pytest.raises(ModelError, match="No space left on device"):
            prepare(TINY, tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]
    prepare(TINY, tmp_path)


def test_one_converts_while_the_other_waits(tmp_path: Path) -> None:
    prepared = prepare(TINY, tmp_path)
    waiting, results = threading.Event(), []

    def second() -> None:
        results.append(prepare_model(TINY, "float32", tmp_path, note))

    def note(what: str, done: int, total: int) -> None:
        assert what.startswith("waiting"), "it converted although another had"
        waiting.set()

    away = prepared.path.with_name("away")
    with (tmp_path / f".{prepared.path.name}.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        prepared.path.rename(away)
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(30)
        away.rename(prepared.path)
    thread.join(30)
    assert results == [prepared]


def test_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="unknown dtype 'int3'; known: float32"):
        prepare(TINY, tmp_path, "int3")
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="can't be prepared in"):
        prepare(TINY, tmp_path / "file")
    with pytest.raises(ModelError, match="not a prepared model"):
        open_prepared(tmp_path)
    with pytest.raises(ModelError, match="not a GGUF file"):
        prepare(str(tmp_path / "file"), tmp_path / "cache")
    assert list((tmp_path / "cache").glob(".*draft")) == []
    with pytest.raises(ModelError, match="at least 260"):
        prepare("random:llama?vocab=100", tmp_path / "cache")
