"""Operators: the edits of a file, by a set of operators that the literature knows; those that the
developer of a runner gets wrong are in `mistakes`.

libcst says where an expression or a statement stands, to the byte; an edit puts other text there.
Nothing is edited that a run does not do (annotations, decorators, imports) or only says (asserts,
the message of an error).

The operators are ours because those of the kept tools do not fit: mutmut's, on libcst too, put None
for every argument and assigned value, which any run stops at, and know no removed statement, bound
of a slice or negated condition; cosmic-ray's put every operator in the place of every other, and
have no removed statement either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import UnionType
from typing import NamedTuple, cast

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, CodeSpan, MetadataWrapper

from racegate.measure.evaluation.source.mistakes import SiblingTable, mistakes, name_of, removed_as
from racegate.measure.evaluation.source.results import Edit, SourceOperator

Leaves = Callable[[cst.CSTNode], bool]  # what is not edited, nor anything in it


def is_for_a_gpu(node: cst.CSTNode) -> bool:
    """A Triton source, its launcher or its block size: the eager twin is what runs without one."""
    if isinstance(node, cst.Assign):
        is_triton = isinstance(node.value, cst.Call) and name_of(node.value.func) == "constexpr"
        return is_triton or name_of(node.targets[0].target).startswith("BLOCK")
    if not isinstance(node, cst.FunctionDef):
        return False
    decorators = [cst.Module(()).code_for_node(each.decorator) for each in node.decorators]
    name = node.name.value
    is_launcher = name.endswith("_triton") or name.startswith(("_launch", "triton_"))
    return is_launcher or any(text.startswith("triton.") for text in decorators)


def edits_of(source: bytes, *, leaves: Leaves = is_for_a_gpu) -> list[Edit]:
    """Every edit of a file, in its order; none changes nothing. leaves: what is not edited, beside
    what a run does not do
    """
    wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
    spans = cast(Mapping[cst.CSTNode, CodeSpan], wrapper.resolve(ByteSpanPositionProvider))
    finder = _Finder(wrapper.module, source, spans, leaves)
    wrapper.module.visit(finder)
    return sorted(
        {(edit.start, edit.end, edit.text): edit for edit in finder.found}.values(),
        key=lambda edit: (edit.start, edit.end, edit.text),
    )


class _Finder(cst.CSTVisitor):
    """Walks a file and keeps what its operators offer."""

    def __init__(
        self,
        module: cst.Module,
        source: bytes,
        spans: Mapping[cst.CSTNode, CodeSpan],
        leaves: Leaves,
    ) -> None:
        self.found: list[Edit] = []
        self._module = module
        self._source = source
        self._spans = spans
        self._leaves = leaves
        self._scope: list[str] = []
        # Of functions, by their bodies: a default belongs to whoever defines the function.
        self._names: dict[int, str] = {}
        self._statements = [1]
        self._siblings = SiblingTable(module)

    def on_visit(self, node: cst.CSTNode) -> bool:
        if self._is_left(node):
            return False
        if isinstance(node, cst.FunctionDef):
            self._names[id(node.body)] = node.name.value
        if (name := self._scope_of(node)) is not None:
            self._scope.append(name)
        if isinstance(node, STATEMENTS):
            self._statements.append(self._line(self._span(node)[0]))
        for offer in OFFERS:
            if isinstance(node, offer.kind):
                for other in offer.others(node):
                    self._keep(node, offer.operator, other)
        for mistake in mistakes(node, self._siblings):
            self._keep(mistake.node, mistake.operator, mistake.other)
        if isinstance(node, cst.If | cst.While | cst.IfExp | cst.CompIf):
            other_test = _negated(node.test)
            if other_test is not None:
                self._keep(node.test, SourceOperator.CONDITION, other_test)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if self._is_left(original_node):
            return
        if self._scope_of(original_node) is not None:
            self._scope.pop()
        if isinstance(original_node, STATEMENTS):
            self._statements.pop()

    def _is_left(self, node: cst.CSTNode) -> bool:
        return _is_untouched(node) or self._leaves(node)

    def _scope_of(self, node: cst.CSTNode) -> str | None:
        """What begins here, if a class or the body of a function does."""
        return node.name.value if isinstance(node, cst.ClassDef) else self._names.get(id(node))

    def _keep(self, node: cst.CSTNode, operator: SourceOperator, other: cst.CSTNode) -> None:
        start, end = self._span(node)
        if operator is SourceOperator.STATEMENT:
            operator = removed_as(node)
        text = self._module.code_for_node(_bare(other))
        is_asked = self._source[end : end + 1] == b"." and not isinstance(other, CLOSED)
        if is_asked or _needs_parentheses(node, other, is_long="\n" in text):
            text = f"({text})"
        if text.encode() != self._source[start:end]:
            self.found.append(
                Edit(
                    operator=operator,
                    scope=".".join(self._scope),
                    lines=(self._statements[-1], self._line(end)),
                    start=start,
                    end=end,
                    text=text,
                )
            )

    def _span(self, node: cst.CSTNode) -> tuple[int, int]:
        span = self._spans[node]
        return span.start, span.start + span.length

    def _line(self, place: int) -> int:
        return self._source.count(b"\n", 0, place) + 1


PROMISES = frozenset({"strict", "frozen", "kw_only", "slots", "gc"})
STATEMENTS = (cst.SimpleStatementLine, cst.BaseCompoundStatement)
UNTOUCHED = (
    cst.Annotation,
    cst.Assert,
    cst.Decorator,
    cst.Import,
    cst.ImportFrom,
    cst.FormattedString,
    cst.BaseString,
    cst.TypeAlias,
)


def _is_untouched(node: cst.CSTNode) -> bool:
    """What a run does not do, or only says; `zip(strict=True)` and `frozen=True` are asserts."""
    if isinstance(node, cst.Arg):
        return node.keyword is not None and node.keyword.value in PROMISES
    return isinstance(node, UNTOUCHED)


def _bare(node: cst.CSTNode) -> cst.CSTNode:
    """Without parentheses of its own: those in the file stay."""
    is_empty = isinstance(node, cst.Tuple) and not node.elements
    if is_empty or not isinstance(node, cst.BaseExpression):
        return node
    return node.with_changes(lpar=(), rpar=())


def _needs_parentheses(node: cst.CSTNode, other: cst.CSTNode, *, is_long: bool) -> bool:
    """An operand in the place of what may have bound closer. is_long: it has several lines, which
    its own parentheses held together
    """
    is_expression = isinstance(node, cst.BaseExpression) and not node.lpar
    if isinstance(other, cst.Tuple) and not other.elements:
        return False
    is_other = type(node) is not type(other) or is_long
    return is_expression and is_other and isinstance(other, LOOSE)


CLOSED = (cst.Name, cst.Attribute, cst.Call, cst.Subscript)
LOOSE = (
    cst.BooleanOperation,
    cst.Comparison,
    cst.BinaryOperation,
    cst.IfExp,
    cst.Lambda,
    cst.GeneratorExp,
    cst.NamedExpr,
    cst.Tuple,
)


def _swapped(
    table: dict[type[cst.CSTNode], type[cst.CSTNode]], node: cst.CSTNode
) -> cst.CSTNode | None:
    """The other operator with the same space around it, if there is one."""
    other = table.get(type(node))
    if other is None:
        return None
    space = {
        name: getattr(node, name)
        for name in ("whitespace_before", "whitespace_after")
        if hasattr(node, name) and name in other.__dataclass_fields__
    }
    return other(**space)


_COMPARISONS: dict[type[cst.CSTNode], type[cst.CSTNode]] = {
    cst.LessThan: cst.LessThanEqual,
    cst.LessThanEqual: cst.LessThan,
    cst.GreaterThan: cst.GreaterThanEqual,
    cst.GreaterThanEqual: cst.GreaterThan,
    cst.Equal: cst.NotEqual,
    cst.NotEqual: cst.Equal,
    cst.Is: cst.IsNot,
    cst.IsNot: cst.Is,
    cst.In: cst.NotIn,
    cst.NotIn: cst.In,
}
_ARITHMETIC: dict[type[cst.CSTNode], type[cst.CSTNode]] = {
    cst.Add: cst.Subtract,
    cst.Subtract: cst.Add,
    cst.Multiply: cst.FloorDivide,
    cst.FloorDivide: cst.Multiply,
    cst.Divide: cst.Multiply,
    cst.Modulo: cst.FloorDivide,
    cst.MatrixMultiply: cst.Multiply,
    cst.LeftShift: cst.RightShift,
    cst.RightShift: cst.LeftShift,
    cst.BitAnd: cst.BitOr,
    cst.BitOr: cst.BitAnd,
    cst.BitXor: cst.BitAnd,
    cst.AddAssign: cst.SubtractAssign,
    cst.SubtractAssign: cst.AddAssign,
    cst.MultiplyAssign: cst.FloorDivideAssign,
    cst.BitAndAssign: cst.BitOrAssign,
    cst.BitOrAssign: cst.BitAndAssign,
    cst.BitXorAssign: cst.BitAndAssign,
}
_BOOLEANS: dict[type[cst.CSTNode], type[cst.CSTNode]] = {cst.And: cst.Or, cst.Or: cst.And}
_CHOICES = {
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "any": "all",
    "all": "any",
}
# Not int and bool: of a value of NumPy they change nothing but the type.
_WRAPPERS = frozenset({"sorted", "reversed", "abs"})


def _compared(node: cst.ComparisonTarget) -> Iterator[cst.CSTNode]:
    other = _swapped(_COMPARISONS, node.operator)
    if other is not None:
        yield node.with_changes(operator=other)


def _calculated(node: cst.BinaryOperation | cst.AugAssign) -> Iterator[cst.CSTNode]:
    other = _swapped(_ARITHMETIC, node.operator)
    if other is not None:
        yield node.with_changes(operator=other)


def _combined(node: cst.BooleanOperation) -> Iterator[cst.CSTNode]:
    other = _swapped(_BOOLEANS, node.operator)
    if other is not None:
        yield node.with_changes(operator=other)


def _unsigned(node: cst.UnaryOperation) -> Iterator[cst.CSTNode]:
    """`not x`, `~x` and `-x` without the sign; `-1` is a constant."""
    if not isinstance(node.operator, cst.Plus) and not isinstance(node.expression, cst.Integer):
        yield node.expression


def _off_by_one(node: cst.Integer) -> Iterator[cst.CSTNode]:
    for value in (node.evaluated_value + 1, node.evaluated_value - 1):
        text = f"{abs(value):x}" if node.value.startswith("0x") else str(abs(value))
        prefix = "0x" if node.value.startswith("0x") else ""
        number = cst.Integer(prefix + text)
        yield number if value >= 0 else cst.UnaryOperation(cst.Minus(), number)


def _turned(node: cst.Name) -> Iterator[cst.CSTNode]:
    if node.value in ("True", "False"):
        yield cst.Name("False" if node.value == "True" else "True")


def _negated(test: cst.BaseExpression) -> cst.BaseExpression | None:
    """None where another operator gives the same."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return None
    if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        operator = test.comparisons[0].operator
        opposite = (cst.Equal, cst.NotEqual, cst.Is, cst.IsNot, cst.In, cst.NotIn)
        if isinstance(operator, opposite):
            return None
    closed = test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return cst.UnaryOperation(cst.Not(), closed)


