"""Lies that an adapter may tell, generated from the types of the protocol: what can be done to the
lines of each type, and to each field of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, get_args

import msgspec

from racegate.scenario.spec import OwnScenario, Request
from racegate.targets.adapters.serve import AdapterEngine
from racegate.targets.adapters.wire import Answer, HistoryLine, Question, RunQuestion
from spoken import DIES, Lie, Lines, spoken

Fields = dict[str, Any]
OTHER = OwnScenario(
    name="another",
    title="of which something is told where this one was asked for",
    requests=(
        Request(name="A", arrive=0, prompt=(9, 1), max_tokens=4, accepts=(1,)),
        Request(name="B", arrive=1, prompt=(2, 6, 1), max_tokens=7, accepts=(2, 1)),
        Request(name="C", arrive=0, prompt=(8, 1), max_tokens=12, accepts=(3,)),
    ),
)


def tag(kind: type[msgspec.Struct]) -> str:
    return str(kind.__struct_config__.tag)


def all_lies(engine: AdapterEngine) -> Iterator[tuple[str, Lie]]:
    """Every lie by its name. engine: the honest one, asked for what another scenario has"""
    for kind in get_args(HistoryLine):
        for how, change in _LINES.items():
            yield f"{tag(kind)} {how}", _of_runs(tag(kind), change)
        yield f"{tag(kind)} of another scenario", _of_another(engine, tag(kind))
    for kind in get_args(Answer):
        for how, change in _ANSWERS.items():
            yield f"{tag(kind)} {how}", _of_runs(tag(kind), change)
        yield f"{tag(kind)} of another scenario", _of_another(engine, tag(kind))
    for kind in (*get_args(HistoryLine), *get_args(Answer)):
        for field in msgspec.structs.fields(kind):
            for how, change_field in _FIELDS.items():
                name = f"{tag(kind)}.{field.encode_name} {how}"
                yield name, _of_field(tag(kind), field.encode_name, change_field)
    yield "the run of another scenario", _whole_run(engine)
    yield "every line doubled", _changed(lambda lines: [line for line in lines for _ in range(2)])
    yield "all lines backwards", _changed(lambda lines: [*lines[-2::-1], lines[-1]])
    yield "nothing", _changed(lambda lines: [])


def _is(line: Fields, kind: str) -> bool:
    return line["is"] == kind


def _without(lines: Lines, kind: str) -> Lines:
    return [line for line in lines if not _is(line, kind)]


def _these(lines: Lines, kind: str) -> Lines:
    return [line for line in lines if _is(line, kind)]


def _backwards(lines: Lines, kind: str) -> Lines:
    these = iter(_these(lines, kind)[::-1])
    return [next(these) if _is(line, kind) else line for line in lines]


def _swapped(lines: Lines, kind: str) -> Lines:
    """Each with the line before it."""
    swapped = list(lines)
    for number, line in enumerate(lines[:-1]):
        if number and _is(line, kind):
            swapped[number - 1], swapped[number] = swapped[number], swapped[number - 1]
    return swapped


_LINES: dict[str, Callable[[Lines, str], Lines]] = {
    "dropped": _without,
    "dropped but for the first": lambda lines, kind: (
        _without(lines, kind)
        if not _these(lines, kind)
        else [x for x in lines if not _is(x, kind) or x is _these(lines, kind)[0]]
    ),
    "the last one dropped": lambda lines, kind: [
        x for x in lines if not _is(x, kind) or x is not _these(lines, kind)[-1]
    ],
    "doubled": lambda lines, kind: [x for x in lines for _ in range(1 + _is(x, kind))],
    "late": lambda lines, kind: [*_without(lines, kind), *_these(lines, kind)],
    "early": lambda lines, kind: [*_these(lines, kind), *_without(lines, kind)],
    "backwards": _backwards,
    "swapped": _swapped,
    "the last thing that is said": lambda lines, kind: [
        *lines[: 1 + max((n for n, x in enumerate(lines) if _is(x, kind)), default=-1)],
        DIES,
    ],
}
_ANSWERS: dict[str, Callable[[Lines, str], Lines]] = {
    "dropped": _without,
    "doubled": _LINES["doubled"],
    "first": _LINES["early"],
    "before its death": lambda lines, kind: [*lines, *([DIES] if _these(lines, kind) else [])],
    "after its death": lambda lines, kind: [*([DIES] if _these(lines, kind) else []), *lines],
}


def _huge(value: object) -> object:
    """Of the same type, and not to be believed."""
    match value:
        case bool():
            return not value
        case int():
            return 10**9
        case str():
            return "no-such-thing"
        case list():
            return [_huge(item) for item in value]
        case dict():
            return {name: _huge(item) for name, item in value.items()}
    return value


def _negative(value: object) -> object:
    match value:
        case bool():
            return value
        case int():
            return -1 - value
        case list():
            return [_negative(item) for item in value]
        case dict():
            return {name: _negative(item) for name, item in value.items()}
    return value


def _twice(value: object) -> object:
    return value * 2 if isinstance(value, str | list) else value


def _cut(value: object) -> object:
    """The last of several is left out."""
    match value:
        case list():
            return value[:-1]
        case dict():
            return dict(list(value.items())[:-1]) if value else value
    return value


_MISSING = object()
_FIELDS: dict[str, Callable[[object, object], object]] = {
    "dropped": lambda value, other: _MISSING,
    "null": lambda value, other: None,
    "out of range": lambda value, other: _huge(value),
    "negative": lambda value, other: _negative(value),
    "doubled": lambda value, other: _twice(value),
    "cut": lambda value, other: _cut(value),
    "of the next line": lambda value, other: other,
}


def _of_runs(kind: str, change: Callable[[Lines, str], Lines]) -> Lie:
    return lambda lines, question: change(lines, kind)


def _changed(change: Callable[[Lines], Lines]) -> Lie:
    """A lie about runs alone."""
    return lambda lines, ask: change(lines) if isinstance(ask, RunQuestion) else lines


def _of_field(kind: str, field: str, change: Callable[[object, object], object]) -> Lie:
    def lie(lines: Lines, question: Question) -> Lines:
        these = [line for line in _these(lines, kind) if field in line]
        others = {
            id(line): other for line, other in zip(these, [*these[1:], *these[:1]], strict=True)
        }
        return [
            _with(line, field, change(line[field], others[id(line)][field]))
            if id(line) in others
            else line
            for line in lines
        ]

    return lie


def _with(line: Fields, field: str, value: object) -> Fields:
    rest = {name: its for name, its in line.items() if name != field}
    return rest if value is _MISSING else {**rest, field: value}


def _another_run(engine: AdapterEngine, question: Question) -> Lines:
    """What it would have said, had another scenario been asked for."""
    return spoken(engine, msgspec.structs.replace(question, scenario=OTHER))


def _of_another(engine: AdapterEngine, kind: str) -> Lie:
    """Lines of a type are those of a run of another scenario, as far as there are as many."""

    def lie(lines: Lines, question: Question) -> Lines:
        if not hasattr(question, "scenario"):
            return lines
        others = iter(_these(_another_run(engine, question), kind))
        return [next(others, line) if _is(line, kind) else line for line in lines]

    return lie


def _whole_run(engine: AdapterEngine) -> Lie:
    return lambda lines, question: (
        _another_run(engine, question) if isinstance(question, RunQuestion) else lines
    )
