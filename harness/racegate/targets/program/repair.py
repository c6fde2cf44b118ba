"""The edge that a race lacks, as a change of Python sources: an event that is recorded behind the
first access, and a wait for it before the second. It is a proposal: nobody has run it yet.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from itertools import takewhile
from pathlib import Path, PurePath

from racegate.history.finding import Frame, Hazard, Race, Side
from racegate.scenario.untrusted.reading import ReadError, read_text

SOURCE_BYTES_MAX = 1 << 20
EVENT, RETURNED = "landed", "returned"
_EXPRESSIONS = ("<lambda>", "<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>")


def repair_of(race: Race) -> str:
    """The sources with the edge as one unified diff. Empty where none can be written: see
    `repaired_sources`.
    """
    try:
        changed = repaired_sources(race)
    except (ReadError, SyntaxError, ValueError, RecursionError):
        return ""
    return "".join(diff_of(path, text) for path, text in changed.items())


def diff_of(path: Path, repaired: str, *, context: int = 1) -> str:
    """What was put into a file, as a unified diff with its name from this folder. context: lines
    around a change that are shown
    """
    name = from_here(str(path))
    before = read_text(path, SOURCE_BYTES_MAX).splitlines(keepends=True)
    after = repaired.splitlines(keepends=True)
    return "".join(unified_diff(before, after, fromfile=name, tofile=name, n=context))


def from_here(path: str) -> str:
    """A file below this folder by its path from here, one of an installed package from the folder
    of packages; any other as it is.
    """
    whole = PurePath(path)
    if whole.is_relative_to(here := Path.cwd()):
        return str(whole.relative_to(here))
    _, found, inside = path.rpartition("/site-packages/")
    return inside if found else path


def repaired_sources(race: Race) -> dict[Path, str]:
    """The files that change, with the edge. The event belongs to the function that has both
    places, else to the module of the first, from which another module imports it.

    Raises ReadError, SyntaxError, and ValueError where an edge cannot be put in: the first access
    is the host's, memory was handed out again, a place is in no simple statement of its own, or
    the event would have to be imported from what is no module of a package.
    """
    first, second = race.first, race.second
    if first.is_host or race.hazard is Hazard.REUSE:
        raise ValueError("no event orders these two")
    (file, record, function), (other, wait, its) = _frame_of(first), _frame_of(second)
    source, is_host = read_text(Path(file), SOURCE_BYTES_MAX), second.is_host
    if file == other:
        both = with_edge if function == its else with_edge_of_module
        return {Path(file): both(source, record=record, wait=wait, is_host=is_host)}
    waiting = read_text(Path(other), SOURCE_BYTES_MAX)
    name = _free_name(source + waiting)
    recording = _Change(source, name)
    recorded = recording.statement_at(record)
    recording.make_event(_begun(recording.tree, recorded))
    recording.record_behind(recorded)
    imported = f"from {_module_of(Path(file))} import {name}"
    other_change = _Change(waiting, name)
    other_change.wait_before(other_change.statement_at(wait), is_host=is_host, first=[imported])
    return {Path(file): recording.text(), Path(other): other_change.text()}


def _frame_of(side: Side) -> Frame:
    """The innermost frame with a statement of its own: of an expression that is called, its
    caller's.
    """
    for frame in side.frames:
        if not frame[2].endswith(_EXPRESSIONS):
            return frame
    raise ValueError("nobody knows where this access is")


def with_edge(source: str, *, record: int, wait: int, is_host: bool) -> str:
    """The source with the edge, between two lines of one function. record, wait: the lines behind
    and before which it stands, from 1; is_host: the host waits, not the current stream.

    Raises SyntaxError, and ValueError where one of the lines is in no simple statement of its own.
    """
    change = _Change(source, _free_name(source))
    recorded, waited = change.statement_at(record), change.statement_at(wait)
    return change.with_event(
        _begun_before(change.tree, recorded, waited), recorded, waited, is_host=is_host
    )


def with_edge_of_module(source: str, *, record: int, wait: int, is_host: bool) -> str:
    """The same between two functions of one file: the event is the module's. A wait for an event
    that was not recorded yet waits for nothing.
    """
    change = _Change(source, _free_name(source))
    recorded, waited = change.statement_at(record), change.statement_at(wait)
    begun = min((_begun(change.tree, one) for one in (recorded, waited)), key=_first_line)
    return change.with_event(begun, recorded, waited, is_host=is_host)


class _Change:
    """A source, and the lines that are put into it. name: of the event"""

    def __init__(self, source: str, name: str) -> None:
        self.tree = ast.parse(source)
        self._lines = source.removesuffix("\n").split("\n")
        self._name = name
        self._added: dict[int, list[str]] = {}

    def statement_at(self, line: int) -> ast.stmt:
        """The statement without a body that a line is in, if it begins its line."""
        found = [
            one
            for one in _statements(self.tree)
            if one.lineno <= line <= (one.end_lineno or one.lineno)
            and not hasattr(one, "body")
            and not hasattr(one, "cases")
        ]
        if len(found) != 1 or self._lines[found[0].lineno - 1][: found[0].col_offset].strip():
            raise ValueError(f"line {line} is in no simple statement of its own")
        return found[0]

    def with_event(
        self, begun: ast.stmt, recorded: ast.stmt, waited: ast.stmt, *, is_host: bool
    ) -> str:
        """All in one source. begun: the statement before which the event is made"""
        if recorded is waited:
            raise ValueError("both accesses are in one statement")
        self.record_behind(recorded)
        self.make_event(begun)
        self.wait_before(waited, is_host=is_host)
        return self.text()

    def make_event(self, begun: ast.stmt) -> None:
        """Before a statement; with torch, where the module has not imported it by that name."""
        imports = [one for one in self.tree.body if isinstance(one, ast.Import)]
        aliases = [alias for one in imports for alias in one.names]
        names = {alias.asname or alias.name.partition(".")[0] for alias in aliases}
        imported = [] if "torch" in names else ["import torch"]
        self._put(_first_line(begun), begun, [*imported, f"{self._name} = torch.cuda.Event()"])

    def record_behind(self, recorded: ast.stmt) -> None:
        """Behind a statement; of one that returns a value, before it does."""
        texts = [f"{self._name}.record()"]
        if isinstance(recorded, ast.Return) and recorded.value is not None:
            line = self._lines[recorded.lineno - 1]
            at = recorded.col_offset
            kept = _free_name("\n".join(self._lines), RETURNED)
            rest = line[at + len("return") :]
            self._lines[recorded.lineno - 1] = f"{line[:at]}{kept} ={rest}"
            texts.append(f"return {kept}")
        self._put((recorded.end_lineno or recorded.lineno) + 1, recorded, texts)

    def wait_before(self, waited: ast.stmt, *, is_host: bool, first: Sequence[str] = ()) -> None:
        """first: what has to come before the wait"""
        call = "synchronize" if is_host else "wait"
        self._put(waited.lineno, waited, [*first, f"{self._name}.{call}()"])

    def text(self) -> str:
        """The source with all that was put in."""
        numbered = enumerate([*self._lines, ""], start=1)
        told = [text for number, line in numbered for text in (*self._added.get(number, ()), line)]
        return "\n".join(told)

    def _put(self, number: int, like: ast.stmt, texts: Sequence[str]) -> None:
        """Before a line, indented as a statement is."""
        indent = self._lines[like.lineno - 1][: like.col_offset]
        self._added.setdefault(number, []).extend(f"{indent}{text}" for text in texts)


def _statements(tree: ast.AST) -> Iterator[ast.stmt]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.stmt))


def _first_line(statement: ast.stmt) -> int:
    """With what decorates it."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(one.lineno for one in decorators)])


def _begun_before(tree: ast.AST, *parts: ast.stmt) -> ast.stmt:
    """The statement, directly in the function that has both, in which the first of them is."""
    homes = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef)
        and all(any(part is one for one in _statements(node)) for part in parts)
    ]
    return _begun(homes[-1], min(parts, key=_first_line))  # walking goes from the outside in


def _begun(home: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef, part: ast.stmt) -> ast.stmt:
    """The statement directly in a body in which a part of it is."""
    line = part.lineno
    return next(one for one in home.body if _first_line(one) <= line <= (one.end_lineno or line))


def _module_of(path: Path) -> str:
    """The dotted name of a file of a package. Raises ValueError for one that is in none."""
    folders = list(takewhile(lambda folder: (folder / "__init__.py").is_file(), path.parents))
    if not folders:
        raise ValueError(f"{path} is in no package")
    return ".".join(path.relative_to(folders[-1].parent).with_suffix("").parts)


def _free_name(source: str, wanted: str = EVENT) -> str:
    names = set(re.findall(r"\w+", source))
    return next(
        name
        for number in range(1, len(names) + 3)
        if (name := wanted if number == 1 else f"{wanted}_{number}") not in names
    )
