"""How mutants of the source are judged, kept and counted; and a sample of the committed ones."""

from __future__ import annotations

import json
import os
import random
import signal
from functools import cache
from pathlib import Path

import msgspec
import pytest

from racegate.device.virtual.compiled import COMPILED_VARIABLE
from racegate.history.exit_code import ExitCode
from racegate.measure.evaluation.source.by_gate import GateLook
from racegate.measure.evaluation.source.child import ChildLimits, ChildResult, Say, in_a_child
from racegate.measure.evaluation.source.job import SourceTask, SourceWorker, result_of
from racegate.measure.evaluation.source.kept import KeptResults, state_of
from racegate.measure.evaluation.source.reach import LineReach
from racegate.measure.evaluation.source.results import (
    Edit,
    EquivalentEntry,
    EquivalentError,
    EquivalentTable,
    SourceFate,
    SourceMutant,
    SourceOperator,
    SourceReport,
    SourceResult,
    load_equivalents,
    score_of,
)
from racegate.measure.evaluation.source.sources import (
    SOURCES,
    Source,
    SourceError,
    find_source,
    mutants_of,
)
from racegate.report.measured.faults import render_source_mutants
from racegate.report.measured.objects import SourceMutationObject
from racegate.scenario.errors import BrokenHarnessError
from support import NAMES, SCENARIOS

REPORTS = Path(__file__).parents[3] / "reports" / "faults"
# Of mutants, and of files that are read for them; and what a quick kill takes.
SAMPLE, FILES = 8, 5
QUICK_CPU_S = 0.5
NONE = EquivalentTable((), path=Path("none.toml"))
LIMITS = ChildLimits(cpu_s=20, wall_s=120)


def mutant(after: str = "x = 2", *, line: int = 3, scope: str = "f") -> SourceMutant:
    edit = Edit(
        operator=SourceOperator.CONSTANT, scope=scope, lines=(line, line), start=4, end=5, text="2"
    )
    return SourceMutant(file="harness/racegate/a.py", edit=edit, before="x = 1", after=after)


def result(fate: SourceFate, one: SourceMutant | None = None) -> SourceResult:
    one = one or mutant()
    return SourceResult(
        key=one.key,
        file=one.file,
        scope=one.edit.scope,
        line=one.edit.lines[0],
        operator=one.edit.operator,
        before=one.before,
        after=one.after,
        fate=fate,
    )


class TestChild:
    def test_it_says_lines(self) -> None:
        def work(say: Say) -> None:
            say("one")
            say("two\nlines")

        heard = in_a_child(work, LIMITS)
        assert (heard.lines, heard.is_timeout, heard.status) == (["one", "two lines"], False, 0)

    def test_what_it_breaks_it_breaks_for_itself(self) -> None:
        here = [1]

        def work(say: Say) -> None:
            here.clear()
            say("cleared")
            raise ValueError("not here")

        heard = in_a_child(work, LIMITS)
        assert here == [1]
        assert heard.lines == ["cleared"] and os.WEXITSTATUS(heard.status) == 1

    def test_an_endless_loop_is_ended(self) -> None:
        def work(say: Say) -> None:
            say("at the loop")
            while True:
                pass

        heard = in_a_child(work, ChildLimits(cpu_s=0, wall_s=60))
        assert heard.is_timeout and heard.lines == ["at the loop"]

    def test_a_wait_without_end_is_ended(self) -> None:
        heard = in_a_child(lambda say: signal.pause(), ChildLimits(cpu_s=5, wall_s=0.2))
        assert heard.is_timeout

    def test_memory_is_limited(self) -> None:
        def work(say: Say) -> None:
            try:
                bytearray(1 << 30)
            except MemoryError:
                say("refused")

        assert in_a_child(work, ChildLimits(cpu_s=5, wall_s=60, data_bytes=1 << 28)).lines == [
            "refused"
        ]


def heard(*lines: str, is_timeout: bool = False, status: int = 0) -> ChildResult:
    return ChildResult(lines=list(lines), is_timeout=is_timeout, status=status, cpu_s=1.0)


@pytest.mark.parametrize(
    ("said", "fate", "by", "how"),
    [
        (heard("at a", "at b", "found DIVERGENT"), SourceFate.KILLED, "b", "DIVERGENT"),
        (heard("at a", "found BENIGN", "at b", "end"), SourceFate.SURVIVED, "a", "BENIGN"),
        (heard("at a", "found INCONCLUSIVE", "end"), SourceFate.INCONCLUSIVE, "a", "INCONCLUSIVE"),
        (heard("at a", "found INCONCLUSIVE", "at b", "found x"), SourceFate.KILLED, "b", "x"),
        (heard("at a", is_timeout=True, status=9), SourceFate.KILLED, "a", "no end"),
        (heard("at a", status=11), SourceFate.KILLED, "a", "signal 11"),
        (heard("at a", "at b", "end"), SourceFate.SURVIVED, "", ""),
    ],
)
def test_what_a_child_says_comes_to(said: ChildResult, fate: SourceFate, by: str, how: str) -> None:
    found = result_of(mutant(), said)
    assert (found.fate, found.by, found.how) == (fate, by, how)


