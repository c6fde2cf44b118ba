"""Operators that a process has met, told to another one."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from racegate.interpose.kernels.operators import meet, met


class Mode(TorchDispatchMode):  # type: ignore[misc]
    """Lets all pass."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_what_a_mode_has_seen_is_met() -> None:
    with Mode():
        torch.triu(torch.ones(2, 2))
    assert "aten::triu" in met()


def test_what_another_process_has_met_is_met_here() -> None:
    meet(["aten::tril_indices", "aten::nothing_of_this_name", "no_operator"])
    assert "aten::tril_indices" in met()
    assert not {"aten::nothing_of_this_name", "no_operator"} & set(met())