def _removed(node: cst.SimpleStatementLine) -> Iterator[cst.CSTNode]:
    """A call, a change of a thing that has a place, an error raised, an end that comes early. What
    only names a value would stop at the name.
    """
    if len(node.body) != 1 or not _does_something(node.body[0]):
        return
    yield cst.Pass()


def _does_something(statement: cst.BaseSmallStatement) -> bool:
    match statement:
        case cst.Expr(value=cst.Call() | cst.Yield() | cst.Await()):
            return True
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Attribute() | cst.Subscript())]):
            return True
        case cst.AnnAssign(target=cst.Attribute()) if statement.value is not None:
            return True
        case cst.Return(value=None):
            return True
    return isinstance(statement, cst.AugAssign | cst.Del | cst.Raise)


def _exchanged(node: cst.Call) -> Iterator[cst.CSTNode]:
    """The first two arguments that have no name, if it matters to the call which is which."""
    arguments = list(node.args)
    if name_of(node.func) in _CHOICES:
        return
    plain = [not (one.keyword or one.star) for one in arguments[:2]]
    if plain == [True, True] and not arguments[0].value.deep_equals(arguments[1].value):
        first, second = arguments[:2]
        arguments[0] = first.with_changes(value=second.value)
        arguments[1] = second.with_changes(value=first.value)
        yield node.with_changes(args=arguments)


