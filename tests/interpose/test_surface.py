"""What a program may call, outside of a run."""

from __future__ import annotations

import pytest

from racegate.interpose import observe, recording
from racegate.interpose.errors import BadInput


def test_observe_costs_a_program_nothing_without_a_device() -> None:
    observe("anything", object())


def test_recording_without_a_device_says_how_to_get_one() -> None:
    with pytest.raises(BadInput, match="-m racegate"), recording():
        pass
