"""`--device cuda` where there is no GPU."""

from __future__ import annotations

import ctypes
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from racegate.cli.foreign.torch import app
from racegate.history.witness import checksum_of
from racegate.interpose.build import find_toolkit
from racegate.interpose.errors import BadInput
from racegate.interpose.gpu.presence import why_no_gpu


class Driver:
    """A driver that answers what it is told to."""

    def __init__(self, *, error: int, count: int) -> None:
        self._error = error
        self._count = count

    def cuInit(self, flags: int) -> int:
        return self._error

    def cuDeviceGetCount(self, count: object) -> int:
        ctypes.cast(count, ctypes.POINTER(ctypes.c_int))[0] = self._count  # type: ignore[arg-type]
        return 0


def no_driver(name: str) -> Driver:
    raise OSError(name)


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", no_driver)
    assert re.match(r"no NVIDIA driver.*leave out --device cuda", why_no_gpu())


@pytest.mark.parametrize(("error", "count"), [(100, 0), (0, 0)])
def test_no_gpu(monkeypatch: pytest.MonkeyPatch, error: int, count: int) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver(error=error, count=count))
    assert "finds no GPU" in why_no_gpu()


def test_a_gpu_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver(error=0, count=1))
    assert not why_no_gpu()


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        find_toolkit()
    except BadInput as error:
        pytest.skip(str(error))
    monkeypatch.setattr(ctypes, "CDLL", no_driver)


@pytest.mark.usefixtures("no_gpu")
def test_the_command_says_it_and_ends_with_bad_input(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("")
    result = CliRunner().invoke(app, ["run", "--device", "cuda", str(tmp_path / "script.py")])
    assert isinstance(result.exception, BadInput)
    assert "no NVIDIA driver" in str(result.exception)


@pytest.mark.usefixtures("no_gpu")
def test_a_replay_on_a_gpu_asks_for_one(tmp_path: Path) -> None:
    fields = {
        "schema": "racegate.program/1", "title": "x",
        "argv": ["script.py"], "holds": ["d2h@x.py:f#1"],
        "polls": 0, "signature": "0" * 12, "buffer": "x", "edge": "", "expected": [], "actual": [],
        "ending": "", "versions": {},
        "first": {"name": "d2h@x.py:f#1", "lane": "stream 1", "is_write": True},
        "second": {"name": "host read@x.py:f#1", "lane": "the host", "is_write": False},
    }  # fmt: skip
    file = tmp_path / "w.witness.json"
    file.write_text(json.dumps(fields | {"checksum": checksum_of(fields)}))
    result = CliRunner().invoke(app, ["replay", "--device", "cuda", str(file)])
    assert isinstance(result.exception, BadInput)
    assert "no NVIDIA driver" in str(result.exception)
