"""The JSON contract as a page: every object that a command prints or a file holds, from its Struct.

What a field means stands in the docstring of its Struct, as `field: meaning` or `field, field:
meaning`, at the beginning of a line or behind a semicolon or full stop; what means the same in all
of them stands in `Everywhere`. `python tests/helpers/json_contract.py docs/json.md` writes the
page.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import msgspec
from msgspec import inspect as types

from racegate.check.repro.explain import Explanation, Racing
from racegate.check.repro.operations import OpsObject
from racegate.history.exit_code import ExitCode
from racegate.history.gates.known import BaselineFile
from racegate.history.gates.results import GatedResults
from racegate.history.outcome import RunResult
from racegate.history.replayed import Replay, Replays
from racegate.history.witness import Witness
from racegate.jobs.fleet.outcome import FleetObject
from racegate.jobs.gate import GateResult
from racegate.jobs.notices.webhook import NoticeObject
from racegate.jobs.soak import SoakResult
from racegate.jobs.triage.origin import OriginObject
from racegate.jobs.verify import VerifyObject
from racegate.jobs.versions.bisecting import ReleaseRange
from racegate.jobs.versions.faulty import FaultyRange
from racegate.jobs.versions.watching import WatchObject
from racegate.measure.ab.summary import AbReport
from racegate.measure.bench.virtual import BenchResult
from racegate.measure.evaluation.cover_scripts import CoverObject
from racegate.measure.evaluation.coverage import Coverage
from racegate.measure.evaluation.matrix import Matrix
from racegate.oracles.paths import Ordered
from racegate.report.measured.objects import (
    EffortObject,
    HalffixesObject,
    MutationObject,
    ReleaseMutationObject,
    SourceMutationObject,
)
from racegate.report.objects import (
    DashboardView,
    DoctorObject,
    FaultEntry,
    FindingsObject,
    FuzzObject,
    HistoryObject,
    SiteObject,
)
from racegate.report.published.schema import kinds_of, meanings
from racegate.report.templating import render
from racegate.scenario.files import ScenarioEntry
from racegate.scenario.spec import OwnScenario
from racegate.targets.adapters.conformance import Conformance
from racegate.targets.adapters.witness import AdapterWitness
from racegate.targets.program.repairs.patches import PatchResult
from racegate.targets.program.repairs.proof import ProgramRepair
from racegate.targets.program.result import ProgramResult
from racegate.targets.program.workflow.replay import ProgramReplay
from racegate.targets.program.workflow.witness import ProgramWitness


class Everywhere:
    """Fields that mean the same in every object.

    schema: the version of the format
    environment: software, machine and commit of what was measured
    scenario: name of the scenario; fault: name of the seeded fault, null without one
    config: the resolved `model` and `engine`; device: `virtual` or `cuda`
    schedule, holds: the holds over the eager baseline, as text
    verdict: what is known; stats: counts; selfcheck: what the job found out about itself
    findings: what is wrong, causes before effects; warnings: what the user should know
    unmet: what was not exercised; signature: what the failure is known by, null for none
    expected_signature: what the failure was known by when it was recorded
    seed: of all that is drawn; workers: processes
    seconds: wall-clock time; setup_seconds: time before the first step
    steps: iterations of the engine; ops: device operations; conflicts: pairs that nothing orders
    schedules: schedules run; scenarios: how many; waves: runs of the engine
    generations: requests decoded; tokens_per_second: tokens delivered over `seconds`
    counters, exercised: how often each thing happened
    cache_mode: what prefixes are kept in; edge: name of the edge
    number: in the catalogue of faults; origin: where it is known from; summary: what is wrong
    step: of the engine; request: name of the request; buffer: name of the buffer
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """What a command prints or a file holds. is_headed: `schema` stands before the Struct's fields;
    is_list: a list of them
    """

    what: str
    struct: type[msgspec.Struct]
    is_headed: bool = False
    is_list: bool = False


CONTRACT = (
    Printed(what="gate", struct=GateResult),
    Printed(what="run", struct=RunResult),
    Printed(what="replay", struct=Replay),
    Printed(what="replay, of a program", struct=ProgramReplay),
    Printed(what="replay, of several witnesses", struct=Replays),
    Printed(what="explain", struct=Explanation, is_headed=True),
    Printed(what="explain --pair, if nothing orders the pair", struct=Racing, is_headed=True),
    Printed(what="explain --pair, if a path orders it", struct=Ordered, is_headed=True),
    Printed(what="repair", struct=ProgramRepair),
    Printed(what="repair --patch", struct=PatchResult),
    Printed(what="ops", struct=OpsObject),
    Printed(what="fuzz", struct=FuzzObject),
    Printed(what="search of vllm, sglang, adapter and torch", struct=FuzzObject),
    Printed(what="fleet", struct=FleetObject),
    Printed(what="history", struct=HistoryObject),
    Printed(what="campaign findings", struct=FindingsObject),
    Printed(what="campaign verify", struct=VerifyObject),
    Printed(what="campaign bisect", struct=OriginObject),
    Printed(what="bisect", struct=FaultyRange),
    Printed(what="bisect --good", struct=ReleaseRange),
    Printed(what="watch", struct=WatchObject),
    Printed(what="campaign serve, at /campaign.json", struct=DashboardView),
    Printed(what="fuzz --webhook, as it is posted", struct=NoticeObject),
    Printed(what="soak", struct=SoakResult),
    Printed(what="ab", struct=AbReport),
    Printed(what="bench", struct=BenchResult, is_headed=True),
    Printed(what="faults list", struct=FaultEntry, is_list=True),
    Printed(what="faults matrix", struct=Matrix),
    Printed(what="faults mutate", struct=MutationObject),
    Printed(what="faults mutate --source", struct=SourceMutationObject),
    Printed(what="faults halffixes", struct=HalffixesObject),
    Printed(what="faults effort", struct=EffortObject),
    Printed(what="adapter check", struct=Conformance),
    Printed(what="adapter run", struct=RunResult),
    Printed(what="adapter gate", struct=GatedResults),
    Printed(what="vllm mutate, sglang mutate", struct=ReleaseMutationObject),
    Printed(what="vllm run, sglang run", struct=RunResult),
    Printed(what="vllm gate, sglang gate", struct=GatedResults),
    Printed(what="torch run", struct=ProgramResult),
    Printed(what="scenarios list", struct=ScenarioEntry, is_list=True),
    Printed(what="scenarios cover", struct=CoverObject),
    Printed(what="scenarios features", struct=Coverage),
    Printed(what="doctor", struct=DoctorObject),
    Printed(what="report --site", struct=SiteObject),
    Printed(what="files *.witness.json", struct=Witness),
    Printed(what="files *.witness.json of a program", struct=ProgramWitness),
    Printed(what="files *.witness.json of an adapter", struct=AdapterWitness),
    Printed(what="files of --baseline and --accept", struct=BaselineFile),
)

