"""Lines that are put into a source, or taken out: where a statement begins and ends, and which name
of an event both ends of an edge can use. The one place that writes an edge as Python.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

EVENT, RETURNED = "landed", "returned"
HANDOVERS = ("join", "result", "shutdown", "get", "acquire")  # calls that wait for another thread
NAME = "@event@"  # stands in lines until the names of a source are known


class NoPlaceError(ValueError):
    """Nothing can be put there."""


class LineSide(StrEnum):
    """Which side of the statement that a line belongs to."""

    BEFORE = "before"
    AFTER = "after"


class LineEdit(NamedTuple):
    """line: of the statement beside which it stands, from 1; text: lines without their indentation,
    with NAME for the event
    """

    line: int
    where: LineSide
    text: str


class EventPlace(NamedTuple):
    """Whose variable an event is. name: by which both ends know it; made: where it is made, None
    where its first record makes it
    """

    name: str
    made: LineEdit | None


class EditedSource(NamedTuple):
    """A changed source. lines: of the first line of each insertion in it, from 1"""

    text: str
    lines: dict[LineEdit, int]


@dataclass(frozen=True, slots=True)
class _Slot:
    """Where lines go: before the line of this number, or behind it, indented like a statement."""

    line: int
    is_behind: bool
    column: int
    returns: ast.Return | None = None


class PythonSource:
    """A file of Python, read once. Raises SyntaxError."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._lines = text.removesuffix("\n").split("\n")
        self._tree = ast.parse(text)
        self._parent: dict[ast.AST, ast.AST] = {
            child: node for node in ast.walk(self._tree) for child in ast.iter_child_nodes(node)
        }

    # ---- what stands where

    @property
    def imports_torch(self) -> bool:
        """Whether the module knows torch by that name."""
        imports = [one for one in self._tree.body if isinstance(one, ast.Import)]
        aliases = [alias for one in imports for alias in one.names]
        return "torch" in {alias.asname or alias.name.partition(".")[0] for alias in aliases}

    def statement(self, line: int) -> str:
        """The text of the simple statement that a line is in, without its indentation. Raises
        NoPlaceError.
        """
        found = self._alone(line)
        lines = self._lines[found.lineno - 1 : found.end_lineno]
        return "\n".join([lines[0][found.col_offset :], *lines[1:]])

    def count_of(self, statement: str) -> int:
        """How many statements read so, as Python writes them."""
        return sum(ast.unparse(node) == statement for node in _statements(self._tree))

    def is_one(self, line: int, other: int) -> bool:
        """Whether two lines are in one statement."""
        return self._innermost(line) is self._innermost(other)

    def operands(self, line: int) -> tuple[str, ...]:
        """Names and attributes that the statement of a line reads or writes."""
        found = self._innermost(line)
        header = [found] if not hasattr(found, "body") else _header(found)
        nodes = [node for part in header for node in ast.walk(part)]
        kept = [node for node in nodes if isinstance(node, ast.Name | ast.Attribute)]
        called = {node.func for node in nodes if isinstance(node, ast.Call)}
        return tuple(dict.fromkeys(ast.unparse(node) for node in kept if node not in called))

    def rewritten(self, line: int) -> str | None:
        """The variable whose whole tensor the statement of a line writes, as `x.copy_(...)`, if the
        source assigns it once.
        """
        found = self._innermost(line)
        call = found.value if isinstance(found, ast.Expr) else None
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
            return None
        name = ast.unparse(call.func.value)
        is_whole = call.func.attr in ("copy_", "fill_") and re.fullmatch(r"(self\.)?\w+", name)
        targets = [
            ast.unparse(target)
            for node in ast.walk(self._scope_of(found, is_wide=name.startswith("self.")))
            if isinstance(node, ast.Assign)
            for target in node.targets
        ]
        return name if is_whole and targets.count(name) == 1 else None

    def handovers_behind(self, line: int) -> tuple[int, ...]:
        """The lines of statements behind a line, in its function, that wait for another thread."""
        scope = self._scopes(self._innermost(line))[0]
        found = [
            node.lineno
            for node in _statements(scope)
            if isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Attribute)
            and node.value.func.attr in HANDOVERS
        ]
        return tuple(sorted(at for at in found if at > line))

    def home(self, first: int, second: int) -> EventPlace:
        """Where an event lives that is recorded at one line and waited for at another. Raises
        NoPlaceError.
        """
        statements = (self._innermost(first), self._innermost(second))
        scopes = [self._scopes(one) for one in statements]
        common = next(scope for scope in scopes[0] if any(scope is one for one in scopes[1]))
        if isinstance(common, ast.ClassDef):
            return self._attribute(common, scopes)
        return self._made_in(common, statements)

    def module_home(self, *lines: int) -> EventPlace:
        """The same, of the module, wherever its lines are."""
        return self._made_in(self._tree, [self._innermost(line) for line in lines])

    def _made_in(self, scope: ast.AST, statements: Sequence[ast.stmt]) -> EventPlace:
        """A variable of a function or of the module, made before the first of the statements."""
        begun = min((self._directly_in(scope, one) for one in statements), key=_first_line)
        imported = "" if self.imports_torch else "import torch\n"
        text = f"{imported}{NAME} = torch.cuda.Event()"
        return EventPlace(NAME, LineEdit(_first_line(begun), LineSide.BEFORE, text))

    def _attribute(self, owner: ast.ClassDef, scopes: Sequence[list[ast.AST]]) -> EventPlace:
        """An attribute of `self`, made at the end of `__init__`."""
        methods = [next(one for one in chain if self._parent[one] is owner) for chain in scopes]
        names = {_first_argument(one) for one in methods}
        name = names.pop() if len(names) == 1 else None
        if not name:
            raise NoPlaceError(f"two functions of the class {owner.name} that share no object")
        begun = [
            one
            for one in owner.body
            if isinstance(one, ast.FunctionDef) and one.name == "__init__" and one not in methods
        ]
        if not begun or _first_argument(begun[0]) != name:
            return EventPlace(f"{name}.{NAME}", None)
        last = begun[0].body[-1]
        is_open = hasattr(last, "body") or isinstance(last, ast.Return | ast.Raise)
        where = LineSide.BEFORE if is_open else LineSide.AFTER
        text = f"{name}.{NAME} = torch.cuda.Event()"
        return EventPlace(f"{name}.{NAME}", LineEdit(last.lineno, where, text))

    # ---- the changed source

    def with_lines(
        self, insertions: Sequence[LineEdit], removed: Sequence[int] = (), *, event: str = EVENT
    ) -> EditedSource:
        """The source with these lines, in this order where they meet, and without the statements of
        those that are removed. event: the name for NAME. Raises NoPlaceError.
        """
        before: dict[int, list[LineEdit]] = defaultdict(list)
        behind: dict[int, list[LineEdit]] = defaultdict(list)
        slots = {one: self._slot(one.line, one.where) for one in insertions}
        for one, slot in slots.items():
            (behind if slot.is_behind else before)[slot.line].append(one)
        gone = {number for line in removed for number in _lines_of(self._alone(line))}
        returns = {
            slot.returns.lineno: slot.returns for slot in slots.values() if slot.returns is not None
        }
        told: list[str] = []
        placed: dict[LineEdit, int] = {}

        def put(one: LineEdit) -> None:
            placed[one] = len(told) + 1
            indent = " " * slots[one].column
            told.extend(indent + text for text in one.text.replace(NAME, event).split("\n"))

        name = free_name(self.text, RETURNED)
        for number, line in enumerate(self._lines, start=1):
            for one in before[number]:
                put(one)
            if number not in gone:
                told.append(line if number not in returns else _assigned(line, name))
            for one in behind[number]:
                put(one)
            for statement in returns.values():
                if statement.end_lineno == number:
                    told.append(f"{' ' * statement.col_offset}return {name}")
        return EditedSource("\n".join(told) + "\n", placed)

    # ---- statements

    def _slot(self, line: int, where: LineSide) -> _Slot:
        if where is LineSide.BEFORE:
            found = self._own_line(self._innermost(line))
            return _Slot(_first_line(found), False, found.col_offset)
        found = self._innermost(line)
        body: list[ast.stmt] = getattr(found, "body", [])
        if isinstance(found, ast.With | ast.AsyncWith | ast.For | ast.AsyncFor | ast.While):
            if body[0].lineno > found.lineno and self._begins_line(body[0]):
                return _Slot(_first_line(body[0]), False, body[0].col_offset)
            return self._behind(self._own_line(found))
        if body or hasattr(found, "cases"):
            raise NoPlaceError(f"nothing can stand directly behind line {line}")
        return self._behind(self._own_line(found))

    def _behind(self, found: ast.stmt) -> _Slot:
        """Behind a whole statement; what a `return` gives gets a name first."""
        end = found.end_lineno or found.lineno
        rest = self._lines[end - 1].encode()[found.end_col_offset :].decode().strip()
        if rest and not rest.startswith("#"):
            raise NoPlaceError(f"line {end} has two statements")
        if isinstance(found, ast.Return):
            if found.value is None:
                raise NoPlaceError(f"line {found.lineno} returns nothing")
            return _Slot(end, True, found.col_offset, returns=found)
        if isinstance(found, ast.Raise | ast.Break | ast.Continue):
            raise NoPlaceError(f"nothing is run behind line {end}")
        return _Slot(end, True, found.col_offset)

    def _alone(self, line: int) -> ast.stmt:
        """The statement without a body that a line is in, on lines of its own."""
        found = self._innermost(line)
        if hasattr(found, "body") or self._own_line(found) is not found:
            raise NoPlaceError(f"line {line} is in no simple statement of its own")
        self._behind(found)
        return found

    def _innermost(self, line: int) -> ast.stmt:
        best: ast.stmt | None = None
        for node in _statements(self._tree):
            if _first_line(node) <= line <= (node.end_lineno or node.lineno) and (
                best is None or self._depth(node) >= self._depth(best)
            ):
                best = node
        if best is None:
            raise NoPlaceError(f"line {line} is in no statement")
        return best

    def _depth(self, node: ast.AST) -> int:
        depth = 0
        while (above := self._parent.get(node)) is not None:
            node, depth = above, depth + 1
        return depth

    def _begins_line(self, found: ast.stmt) -> bool:
        text = self._lines[found.lineno - 1]
        head = text.encode()[: found.col_offset].decode()
        return not head.strip() and not text[found.col_offset :].startswith("elif")

    def _own_line(self, found: ast.stmt) -> ast.stmt:
        """The statement itself, or the one around it that begins its line."""
        while not self._begins_line(found):
            above = self._parent.get(found)
            is_chain = isinstance(found, ast.If) and isinstance(above, ast.If)
            if not isinstance(above, ast.stmt) or (above.lineno != found.lineno and not is_chain):
                raise NoPlaceError(f"line {found.lineno} has two statements")
            found = above
        return found

    def _scopes(self, found: ast.AST) -> list[ast.AST]:
        """The functions and classes around it, from the inside out, then the module."""
        scopes: list[ast.AST] = []
        node: ast.AST | None = self._parent.get(found)
        while node is not None:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                scopes.append(node)
            node = self._parent.get(node)
        return scopes

    def _scope_of(self, found: ast.AST, *, is_wide: bool) -> ast.AST:
        scopes = self._scopes(found)
        return scopes[-1] if is_wide else scopes[0]

    def _directly_in(self, scope: ast.AST, found: ast.stmt) -> ast.stmt:
        node: ast.AST = found
        while self._parent[node] is not scope:
            node = self._parent[node]
        if not isinstance(node, ast.stmt):
            raise NoPlaceError(f"line {found.lineno} is in no statement of its function")
        return node


def _statements(tree: ast.AST) -> Iterator[ast.stmt]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.stmt))


def _header(found: ast.stmt) -> list[ast.AST]:
    """What a compound statement has before its body."""
    return [node for node in ast.iter_child_nodes(found) if not isinstance(node, ast.stmt)]


def _first_line(statement: ast.stmt) -> int:
    """With what decorates it."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(one.lineno for one in decorators)])


def _lines_of(statement: ast.stmt) -> range:
    return range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)


def _first_argument(function: ast.AST) -> str | None:
    """What a method calls its object; None of what has none."""
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    marks = {ast.unparse(one) for one in function.decorator_list}
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    return names[0] if names and not marks & {"staticmethod", "classmethod"} else None


def _assigned(line: str, name: str) -> str:
    """The first line of a `return`, with a variable that takes what it gives."""
    return line.replace("return", f"{name} =", 1)


def free_name(text: str, base: str = EVENT) -> str:
    """A name that a text does not have."""
    names = set(re.findall(r"\w+", text))
    return next(
        name
        for number in range(1, len(names) + 3)
        if (name := base if number == 1 else f"{base}_{number}") not in names
    )
