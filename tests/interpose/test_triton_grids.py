"""Kernels of others: grids that are functions, names of their own, masks of integers."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from racegate.interpose.kernels.interpreted.accesses import noted_addresses, ranges_of
from racegate.interpose.kernels.interpreted.language import as_compiled, settle_grid


def kernel(source: Any, table: Any, count: int, BLOCK: int = 4) -> None:
    """Only its parameters are looked at."""


def test_a_grid_function_may_exchange_an_argument() -> None:
    def grid(named: dict[str, Any]) -> tuple[int]:
        named["table"] = ["longer"]
        return (-(-named["count"] // named["BLOCK"]),)

    executor = SimpleNamespace(fn=kernel, grid=grid)
    args, kwargs = settle_grid(executor, (["source"], []), {"count": 9, "num_warps": 8})
    assert args == (["source"], ["longer"])
    assert kwargs == {"count": 9, "BLOCK": 4, "num_warps": 8}
    assert executor.grid == (3,)


def test_a_grid_of_numbers_leaves_the_arguments_as_they_are() -> None:
    executor = SimpleNamespace(fn=kernel, grid=(2,))
    given = ((1, 2, 3), {"num_warps": 8})
    assert settle_grid(executor, *given) == given
    assert executor.grid == (2,)


class Scope:
    def set_attr(self, owner: Any, name: str, value: Any) -> None:
        setattr(owner, name, value)


def test_a_kernel_may_call_the_language_by_names_of_its_own_and_convert_what_it_counts(
    monkeypatch: Any,
) -> None:
    def exp(value: int) -> str:
        raise AssertionError("only the interpreter's own can be called")

    language = SimpleNamespace(
        core=SimpleNamespace(is_builtin=lambda value: value is exp),
        extra=SimpleNamespace(cuda=SimpleNamespace()),
        exp=exp,
        full=lambda shape, value, dtype: (shape, value, dtype),
    )
    module = ModuleType("kernels_of_others")
    module.power = exp  # type: ignore[attr-defined]
    source = "def kernel():\n    return power(1), [(4 * i - 3).to('int64') for i in range(1, 3)]\n"
    exec(source, vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    interpreter = SimpleNamespace(tl=language, _patch_lang=lambda fn: Scope())
    as_compiled(interpreter, {}, set())(module.kernel)
    language.exp = lambda value: f"interpreted {value}"
    assert module.kernel() == ("interpreted 1", [((), 1, "int64"), ((), 5, "int64")])
    counted = [i.to("int64") for i in language.range(1, 3, num_stages=2)]
    assert counted == [((), 1, "int64"), ((), 2, "int64")]


def test_a_launch_patches_the_language_once_for_each_module_of_its_functions() -> None:
    def called() -> None: ...

    patched: list[str] = []
    in_launch: set[int] = set()
    language = SimpleNamespace(
        core=SimpleNamespace(is_builtin=lambda value: False),
        extra=SimpleNamespace(cuda=SimpleNamespace()),
    )
    interpreter = SimpleNamespace(tl=language, _patch_lang=lambda fn: patched.append(fn.__name__))
    patch = as_compiled(interpreter, {}, in_launch)
    other = ModuleType("helpers_of_others")
    exec("def helper(): ...", vars(other))
    for function in (kernel, called, other.helper, kernel):
        patch(function)
    assert patched == ["kernel", "helper"]
    in_launch.clear()
    patch(called)
    assert patched[2:] == ["called"]


def test_a_mask_of_integers_chooses_as_one_of_booleans_does() -> None:
    """The interpreter's `&` gives integers; as an index they would name elements 0 and 1."""
    pointers = SimpleNamespace(
        data=np.arange(100, 116, 4, dtype=np.uint64),
        get_element_ty=lambda: SimpleNamespace(primitive_bitwidth=32),
    )
    mask = SimpleNamespace(data=np.array([1, 0, 1, 1], dtype=np.int32))
    noted = noted_addresses(pointers, mask, is_write=True)
    assert ranges_of([noted], is_write=True) == ((100, 104), (108, 116))