@pytest.mark.parametrize("said", [heard("at a"), heard("at a", "end", status=256)])
def test_a_child_that_breaks_off_is_no_kill(said: ChildResult) -> None:
    with pytest.raises(BrokenHarnessError, match="its process ended"):
        result_of(mutant(), said)


class TestEquivalents:
    ENTRY = EquivalentEntry(
        file="harness/racegate/a.py", scope="f", before="x = 1", after="x = 2", reason="unread"
    )

    def of(self, **changes: str) -> EquivalentTable:
        return EquivalentTable(
            [msgspec.structs.replace(self.ENTRY, **changes)], path=Path("e.toml")
        )

    def test_a_survivor_gets_its_reason(self) -> None:
        found = self.of().applied(mutant(), result(SourceFate.SURVIVED))
        assert (found.fate, found.reason) == (SourceFate.EQUIVALENT, "unread")
        other = mutant("x = 0")
        survived = result(SourceFate.SURVIVED, other)
        assert self.of().applied(other, survived) == survived

    def test_one_that_is_killed_is_an_error(self) -> None:
        with pytest.raises(EquivalentError, match="said to change nothing"):
            self.of().applied(mutant(), result(SourceFate.KILLED))

    def test_one_that_is_no_mutant_is_an_error(self) -> None:
        self.of().check([mutant()])
        self.of(file="harness/racegate/other.py").check([mutant()])
        with pytest.raises(EquivalentError, match="the source has changed"):
            self.of(before="y = 1").check([mutant()])

    @pytest.mark.parametrize("content", ["[[equivalent]]\nfile = 1", "[[other]]\n", "[", ""])
    def test_a_file_is_read_strictly(self, tmp_path: Path, content: str) -> None:
        path = tmp_path / "e.toml"
        path.write_text(content)
        if not content:
            assert load_equivalents(path).of(mutant()) == ""
            return
        with pytest.raises(EquivalentError, match=r"e\.toml"):
            load_equivalents(path)

    def test_an_entry_may_hold_in_one_setting_alone(self, tmp_path: Path) -> None:
        path, one = tmp_path / "e.toml", mutant()
        looks = {"file": one.file, "scope": one.edit.scope, "before": one.before}
        entry = looks | {"after": one.after, "reason": "why", "within": "v1"}
        lines = (f"{name} = {json.dumps(value)}" for name, value in entry.items())
        path.write_text("\n".join(("[[equivalent]]", *lines)))
        assert load_equivalents(path, settings=("v1", "align")).of(one) == "why"
        assert load_equivalents(path, settings=("v2", "align")).of(one) == ""

    def test_every_committed_entry_is_a_mutant(self) -> None:
        """All of them, of all files: one that a later change left behind ends a measurement."""
        table = load_equivalents(REPORTS / "equivalent.toml")
        for file in {entry.file: None for entry in table.entries}:
            table.check(mutants_of(SCENARIOS.parent / file))


class TestKept:
    def test_killed_stays_killed_and_survivors_are_tried_again(self, tmp_path: Path) -> None:
        path = tmp_path / "kept.jsonl"
        kept = KeptResults(path, "then", NONE)
        killed, survivor = mutant("x = 2"), mutant("x = 0")
        for one, fate in ((killed, SourceFate.KILLED), (survivor, SourceFate.SURVIVED)):
            kept.add(result(fate, one))
        with path.open("ab") as file:
            file.write(b'["then", {"cut')
        same, changed = KeptResults(path, "then", NONE), KeptResults(path, "now", NONE)
        assert same.known(survivor).fate is SourceFate.SURVIVED
        assert changed.known(killed).fate is SourceFate.KILLED
        assert changed.result(survivor) is None
        known = KeptResults(path, "now", TestEquivalents().of(after="x = 0"))
        assert known.known(survivor).fate is SourceFate.SURVIVED

    def test_lines_may_move(self, tmp_path: Path) -> None:
        kept = KeptResults(tmp_path / "kept.jsonl", "then", NONE)
        kept.add(result(SourceFate.KILLED))
        assert kept.known(mutant(line=9)).line == 9
        assert kept.result(mutant(scope="g")) is None


