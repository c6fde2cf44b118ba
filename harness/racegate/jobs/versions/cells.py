"""What is kept of one version and one way to run it: the verdict of each scenario, or why not."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from racegate.history.finding import Verdict
from racegate.history.schedule import Holds
from racegate.interpose.errors import BadInput
from racegate.scenario.strict import StrictStruct
from racegate.scenario.untrusted.files import write_json
from racegate.scenario.untrusted.reading import ReadError, read_json
from racegate.targets.common.search import Effect
from racegate.targets.common.sensitivity import Sensitivity

FILE_BYTES_MAX = 1 << 26
_PLACES = re.compile(r"/\S*?/site-packages/|/tmp/\S*?/")


class CellConflict(StrictStruct, frozen=True, kw_only=True):
    """Two places that race, and what landings of the first do.

    first, second: kind, buffer and function; is_write: of the second; pairs: how many operations
    effect: what landings do: wrong, divergent, benign or unknown; landings: how many were tried
    does: in words, the first landing that changes something; holds: that landing
    """

    first: str
    second: str
    is_write: bool
    effect: Effect
    pairs: int
    landings: int
    does: tuple[str, ...] = ()
    holds: tuple[tuple[str, str], ...] = ()


class ScenarioReport(StrictStruct, frozen=True, kw_only=True):
    """One scenario, or one program. steps: of the engine; events: what the recorder was told
    runs: under holds; cpu_s: of the processes of all runs, in seconds
    commit: of racegate, when it was measured; is_complete: every landing was tried
    wrong: in the run in which nothing was held; not_seen: what the verdict does not cover
    message: of a run that did not come to its end
    """

    verdict: str
    steps: int
    events: int
    runs: int
    is_complete: bool
    cpu_s: float
    commit: str = ""
    unmet: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    message: str = ""
    not_seen: tuple[str, ...] = ()
    conflicts: tuple[CellConflict, ...] = ()

    @property
    def is_wrong(self) -> bool:
        """Whether a landing, or none, comes to another value."""
        return self.verdict == Verdict.DIVERGENT


class CellReport(StrictStruct, frozen=True, kw_only=True):
    """One version and one way to run it.

    release: the version; runner, mode: of vLLM; model: of SGLang
    python: the version of it; torch: what was found there
    cannot: why nothing could be run, the first line of the error
    sensitivity: whether a planted wrong value changes each observation
    scenarios: by name; of a program by its command
    """

    release: str
    runner: str = ""
    mode: str = ""
    model: str = ""
    python: str = ""
    torch: str = ""
    cannot: str = ""
    sensitivity: Sensitivity = msgspec.field(default_factory=dict)
    scenarios: dict[str, ScenarioReport] = msgspec.field(default_factory=dict)

    @property
    def settings(self) -> tuple[str, ...]:
        """The way to run it, in the words of the options."""
        return tuple(filter(None, (self.runner, self.mode, self.model)))

    @property
    def file(self) -> str:
        """The name of the file that keeps it."""
        return "-".join((self.release, *self.settings)) + ".json"

    @property
    def title(self) -> str:
        """The release and how it is run."""
        return " ".join(filter(None, (self.release, self.runner.upper(), self.mode, self.model)))


def is_done(cell: CellReport, names: tuple[str, ...]) -> bool:
    """Whether nothing of these scenarios is left to be run in a cell."""
    return bool(cell.cannot) or all(name in cell.scenarios for name in names)


def read_cell(path: Path) -> CellReport | None:
    """A cell as it was kept, None if there is none. Raises BadInput if the file is no cell."""
    if not path.exists():
        return None
    try:
        return msgspec.convert(read_json(path, FILE_BYTES_MAX), CellReport)
    except (ReadError, msgspec.ValidationError) as error:
        raise BadInput(f"{path}: no cell of a history: {error}") from error


def write_cell(folder: Path, cell: CellReport) -> None:
    """Keeps a cell in its file below a folder; the file is whole at every moment."""
    write_json(folder / cell.file, cell)


def pairs_of(holds: Holds) -> tuple[tuple[str, str], ...]:
    """Holds as a cell keeps them: what is held, and until when."""
    return tuple((hold.operation, hold.until) for hold in holds)


def first_line(text: str) -> str:
    """The line of an error that is kept, without places of this machine.

    Pydantic's first line only counts the errors; the second says the first of them. Pip's command
    says nothing that a table needs; the last line that it printed does.
    """
    lines = text.strip().splitlines() or [""]
    is_count = "validation error" in lines[0] and len(lines) > 1
    said = " ".join((lines[0], lines[1].strip().partition(" [type=")[0])) if is_count else lines[0]
    if " ... failed:" in said:
        said = lines[-1].strip()
    return _PLACES.sub("", said)
