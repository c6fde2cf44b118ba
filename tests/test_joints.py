"""Whoever makes an object gives it all that it needs: nothing is assigned to it from outside."""

from __future__ import annotations

import ast
import re
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "harness" / "racegate"
JOINED = sorted(
    path
    for folder in ("interpose", "order", "device", "targets/*/inside")
    for room in PACKAGE.glob(folder)
    for path in room.rglob("*.py")
)
# What is assigned from outside all the same: (file, variable, why).
ASSIGNED = (
    ("interpose/kernels/run.py", "bound", "what an operator is given and touches comes in pieces"),
    ("interpose/kernels/later.py", "bound", "the arguments of an operator are copied behind it"),
    ("interpose/other_sources.py", "owner", "Python's: it reads other texts than the files have"),
    ("targets/sglang/inside/drafts.py", "worker", "SGLang's: its verification is watched"),
    ("targets/sglang/inside/engine.py", "scheduler", "SGLang's: its ends are exchanged"),
    ("targets/sglang/inside/repairs.py", "pool", "SGLang's: a repair is switched off"),
    ("targets/sglang/inside/watch.py", "runner", "SGLang's: its forward pass is watched"),
    ("targets/vllm/inside/engine.py", "state", "vLLM's: its second runner is watched"),
    ("targets/vllm/inside/standins.py", "executor", "vLLM's: its thread is not started"),
)
# Values of these types are another project's, which `tests/helpers/patches.py` lists.
FOREIGN = frozenset({"Any", "ModuleType"})
DECLARED = ("restype", "argtypes")  # of a C function: ctypes has no other way
Function = ast.FunctionDef | ast.AsyncFunctionDef
EXAMPLE = """
import torch
class Made: ...
def own(self, made: Made, plain: Any):
    fresh = Session()
    fresh.a = made.b = plain.c = torch.d.e = self.f = 1
    self._local.g = self.library.call.argtypes = ()
def outside(self, session: Session, known):
    session.drain, self.k = 1, 2
    other = known
    other.h = self.session.recorder.i = 2
    setattr(session, "j", 3)
"""


def test_nothing_is_assigned_from_outside() -> None:
    found = {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in JOINED
        for name in assigned_outside(ast.parse(path.read_text()))
    }
    assert found == {(file, name) for file, name, _ in ASSIGNED}


def test_an_assignment_from_outside_would_be_seen() -> None:
    found = assigned_outside(ast.parse(EXAMPLE))
    assert sorted(found) == ["other", "self.session.recorder", "session", "session"]


def assigned_outside(tree: ast.Module) -> list[str]:
    """Variables to whose attributes a function assigns, although it neither made nor owns them:
    parameters of a type of ours that is defined elsewhere, and what lies deeper in `self` than its
    own fields.
    """
    imported = _foreign_names(tree)
    types = imported | {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    found: list[str] = []
    waiting: list[tuple[ast.AST, set[str]]] = [(tree, imported)]
    while waiting:
        scope, known = waiting.pop()
        if isinstance(scope, Function):
            known = known | _made_in(scope) | _loose_parameters(scope, types)
        for node in _of_scope(scope):
            if isinstance(node, Function):
                waiting.append((node, known))
            found += [name for target in _targets(node) if (name := _owner(target, known))]
    return found


def _of_scope(scope: ast.AST) -> list[ast.AST]:
    """All nodes of a scope; of functions in it only themselves."""
    nodes, waiting = [], list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        nodes.append(node)
        if not isinstance(node, Function):
            waiting += ast.iter_child_nodes(node)
    return nodes


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return [e for t in node.targets for e in (t.elts if isinstance(t, ast.Tuple) else [t])]
    if isinstance(node, ast.AugAssign | ast.AnnAssign):
        return [node.target]
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr":
        return [ast.Attribute(node.args[0], "setattr")]
    return []


def _owner(target: ast.expr, known: set[str]) -> str:
    """Whose attribute it is, if it is of an object that is not known."""
    if not isinstance(target, ast.Attribute) or target.attr in DECLARED:
        return ""
    owner = ast.unparse(target.value)
    root = re.findall(r"\w+", owner.removeprefix("type("))[0]
    if owner in ("self", "self._local") or root in known:
        return ""
    return owner if root == "self" else root


def _foreign_names(tree: ast.Module) -> set[str]:
    """What is imported from elsewhere than this project."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("racegate"):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def _made_in(scope: Function) -> set[str]:
    """Variables that hold what was made in the function, or what another project made."""
    names: set[str] = set()
    for node in _of_scope(scope):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                names.add(name)
            case ast.AnnAssign(target=target) if ast.unparse(node.annotation) in FOREIGN:
                names |= _bound_by(target)
            case ast.Assign(value=ast.Name() | ast.Attribute()):
                continue  # another name for what is there
            case ast.Assign(targets=targets):
                names |= {name for target in targets for name in _bound_by(target)}
            case ast.AnnAssign(target=target, value=ast.Call()):
                names |= _bound_by(target)
            case ast.For(target=target) | ast.comprehension(target=target):
                names |= _bound_by(target)
    return names


def _bound_by(target: ast.expr) -> set[str]:
    nodes = ast.walk(target)
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _loose_parameters(scope: Function, types: set[str]) -> set[str]:
    """Parameters of a type that is another project's, or a class of the same module."""
    arguments = (*scope.args.posonlyargs, *scope.args.args, *scope.args.kwonlyargs)
    return {
        argument.arg
        for argument in arguments
        if argument.annotation is not None
        and {n.id for n in ast.walk(argument.annotation) if isinstance(n, ast.Name)}
        & (types | FOREIGN)
    }
