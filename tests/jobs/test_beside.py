"""A change beside its base: what both refuse, what is worse, what a campaign has seen before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from string import hexdigits
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from rich.console import Console

from racegate.check.selfcheck import SelfCheck
from racegate.history.exit_code import ExitCode
from racegate.history.finding import Benign, Finding, FindingKind, Hazard, Verdict
from racegate.history.gates.results import gated
from racegate.history.outcome import Comparison, RunResult
from racegate.history.witness import load_witness
from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import Ending, Observation
from racegate.jobs.foreign.adapter_bases import compared_look
from racegate.jobs.foreign.bases import base_cell
from racegate.jobs.foreign.beside import ComparedRun, ResultPair, compare
from racegate.jobs.foreign.opened import TargetResult
from racegate.jobs.foreign.program_bases import base_of
from racegate.jobs.foreign.worker import TargetWorker
from racegate.jobs.generated import CampaignSpec, Report
from racegate.report.targets.results import print_comparison, print_target_gate
from racegate.report.text import GateView
from racegate.targets.common.wire import ReleaseRun
from racegate.targets.program.launch import Program
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.wire import ModelRunner, StateMode
from support import SCENARIOS, scenario

CELL = Cell(release="1.0", runner=ModelRunner.V1, mode=StateMode.NONE, checkout="before")


def result(*findings: Any, refused: str = "") -> Any:
    return RunResult(
        scenario="s", device="d", verdict=Verdict.PROVED, findings=findings, refused=refused
    )


def race(signature: str, verdict: Verdict | None) -> Any:
    return SimpleNamespace(
        race=SimpleNamespace(signature=signature, hazard=Hazard.READ_AFTER_WRITE),
        signature=signature,
        verdict=verdict,
    )


def freed(
    place: str, taken_by: str, verdict: Verdict | None = None, *, owner: str = "", folder: str = ""
) -> Any:
    """Memory that somebody at a place may still use, and that another was given. owner: function
    that had asked for it, if that is known; folder: of its file
    """
    known = SimpleNamespace(
        signature=f"{place} {taken_by}",
        hazard=Hazard.REUSE,
        first=SimpleNamespace(label=f"{place}#1"),
        allocated=((f"{folder}/file.py", len(folder), owner),) if owner else (),
    )
    return SimpleNamespace(race=known, signature=known.signature, verdict=verdict)


def beside(
    base: Any,
    change: Any,
    run: ReleaseRun | None = None,
    *,
    others: Sequence[ResultPair] = (),
) -> Comparison:
    ran = run or ReleaseRun(ending=Ending.FINISHED)
    made = ComparedRun(result=change, ending=ran.ending, message=ran.message, seen=ran.inner)
    return compare(ComparedRun(result=base, ending=Ending.FINISHED), made, others=others)


@pytest.mark.parametrize(
    ("base", "change", "why"),
    [
        ("no graphs", "no graphs", ()),
        ("no graphs", "no slots", ("the base was not judged: no graphs",)),
        ("no graphs", "", ("the base was not judged: no graphs",)),
        ("", "no graphs", ("the change was not judged: no graphs",)),
    ],
)
def test_what_both_refuse_for_one_reason_is_no_difference(
    base: str, change: str, why: tuple[str, ...]
) -> None:
    found = beside(result(refused=base), result(refused=change))
    assert found.unmet == why
    assert found.code is (ExitCode.INCONCLUSIVE if why else ExitCode.CLEAN)


@pytest.mark.parametrize("harm", [Verdict.BENIGN, None, Verdict.CONFLICT, Verdict.DIVERGENT])
def test_of_several_races_of_the_base_the_most_harmful_is_the_measure(
    harm: Verdict | None,
) -> None:
    base = result(race("s", Verdict.BENIGN), race("s", Verdict.CONFLICT))
    found = beside(base, result(race("s", harm)))
    assert bool(found.new) is (harm is Verdict.DIVERGENT)
    assert found.known == (0 if found.new else 1)
    assert bool(beside(base, result(race("t", harm))).new)


def test_memory_that_is_freed_too_early_is_one_danger_whoever_gets_it() -> None:
    found = beside(result(freed("copy", "sampler")), result(freed("copy", "drafter")))
    assert (found.new, found.repaired, found.known) == ((), (), 1)
    other = beside(result(freed("copy", "sampler")), result(freed("upload", "sampler")))
    assert [one.signature for one in other.new] == ["upload sampler"]
    assert other.repaired == ("copy sampler",)
    both = (freed("copy", "sampler", Verdict.BENIGN), freed("copy", "drafter", Verdict.DIVERGENT))
    worse = beside(result(both[0]), result(both[1]))
    assert [one.signature for one in worse.new] == ["copy drafter"]


def test_memory_of_another_owner_that_is_freed_too_early_is_another_danger() -> None:
    tokens = result(freed("copy", "sampler", owner="sample"))
    scores = result(freed("copy", "sampler", owner="score"))
    assert beside(tokens, scores).new and beside(tokens, scores).repaired
    moved = result(freed("copy", "drafter", owner="sample", folder="checkout"))
    unknown = result(freed("copy", "sampler"))
    for other in (moved, unknown):
        assert (beside(tokens, other).new, beside(tokens, other).repaired) == ((), ())


def test_memory_that_is_freed_too_early_in_one_scenario_is_so_in_all() -> None:
    early, none = result(freed("copy", "sampler")), result()
    assert beside(none, early).new and beside(early, none).repaired
    others = [(early, early)]
    assert not beside(none, early, others=others).new
    assert not beside(early, none, others=others).repaired
    known = [(result(race("copy", None)), result())]  # no memory that was freed
    assert beside(none, result(race("copy", None)), others=known).new


def test_how_the_run_ended_is_told_behind_the_value_that_differs() -> None:
    seen = Observation("step 2 sampled", "x", "{}")
    run = ReleaseRun(ending=Ending.FAILED, message="KeyError: 7", inner=(seen,))
    changed = beside(result(), result(), run).changed
    assert changed is not None and changed.step == 2
    assert changed.message.endswith("in the base absent; KeyError: 7")


@pytest.mark.parametrize("is_within", [False, True])
@pytest.mark.parametrize(("of_change", "shown"), [({}, "absent"), ({"named": "None"}, "None")])
def test_a_field_that_is_none_is_not_one_that_is_absent_or_in_words(
    of_change: dict[str, object], shown: str, *, is_within: bool
) -> None:
    """A runner that forgets to set one, or sets it to nothing."""

    def seen(values: dict[str, object]) -> tuple[Observation, ...]:
        made = {"rows": ["A"], "of": values} if is_within else values
        preview = msgspec.json.encode(made).decode()
        return (Observation(name="step 2 inputs", digest=str(hash(preview)), preview=preview),)

    base, change = (
        ComparedRun(result=result(), ending=Ending.FINISHED, message="", seen=seen(values))
        for values in ({"left": 1, "named": None}, {"left": 1} | of_change)
    )
    changed = compare(base, change).changed
    assert changed is not None and changed.step == 2
    assert "None" in changed.message and shown in changed.message


def ended(message: str, ending: Ending = Ending.FAILED) -> ComparedRun:
    return ComparedRun(result=result(), ending=ending, message=message)


def test_what_ends_with_an_error_on_both_sides_is_said_and_passes() -> None:
    """Once for all scenarios that end with it. Behind its type there may be an address."""
    message = "IndexError: index 8 of <Table at 0x7f>"
    found = compare(ended("IndexError: index 8 of <Table at 0x7e>"), ended(message))
    assert (found.code, found.failed, found.changed) == (ExitCode.CLEAN, message, None)
    assert found.text == "both end with an error, beside "
    named = [msgspec.structs.replace(result(), scenario=name, comparison=found) for name in "ab"]
    for detail in GateView:
        console = Console(record=True, width=100)
        print_target_gate(console, gated(named), benign=Benign.PASS, detail=detail)
        said = console.export_text()
        assert f"ended with an error on both sides: a, b: {message}" in said
        assert "SAME as" in said
    console = Console(record=True, width=100)
    print_comparison(console, named[0])
    assert f"ended with an error on both sides: {message}" in console.export_text()


def test_another_error_than_that_of_the_base_is_a_difference() -> None:
    found = [
        compare(ended("IndexError: 8"), ended(message)) for message in ("KeyError: 8", "TypeError:")
    ]
    assert [one.code for one in found] == [ExitCode.FINDING] * 2
    changed = [one.changed for one in found if one.changed is not None]
    assert changed[0].message == "error is KeyError: 8, in the base IndexError: 8"
    assert len({one.signature for one in changed}) == 2
    assert not any(one.failed for one in found)


def test_what_comes_to_its_end_has_no_error_whatever_it_says() -> None:
    done = ended("a warning", Ending.FINISHED)
    assert compare(done, done) == Comparison(base="")


def test_a_base_is_a_release_or_the_folder_of_a_checkout(tmp_path: Path) -> None:
    assert base_cell(CELL, str(tmp_path)) == msgspec.structs.replace(CELL, checkout=str(tmp_path))
    other = base_cell(CELL, "0.9")
    assert other == msgspec.structs.replace(CELL, release="0.9", checkout=None)


def test_a_worker_makes_one_witness_of_what_many_scenarios_show(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the lowest counts: one that is handed back may be lower."""
    (file,) = (SCENARIOS / "witnesses").glob("correction-partial-fields.witness.json")
    witness = load_witness(file)
    finding = Finding(kind=FindingKind.DIVERGENCE, signature=witness.signature, message="")
    shown = TargetResult(
        result=RunResult(scenario="s", device="d", verdict=Verdict.DIVERGENT, findings=(finding,)),
        witnesses=(witness,),
    )

    @contextmanager
    def opened(subject: object, options: object) -> Iterator[Any]:
        yield SimpleNamespace(selfcheck=SelfCheck(), judge=lambda script: shown)

    monkeypatch.setattr("racegate.jobs.foreign.worker.open_target", opened)
    nothing: Any = None
    spec = CampaignSpec(seed=3)
    worker = TargetWorker(
        nothing, nothing, lambda seed, index: scenario("two_row_cycle"), spec, known=()
    )
    made = {}
    for index in (4, 5, 2, 3):
        report = worker.work(index)
        assert isinstance(report, Report) and report.signature == witness.signature
        made[index] = report.found is not None
    assert made == {4: True, 5: False, 2: True, 3: False}


