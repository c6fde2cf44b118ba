"""Edits of an engine's source: those of the project's own operators, Triton kernels too, and what
is done wrong with streams and events: a record or a wait that stands one statement too early or too
late, work on another stream.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

import libcst as cst

from racegate.measure.evaluation.source.mistakes import name_of
from racegate.measure.evaluation.source.operators import edits_of
from racegate.measure.evaluation.source.results import Edit, SourceOperator

SIGNALS = frozenset({
    "record", "wait", "synchronize", "wait_stream", "wait_event", "record_stream"
})  # fmt: skip
_LOGGERS = frozenset({"logger", "logging", "warnings"})


def release_edits(source: bytes) -> list[Edit]:
    """Every edit of a file, in its order; none changes nothing."""
    found = [*edits_of(source, leaves=only_says), *order_edits(source)]
    unique = {(edit.start, edit.end, edit.text): edit for edit in found}
    return [unique[place] for place in sorted(unique)]


def only_says(node: cst.CSTNode) -> bool:
    """Whether it only writes a log."""
    match node:
        case cst.SimpleStatementLine(body=[cst.Expr(value=cst.Call(func=cst.Attribute() as to))]):
            return name_of(to.value) in _LOGGERS
    return False


class SourceSpans:
    """A source by the places that `ast` tells: lines from 1, columns in bytes."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: ast.stmt | ast.expr) -> tuple[int, int]:
        end_line, end_column = node.end_lineno, node.end_col_offset
        assert end_line is not None and end_column is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        return start, self._starts[end_line - 1] + end_column

    def of(self, node: ast.stmt | ast.expr) -> str:
        start, end = self.span(node)
        return self.source[start:end].decode()


def order_edits(source: bytes) -> Iterator[Edit]:
    """Those of streams and events alone."""
    text = SourceSpans(source)
    waiting: list[tuple[ast.AST, tuple[str, ...]]] = [(ast.parse(source), ())]
    while waiting:
        node, scope = waiting.pop()
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            scope = (*scope, node.name)
        yield from _moved(text, node, ".".join(scope))
        yield from _on_another_stream(text, node, ".".join(scope))
        waiting += [(child, scope) for child in ast.iter_child_nodes(node)]


def _moved(text: SourceSpans, node: ast.AST, scope: str) -> Iterator[Edit]:
    """Two statements of which one is a record or a wait, the other way round."""
    for block in (getattr(node, name, ()) for name in ("body", "orelse", "finalbody")):
        for first, second in pairwise(block if isinstance(block, list) else ()):
            if not (_is_signal(first) or _is_signal(second)) or not _are_simple(first, second):
                continue
            start, end = text.span(first)[0], text.span(second)[1]
            between = text.source[text.span(first)[1] : text.span(second)[0]].decode()
            yield Edit(
                operator=SourceOperator.MOVED,
                scope=scope,
                lines=(first.lineno, second.end_lineno or second.lineno),
                start=start,
                end=end,
                text=text.of(second) + between + text.of(first),
            )


def _are_simple(*statements: ast.stmt) -> bool:
    """Calls and assignments; not what only documents."""
    return all(
        isinstance(each, ast.Assign | ast.AugAssign)
        or (isinstance(each, ast.Expr) and isinstance(each.value, ast.Call))
        for each in statements
    )


def _is_signal(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name))):
            return name in SIGNALS
    return False


def _on_another_stream(text: SourceSpans, node: ast.AST, scope: str) -> Iterator[Edit]:
    """A block on the stream that is current, a wait of the one for the other the other way round,
    an event that is recorded on the stream that is current.
    """
    others: list[tuple[ast.expr, str]] = []
    match node:
        case ast.withitem(context_expr=ast.Call(func=func, args=[one, *more]) as call) if (
            text.of(func).rpartition(".")[2] == "stream"
        ):
            others.append((call, f"{text.of(func)}({', '.join(map(text.of, more)) or 'None'})"))
            if more:
                others = [(one, text.of(more[0]))]
        case ast.Call(func=ast.Attribute(attr="wait_stream", value=here), args=[there]):
            others.append((node, f"{text.of(there)}.wait_stream({text.of(here)})"))
        case ast.Call(func=ast.Attribute(attr="record" | "wait", value=here), args=[_]):
            others.append((node, f"{text.of(here)}.{node.func.attr}()"))  # type: ignore[attr-defined]
    for what, other in others:
        start, end = text.span(what)
        lines = (what.lineno, what.end_lineno or what.lineno)
        yield Edit(
            operator=SourceOperator.STREAM, scope=scope, lines=lines, start=start, end=end,
            text=other,
        )  # fmt: skip
