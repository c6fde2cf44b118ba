"""What is asked of mutants of a release, and what became of them, as data."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path

from racegate.measure.evaluation.source.results import SourceReport
from racegate.scenario.strict import StrictStruct


class Draw(StrEnum):
    """Which mutants a job judges: a sample by seed, or those that survived in the kept file."""

    SAMPLE = "sample"
    AGAIN = "again"


class ReleaseSpec(StrictStruct, frozen=True, kw_only=True):
    """What is asked of a job. files: below the folder of the package; sample: mutants that matter
    keep: a file to go on with; equivalent: that of mutants that change nothing
    missing: of those that nobody notices, what would have to be observed or run, in the same form
    draw: again needs a kept file, judges what survived in it, and draws nothing
    seconds: no mutant is begun later
    """

    files: tuple[str, ...]
    sample: int
    seed: int = 0
    keep: Path | None = None
    equivalent: Path | None = None
    missing: Path | None = None
    draw: Draw = Draw.SAMPLE
    seconds: float = math.inf


class UnrunEntry(StrictStruct, frozen=True):
    """Statements of a function that no scenario runs. file, scope: where it is, and its name

    lines: where they begin; is_whole: no statement of it is run
    """

    file: str
    scope: str
    lines: tuple[int, ...]
    is_whole: bool


class ReleaseMutation(StrictStruct, frozen=True, kw_only=True):
    """What was mutated of a release, and what became of it.

    report: every mutant that was drawn
    reached: mutants in statements that some scenario runs, of all that there are
    unedited: of those that were drawn, how many are in code that cannot be exchanged; they are in
        no score
    scenarios: by which they were judged; missing: by the key of a survivor, what would notice it
    unrun: statements that no scenario runs: the map of scenarios that are missing
    """

    report: SourceReport
    reached: int
    unedited: int
    scenarios: tuple[str, ...]
    missing: dict[str, str]
    unrun: tuple[UnrunEntry, ...]
