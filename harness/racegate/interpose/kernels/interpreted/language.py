"""Triton's language as compiled kernels have it: what its interpreter forbids or does otherwise."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from racegate.interpose.kernels.interpreted.libdevice import (
    is_libdevice,
    is_of_libdevice,
    own_functions,
)


def as_compiled(
    interpreter: Any, instructions: Mapping[str, Callable[..., Any]], in_launch: set[int]
) -> Callable[[Any], Any]:
    """What compiled kernels may do and interpreted ones may not: returns what takes the place of
    `_patch_lang`.

    The interpreter puts its own operations into the language's module for each launch: a kernel
    whose module has given one a name of its own (`exp = tl.exp`) is made to look it up there. What
    a loop counts can be converted, and NVIDIA's own functions compute. instructions: by name, what
    takes the place of those that the interpreter does not know. in_launch: modules that are made
    ready for the launch that runs, empty when one begins: functions that a kernel calls are patched
    too, each time
    """
    plain, language = interpreter._patch_lang, interpreter.tl
    libdevice = own_functions(interpreter)

    index = _index_type(language)

    def counted(*ends: Any, **_: Any) -> Iterator[int]:
        return map(index, range(*map(int, ends)))

    def looked_up(name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: getattr(language, name)(*args, **kwargs)

    def rename(fn: Any) -> None:
        for alias, value in list(fn.__globals__.items()):
            if language.core.is_builtin(value) and hasattr(language, value.__name__):
                fn.__globals__[alias] = looked_up(value.__name__)
            elif is_libdevice(value):
                fn.__globals__[alias] = libdevice
            elif is_of_libdevice(value):
                fn.__globals__[alias] = getattr(libdevice, value.__name__)
            elif getattr(value, "__module__", "") == "triton.language.extra.cuda.gdc":
                fn.__globals__[alias] = instructions[value.__name__]

    renamed: dict[int, int] = {}  # the size that a module had

    def patch(fn: Any) -> Any:
        known = fn.__globals__
        if renamed.get(id(known)) != len(known):
            rename(fn)
            renamed[id(known)] = len(known)
        if id(known) in in_launch:
            return None  # by the kernel, or another function of its module
        in_launch.add(id(known))
        scope = plain(fn)
        module = sys.modules.get(fn.__module__)
        if scope is not None:
            scope.set_attr(language.extra, "libdevice", libdevice)
            scope.set_attr(language.extra.cuda, "libdevice", libdevice)
            for name, instruction in instructions.items():
                scope.set_attr(language.extra.cuda, name, instruction)
            for owner in filter(None, (language, module)):
                scope.set_attr(owner, "range", counted)
        return scope

    return patch


def type_floats(interpreter: ModuleType) -> None:
    """interpreter: triton.runtime.interpreter. A float is a float32 of the kernel, as compiled: it
    has a type and methods, and what it meets is promoted by them.
    """
    plain = interpreter._implicit_cvt
    tl: Any = interpreter.tl

    def typed(argument: Any) -> Any:
        if not isinstance(argument, float):
            return plain(argument)
        handle = interpreter.TensorHandle(np.array([argument], dtype=np.float32), tl.float32)
        return tl.tensor(handle, tl.float32)

    interpreter._implicit_cvt = typed  # type: ignore[attr-defined]


_ARITHMETIC = (
    "add", "radd", "sub", "rsub", "mul", "rmul", "floordiv", "rfloordiv", "mod", "rmod", "neg",
)  # fmt: skip


def _index_type(language: Any) -> type[int]:
    """The type of what a loop counts, and of what is computed of it and of numbers."""

    class Index(int):
        def to(self, dtype: Any) -> Any:
            return language.full((), int(self), dtype)

    def kept(plain: Callable[..., Any]) -> Callable[..., Any]:
        def compute(*numbers: Any) -> Any:
            made = plain(*numbers)
            return Index(made) if type(made) is int else made

        return compute

    for name in _ARITHMETIC:
        setattr(Index, f"__{name}__", kept(getattr(int, f"__{name}__")))
    return Index


def is_word_of_kernel(error: BaseException | None) -> bool:
    """Whether the kernel's own assertion failed, and not one inside the interpreter."""
    if not isinstance(error, AssertionError):
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return True
    code, folder = trace.tb_frame.f_code, os.path.dirname(sys.modules["triton"].__file__ or "")
    return "assert" in code.co_name or not code.co_filename.startswith(os.path.join(folder, ""))


def prefer_numbers(builder: Any) -> None:
    """The maximum of a number and NaN is the number, as compiled: up to Triton 3.6 it was NaN."""
    builder.create_maxnumf = lambda self, x, y: self.binary_op(x, y, np.fmax)
    builder.create_minnumf = lambda self, x, y: self.binary_op(x, y, np.fmin)


def settle_grid(
    executor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Asks a grid that is a function for its sizes, and returns the arguments as it leaves them: it
    may exchange some, and the interpreter would ask it when they are no tensors any more.
    """
    if not callable(executor.grid):
        return args, kwargs
    names = inspect.getfullargspec(executor.fn).args
    known = {name: value for name, value in kwargs.items() if name in names}
    named = inspect.getcallargs(executor.fn, *args, **known)
    executor.grid = executor.grid(named)
    return tuple(named[name] for name in names[: len(args)]), {
        **kwargs,
        **{name: named[name] for name in names[len(args) :]},
    }


def do_once(interpreter: Any) -> None:
    """The interpreter looks over the whole language at every launch, which has the same members,
    and computes of every sum whether it overflows, for an assertion that only a kernel built for
    debugging has.
    """
    semantic, is_builtin = interpreter.interpreter_semantic, interpreter.tl.core.is_builtin

    @cache
    def operations(owner: Any) -> list[tuple[str, Callable[..., Any]]]:
        members = inspect.getmembers(owner)
        return [(name, _meant(one, semantic)) for name, one in members if is_builtin(one)]

    def patch_builtin(owner: Any, builder: Any, scope: Any = None) -> None:
        put = setattr if scope is None else scope.set_attr  # up to Triton 3.5 there is none
        for name, operation in operations(owner):
            put(owner, name, operation)

    interpreter._patch_builtin = patch_builtin
    if not (options := interpreter.interpreter_builder.options).debug:
        interpreter.interpreter_builder.options = replace(options, sanitize_overflow=False)


def _meant(operation: Callable[..., Any], semantic: Any) -> Callable[..., Any]:
    """As the interpreter calls it: what it means is the same for all."""

    def call(*args: Any, _semantic: Any = None, **kwargs: Any) -> Any:
        return operation(*args, **kwargs, _semantic=semantic)

    return call
