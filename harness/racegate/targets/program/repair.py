"""The edge that a race lacks, as a change of Python sources: an event that is recorded behind the
first access, and a wait for it before the second. It is a proposal: nobody has run it yet.
"""

from __future__ import annotations

from difflib import unified_diff
from itertools import takewhile
from pathlib import Path, PurePath

from racegate.history.finding import Frame, Hazard, Race, Side
from racegate.scenario.untrusted.reading import ReadError, read_text
from racegate.targets.program.source import (
    NAME,
    EventPlace,
    LineEdit,
    LineSide,
    NoPlaceError,
    PythonSource,
    free_name,
)

SOURCE_BYTES_MAX = 1 << 20
INSTALLED = ("site-packages", "dist-packages")
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
    """A file below this folder by its path from here, one of a package from the folder that has the
    package in it; any other as it is.
    """
    whole = PurePath(path)
    if whole.is_relative_to(here := Path.cwd()):
        return str(whole.relative_to(here))
    _, found, inside = path.rpartition("/site-packages/")
    return inside if found else _from_package(Path(path))


def frame_text(frame: Frame) -> str:
    """A frame as people look for it: by its path from here."""
    file, line, function = frame
    return f"{from_here(file)}:{line} in {function}"


def _from_package(path: Path) -> str:
    top = path.parent
    while top != top.parent and (top / "__init__.py").is_file():
        top = top.parent
    return str(path if top == path.parent else path.relative_to(top))


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
    event = free_name(source + waiting)
    recorded, waited = PythonSource(source), PythonSource(waiting)
    recorded.statement(record)
    waited.statement(wait)
    home = recorded.module_home(record)
    imported = f"from {module_of(Path(file))} import {NAME}\n"
    return {
        Path(file): recorded.with_lines(_recorded(home, record), event=event).text,
        Path(other): waited.with_lines(
            [_waited(home, wait, is_host=is_host, first=imported)], event=event
        ).text,
    }


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
    parsed = PythonSource(source)
    return _with_event(parsed, parsed.home(record, wait), record, wait, is_host=is_host)


def with_edge_of_module(source: str, *, record: int, wait: int, is_host: bool) -> str:
    """The same between two functions of one file: the event is the module's. A wait for an event
    that was not recorded yet waits for nothing.
    """
    parsed = PythonSource(source)
    return _with_event(parsed, parsed.module_home(record, wait), record, wait, is_host=is_host)


def _with_event(
    parsed: PythonSource, home: EventPlace, record: int, wait: int, *, is_host: bool
) -> str:
    if parsed.is_one(record, wait):
        raise NoPlaceError("both accesses are in one statement")
    parsed.statement(record)
    parsed.statement(wait)
    lines = [*_recorded(home, record), _waited(home, wait, is_host=is_host)]
    return parsed.with_lines(lines, event=free_name(parsed.text)).text


def _recorded(home: EventPlace, line: int) -> list[LineEdit]:
    made = [] if home.made is None else [home.made]
    return [*made, LineEdit(line, LineSide.AFTER, f"{home.name}.record()")]


def _waited(home: EventPlace, line: int, *, is_host: bool, first: str = "") -> LineEdit:
    """first: what has to come before the wait"""
    call = "synchronize" if is_host else "wait"
    return LineEdit(line, LineSide.BEFORE, f"{first}{home.name}.{call}()")


def module_of(path: Path) -> str:
    """The dotted name of a file of a package: a namespace's part in front of it has no file of its
    own, and is known where packages are installed. Raises ValueError for one that is in none.
    """
    folders = list(takewhile(lambda folder: (folder / "__init__.py").is_file(), path.parents))
    if not folders:
        raise ValueError(f"{path} is in no package")
    installed = [folder for folder in path.parents if folder.name in INSTALLED]
    root = installed[0] if installed else folders[-1].parent
    return ".".join(path.relative_to(root).with_suffix("").parts)
