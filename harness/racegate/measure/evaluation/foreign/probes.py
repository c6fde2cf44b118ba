"""Mutants that can be told without a run of their own: what an edit makes of an expression is
evaluated beside the expression, for many mutants in one run. Where it has the same value each time,
the run with the edit is the run without it.

That holds for expressions that only compute: no call but a few builtins, and no other memory than
the engine's own expression reads, because the order of accesses is judged too.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

import msgspec

from racegate.measure.evaluation.foreign.edits import SourceSpans
from racegate.measure.evaluation.source.results import Edit, SourceMutant
from racegate.targets.common.wire import SourceProbe

_CALLS = frozenset({"len", "min", "max", "abs", "any", "all", "isinstance"})
_COMPUTING = (
    ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.Name, ast.Attribute,
    ast.Constant, ast.Subscript, ast.Call, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
    ast.expr_context,
)  # fmt: skip
_CHOOSING = (ast.BoolOp, ast.IfExp)


class ProbedMutants(msgspec.Struct, frozen=True):
    """Probes of some mutants. keys: of the mutants, by the numbers of the other expressions"""

    probes: tuple[SourceProbe, ...]
    keys: tuple[str, ...]

    def of(self, numbers: Sequence[int]) -> frozenset[str]:
        """The keys of some of them."""
        return frozenset(self.keys[number] for number in numbers)


def probed_mutants(
    mutants: Sequence[SourceMutant], sources: Mapping[str, bytes], modules: Mapping[str, str]
) -> ProbedMutants:
    """Of those whose edit is in an expression that only computes. sources, modules: by file"""
    by_place: defaultdict[tuple[str, int, int, bool], list[tuple[str, str]]] = defaultdict(list)
    for file, source in sources.items():
        text = SourceSpans(source)
        tree = ast.parse(source)
        for mutant in mutants:
            if mutant.file == file and (found := _probed(text, tree, mutant.edit)) is not None:
                start, end, is_test, other = found
                by_place[modules[file], start, end, is_test].append((other, mutant.key))
    probes = tuple(
        SourceProbe(module, start, end, tuple(other for other, _ in some), is_test)
        for (module, start, end, is_test), some in by_place.items()
    )
    return ProbedMutants(probes, tuple(key for some in by_place.values() for _, key in some))


def _probed(text: SourceSpans, tree: ast.Module, edit: Edit) -> tuple[int, int, bool, str] | None:
    """(start, end, whether it is a test, what the edit makes of it) of the largest expression that
    only computes; None if there is none.
    """
    way = list(_way(text, tree, edit))
    inner = [node for node in reversed(way) if isinstance(node, ast.expr)]
    found = list(takewhile(lambda node: isinstance(node, ast.expr) and _computes(node), inner))
    if not found or any(_is_elsewhere(node) for node in way):
        return None
    node = found[-1]
    assert isinstance(node, ast.expr)
    start, end = text.span(node)
    after = edit.apply(text.source)
    made = after[start : end + len(after) - len(text.source)].decode()
    try:
        other = ast.parse(f"({made})", mode="eval").body
    except SyntaxError:
        return None
    if not _computes(other) or not _reads(other) <= _reads(node):
        return None
    parent = way[way.index(node) - 1]
    is_test = isinstance(parent, ast.If | ast.While | ast.IfExp) and parent.test is node
    return start, end, is_test, ast.unparse(other)


def _way(text: SourceSpans, tree: ast.Module, edit: Edit) -> Iterator[ast.AST]:
    """From the module down to the smallest node that has all of an edit in it."""
    node: ast.AST | None = tree
    while node is not None:
        yield node
        children = (each for each in _spanned(node) if isinstance(each, ast.stmt | ast.expr))
        node = next((each for each in children if _holds(text.span(each), edit)), None)


def _spanned(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes below it that have a place, with what stands between."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.expr):
            yield child
        else:
            yield from _spanned(child)


def _holds(span: tuple[int, int], edit: Edit) -> bool:
    return span[0] <= edit.start and edit.end <= span[1]


def _computes(node: ast.expr) -> bool:
    """Whether nothing happens when it is evaluated, once or twice."""
    every = list(ast.walk(node))
    if not all(isinstance(each, _COMPUTING) and _is_read(each) for each in every):
        return False
    # What one branch alone reads is not read where the other is taken.
    chooses = any(isinstance(each, _CHOOSING) for each in every)
    return not (chooses and any(isinstance(each, ast.Subscript) for each in every))


def _is_read(node: ast.AST) -> bool:
    """Whether it is neither given a value nor a call of more than a builtin."""
    match node:
        case ast.Call(func=ast.Name(id=name), keywords=[]):
            return name in _CALLS
        case ast.Call():
            return False
        case ast.Name(ctx=at) | ast.Attribute(ctx=at) | ast.Subscript(ctx=at):
            return isinstance(at, ast.Load)
    return True


def _reads(node: ast.expr) -> frozenset[str]:
    """What it reads beside names."""
    return frozenset(
        ast.unparse(each)
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute | ast.Subscript)
    )


def _is_elsewhere(node: ast.AST) -> bool:
    """What is evaluated by an import, or by the interpreter of kernels, or is a text."""
    is_kernel = isinstance(node, ast.FunctionDef) and any(
        "jit" in ast.unparse(each) for each in node.decorator_list
    )
    return is_kernel or isinstance(node, ast.JoinedStr | ast.Lambda)
