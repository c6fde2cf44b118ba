"""Programs of the model of streams as programs of PyTorch: found is what it leaves unordered."""

from __future__ import annotations

from axioms import unordered
from cuda_torch import needs_cuda_torch
from modelled_torch import compared_in_torch, drawn_for_torch
from racegate.targets.program.launch import DeviceServer

DRAWN = 150


@needs_cuda_torch
def test_the_recorder_orders_what_the_model_orders(device: DeviceServer) -> None:
    programs = [drawn_for_torch(seed) for seed in range(DRAWN)]
    assert compared_in_torch(device, programs) == []
    assert {bool(unordered(program)) for program in programs} == {True, False}
