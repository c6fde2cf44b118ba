"""What is said of random programs of two ranks, beside every order that hosts and devices have."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from rank_orders import racing_programs
from rank_scripts import AT_ONCE, judged_beside_orders

from cuda_torch import needs_cuda_torch
from racegate.targets.program.launch import DeviceServer


@needs_cuda_torch
@pytest.mark.parametrize("seed", range(4))
def test_a_conflict_is_what_no_order_of_hosts_and_devices_forbids(
    device: DeviceServer, tmp_path: Path, seed: int
) -> None:
    """Programs that race are told of, and no others, by pairs that may come the other way."""
    draw = random.Random(seed)
    programs = [racing_programs(draw) for _ in range(AT_ONCE)]
    judged = judged_beside_orders(device, programs, tmp_path / "script.py")
    assert [wrong for one in judged for wrong in one.wrong] == []