def test_a_change_is_known_by_a_short_digest_of_all_that_differs() -> None:
    seen = tuple(Observation(f"step {step} sampled", "x", "{}") for step in (2, 3))
    run = ReleaseRun(ending=Ending.FINISHED, inner=seen)
    changed = beside(result(), result(), run).changed
    assert changed is not None
    digest = changed.signature.rpartition("/")[2]
    assert (len(digest), set(digest) <= set(hexdigits)) == (12, True)


def test_a_module_has_no_other_script_to_be_compared_with(tmp_path: Path) -> None:
    script = tmp_path / "other.py"
    script.write_text("")
    with pytest.raises(BadInput, match="-m MODULE takes --against-path"):
        base_of(Program(("-m", "package")), script=str(script), folder=None)
    other = base_of(Program(("one.py", "7")), script=str(script), folder=None)
    assert other.program.argv == (str(script), "7")


@pytest.mark.parametrize("delivered", [{"A": (1, 2), "B": ()}, None])
def test_an_engine_is_compared_by_what_it_delivered_too(
    delivered: dict[str, tuple[int, ...]] | None,
) -> None:
    """Nothing, if its run did not come to its end."""
    ran = None if delivered is None else SimpleNamespace(delivered=delivered)
    told = SimpleNamespace(stopped=None, observations=(), result=ran)
    eager = SimpleNamespace(ending=Ending.FINISHED, refused="", told=told)
    look: Any = SimpleNamespace(result=result(), base=eager)
    assert compared_look(look).delivered == (delivered or {})


def test_a_gate_of_which_nothing_runs_has_compared_nothing() -> None:
    """A word of what differs would be a word of no scenario."""
    change = result(refused="no images")
    compared = beside(change, change)
    refused = msgspec.structs.replace(change, comparison=compared, verdict=Verdict.INCONCLUSIVE)
    assert gated([refused]).compared is None
    assert gated([refused]).exit_code is ExitCode.INCONCLUSIVE