def test_a_test_that_changes_is_another_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder, as a file, or beside them."""
    monkeypatch.setattr("racegate.measure.evaluation.source.kept.ROOT", tmp_path)
    source = Source(name="a", folders=(), tests=("tests/a", "tests/b/test_b.py"))
    states = set()
    for name in ("tests/a/test_a.py", "tests/b/test_b.py", "tests/helpers/support.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for text in ("one", "other"):
            path.write_text(text)
            states.add(state_of(source))
    (tmp_path / "tests/b/test_c.py").write_text("not asked")
    assert state_of(source) in states and len(states) == 6


def test_who_executes_the_statement_judges_the_quickest_first() -> None:
    file = mutant().file
    reach = LineReach(
        seconds={"slow": 2.0, "quick": 1.0, "other": 0.0, "never": 0.0},
        lines={file: {"slow": (2, 3), "quick": (3,), "other": (4,)}},
    )
    assert reach.judges(mutant(line=3)) == ["quick", "slow"]
    assert reach.judges(mutant(line=5)) == []
    assert reach.judges(mutant(line=5, scope="Fields")) == ["other", "quick", "slow"]
    elsewhere = msgspec.structs.replace(mutant(scope=""), file="harness/racegate/b.py")
    assert set(reach.judges(elsewhere)) == set(reach.seconds)


def test_more_examples_of_one_test_come_behind_all_others() -> None:
    examples = {f"many[{number}]": 1.0 + number for number in range(12)}
    reach = LineReach(
        seconds=examples | {"slow": 50.0},
        lines={mutant().file: dict.fromkeys([*examples, "slow"], (3,))},
    )
    first, others = [f"many[{n}]" for n in range(5)], [f"many[{n}]" for n in range(5, 9)]
    assert reach.judges(mutant(line=3)) == [*first, "slow", *others]  # 6 + 7 + 8 + 9 s


def test_scores_leave_out_what_does_not_matter() -> None:
    fates = [SourceFate.KILLED] * 3 + [SourceFate.EQUIVALENT, SourceFate.SURVIVED]
    score = score_of([result(fate) for fate in fates])
    assert (score.mutants, score.matter, score.percent()) == (5, 4, "75.0 %")
    assert score.exit_code is ExitCode.FINDING
    all_killed = score_of([result(SourceFate.KILLED), result(SourceFate.EQUIVALENT)])
    assert (all_killed.percent(0), all_killed.exit_code) == ("100 %", ExitCode.CLEAN)


@pytest.mark.parametrize("fates", [(), (SourceFate.EQUIVALENT,)])
def test_where_no_mutant_matters_nothing_is_known(fates: tuple[SourceFate, ...]) -> None:
    score = score_of([result(fate) for fate in fates])
    assert (score.percent(), score.exit_code) == ("–", ExitCode.INCONCLUSIVE)


def test_an_unknown_source_is_refused() -> None:
    with pytest.raises(SourceError, match="engin"):
        find_source("engin")
    assert {"engine", "device", "oracles", "explore"} <= set(SOURCES)


@cache
def mutants_in(file: str) -> list[SourceMutant]:
    return mutants_of(SCENARIOS.parent / file)


@cache
def committed() -> SourceReport:
    content = (REPORTS / "source_engine.json").read_bytes()
    return msgspec.json.decode(content, type=SourceMutationObject).report


def test_what_the_gate_killed_it_still_kills() -> None:
    """A sample by seed of those that were killed quickly, by what killed them: of a few files, and
    of lines that are as they were.
    """
    killed = [
        one
        for one in committed().results
        if one.fate is SourceFate.KILLED and one.by in NAMES and one.cpu_s < QUICK_CPU_S
    ]
    drawn = random.Random(14).sample(killed, len(killed))
    files = list(dict.fromkeys(one.file for one in drawn))[:FILES]
    now = {one.key: one for file in files for one in mutants_in(file)}
    left = [one for one in drawn if one.key in now]
    assert len(left) >= SAMPLE, "racegate faults mutate --source engine makes it anew"
    worker = SourceWorker(find_source("engine"), GateLook(SCENARIOS))
    for one in left[:SAMPLE]:
        found = worker.work(SourceTask(mutant=now[one.key], judges=(one.by,)))
        assert found.fate is SourceFate.KILLED, now[one.key].name


def test_a_mutant_of_a_kernel_is_judged_and_not_its_twin_in_c(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing of a mutant is in C: there it would be what the kernel was before."""
    monkeypatch.delenv(COMPILED_VARIABLE, raising=False)
    file = "kernels/racegate_kernels/rejection_verify.py"
    changed = ("has_draft[:, :-1] = emitted[:, 1:]", "pass")
    mutant = next(one for one in mutants_in(file) if (one.before, one.after) == changed)
    worker = SourceWorker(find_source("engine"), GateLook(SCENARIOS))
    found = worker.work(SourceTask(mutant=mutant, judges=("steady-mixed-accepts",)))
    assert found.fate is SourceFate.KILLED
    assert os.environ.get(COMPILED_VARIABLE) is None


def test_the_page_is_that_of_the_figures() -> None:
    for path in REPORTS.glob("source_*.json"):
        found = msgspec.json.decode(path.read_bytes(), type=SourceMutationObject)
        assert path.with_suffix(".md").read_text() == render_source_mutants(found), path