def _went_on(node: cst.Break | cst.Continue) -> Iterator[cst.CSTNode]:
    yield cst.Continue() if isinstance(node, cst.Break) else cst.Break()
    yield cst.Pass()


def _unbound(node: cst.Slice) -> Iterator[cst.CSTNode]:
    """Without its lower bound, and without its upper one."""
    if node.lower is not None and not (
        isinstance(node.lower, cst.Integer) and node.lower.value == "0"
    ):
        yield node.with_changes(lower=None)
    if node.upper is not None:
        yield node.with_changes(upper=None)


def _chosen(node: cst.Call) -> Iterator[cst.CSTNode]:
    """The other of min and max, and either argument alone."""
    name = name_of(node.func)
    if name not in _CHOICES:
        return
    other = cst.Name(_CHOICES[name])
    is_method = isinstance(node.func, cst.Attribute)
    yield node.with_changes(func=node.func.with_changes(attr=other) if is_method else other)
    plain = [one.value for one in node.args if not (one.keyword or one.star)]
    if name not in ("any", "all") and len(plain) == 2:
        yield from plain


def _unwrapped(node: cst.Call) -> Iterator[cst.CSTNode]:
    """What a call that puts something in order, or into shape, was given."""
    name = name_of(node.func)
    is_plain = len(node.args) == 1 and not (node.args[0].star or node.args[0].keyword)
    if name in _WRAPPERS and isinstance(node.func, cst.Name) and is_plain:
        yield node.args[0].value


