"""Kernels' effects are taken over by other engines of their environment."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import numpy as np
import pytest

from kept_launches import add_vouched, is_mapped, on, opened
from racegate.interpose.kernels.kept.memo import Memo
from racegate.targets.common.inside import triton as kept_effects
from racegate.targets.common.inside.triton import FILE, KeptEffects

SETTINGS = ("v1", "none")


def file_in(folder: Path) -> Path:
    """The only one."""
    (file,) = folder.iterdir()
    assert file.name.startswith(f"{FILE}.")
    return file


def ran(*sources: int) -> Memo:
    """Of a run that has launched something with each of these."""
    memo = opened()
    for source in sources:
        array, target = np.array([source]), np.array([0])
        add_vouched(memo, array, target, on(array, target))
    return memo


def kept_in(folder: Path, *sources: int) -> None:
    """What an engine keeps of such a run."""
    kept = KeptEffects(Memo(), SETTINGS, folder)
    kept.load()
    kept.share(ran(*sources).dump())


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


def test_engines_that_run_beside_each_other_take_over_what_either_adds(tmp_path: Path) -> None:
    memos = Memo(), Memo()
    first, second = (KeptEffects(memo, SETTINGS, tmp_path) for memo in memos)
    first.load()
    second.load()
    for kept, memo, effects in ((first, memos[0], ran(5)), (second, memos[1], ran(5, 6))):
        kept.share(effects.dump())
        memo.load(effects.dump())
    before = file_in(tmp_path).stat().st_size
    first.share(ran().dump())
    assert memos[0].new_for_others(ran(5, 6).dump()) == {}
    assert file_in(tmp_path).stat().st_size == before
    assert knows(tmp_path, 5) and knows(tmp_path, 6)


@pytest.mark.parametrize("cut", [1, 5])
def test_a_record_that_is_not_whole_is_written_over(tmp_path: Path, cut: int) -> None:
    kept_in(tmp_path, 5)
    whole = file_in(tmp_path).stat().st_size
    kept_in(tmp_path, 6)
    with file_in(tmp_path).open("r+b") as file:
        file.truncate(file.seek(0, 2) - cut if cut == 1 else whole + cut)
    assert knows(tmp_path, 5) and not knows(tmp_path, 6)
    kept_in(tmp_path, 7)
    assert knows(tmp_path, 5) and knows(tmp_path, 7)


def test_an_engine_goes_on_in_a_file_that_others_have_begun_anew(tmp_path: Path) -> None:
    kept = KeptEffects(Memo(), SETTINGS, tmp_path)
    kept.share(ran(5, 6, 7, 8, 9).dump())
    file_in(tmp_path).unlink()
    kept_in(tmp_path, 10)
    kept.share(ran(11).dump())
    assert knows(tmp_path, 10) and knows(tmp_path, 11)


def test_engines_with_other_settings_have_a_file_of_their_own(tmp_path: Path) -> None:
    kept_in(tmp_path, 5)
    memo = Memo()
    KeptEffects(memo, ("v2", "none"), tmp_path).load()
    assert memo.new_for_others(ran(5).dump())
    assert knows(tmp_path, 5)


def test_other_packages_made_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_in(tmp_path, 5)
    file_of_ours = file_in(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(kept_effects, "version", lambda name: f"other {name}")
        assert not knows(tmp_path, 5)
        kept_in(tmp_path, 6)
        assert knows(tmp_path, 6)
    assert knows(tmp_path, 5) and not knows(tmp_path, 6)
    (theirs,) = (file for file in tmp_path.iterdir() if file != file_of_ours)
    os.utime(theirs, (0, 0))
    assert knows(tmp_path, 5)
    assert file_in(tmp_path) == file_of_ours  # theirs was not used for long


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
    assert not knows(tmp_path, 6) and knows(tmp_path, 5)
