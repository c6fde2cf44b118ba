"""What an interpreted kernel computes, as a digest: of its code, and of all that it refers to."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from types import CodeType, ModuleType
from typing import Any

_PLAIN = (int, float, bool, str, bytes, complex, type(None))
_KNOWN = ("triton", "racegate")  # a digest is compared under one version of both only


class _UnknownError(Exception):
    """A kernel refers to something that no digest tells of."""


def digest_of(kernel: Callable[..., Any]) -> str:
    """The same for kernels that compute the same, in whichever process; empty where a kernel refers
    to what may be anything, an object of another package or a closure.
    """
    digest = hashlib.sha256()
    try:
        for part in _parts(kernel, {}):
            digest.update(part.encode() + b"\0")
    except _UnknownError:
        return ""
    return digest.hexdigest()[:32]


def _parts(function: Any, seen: dict[int, int]) -> Iterator[str]:
    """seen: of functions that call each other each is told once; the next time its number is"""
    code = getattr(function, "__code__", None)
    if code is None or getattr(function, "__closure__", None):
        raise _UnknownError
    if id(code) in seen:
        yield f"function {seen[id(code)]}"
        return
    seen[id(code)] = len(seen)
    for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield from _value(default, seen)
    names: list[str] = []
    yield from _told(code, names)
    for name in dict.fromkeys(names):  # attributes are names too, and mostly no globals
        if name in function.__globals__:
            yield f"global {name}"
            yield from _value(function.__globals__[name], seen)


def _told(code: CodeType, names: list[str]) -> Iterator[str]:
    """The text of code that does not depend on where it stands. names: gets those that it uses"""
    names += code.co_names
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _told(constant, names)
        elif isinstance(constant, frozenset):
            yield repr(sorted(map(repr, constant)))
        else:
            yield repr(constant)


def _value(value: Any, seen: dict[int, int]) -> Iterator[str]:
    kind = type(value)
    if isinstance(value, _PLAIN):
        yield f"{kind.__name__} {value!r}"
    elif isinstance(value, ModuleType):
        if value.__name__.partition(".")[0] not in (*_KNOWN, "math"):
            raise _UnknownError
        yield f"module {value.__name__}"
    elif kind.__name__ == "constexpr":
        yield from _value(value.value, seen)
    elif kind.__name__ == "InterpretedFunction":
        yield from _parts(value.rewrite(), seen)
    elif isinstance(value, tuple):
        for item in value:
            yield from _value(item, seen)
    else:
        yield _named(value)


def _named(value: Any) -> str:
    """A function, a class or a type of the language: its name says what it is."""
    owner = getattr(value, "__module__", "") or ""
    if owner.partition(".")[0] not in _KNOWN:
        raise _UnknownError
    name = getattr(value, "__qualname__", None)
    if name is not None and "<" not in name:
        return f"{owner}:{name}"
    if type(value).__name__ == "dtype":
        return f"dtype {value}"
    if type(value).__name__ == "TritonSemantic":  # of the interpreter, which has one
        return type(value).__name__
    raise _UnknownError
