"""A witness of a landing that does harm: one file with all that is needed to see it again.

Operations are named by function, buffer and count, so a witness of one release can be tried on the
next. Strict to read.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from racegate.history.finding import Verdict
from racegate.history.replayed import ReplayOutcome
from racegate.history.witness import file_of, read_object
from racegate.scenario.errors import BadInputError
from racegate.scenario.spec import SETTINGS, Scenario
from racegate.scenario.strict import StrictStruct
from racegate.scenario.untrusted.files import write_whole
from racegate.scenario.untrusted.text import quoted
from racegate.scenario.validation import validate
from racegate.targets.common.judge import EngineVerdict
from racegate.targets.common.landings import Holds
from racegate.targets.common.search import Effect, JudgedConflict
from racegate.targets.common.words import wrong_lines
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.wire import ModelRunner, StateMode

SCHEMA = "racegate.vllm-witness/1"
# As many as an earlier witness names without asking for fewer.
BLOCKS_USUAL = 128


class EngineWitness(StrictStruct, frozen=True, kw_only=True):
    """What is run, and what was wrong when it was.

    effect: of the landing; wrong: in words; torch: the version it was found with
    """

    schema: str
    release: str
    runner: ModelRunner
    mode: StateMode
    scenario: Scenario
    holds: Holds
    effect: Effect
    wrong: tuple[str, ...]
    torch: str

    @property
    def cell(self) -> Cell:
        return Cell(release=self.release, runner=self.runner, mode=self.mode)


def witnesses_of(judged: EngineVerdict, scenario: Scenario) -> list[EngineWitness]:
    """One per landing that does harm; conflicts that the same landing shows share theirs."""
    if judged.search is None:
        return []
    found: dict[Holds, EngineWitness] = {}
    for conflict in judged.search.conflicts:
        if conflict.landing is not None and conflict.landing.holds not in found:
            found[conflict.landing.holds] = _witness(judged, scenario, conflict)
    return list(found.values())


def _witness(judged: EngineVerdict, scenario: Scenario, conflict: JudgedConflict) -> EngineWitness:
    assert conflict.landing is not None
    told, cell = conflict.landing.told, judged.cell
    assert isinstance(cell, Cell)
    return EngineWitness(
        schema=SCHEMA,
        release=cell.release,
        runner=cell.runner,
        mode=cell.mode,
        scenario=scenario,
        holds=conflict.landing.holds,
        effect=conflict.effect,
        wrong=tuple(wrong_lines(told)),
        torch=told.outcome.torch_version,
    )


def write_witnesses(folder: Path, witnesses: list[EngineWitness]) -> list[Path]:
    """`RELEASE-RUNNER-MODE-SCENARIO-N.json` in the folder, which is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, witness in enumerate(witnesses, start=1):
        name = "-".join(
            (Path(witness.release).name, witness.runner, witness.mode, witness.scenario.name)
        )
        path = folder / f"{name}-{number}.json"
        write_whole(path, file_of(msgspec.json.encode(witness)))
        paths.append(path)
    return paths


def is_engine_witness(path: Path) -> bool:
    """Whether a witness file is a vLLM release's. Raises WitnessError."""
    raw = read_object(path)
    return isinstance(raw, dict) and str(raw.get("schema")).startswith(SCHEMA.partition("/")[0])


def outcome_of(judged: EngineVerdict, witness: EngineWitness) -> ReplayOutcome:
    """What a replay showed, beside what was wrong when the witness was written."""
    if judged.verdict is not Verdict.DIVERGENT:
        return ReplayOutcome.NOTHING if judged.tried.number else ReplayOutcome.NOT_REALISED
    is_same = tuple(wrong_lines(judged.told)) == witness.wrong
    return ReplayOutcome.REPRODUCED if is_same else ReplayOutcome.OTHER


def _without_settings(raw: object) -> object:
    """A witness as it is written today. Earlier ones stored the settings of racegate's own engine
    too, of which vLLM obeyed one: how many blocks there are, where that was fewer than usual.
    """
    scenario = raw.get("scenario") if isinstance(raw, dict) else None
    if not isinstance(raw, dict) or not isinstance(scenario, dict):
        return raw
    engine = scenario.get("engine")
    blocks = engine.get("blocks") if isinstance(engine, dict) else None
    what_happens = {key: value for key, value in scenario.items() if key not in SETTINGS}
    if isinstance(blocks, int) and blocks < BLOCKS_USUAL:
        what_happens["free_blocks"] = blocks
    return raw | {"scenario": what_happens}


def read_witness(path: Path) -> EngineWitness:
    """Raises BadInputError with the file and the reason."""
    try:
        witness = msgspec.convert(_without_settings(read_object(path)), EngineWitness)
        validate(witness.scenario, source=str(path))
    except msgspec.ValidationError as error:
        raise BadInputError(f"{path}: {error}") from error
    if witness.schema != SCHEMA:
        found = quoted(witness.schema)
        raise BadInputError(f"{path}: its schema is {found}, this racegate's {SCHEMA!r}")
    return witness
