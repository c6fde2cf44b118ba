"""What kernels of an engine are given beside their tensors, launch by launch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton.runtime

from racegate.targets.common.inside.listener import EngineListener
from racegate.targets.common.inside.triton import note_settings


def scale(x_ptr: Any, n: int, BLOCK: int) -> None:
    """The signature of a kernel."""


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Launches the kernel; it has a listener that is told."""

    class Executor:
        fn = staticmethod(scale)
        arg_names = ("x_ptr", "n", "BLOCK")
        listener = EngineListener()

        def __call__(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
            return args, kwargs

    interpreter = SimpleNamespace(GridExecutor=Executor)
    monkeypatch.setattr(triton.runtime, "interpreter", interpreter, raising=False)
    note_settings(Executor.listener)
    return Executor()


def test_numbers_and_flags_are_noted_and_handed_on(launch: Any) -> None:
    tensor, constant = torch.zeros(2), SimpleNamespace(value=8)
    assert launch(tensor, 2, BLOCK=constant) == ((tensor, 2), {"BLOCK": constant})
    assert launch.listener.settings() == {"scale: given n": [2], "scale: given BLOCK": [8]}


def test_the_same_is_told_once(launch: Any) -> None:
    for n, apply in ((2, False), (3, False), (2, True), (2, True)):
        launch(None, n, 8, apply=apply)
    assert launch.listener.settings() == {
        "scale: given x_ptr": [None],
        "scale: given n": [2, 3, 2],
        "scale: given BLOCK": [8],
        "scale: given apply": [False, True],
    }


def test_an_address_is_no_setting(launch: Any) -> None:
    launch(1 << 40, 2, 8)
    assert launch.listener.settings() == {"scale: given n": [2], "scale: given BLOCK": [8]}


def test_a_run_forgets_what_another_was_given(launch: Any) -> None:
    launch(None, 2, 8)
    launch.listener.begin()
    assert launch.listener.settings() == {}
