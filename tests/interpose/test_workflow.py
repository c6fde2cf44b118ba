"""Witnesses, their replay, and suppressions, on a device that only answers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from racegate.history.finding import Hazard, Race, Side, Verdict
from racegate.history.replayed import ReplayOutcome
from racegate.history.schedule import Hold, texts_of
from racegate.history.witness import WitnessError, checksum_of, load_witness, sealed
from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import CompileMode, DeviceKind, Ending, Observation, Outcome, Plan
from racegate.report.targets.programs import render
from racegate.targets.common.landings import LandingRun
from racegate.targets.common.search import Effect, JudgedRace, LandingSearch
from racegate.targets.program.judge import ProgramVerdict, Suppression, suppressing
from racegate.targets.program.launch import Program
from racegate.targets.program.workflow.replay import render_replay, replay_program, smaller_program
from racegate.targets.program.workflow.suppressions import load_suppressions
from racegate.targets.program.workflow.witness import (
    PROGRAM_WITNESSES,
    ProgramWitness,
    save_witnesses,
)
from support import SCENARIOS

ENGINES = SCENARIOS / "witnesses" / "accepted-copy-after-row-move.witness.json"
RIGHT = (Observation("sum", "1" * 16, "64.0"), Observation("name", "2" * 16, "x"))
WRONG = (Observation("sum", "3" * 16, "0.0"), Observation("name", "2" * 16, "x"))


def side(label: str, *, is_write: bool) -> Side:
    return Side(
        operation=label.partition("@")[0],
        label=label,
        lane="stream 1",
        is_host=not is_write,
        is_write=is_write,
        stack=(("/a/x.py", 5, "step"),),
    )


def finding(signature: str = "0123456789ab") -> Race:
    return Race(
        hazard=Hazard.READ_AFTER_WRITE,
        signature=signature,
        buffer="host (step)",
        nbytes=4,
        count=1,
        first=side("d2h@x.py:step#1", is_write=True),
        second=side("host read (sum)@x.py:step#1", is_write=False),
        edge="wait",
        pairs=(("d2h@x.py:step#1", "host read (sum)@x.py:step#1"),),
    )


def found(*findings: Race, verdict: Verdict = Verdict.DIVERGENT) -> ProgramVerdict:
    outcome = Outcome(
        ending=Ending.FINISHED, findings=findings, observations=RIGHT, torch_version="2.14.1"
    )
    held = msgspec.structs.replace(outcome, findings=(), observations=WRONG)
    is_shown = verdict is Verdict.DIVERGENT
    landings = [
        LandingRun(holds=(Hold(op=one.first.label),), base=outcome, what=held, is_harmful=True)
        for one in findings
    ]
    effect = Effect.DIVERGENT if is_shown else Effect.UNKNOWN
    races = tuple(
        JudgedRace(race=one, effect=effect, landings=1, landing=run if is_shown else None)
        for one, run in zip(findings, landings, strict=True)
    )
    search = LandingSearch(races=races, harms=tuple(landings) if is_shown else (), runs=2, left=1)
    return ProgramVerdict(base=outcome, shown=outcome, search=search)


@pytest.fixture
def script(tmp_path: Path) -> Program:
    (tmp_path / "x.py").write_text("")
    return Program((str(tmp_path / "x.py"),))


@pytest.fixture
def saved(tmp_path: Path, script: Program) -> Path:
    (path,) = save_witnesses(found(finding()), script, tmp_path / "w.witness.json")
    return path


# ---- witnesses


def test_a_witness_comes_back_as_it_was_written(saved: Path, script: Program) -> None:
    witness = PROGRAM_WITNESSES.load(saved)
    assert witness.argv == script.argv
    assert witness.holds == ("d2h@x.py:step#1 until forced",)
    assert (witness.expected, witness.actual) == (RIGHT, WRONG)
    assert witness.finding is not None
    first = witness.finding.operations[0]
    assert (first.name, first.lane, first.is_write) == ("d2h@x.py:step#1", "stream 1", True)
    assert (witness.finding.hazard, witness.finding.edge) == (Hazard.READ_AFTER_WRITE, "wait")
    assert witness.versions["torch"] == "2.14.1"


def test_a_witness_keeps_what_the_device_said_of_itself(tmp_path: Path, script: Program) -> None:
    given = replace(script, gpu="t4-16g", memory_bytes=1 << 30)
    ranks = replace(script, ranks=2, gpus=3)
    (path,) = save_witnesses(found(finding()), ranks, tmp_path / "ranks.witness.json")
    assert PROGRAM_WITNESSES.load(path).subject.checked(DeviceKind.VIRTUAL) == ranks
    (path,) = save_witnesses(found(finding()), given, tmp_path / "t4.witness.json")
    subject = PROGRAM_WITNESSES.load(path).subject
    assert subject.checked(DeviceKind.VIRTUAL) == given
    assert subject.checked(DeviceKind.CUDA) == script, "a real GPU is what it is"


def test_each_divergent_finding_has_a_file(tmp_path: Path, script: Program) -> None:
    paths = save_witnesses(
        found(finding("0" * 12), finding("1" * 12)), script, tmp_path / "w.witness.json"
    )
    assert [path.name for path in paths] == ["w.witness.json", "w-2.witness.json"]
    assert [PROGRAM_WITNESSES.load(path).signature for path in paths] == ["0" * 12, "1" * 12]
    nothing = save_witnesses(found(finding(), verdict=Verdict.BENIGN), script, tmp_path / "no")
    assert (nothing, (tmp_path / "no").exists()) == ((), False)


def test_whose_witness_it_is(saved: Path) -> None:
    with pytest.raises(WitnessError, match="a witness of 'engine', not of a program"):
        PROGRAM_WITNESSES.load(ENGINES)
    with pytest.raises(WitnessError, match=r"a witness of 'program', not of racegate's own engine"):
        load_witness(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"signature": "f" * 12}, "altered since it was written"),
        ({"added": 1}, "unknown field `added`"),
        ({"expected": [{"name": "a", "digest": "b", "preview": "c", "more": 1}]}, "field `more`"),
        ({"holds": [" until x"]}, "cannot read the hold"),
        ({"subject": {"of": "program", "argv": "x.py"}}, "got `str` - at `$.subject.argv`"),
        ({"schema": "racegate.program/2"}, "written as 'racegate.program/2'"),
        ({"polls": -1}, "no negative number of polls"),
    ],
)
def test_a_damaged_witness_is_refused(saved: Path, change: dict[str, object], message: str) -> None:
    fields = json.loads(saved.read_text())
    saved.write_text(json.dumps(fields | change))
    with pytest.raises(WitnessError) as caught:
        PROGRAM_WITNESSES.load(saved)
    assert str(caught.value).startswith(f"{saved}: ")
    assert message in str(caught.value)


def test_a_witness_without_a_hold_is_refused(saved: Path) -> None:
    fields = json.loads(saved.read_text()) | {"holds": []}
    saved.write_text(json.dumps(fields | {"checksum": checksum_of(fields)}))
    with pytest.raises(WitnessError, match="a witness of a program has a hold"):
        PROGRAM_WITNESSES.load(saved)


def test_a_witness_of_the_first_schema_is_read(saved: Path) -> None:
    """As `racegate.program/1` had it: the finding among the other fields."""
    new = PROGRAM_WITNESSES.load(saved)
    fields = json.loads(saved.read_text())
    found = fields.pop("finding")
    del fields["verdict"]
    first, second = found["operations"]
    old = {
        **fields,
        "schema": "racegate.program/1",
        "argv": fields.pop("subject")["argv"],
        "buffer": found["buffer"],
        "first": first,
        "second": second,
        "edge": found["edge"],
    }
    del old["subject"]
    saved.write_text(json.dumps(old | {"checksum": checksum_of(old)}))
    again = PROGRAM_WITNESSES.load(saved)
    assert new.finding is not None and again.finding is not None
    plain = msgspec.structs.replace(new.finding, hazard=None)
    eager = msgspec.structs.replace(new.subject, compiling=CompileMode.EAGER)
    assert again == sealed(msgspec.structs.replace(new, finding=plain, subject=eager))
    saved.write_text(json.dumps(old | {"edge": "another", "checksum": checksum_of(old)}))
    with pytest.raises(WitnessError, match="altered since it was written"):
        PROGRAM_WITNESSES.load(saved)


def test_a_field_that_is_missing_is_named(saved: Path) -> None:
    fields = json.loads(saved.read_text())
    del fields["holds"]
    saved.write_text(json.dumps(fields))
    with pytest.raises(WitnessError, match="missing required field `holds`"):
        PROGRAM_WITNESSES.load(saved)


@given(cut=st.integers(0, 900))
def test_a_cut_witness_is_refused(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("cut")
    (path,) = save_witnesses(found(finding()), Program(("x.py",)), folder / "w.json")
    whole = path.read_bytes()
    path.write_bytes(whole[: min(cut, len(whole) - 3)])
    with pytest.raises(WitnessError, match="truncated or not JSON"):
        PROGRAM_WITNESSES.load(path)


# ---- replay


class Device:
    """Answers with one outcome without holds and another under them."""

    def __init__(self, base: Outcome, held: Outcome, kind: DeviceKind = DeviceKind.VIRTUAL) -> None:
        self.base, self.held, self.kind = base, held, kind
        self.plans: list[Plan] = []

    def run(self, program: Program, plan: Plan, *, is_quiet: bool = False) -> Outcome:
        self.plans.append(plan)
        return self.held if plan.holds else self.base


def ended(
    seen: tuple[Observation, ...],
    *findings: Race,
    ending: Ending = Ending.FINISHED,
    count: int = 1,
) -> Outcome:
    realised = {"d2h@x.py:step#1 until forced": count}
    return Outcome(ending=ending, observations=seen, findings=findings, realised=realised)


OTHER = (RIGHT[0], Observation("name", "4" * 16, "y"))


@pytest.mark.parametrize(
    ("base", "held", "outcome"),
    [
        (ended(RIGHT, finding()), ended(WRONG), ReplayOutcome.REPRODUCED),
        (ended(RIGHT, finding()), ended(RIGHT), ReplayOutcome.NOTHING),
        (ended(RIGHT, finding()), ended(OTHER), ReplayOutcome.OTHER),
        (ended(RIGHT), ended(WRONG), ReplayOutcome.OTHER),
        (ended(RIGHT, finding()), ended(WRONG, count=0), ReplayOutcome.NOT_REALISED),
        (ended(RIGHT), ended(RIGHT, ending=Ending.TIMED_OUT), ReplayOutcome.NOT_REALISED),
        (ended((), ending=Ending.FAILED), ended(WRONG), ReplayOutcome.NOT_REALISED),
    ],
)
def test_what_a_replay_comes_to(
    saved: Path, base: Outcome, held: Outcome, outcome: ReplayOutcome
) -> None:
    replay = replay_program(Device(base, held), PROGRAM_WITNESSES.load(saved), times=2)
    assert (replay.outcome, replay.outcomes) == (outcome, {str(outcome): 2})
    assert render_replay(replay).startswith(f"{outcome} 2 of 2: [0123456789ab] host (step)")
    assert replay.matches_record is ((base.observations, held.observations) == (RIGHT, WRONG))


def test_a_witness_is_left_with_the_holds_that_it_needs(saved: Path) -> None:
    class NeedsOne(Device):
        def run(self, program: Program, plan: Plan, *, is_quiet: bool = False) -> Outcome:
            super().run(program, plan, is_quiet=is_quiet)
            is_wrong = any(hold.op.startswith("d2h") for hold in plan.holds)
            realised = dict.fromkeys(texts_of(plan.holds), 1)
            seen = self.held if is_wrong else self.base
            return msgspec.structs.replace(seen, realised=realised)

    device = NeedsOne(ended(RIGHT, finding()), ended(WRONG))
    needed = PROGRAM_WITNESSES.load(saved)
    holds = ("a@x.py:f#1 until forced", *needed.holds, "b@x.py:f#1 until forced")
    many = msgspec.structs.replace(needed, holds=holds)
    small, runs, is_smallest = smaller_program(device, many, runs_max=9)
    assert (small.holds, small.signature, is_smallest) == (needed.holds, needed.signature, True)
    assert (small.expected, small.actual, runs) == (RIGHT, WRONG, len(device.plans) - 1)
    with pytest.raises(BadInput, match="its holds do not show the finding now"):
        smaller_program(NeedsOne(ended(RIGHT), ended(WRONG)), many, runs_max=9)


def test_on_a_gpu_held_runs_are_compared_with_one_in_which_all_ran_at_once(saved: Path) -> None:
    class Gpu(Device):
        def run(self, program: Program, plan: Plan, *, is_quiet: bool = False) -> Outcome:
            outcome = super().run(program, plan, is_quiet=is_quiet)
            return ended(RIGHT) if plan.settles else outcome

    gpu = Gpu(ended(WRONG, finding()), ended(WRONG), DeviceKind.CUDA)
    replay = replay_program(gpu, PROGRAM_WITNESSES.load(saved), times=1)
    assert replay.outcome is ReplayOutcome.REPRODUCED
    assert (replay.expected, replay.actual) == (RIGHT, WRONG)
    kinds = [(plan.is_recording, plan.settles, bool(plan.holds)) for plan in gpu.plans]
    assert kinds == [(True, False, False), (False, True, False), (False, False, True)]


def test_a_replay_asks_with_the_answers_of_the_record(tmp_path: Path, script: Program) -> None:
    verdicts = found(finding())
    assert verdicts.search is not None
    (judged,) = verdicts.judged
    assert judged.landing is not None
    landing = msgspec.structs.replace(judged.landing, polls=3)
    polled = msgspec.structs.replace(judged, landing=landing)
    search = msgspec.structs.replace(verdicts.search, races=(polled,))
    (path,) = save_witnesses(
        msgspec.structs.replace(verdicts, search=search), script, tmp_path / "w.json"
    )
    device = Device(ended(RIGHT, finding()), ended(WRONG))
    replay_program(device, PROGRAM_WITNESSES.load(path), times=1)
    assert [plan.polls for plan in device.plans] == [3, 3]


def test_a_replay_without_its_script_says_where_it_looked(saved: Path, script: Program) -> None:
    Path(script.argv[0]).unlink()
    with pytest.raises(BadInput, match=r"x\.py does not exist"):
        replay_program(Device(ended(RIGHT), ended(WRONG)), PROGRAM_WITNESSES.load(saved), times=1)


# ---- suppressions


def entry(signature: str = "0123456789ab", reason: str = "known") -> str:
    return f'[[suppression]]\nsignature = "{signature}"\nreason = "{reason}"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (entry() + 'owner = "me"\n', "unknown field `owner`"),
        ('[[suppresion]]\nsignature = "0123456789ab"\n', "unknown field `suppresion`"),
        ('[[suppression]]\nsignature = "0123456789ab"\n', "missing required field `reason`"),
        (entry(reason=" "), "suppression 0123456789ab: the reason is missing"),
        (entry("host (step)"), "'host (step)' is no signature"),
        (entry() + entry(), "0123456789ab is suppressed 2 times"),
        ("[[suppression", "Expected"),
    ],
)
def test_a_file_of_suppressions_is_read_strictly(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "known.toml"
    path.write_text(text)
    with pytest.raises(BadInput) as caught:
        load_suppressions(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


def test_a_file_of_suppressions_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no\.toml: cannot be read: No such file"):
        load_suppressions(tmp_path / "no.toml")


def plain(*findings: Race, ending: Ending = Ending.FINISHED) -> ProgramVerdict:
    outcome = Outcome(ending=ending, exit_code=9, findings=findings)
    return ProgramVerdict(base=outcome, shown=outcome)


KNOWN = Suppression(signature="0123456789ab", reason="known")
STALE = Suppression(signature="f" * 12, reason="was repaired")


def test_a_suppressed_finding_is_shown_and_is_no_finding(tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    path.write_text(entry())
    verdicts = suppressing(plain(finding()), load_suppressions(path))
    assert (verdicts.suppressed, verdicts.stale, verdicts.exit_code) == ((KNOWN,), (), 0)
    assert "suppressed [0123456789ab] host (step), x.py:5 and x.py:5: known" in render(
        verdicts, "x.py"
    )


def test_a_stale_suppression_is_an_error_that_a_finding_outranks() -> None:
    stale = suppressing(plain(finding()), (KNOWN, STALE))
    assert (stale.stale, stale.exit_code) == ((STALE,), 2)
    assert "stale suppression ffffffffffff" in render(stale, "x.py")
    assert suppressing(plain(finding("1" * 12)), (STALE,)).exit_code == 1


def test_nothing_is_stale_where_a_program_did_not_come_to_its_end() -> None:
    verdicts = suppressing(plain(ending=Ending.FAILED), (STALE,))
    assert (verdicts.stale, verdicts.exit_code) == ((), 7)


def test_a_witness_has_the_fields_of_its_type(saved: Path) -> None:
    assert list(json.loads(saved.read_text())) == list(ProgramWitness.__struct_fields__)
