"""A report to the maintainers of a library: one finding of a program, on one page."""

from __future__ import annotations

import textwrap
from pathlib import Path

import msgspec

from racegate.history.finding import Side
from racegate.jobs.versions.cells import CellReport
from racegate.report.objects import HistoryObject
from racegate.report.templating import render
from racegate.scenario.errors import BadInputError
from racegate.scenario.strict import StrictStruct
from racegate.scenario.untrusted.reading import ReadError, decode_toml, read_json, read_text
from racegate.targets.program.repair import from_here
from racegate.targets.program.repairs.edges import path_of
from racegate.targets.program.repairs.upstream import UpstreamMaterial

FACTS_BYTES_MAX = 1 << 20
CODE_COLUMNS = 110


class UpstreamFacts(StrictStruct, frozen=True, kw_only=True):
    """What no run can say, from a TOML file.

    package: what pip calls the library; harm: for a user, in one sentence
    public: what public threads say already; gpu: what was seen on a GPU, and by which command
    not_shown: what nobody has tried
    """

    package: str
    harm: str
    public: str
    gpu: str = "Not run on a GPU."
    not_shown: tuple[str, ...] = ()


def load_facts(path: Path) -> UpstreamFacts:
    """Raises BadInputError."""
    try:
        return msgspec.convert(decode_toml(read_text(path, FACTS_BYTES_MAX)), UpstreamFacts)
    except (ReadError, msgspec.ValidationError) as error:
        raise BadInputError(f"{path}: {error}") from error


def load_range(path: Path) -> str:
    """Which of the judged versions have a race, by the JSON of `racegate history`. Raises
    BadInputError.
    """
    try:
        history = msgspec.convert(read_json(path, FACTS_BYTES_MAX), HistoryObject)
    except (ReadError, msgspec.ValidationError) as error:
        raise BadInputError(f"{path}: no result of racegate history: {error}") from error
    said = [f"{cell.release} {_said(cell)}" for cell in history.cells]
    return f"{history.target}: {', '.join(said)}"


def _said(cell: CellReport) -> str:
    told = cell.scenarios.values()
    words = [f"{one.verdict} ({one.message})" if one.message else one.verdict for one in told]
    return ", ".join(words) or "cannot be run"


def upstream_page(
    found: UpstreamMaterial,
    facts: UpstreamFacts,
    *,
    version: str,
    versions: str,
    command: str,
    test: str,
) -> str:
    """Markdown. version: of the package that was run; versions: which others have it, in words
    command: the program, as it was run; test: the name of the file of the plain test
    """
    race = found.race
    return render(
        "upstream_program.md.j2",
        facts=facts,
        version=version,
        versions=versions,
        race=race,
        sides=[
            ("first", race.first, _stack(race.first)),
            ("second", race.second, _stack(race.second)),
        ],
        found=found,
        holds=[part for hold in found.holds for part in _code(hold)],
        changes=[part for line in found.changes for part in _code(line)],
        repair=found.repair,
        command=command,
        test=test,
    )


def _stack(side: Side) -> list[str]:
    frames = [f"{from_here(path_of(file))}:{line} in {name}" for file, line, name in side.frames]
    return [part for frame in frames for part in _code(frame)]


def _code(line: str) -> list[str]:
    """A line of a block of code, in parts that fit a page."""
    return textwrap.wrap(line, CODE_COLUMNS, subsequent_indent="  ")