class EditRule(NamedTuple):
    """What an operator puts in the place of a node of a kind."""

    kind: type[cst.CSTNode] | UnionType
    operator: SourceOperator
    others: Callable[..., Iterator[cst.CSTNode]]


OFFERS = (
    EditRule(cst.ComparisonTarget, SourceOperator.COMPARISON, _compared),
    EditRule(cst.BinaryOperation | cst.AugAssign, SourceOperator.ARITHMETIC, _calculated),
    EditRule(cst.UnaryOperation, SourceOperator.ARITHMETIC, _unsigned),
    EditRule(cst.BooleanOperation, SourceOperator.BOOLEAN, _combined),
    EditRule(cst.Integer, SourceOperator.CONSTANT, _off_by_one),
    EditRule(cst.Name, SourceOperator.CONSTANT, _turned),
    EditRule(cst.SimpleStatementLine, SourceOperator.STATEMENT, _removed),
    EditRule(cst.Call, SourceOperator.ARGUMENTS, _exchanged),
    EditRule(cst.Break | cst.Continue, SourceOperator.LOOP, _went_on),
    EditRule(cst.Slice, SourceOperator.SLICE, _unbound),
    EditRule(cst.Call, SourceOperator.CHOICE, _chosen),
    EditRule(cst.Call, SourceOperator.WRAPPER, _unwrapped),
)
