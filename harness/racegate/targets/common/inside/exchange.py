"""Other code in the place of a function's that a process has imported: everybody who has imported
the function, or made an object of its class, runs it from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from inspect import CO_NEWLOCALS
from pathlib import Path
from types import CodeType, FunctionType, ModuleType


def changed_function(before: CodeType, after: CodeType) -> tuple[CodeType, CodeType] | None:
    """The outermost function that differs between two versions of a module; None if it is not a
    function alone.
    """
    if _own_part(before) != _own_part(after):
        return None
    pairs = list(zip(_inner(before), _inner(after), strict=True))
    differing = [pair for pair in pairs if _work(pair[0]) != _work(pair[1])]
    if len(differing) != 1:
        return None
    ((one, other),) = differing
    return (one, other) if one.co_flags & CO_NEWLOCALS else changed_function(one, other)


def _own_part(code: CodeType) -> tuple[object, ...]:
    """What a body does itself, without what it defines."""
    constants = [(type(each), each) for each in code.co_consts if not isinstance(each, CodeType)]
    return (code.co_code, code.co_names, code.co_varnames, len(_inner(code)), repr(constants))


def _work(code: CodeType) -> tuple[object, ...]:
    """What a function does, wherever its lines stand: an edit may take lines away above it."""
    own = (code.co_flags, code.co_freevars, code.co_cellvars, code.co_exceptiontable)
    return (code.co_qualname, *own, _own_part(code), *map(_work, _inner(code)))


def _inner(code: CodeType) -> list[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


def compiled(source: bytes, path: Path) -> CodeType:
    """The code of a module."""
    return compile(source, str(path), "exec", dont_inherit=True)


def exchange_code(
    module: ModuleType, before: bytes, after: bytes, *, more: Iterable[FunctionType] = ()
) -> list[FunctionType]:
    """Gives the functions of a module the code of another version of its source; which these are.
    None are if that is not to be had so: the edit is in what an import does, or the function was
    given away under another name. more: functions of the module that are found nowhere in it
    """
    path = Path(str(module.__file__))
    changed = changed_function(compiled(before, path), compiled(after, path))
    if changed is None:
        return []
    old, new = changed
    place = (old.co_qualname, old.co_firstlineno)
    found = [
        function
        for function in (*functions_of(module), *more)
        if (function.__code__.co_qualname, function.__code__.co_firstlineno) == place
    ]
    if any(function.__code__.co_freevars != new.co_freevars for function in found):
        return []
    for function in found:
        function.__code__ = new
    return found


def functions_of(module: ModuleType) -> Iterator[FunctionType]:
    """The functions and methods that a module defines, decorated ones too, and those that a
    function of somebody else took the place of and calls.
    """
    waiting: list[object] = list(vars(module).values())
    seen: set[int] = set()
    while waiting:
        thing = waiting.pop()
        is_foreign = isinstance(thing, FunctionType | type) and thing.__module__ != module.__name__
        if id(thing) in seen or (is_foreign and isinstance(thing, type)):
            continue
        seen.add(id(thing))
        if isinstance(thing, FunctionType):
            waiting += _enclosed(thing)
            if not is_foreign:
                yield thing
        waiting += _within(thing)


def _within(thing: object) -> Sequence[object]:
    """What a decorator or a class has in it."""
    match thing:
        case type():
            return list(vars(thing).values())
        case property():
            return [thing.fget, thing.fset]
        case staticmethod() | classmethod():
            return [thing.__func__]
        case cached_property():
            return [thing.func]
    wrapped = getattr(thing, "__wrapped__", None)
    return [] if wrapped is None else [wrapped]


def _enclosed(function: FunctionType) -> list[FunctionType]:
    """The functions in what a function encloses. A cell may still be empty."""
    found: list[FunctionType] = []
    for cell in function.__closure__ or ():
        with suppress(ValueError):
            if isinstance(cell.cell_contents, FunctionType):
                found.append(cell.cell_contents)
    return found
