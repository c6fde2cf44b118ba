"""What a program may call, outside of a run."""

from __future__ import annotations

import subprocess
import sys

import pytest

import racegate
from racegate.interpose import observe, recording
from racegate.interpose.errors import BadInput


@pytest.mark.parametrize("call", [observe, racegate.observe])
def test_observe_does_nothing_without_a_device(call: object) -> None:
    assert callable(call)
    assert call("anything", object()) is None


def test_observing_imports_no_torch() -> None:
    code = (
        "import sys, racegate; racegate.observe('x', 1); import racegate.interpose; "
        "raise SystemExit(bool({'torch', 'numpy', 'triton', 'typer'} & sys.modules.keys()))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_recording_without_a_device_says_how_to_get_one() -> None:
    with pytest.raises(BadInput, match="racegate torch run SCRIPT"), recording():
        pass
