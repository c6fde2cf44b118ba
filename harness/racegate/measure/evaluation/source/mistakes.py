"""Mistakes: the edits that the developer of a runner gets wrong, beside those of the literature.

The step before for this one, another row after a move, a field that is forgotten when a row moves,
what was read before for what is there now, a clamp, the branch of an edge case, a reset that is
missing where something is used again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import NamedTuple

import libcst as cst

from racegate.measure.evaluation.source.results import SourceOperator

ROWS = frozenset({"row", "rows", "slot", "slots", "index", "place", "places", "position", "column"})
CLAMPS = frozenset({"min", "max", "minimum", "maximum", "clip"})
RESETS = frozenset({"clear", "fill", "reset", "zero", "discard", "pop", "forget"})
COPIES = frozenset({"replace", "update", "dict"})
SIBLINGS_MAX = 2
ONE = cst.Integer("1")


class OfferedEdit(NamedTuple):
    """What is put in the place of a node, and under which name."""

    node: cst.CSTNode
    operator: SourceOperator
    other: cst.CSTNode


def name_of(node: cst.BaseExpression) -> str:
    """The last part of a name; empty for anything else."""
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else ""


class SiblingTable:
    """Attributes of one object that differ in one word: what one may mean by the other."""

    def __init__(self, module: cst.Module) -> None:
        self._names: dict[str, set[str]] = {}
        module.visit(_Names(self._names))

    def of(self, node: cst.BaseExpression) -> Iterator[cst.Attribute]:
        """The first few of an attribute, in the order of the alphabet."""
        if not isinstance(node, cst.Attribute):
            return
        known = sorted(self._names.get(_owner(node), ()))
        for other in [each for each in known if _is_sibling(name_of(node), each)][:SIBLINGS_MAX]:
            yield node.with_changes(attr=cst.Name(other))


class _Names(cst.CSTVisitor):
    """Collects attributes by the object that has them."""

    def __init__(self, names: dict[str, set[str]]) -> None:
        self._known = names

    def visit_Call(self, node: cst.Call) -> bool:
        """A method is no value: only what it belongs to, and what it is given."""
        if isinstance(node.func, cst.Attribute):
            node.func.value.visit(self)
        for each in node.args:
            each.visit(self)
        return False

    def visit_Attribute(self, node: cst.Attribute) -> None:
        self._known.setdefault(_owner(node), set()).add(node.attr.value)


def _owner(node: cst.Attribute) -> str:
    """The text of the object that an attribute is of."""
    return cst.Module(()).code_for_node(node.value)


def _is_sibling(one: str, other: str) -> bool:
    """Whether two names share words and differ in one, or one has a word more."""
    few, many = sorted((one.strip("_").split("_"), other.strip("_").split("_")), key=len)
    if one == other or len(many) - len(few) > 1:
        return False
    if len(few) < len(many):
        return few in (many[1:], many[:-1])
    return len(few) > 1 and sum(a != b for a, b in zip_longest(few, many)) == 1


def mistakes(node: cst.CSTNode, siblings: SiblingTable) -> Iterator[OfferedEdit]:
    """All that may be put in the place of what stands directly in a node."""
    for read in _reads(node):
        name = name_of(read)
        words = name.strip("_").split("_")
        if words[-1] == "step" and not _is_label(node):
            yield OfferedEdit(read, SourceOperator.STEP, _less_one(read))
        if isinstance(node, cst.Index) and ROWS & {words[-1]}:
            yield OfferedEdit(read, SourceOperator.ROW, _less_one(read))
        for other in siblings.of(read):
            is_row = ROWS & ({*words} | {*name_of(other).split("_")})
            yield OfferedEdit(read, SourceOperator.ROW if is_row else SourceOperator.STALE, other)
    yield from _forgotten(node)
    yield from _branches(node)
    if isinstance(node, cst.Call) and name_of(node.func) in CLAMPS:
        yield from _unclamped(node)


def _reads(node: cst.CSTNode) -> tuple[cst.BaseExpression, ...]:
    """Expressions in a node whose value is used."""
    match node:
        case cst.Arg(value=value) | cst.Index(value=value):
            return (value,)
        case cst.Comparison(left=left):
            return (left,)
        case cst.ComparisonTarget(comparator=comparator):
            return (comparator,)
        case cst.BinaryOperation(left=left, right=right):
            return (left, right)
        case cst.Assign(value=value) | cst.AugAssign(value=value):
            return (value,)
        case cst.Return(value=cst.BaseExpression() as value):
            return (value,)
        case cst.Subscript(value=cst.Attribute() as value):
            return (value,)
    return ()


def _is_label(node: cst.CSTNode) -> bool:
    """Whether a step is given by its name: launches, copies and waits of the engine are so named in
    the trace, and nothing else depends on it.
    """
    return isinstance(node, cst.Arg) and node.keyword is not None


def _less_one(node: cst.BaseExpression) -> cst.BaseExpression:
    return cst.BinaryOperation(node, cst.Subtract(), ONE)


def _forgotten(node: cst.CSTNode) -> Iterator[OfferedEdit]:
    """A loop over named things without one of them, half of an exchange, a copy that keeps what it
    was to be given.
    """
    match node:
        case (
            cst.For(iter=cst.Tuple() | cst.List() as many)
            | cst.CompFor(iter=cst.Tuple() | cst.List() as many)
        ) if len(many.elements) > 1:
            for place in range(len(many.elements)):
                left = [each for at, each in enumerate(many.elements) if at != place]
                if isinstance(many, cst.Tuple) and len(left) == 1:
                    left = [cst.Element(left[0].value, comma=cst.Comma())]
                yield OfferedEdit(many, SourceOperator.FIELD, many.with_changes(elements=left))
        case cst.Assign(
            targets=[cst.AssignTarget(target=cst.Tuple() as to)], value=cst.Tuple() as values
        ) if len(to.elements) == len(values.elements) == 2:
            for one, value in zip(to.elements, values.elements, strict=True):
                if isinstance(one.value, cst.Attribute | cst.Subscript):
                    half = cst.Assign([cst.AssignTarget(one.value)], value.value)
                    yield OfferedEdit(node, SourceOperator.FIELD, half)
        case cst.Call(func=func, args=given) if name_of(func) in COPIES:
            for place, argument in enumerate(given):
                if argument.keyword is not None:
                    others = node.with_changes(args=[*given[:place], *given[place + 1 :]])
                    yield OfferedEdit(node, SourceOperator.FIELD, others)


def _branches(node: cst.CSTNode) -> Iterator[OfferedEdit]:
    """One branch of two, one condition of two, and an edge case that is never met."""
    others: tuple[cst.BaseExpression, ...] = ()
    match node:
        case cst.If(test=test) if not _is_guard(node):
            yield OfferedEdit(test, SourceOperator.BRANCH, cst.Name("False"))
        case cst.IfExp(body=body, orelse=orelse):
            others = (body, orelse)
        case cst.BooleanOperation(left=left, right=right):
            others = (left, right)
        case cst.Call(func=func, args=[_, met, unmet]) if name_of(func) == "where":
            others = (met.value, unmet.value)
    for other in others:
        yield OfferedEdit(node, SourceOperator.BRANCH, other)


def _is_guard(node: cst.If) -> bool:
    """Whether it only raises, which is removed as a statement, or has a branch for either case."""
    match node.body:
        case cst.IndentedBlock(body=[cst.SimpleStatementLine(body=[cst.Raise()]), *_]):
            return True
    return False


def _unclamped(node: cst.Call) -> Iterator[OfferedEdit]:
    """What is clipped as it is, and a bound that is one too high."""
    arguments = list(node.args)
    if name_of(node.func) == "clip" and arguments:
        is_method = isinstance(node.func, cst.Attribute) and len(arguments) < 3
        given = node.func.value if is_method else arguments[0].value  # type: ignore[attr-defined]
        yield OfferedEdit(node, SourceOperator.CLAMP, given)
    if len(arguments) > 1 and not any(one.star or one.keyword for one in arguments):
        last = arguments[-1]
        more = cst.BinaryOperation(last.value, cst.Add(), ONE)
        # A comma behind the last argument stands behind what is exchanged.
        other = last.with_changes(value=more, comma=cst.MaybeSentinel.DEFAULT)
        yield OfferedEdit(last, SourceOperator.CLAMP, other)


def removed_as(node: cst.CSTNode) -> SourceOperator:
    """What the removal of a statement is called: a reset that is missing if it gives something a
    constant or empties it, a forgotten field if it gives one place what another one has.
    """
    match node:
        case cst.SimpleStatementLine(body=[cst.Assign(targets=[to], value=value)]):
            if _is_constant(value):
                return SourceOperator.RESET
            if _base(to.target) and _base(to.target) == _base(value):
                return SourceOperator.FIELD
        case cst.SimpleStatementLine(body=[cst.AnnAssign(value=cst.BaseExpression() as value)]):
            return SourceOperator.RESET if _is_constant(value) else SourceOperator.STATEMENT
        case cst.SimpleStatementLine(body=[cst.Expr(value=cst.Call(func=func))]):
            if RESETS & set(name_of(func).strip("_").split("_")):
                return SourceOperator.RESET
    return SourceOperator.STATEMENT


def _is_constant(value: cst.BaseExpression) -> bool:
    match value:
        case cst.Integer() | cst.Float() | cst.UnaryOperation(expression=cst.Integer()):
            return True
        case cst.Name(value="None" | "True" | "False"):
            return True
        case cst.List(elements=[]) | cst.Dict(elements=[]) | cst.Tuple(elements=[]):
            return True
    return False


def _base(node: cst.BaseExpression) -> str:
    """The text of what an element is of."""
    return cst.Module(()).code_for_node(node.value) if isinstance(node, cst.Subscript) else ""