_WORDS: dict[type[types.Type], str] = {
    types.IntType: "integer",
    types.FloatType: "number",
    types.StrType: "text",
    types.BoolType: "true or false",
    types.NoneType: "null",
    types.AnyType: "any value",
    types.CustomType: "any value",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the page: a field, a value of an enumeration, or an exit code."""

    name: str
    kind: str
    meaning: str

    @property
    def text(self) -> str:
        """The line, before it is wrapped."""
        kind = f" ({self.kind})" if self.kind else ""
        meaning = f": {self.meaning}" if self.meaning else ""
        return f"`{self.name}`{kind}{meaning}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """An object, or an enumeration, with what its docstring says as a whole."""

    name: str
    intro: str
    entries: tuple[Entry, ...]


def everywhere() -> dict[str, str]:
    """Fields that mean the same in every object."""
    names = re.findall(r"\b([a-z_]+)(?=[:,])", Everywhere.__doc__ or "")
    return meanings(Everywhere.__doc__, names)[1]


def name_of(kind: type) -> str:
    """What the section of a Struct or an enumeration is called."""
    return kind.__name__


def object_section(struct: type[msgspec.Struct]) -> Section:
    """A Struct as a section."""
    fields = types.type_info(struct)
    assert isinstance(fields, types.StructType)
    intro, _ = meanings(struct.__doc__, struct.__struct_fields__)
    said = everywhere()
    for base in reversed(struct.__mro__):  # a field is said where it is defined
        said |= meanings(base.__doc__, struct.__struct_fields__)[1]
    entries = tuple(
        Entry(name=f.encode_name, kind=words_of(f.type), meaning=said.get(f.name, ""))
        for f in fields.fields
    )
    return Section(name=name_of(struct), intro=intro, entries=(*_tag_of(struct), *entries))


def _tag_of(struct: type[msgspec.Struct]) -> tuple[Entry, ...]:
    """The field that tells a Struct from others in its place, if it has one."""
    config = struct.__struct_config__
    if config.tag is None or config.tag_field is None:
        return ()
    return (Entry(name=config.tag_field, kind="text", meaning=f"`{config.tag}`"),)


def enum_section(kind: type[Enum]) -> Section:
    """An enumeration as a section: what may stand there."""
    names = [text for member in kind for text in (member.name, str(member.value))]
    intro, said = meanings(kind.__doc__, names)
    entries = tuple(
        Entry(
            name=str(member.value),
            kind="",
            meaning=said.get(member.name) or said.get(str(member.value), ""),
        )
        for member in kind
    )
    return Section(name=name_of(kind), intro=intro, entries=entries)


def words_of(info: types.Type) -> str:
    """A type in words, with links to sections."""
    match info:
        case types.StructType(cls=cls) if cls is OwnScenario:
            return "scenario, as in its file"
        case types.StructType(cls=cls) | types.EnumType(cls=cls):
            return f"[{name_of(cls)}](#{name_of(cls).lower()})"
        case types.VarTupleType(item_type=one) | types.ListType(item_type=one):
            return f"list of {words_of(one)}"
        case types.TupleType(item_types=parts):
            return f"list of {', '.join(map(words_of, parts))}"
        case types.UnionType(types=parts):
            return " or ".join(map(words_of, parts))
        case types.DictType(key_type=key, value_type=value):
            return f"object, {words_of(key)} to {words_of(value)}"
    return _WORDS[type(info)]


def page() -> str:
    """The page docs/json.md."""
    kinds = dict.fromkeys(kind for printed in CONTRACT for kind in kinds_of(printed.struct))
    return render(
        "json.md.j2",
        contract=CONTRACT,
        objects=[object_section(kind) for kind in kinds if issubclass(kind, msgspec.Struct)],
        enums=[enum_section(kind) for kind in kinds if issubclass(kind, Enum)],
        codes=enum_section(ExitCode),
    )


def main(target: Path) -> None:
    """Writes the page."""
    target.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
