"""Operators of C: the edits of a file that libcst cannot read, by where its words stand.

Comments, strings and what the preprocessor reads are left, and so is what only describes a GPU to
a program: no order depends on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from racegate.measure.evaluation.source.results import Edit, SourceOperator

_LEFT = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
_HEADER = re.compile(r"(?:FUNCTION\((\w+)|(\w+)\()[^;{}]*$")
_DESCRIBES = re.compile(
    r"cuda(Get|Peek|Driver|Runtime|Device(Get|Can)|Func|Occupancy)|__cuda(Get|Reg|Unr|Init|P)"
)
_DECLARES = re.compile(
    r"(return|if|else|for|while|do|switch|case|default|break|continue|goto|typedef|struct|enum|static"
    r"|const|int|char|void|unsigned|size_t|ssize_t|word|uint\w+)\b"
)
_DOES = re.compile(r"[\w.\->\[\]()*&:]+(\s*([-+|&]?=)[^=].*|\+\+|--|\(.*\))", re.DOTALL)
_NOTHING = re.compile(r"=\s*(0|NULL|-1|\(struct \w+\)\{0?\})\s*$")
_WORDS = (
    (SourceOperator.COMPARISON, r"(?<![<\-=])(<=?|>=?)(?![<>=])", {
        "<": "<=", "<=": "<", ">": ">=", ">=": ">"}),
    (SourceOperator.COMPARISON, r"==|!=", {"==": "!=", "!=": "=="}),
    (SourceOperator.BOOLEAN, r"&&|\|\|", {"&&": "||", "||": "&&"}),
    (SourceOperator.ARITHMETIC, r"(?<=\s)[-+](?=\s)|[-+|&]=", {
        "+": "-", "-": "+", "+=": "-=", "-=": "+=", "|=": "&=", "&=": "|="}),
    (SourceOperator.LOOP, r"\b(break|continue)\b", {"break": "(void)0", "continue": "(void)0"}),
)  # fmt: skip


class _Offer(NamedTuple):
    """What is put in the place of what stands between two places."""

    operator: SourceOperator
    start: int
    end: int
    text: str


def c_edits_of(source: bytes) -> list[Edit]:
    """Every edit of a file, in its order; none changes nothing."""
    whole = source.decode("ascii")
    read = _blanked(_DIRECTIVE, _blanked(_LEFT, whole))
    scopes = _scopes(read)
    found = [
        _edit(whole, scope, offer)
        for offer in _offers(read)
        if (scope := scopes[offer.start]) and not _DESCRIBES.match(scope)
    ]
    unique = {(edit.start, edit.end, edit.text): edit for edit in found}
    return [unique[place] for place in sorted(unique)]


def _blanked(pattern: re.Pattern[str], text: str) -> str:
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def _scopes(read: str) -> list[str]:
    """By place: the function that it is in, empty outside of all."""
    scopes, depth, begun, name = [], 0, 0, ""
    for place, character in enumerate(read):
        if character == "{":
            if depth == 0:
                header = _HEADER.search(read[begun:place])
                name = (header[1] or header[2]) if header else ""
            depth += 1
        scopes.append(name if depth else "")
        depth -= character == "}"
        if not depth and character in ";}":
            begun = place + 1
    return scopes


def _edit(whole: str, scope: str, offer: _Offer) -> Edit:
    operator, start, end, text = offer
    lines = (whole.count("\n", 0, start) + 1, whole.count("\n", 0, end) + 1)
    return Edit(operator=operator, scope=scope, lines=lines, start=start, end=end, text=text)


def _offers(read: str) -> Iterator[_Offer]:
    for operator, pattern, others in _WORDS:
        for match in re.finditer(pattern, read):
            yield _Offer(operator, *match.span(), others[match[0]])
    for match in re.finditer(r"(?<![\w.])\d+(?![\w.])", read):
        other = "0" if match[0] == "1" else str(int(match[0]) + 1)  # most are true or false
        yield _Offer(SourceOperator.CONSTANT, *match.span(), other)
    for match in re.finditer(r"\b(if|while) \(", read):
        end = _closing(read, match.end() - 1)
        test = read[match.end() - 1 : end]
        yield _Offer(SourceOperator.CONDITION, match.end() - 1, end, f"(!{test})")
        if match[1] == "if":
            yield _Offer(SourceOperator.BRANCH, match.end() - 1, end, "(0)")
    yield from _removed(read)


def _closing(read: str, start: int) -> int:
    """Behind the parenthesis that closes the one at the start."""
    depth = 0
    for place in range(start, len(read)):
        depth += {"(": 1, ")": -1}.get(read[place], 0)
        if not depth:
            return place + 1
    return len(read)


def _removed(read: str) -> Iterator[_Offer]:
    """Calls and assignments that are statements, without a declaration."""
    for match in re.finditer(r"(?<=[;{})])\s*([^;{}]+?);", read):
        statement = match[1]
        if not _DECLARES.match(statement) and _DOES.fullmatch(statement):
            is_reset = _NOTHING.search(statement) is not None
            operator = SourceOperator.RESET if is_reset else SourceOperator.STATEMENT
            yield _Offer(operator, *match.span(1), "(void)0")
