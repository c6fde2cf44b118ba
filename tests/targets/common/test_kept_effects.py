"""Kernels' effects of engines that have ended are taken over by later ones of their environment."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from kept_launches import add_vouched, is_mapped, on, opened
from racegate.interpose.kernels.memo import Memo
from racegate.targets.common.inside import triton as kept_effects
from racegate.targets.common.inside.triton import FILE, EffectsFile, KeptEffects

SETTINGS = ("v1", "none")


def file_in(folder: Path) -> Path:
    """The only one."""
    (file,) = folder.iterdir()
    assert file.name.startswith(f"{FILE}.")
    return file


def kept_in(folder: Path, *sources: int) -> None:
    """What an engine leaves that ran a launch with each of these."""
    memo = opened()
    kept = KeptEffects(memo, SETTINGS, folder)
    kept.load()
    for source in sources:
        array, target = np.array([source]), np.array([0])
        add_vouched(memo, array, target, on(array, target))
    kept.keep()


def knows(folder: Path, source: int) -> bool:
    """Whether an engine that starts now need not run that launch."""
    memo = Memo()
    KeptEffects(memo, SETTINGS, folder).load()
    array, target = np.array([source]), np.array([0])
    return (
        memo.find(on(array, target), is_recording=True, reaches=is_mapped) is not None
        and target[0] == source
    )


def test_later_engines_know_it(tmp_path: Path) -> None:
    assert not knows(tmp_path, 5)
    kept_in(tmp_path, 5)
    kept_in(tmp_path, 6)
    assert knows(tmp_path, 5) and knows(tmp_path, 6) and not knows(tmp_path, 7)
    assert file_in(tmp_path).exists()


def test_two_engines_that_end_at_once_both_leave_theirs(tmp_path: Path) -> None:
    memo = opened()
    first = KeptEffects(memo, SETTINGS, tmp_path)
    first.load()
    kept_in(tmp_path, 5)
    array, target = np.array([6]), np.array([0])
    add_vouched(memo, array, target, on(array, target))
    first.keep()
    assert knows(tmp_path, 5) and knows(tmp_path, 6)


def test_engines_with_other_settings_have_a_file_of_their_own(tmp_path: Path) -> None:
    kept_in(tmp_path, 5)
    other = KeptEffects(Memo(), ("v2", "none"), tmp_path)
    assert other.load() == b""


def test_other_packages_made_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_in(tmp_path, 5)
    with monkeypatch.context() as patched:
        patched.setattr(kept_effects, "version", lambda name: f"other {name}")
        assert not knows(tmp_path, 5)
        kept_in(tmp_path, 6)
        assert knows(tmp_path, 6)
    assert not knows(tmp_path, 6)


@pytest.mark.parametrize("content", [b"", b"\xc1", msgspec.msgpack.encode(["no", b"file"])])
def test_a_file_that_cannot_be_read_is_none(tmp_path: Path, content: bytes) -> None:
    kept_in(tmp_path, 6)
    file_in(tmp_path).write_bytes(content)
    assert not knows(tmp_path, 5)
    kept_in(tmp_path, 5)
    assert knows(tmp_path, 5)


def test_nothing_is_written_where_nothing_is_new_or_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_in(tmp_path, 5)
    before = file_in(tmp_path).stat().st_mtime_ns
    kept_in(tmp_path, 5)
    assert file_in(tmp_path).stat().st_mtime_ns == before
    monkeypatch.setattr(kept_effects, "FILE_BYTES_MAX", 1)
    kept_in(tmp_path, 6)
    assert not knows(tmp_path, 6)
    kept = msgspec.msgpack.decode(file_in(tmp_path).read_bytes(), type=EffectsFile)
    assert kept.effects
