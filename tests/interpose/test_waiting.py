"""Inside which operators the host waits: what was measured, the rules, and that both agree."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

import pytest

from racegate.interpose.kernels.waiting import (
    ELSEWHERE,
    MORE,
    OTHER_TORCH,
    RULES,
    ImplicitWait,
    WaitReach,
    Waits,
    read_table,
)

TABLE = read_table()
REAL = [one for one in TABLE if one.device != "virtual"]
_TENSOR = re.compile(r"(cuda|cpu) (\w+)\[([\d, ]*)\]")


@dataclass(frozen=True)
class Told:
    """A tensor as the table tells of it."""

    is_cuda: bool
    shape: tuple[int, ...]

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int:
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    def stride(self) -> tuple[int, ...]:
        return self.shape

    def data_ptr(self) -> int:
        return id(self)


def call_of(text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments and named ones of a call in the table."""
    told: list[Told] = []

    def keep(found: re.Match[str]) -> str:
        shape = tuple(int(part) for part in found[3].split(",") if part.strip())
        told.append(Told(found[1] == "cuda", shape))
        return f"'told {len(told) - 1}'"

    call = ast.parse(f"f({_TENSOR.sub(keep, text)})", mode="eval").body
    assert isinstance(call, ast.Call)

    def value(node: ast.expr) -> Any:
        made = ast.literal_eval(node)
        is_told = isinstance(made, str) and made.startswith("told ")
        return told[int(made[5:])] if is_told else made

    return tuple(map(value, call.args)), {k.arg or "": value(k.value) for k in call.keywords}


def wait_of(name: str, version: str) -> ImplicitWait:
    wait = Waits(version).of(name)
    assert wait is not None, name
    return wait


def test_the_rules_say_what_every_measured_call_did() -> None:
    wrong = []
    for one in TABLE:
        for name, row in one.waits.items():
            if name in ELSEWHERE:
                continue
            wait = wait_of(name, one.torch)
            for calls, has_waited in ((row.with_, True), (row.without, False)):
                wrong += [
                    f"{one.torch} on {one.device}: {name}({text})"
                    for text in calls
                    if wait.applies(*call_of(text)) is not has_waited
                ]
    assert wrong == []


def test_what_waited_only_sometimes_has_a_rule() -> None:
    known = RULES.keys() | ELSEWHERE
    for one in TABLE:
        assert {name for name, row in one.waits.items() if row.waited < row.calls} <= known


def test_a_gpu_has_shown_most_operators() -> None:
    assert REAL
    assert len(REAL[0].waits) + len(REAL[0].silent) > 450
    assert (RULES.keys() | MORE.keys()) - ELSEWHERE <= {
        name for one in TABLE for name in (*one.waits, *one.silent)
    }


def test_the_host_waits_before_the_last_kernel_or_behind_it() -> None:
    sized = ((Told(True, (4,)),), {})
    assert wait_of("aten::nonzero", "2.11").covers(*sized) is WaitReach.BEFORE
    assert wait_of("aten::_unique2", "2.11").covers(*sized) is WaitReach.ITSELF
    same, other = Told(True, (2,)), Told(True, (3,))
    equal = wait_of("aten::equal", "2.11")
    assert equal.covers((same, Told(True, (2,))), {}) is WaitReach.ITSELF
    for args in ((same, same), (same, other), (Told(True, (0,)), Told(True, (0,)))):
        assert equal.covers(args, {}) is None


@pytest.mark.parametrize(
    ("name", "named", "waits"),
    [
        ("aten::repeat_interleave.Tensor", {}, True),
        ("aten::repeat_interleave.Tensor", {"output_size": 3}, False),
        ("aten::segment_reduce", {"lengths": 1}, True),
        ("aten::segment_reduce", {"lengths": 1, "unsafe": True}, False),
        ("aten::segment_reduce", {"offsets": 1}, False),
    ],
)
def test_arguments_decide(name: str, named: dict[str, Any], *, waits: bool) -> None:
    assert wait_of(name, "2.11").applies((Told(True, (2,)), "sum"), named) is waits


def test_what_another_torch_showed_is_said() -> None:
    own = max(TABLE, key=lambda one: tuple(map(int, one.torch.partition("+")[0].split(".")))).torch
    assert wait_of("aten::_unique2", "2.11.1+cu126").not_seen == ""
    assert wait_of("aten::_unique2", "99.0").not_seen == OTHER_TORCH
    assert Waits(own).of("aten::add.Tensor") is None
    assert Waits("1.0").of("aten::index.Tensor") is None
