"""Inside which operators the host waits: a table per version of torch, and rules for the rest."""

from __future__ import annotations

import pytest
import torch

from racegate.interpose.kernels.waiting import RULES, UNMEASURED, read_table, waiting_operators

# Waits only for some arguments, and not by RULES: why that is right.
ELSEWHERE = {
    "aten::_local_scalar_dense": "a download and a wait of its own; the table's CPU calls do not",
    "aten::_to_copy": "its copy waits, if it goes to pageable memory",
    "aten::index.Tensor": "indexing.reads_a_size: an index by a mask",
    "aten::masked_fill.Tensor": "made of masked_fill_.Tensor, which has a rule",
    "aten::mode": "not known by its arguments: taken as one that does not wait",
}


def test_what_waits_only_sometimes_has_a_rule_or_a_reason() -> None:
    for version, row in read_table().items():
        unknown = {name for name, (waited, calls) in row.items() if waited < calls}
        assert unknown <= RULES.keys() | ELSEWHERE.keys(), version


def test_what_every_version_waits_for() -> None:
    for version in read_table():
        waiting = waiting_operators(version)
        assert waiting >= {"aten::nonzero", "aten::masked_select", "aten::bincount"} | UNMEASURED
        assert not waiting & {"aten::add.Tensor", "aten::copy_", "aten::index_select"}


def test_a_version_between_takes_the_one_before() -> None:
    newest = max(read_table(), key=lambda version: tuple(map(int, version.split("."))))
    assert waiting_operators("99.0+cu200") == waiting_operators(newest)
    assert waiting_operators("1.0") <= waiting_operators("2.9.1") | waiting_operators("2.14.1")


@pytest.mark.parametrize(
    ("args", "waits"),
    [
        ((torch.ones(2), torch.ones(2)), True),
        ((torch.ones(2), torch.ones(3)), False),
        ((torch.ones(0), torch.ones(0)), False),
    ],
)
def test_equal_waits_if_the_bytes_have_to_be_looked_at(
    args: tuple[torch.Tensor, torch.Tensor], *, waits: bool
) -> None:
    assert RULES["aten::equal"](args) is waits
    same = args[0]
    assert not RULES["aten::equal"]((same, same))


def test_histc_waits_if_it_has_to_find_the_range() -> None:
    data = torch.ones(4)
    assert RULES["aten::histc"]((data, 10))
    assert RULES["aten::histc"]((data, 10, 2, 2))
    assert not RULES["aten::histc"]((data, 10, 0, 5))
