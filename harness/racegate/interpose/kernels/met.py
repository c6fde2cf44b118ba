"""Operators that a program has called: what torch keeps of each is made at its first call, which
processes that are forked before it would make again.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import torch

with suppress(ImportError):  # other releases may keep it elsewhere: then nothing is known
    from torch._library.simple_registry import singleton


def met() -> list[str]:
    """Names of operators that a mode has seen in this process."""
    with suppress(NameError, AttributeError):
        return list(singleton._data)
    return []


def meet(names: Iterable[str]) -> None:
    """As if a mode had seen them."""
    for name in names:
        namespace, _, rest = name.partition("::")
        base, _, overload = rest.partition(".")
        with suppress(NameError, AttributeError):
            getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")
            singleton.find(name)
