"""The edge that a race in a program lacks, as a change of its source: an event that is recorded
behind the first access, and a wait for it before the second.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from pathlib import Path

from racegate.history.finding import Hazard, Race
from racegate.scenario.untrusted.reading import ReadError, read_text

SOURCE_BYTES_MAX = 1 << 20
EVENT = "landed"


def repair_of(race: Race) -> str:
    """A unified diff. Empty where it cannot be written so: the places are not in one function of a
    file that can be read, the first is the host's, or memory was handed out again.
    """
    first, second = race.first, race.second
    if first.is_host or race.hazard is Hazard.REUSE or not (first.frames and second.frames):
        return ""
    (file, record, function), (other, wait, its) = first.frames[0], second.frames[0]
    if (file, function) != (other, its):
        return ""
    try:
        source = read_text(Path(file), SOURCE_BYTES_MAX)
        repaired = with_edge(source, record=record, wait=wait, is_host=second.is_host)
    except (ReadError, SyntaxError, ValueError, RecursionError):
        return ""
    name = Path(file).name
    before, after = source.splitlines(keepends=True), repaired.splitlines(keepends=True)
    return "".join(unified_diff(before, after, fromfile=name, tofile=name, n=1))


def with_edge(source: str, *, record: int, wait: int, is_host: bool) -> str:
    """The source with the edge. record, wait: the lines behind and before which it stands, from 1
    is_host: the host waits, not the current stream. Raises SyntaxError, and ValueError where one of
    the lines is in no simple statement of its own.
    """
    tree, lines = ast.parse(source), source.removesuffix("\n").split("\n")
    recorded, waited = _simple_at(tree, record, lines), _simple_at(tree, wait, lines)
    if recorded is waited:
        raise ValueError("both accesses are in one statement")
    begun, event = _begun_before(tree, recorded, waited), _free_name(source)
    call = "synchronize" if is_host else "wait"
    behind = (recorded.end_lineno or recorded.lineno) + 1
    added: dict[int, list[str]] = {}
    for number, like, text in (
        (behind, recorded, f"{event}.record()"),
        (_first_line(begun), begun, f"{event} = torch.cuda.Event()"),
        (waited.lineno, waited, f"{event}.{call}()"),
    ):
        indent = lines[like.lineno - 1][: like.col_offset]
        added.setdefault(number, []).append(f"{indent}{text}")
    numbered = [(added.get(number, []), line) for number, line in enumerate(lines, start=1)]
    told = [text for before, line in numbered for text in (*before, line)]
    return "\n".join([*told, *added.get(len(lines) + 1, []), ""])


def _statements(tree: ast.AST) -> Iterator[ast.stmt]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.stmt))


def _first_line(statement: ast.stmt) -> int:
    """With what decorates it."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(one.lineno for one in decorators)])


def _simple_at(tree: ast.AST, line: int, lines: Sequence[str]) -> ast.stmt:
    """The statement without a body that a line is in, if it begins its line."""
    found = [
        one
        for one in _statements(tree)
        if one.lineno <= line <= (one.end_lineno or one.lineno)
        and not hasattr(one, "body")
        and not hasattr(one, "cases")
    ]
    if len(found) != 1 or lines[found[0].lineno - 1][: found[0].col_offset].strip():
        raise ValueError(f"line {line} is in no simple statement of its own")
    return found[0]


def _begun_before(tree: ast.AST, *parts: ast.stmt) -> ast.stmt:
    """The statement, directly in the function that has both, in which the first of them is."""
    homes = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef)
        and all(any(part is one for one in _statements(node)) for part in parts)
    ]
    home = homes[-1]  # the innermost: walking goes from the outside in
    first = min(part.lineno for part in parts)
    return next(one for one in home.body if one.lineno <= first <= (one.end_lineno or one.lineno))


def _free_name(source: str) -> str:
    names = set(re.findall(r"\w+", source))
    return next(
        name
        for number in range(1, len(names) + 3)
        if (name := EVENT if number == 1 else f"{EVENT}_{number}") not in names
    )
