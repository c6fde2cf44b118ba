"""Operators that native/operators.c runs do what those do that go the other way."""

from __future__ import annotations

from pathlib import Path

import msgspec

from cuda_torch import needs_cuda_torch
from racegate.history.schedule import Hold
from racegate.interpose.outcome import Ending, Plan
from racegate.targets.program.launch import DeviceServer, Program

SCRIPT = """
import torch

import racegate


def on(device):
    a = torch.arange(12.0, device=device).view(3, 4)
    b = torch.full((3, 4), 2.0, device=device)
    rows = torch.tensor([2, 0], device=device)
    weight = torch.nn.Parameter(torch.ones(4, device=device))
    out = torch.empty(3, 4, device=device)
    torch.mul(a, 3, out=out)
    yield "a number for a tensor, out=", out
    yield "a number first", 2 - a
    yield "one view twice", b.clone().add_(a).mul_(a[0]).sub_(b[0, 0])
    yield "in place, of itself", b.t().add_(b.t())
    yield "a number in place", b.mul_(0.5).fill_(3)
    yield "named arguments", a.addcmul(b, b, value=0.5)
    yield "a list", torch.cat([a, b[:2], a[:0]])
    yield "more than one result", torch.nn.functional.layer_norm(a, (4,), weight, b[0])
    yield "results by name", torch.sort(a, descending=True).values
    yield "indices", a[rows].index_copy(0, rows[1:], b[:1])
    yield "with gaps", a[:, ::2].sqrt() + a.t()[::2].t()
    yield "no element", a[:0] + 1
    yield "one element", a.sum()
    yield "whole numbers", (a.long() // 3).bool()
    yield "lazy bits", torch.view_as_real(torch.complex(a, b).conj().resolve_conj()) + a[0, 0].neg()
    yield "an argument of the host", a * torch.tensor(2.0)
    yield "where", torch.where(a > 3, a, 0.0)
    yield "made of numbers", torch.eye(2, 3, device=device) + torch.linspace(0, 1, 3, device=device)
    yield "it grows", torch.add(a, b, out=torch.empty(0, device=device))


with torch.no_grad():
    for (name, there), (_, here) in zip(on("cuda"), on("cpu"), strict=True):
        assert torch.equal(there.cpu(), here), (name, there, here)
        assert there.stride() == here.stride() and there.dtype == here.dtype, name
        racegate.observe(name, there)
"""


@needs_cuda_torch
def test_both_ways_give_the_values_of_the_host_and_the_same_events(
    device: DeviceServer, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    nothing_held = device.run(Program((str(script),)), Plan())
    other_way = device.run(Program((str(script),)), Plan(holds=(Hold(op="never@x.py:f#1"),)))
    unrecorded = device.run(Program((str(script),)), Plan(is_recording=False))
    for outcome in (nothing_held, other_way, unrecorded):
        assert (outcome.ending, outcome.message) == (Ending.FINISHED, "")
        assert outcome.observations == nothing_held.observations
    assert msgspec.structs.replace(other_way, realised={}) == nothing_held


NUMBERS = """
import sys

import torch

made = torch.arange(2, 9, 3, device="cuda"), torch.eye(2, device="cuda")
assert [one.tolist() for one in made] == [[2, 5, 8], [[1.0, 0.0], [0.0, 1.0]]]
by_one = torch.arange(3, device="cuda"), torch.arange(1.5, 4, device="cuda")
assert [one.tolist() for one in by_one] == [[0, 1, 2], [1.5, 2.5, 3.5]]
assert not {"torch._dynamo", "sympy"} & sys.modules.keys()
"""


@needs_cuda_torch
def test_what_is_made_of_numbers_does_not_import_the_compiler(
    device: DeviceServer, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(NUMBERS)
    outcome = device.run(Program((str(script),)), Plan())
    assert (outcome.ending, outcome.message) == (Ending.FINISHED, "")
