import os
import stat
from pathlib import Path

import pytest

from core.errors import SetupError
from wire.keys import DeploymentKeys


def test_saved_keys_load_again_and_only_their_owner_can_read_them(tmp_path: Path) -> None:
    keys = DeploymentKeys.create()
    path = tmp_path / "keys"
    previous = os.umask(0)
    try:
        keys.save(path)
    finally:
        os.umask(previous)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert DeploymentKeys.load(path) == keys
    assert DeploymentKeys.create() != keys


def test_keys_dont_print_themselves() -> None:
    keys = DeploymentKeys.create()
    assert keys.secret.decode() not in repr(keys)
    assert keys.public.decode() not in repr(keys)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610])
def test_a_file_that_others_could_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "keys"
    DeploymentKeys.create().save(path)
    path.chmod(mode)
    with pytest.raises(SetupError, match=f"mode {mode:04o}"):
        DeploymentKeys.load(path)


def test_an_existing_file_or_link_is_never_written_to(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "keys", tmp_path / "elsewhere"
    path.symlink_to(elsewhere)
    with pytest.raises(SetupError, match="can't write"):
        DeploymentKeys.create().save(path)
    assert not elsewhere.exists()


def test_links_and_directories_are_not_read(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    DeploymentKeys.create().save(real)
    link.symlink_to(real)
    for path in (link, tmp_path, tmp_path / "missing"):
        with pytest.raises(SetupError):
            DeploymentKeys.load(path)


@pytest.mark.parametrize("text", [b"", b"short\n", b"x" * 41 + b"\n", b'"' * 40 + b"\n"])
def test_what_is_no_key_is_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "keys"
    path.touch(0o600)
    path.write_bytes(text)
    with pytest.raises(SetupError, match="no key file"):
        DeploymentKeys.load(path)
