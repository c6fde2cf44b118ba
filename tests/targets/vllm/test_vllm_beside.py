"""Base beside change: what differs is named where it stands, and what both have is no finding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from test_vllm_search import SCENARIO
from typer.testing import CliRunner

from racegate.cli.app import app
from racegate.cli.foreign.pictures import write_causes
from racegate.history.exit_code import ExitCode
from racegate.history.finding import Benign, FindingKind, KernelTotal
from racegate.history.gates.results import gated
from racegate.history.outcome import Comparison, RunResult
from racegate.interpose.outcome import Ending, Observation
from racegate.jobs.foreign.beside import ComparedRun, compare, untold_of
from racegate.report.causes import told_findings
from racegate.report.targets.results import print_target_gate
from racegate.targets.common.judge import judge
from racegate.targets.common.result import result_of
from racegate.targets.common.wire import ReleaseRun
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.wire import ModelRunner, StateMode
from small_engine import Served, SmallEngine, Wait
from small_release import SmallReleases, TwoReleases, cached_release

CELL = Cell(release="1.0", runner=ModelRunner.V1, mode=StateMode.NONE)
# A landing changes nothing that is observed in DEAD, something in BEHIND; BEFORE has no conflict.
HARM = {Wait.BEFORE: 0, Wait.DEAD: 1, Wait.BEHIND: 2}


def observed(step: int, name: str, **values: object) -> Observation:
    text = msgspec.json.encode(values).decode()
    return Observation(f"step {step} {name}", text, text)


def ran(*inner: Observation) -> ReleaseRun:
    return ReleaseRun(ending=Ending.FINISHED, inner=inner)


def base_of(run: ReleaseRun) -> ComparedRun:
    judged = judge(Served(SmallEngine(Wait.BEFORE)), SCENARIO, CELL)
    return compared_as(run, result_of(judged, "script.toml"))


def compared_as(run: ReleaseRun, result: RunResult) -> ComparedRun:
    return ComparedRun(
        result=result,
        ending=run.ending,
        message=run.message,
        seen=run.inner,
        delivered=run.delivered,
        untold=untold_of(run.kernels),
    )


def beside(base: ComparedRun, run: ReleaseRun) -> Comparison:
    return compare(base, compared_as(run, base.result))


def test_lines_of_a_kernel_that_may_meet_are_told_where_the_base_has_none() -> None:
    """Which of them comes first is a matter of how the kernel is compiled: no race that is shown,
    and no order either.
    """
    kernel = KernelTotal(
        name="copy_kernel", file="k.py", line=1, launches=2, programs=4, findings=0, untold=0
    )
    before = msgspec.structs.replace(ran(observed(1, "a", n=1)), kernels=(kernel,))
    meets = msgspec.structs.replace(before, kernels=(msgspec.structs.replace(kernel, untold=1),))
    found = beside(base_of(before), meets).changed
    assert found is not None and found.message == (
        "lines that may meet is ['copy_kernel: 1 pair'], in the base []"
    )
    assert beside(base_of(meets), meets).changed is None


ROWS = st.lists(st.integers(0, 3), min_size=3, max_size=3)
RUNS = st.lists(ROWS, min_size=1, max_size=5)


@given(RUNS, st.data())
def test_the_first_value_that_differs_is_named_with_its_step_row_and_request(
    steps: list[list[int]], data: st.DataObject
) -> None:
    step = data.draw(st.integers(0, len(steps) - 1))
    row = data.draw(st.integers(0, 2))
    changed = [list(rows) for rows in steps]
    for later in range(step, len(steps)):  # a mistake goes on
        changed[later][row] += 1
    before, after = (
        ran(
            *(
                observed(at, "seen", rows=["A", "B", "C"], lengths=rows)
                for at, rows in enumerate(it)
            )
        )
        for it in (steps, changed)
    )
    base = base_of(before)
    found = beside(base, after)
    assert found.changed is not None
    assert (found.changed.kind, found.changed.step) == (FindingKind.CHANGE, step)
    assert (found.changed.request, found.changed.field) == ("ABC"[row], "seen.lengths")
    assert (found.changed.expected, found.changed.actual) == (
        steps[step][row],
        steps[step][row] + 1,
    )
    assert found.code is ExitCode.FINDING
    assert beside(base, before).code is ExitCode.CLEAN


@pytest.mark.parametrize(
    ("mine", "said"),
    [
        ((observed(1, "a", n=1),), "step 2: b is absent, in the base step 2 b"),
        (
            (observed(1, "a", n=1), observed(2, "c", n=1)),
            "step 2: b is step 2 c, in the base step 2 b",
        ),
        (
            (observed(1, "a", n=[1]), observed(2, "b", by={"A": 1})),
            "step 1: a.n is [1], in the base 1; 1 later observation also",
        ),
    ],
)
def test_an_observation_that_is_missing_or_another_is_told(
    mine: tuple[Observation, ...], said: str
) -> None:
    base = base_of(ran(observed(1, "a", n=1), observed(2, "b", by={"A": 2})))
    changed = beside(base, ran(*mine)).changed
    assert changed is not None
    assert changed.message == said


def test_tokens_are_compared_when_no_observation_differs() -> None:
    base = base_of(ReleaseRun(ending=Ending.FINISHED, delivered={"A": (1, 2)}))
    run = ReleaseRun(ending=Ending.FINISHED, delivered={"A": (1, 3)})
    changed = beside(base, run).changed
    assert changed is not None
    assert changed.message == "request A: delivered tokens is (1, 3), in the base (1, 2)"


@pytest.fixture
def checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder in which everything is, with the user's cache directory and one script."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cached_release(tmp_path / "cache", "1.0")
    Path("vllm").mkdir()
    Path("vllm", "__init__.py").write_text("")
    Path("scripts").mkdir()
    Path("scripts", "runs.toml").write_text(
        'schema = 1\nname = "runs"\ntitle = "t"\n\n[[requests]]\nname = "A"\nprompt_len = 1\n'
        "max_tokens = 1\naccepts = [1]\n"
    )
    return tmp_path


def gate(releases: SmallReleases, monkeypatch: pytest.MonkeyPatch, *options: str) -> Result:
    monkeypatch.setattr("racegate.cli.foreign.releases.open_release", releases)
    command = ["vllm", "gate", "--scenarios", "scripts", "--json", "out.json", "--log", "log"]
    return CliRunner().invoke(app, [*command, "--release", "1.0", *options])


@pytest.mark.parametrize("base", HARM)
@pytest.mark.parametrize("changed", HARM)
def test_only_what_the_base_has_not_makes_the_gate_red(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, base: Wait, changed: Wait
) -> None:
    releases = TwoReleases(base, changed)
    done = gate(releases, monkeypatch, "--path", ".", "--against", "1.0", "--out", "found")
    (result,) = json.loads(Path("out.json").read_text())["results"]
    beside = result["comparison"]
    is_worse, is_better = HARM[changed] > HARM[base], HARM[changed] < HARM[base]
    assert done.exit_code == (1 if is_worse else 0), done.output
    assert bool(beside["new"]) == is_worse
    assert bool(beside["repaired"]) == is_better
    word = "DIFFERENT from" if is_worse else "SAME as"
    assert f"{word} vLLM 1.0 v1 none: 1 scenario" in done.output
    assert bool(list(Path("found").glob("*.html"))) == is_worse


def test_a_folder_without_a_checkout_is_refused_before_the_base_is_run(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    releases = TwoReleases(Wait.BEFORE, Wait.BEFORE)
    done = gate(releases, monkeypatch, "--path", "scripts", "--against", "1.0")
    assert done.exit_code == ExitCode.BAD_INPUT and "scripts holds no vLLM" in done.output
    assert not releases.cells


def test_what_differs_has_a_command_that_shows_it_again(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a conflict for whose landings nobody looked: no hold shows it."""
    releases = TwoReleases(Wait.BEFORE, Wait.BEHIND)
    gate(releases, monkeypatch, "--path", ".", "--against", "1.0", "--runs", "0")
    (result,) = json.loads(Path("out.json").read_text())["results"]
    commands = {one["replay"] for one in result["comparison"]["new"]}
    (command,) = commands
    assert "--against 1.0 --runs 0" in command
    asked = [*command.split()[1:], "--log", "log"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == ExitCode.FINDING, done.output
    assert "NEW CONFLICT" in done.output
    releases.of_checkout.wait = Wait.BEFORE
    assert CliRunner().invoke(app, asked).exit_code == 0
    held = CliRunner().invoke(app, [*asked, "--hold", "a@1 until b@2"])
    assert held.exit_code == ExitCode.BAD_INPUT
    assert "--hold is for one version" in held.output


def test_a_changed_value_has_a_page(tmp_path: Path) -> None:
    """With the value, although no run of it and no landing says what becomes of it."""
    base = base_of(ran(observed(1, "seen", n=1)))
    found = beside(base, ran(observed(1, "seen", n=2)))
    assert found.changed is not None and found.changed.verdict is None
    result = msgspec.structs.replace(base.result, comparison=found)
    files = write_causes(tmp_path, [result], lambda run, finding: None, benign=Benign.PASS)
    assert files.keys() == {found.changed.signature}
    (page,) = tmp_path.glob("*.html")
    assert "in the base 1" in page.read_text()


def test_a_changed_value_has_it_too_and_a_landing_keeps_its_own() -> None:
    base = base_of(ran(observed(1, "seen", n=1)))
    changed = beside(base, ran(observed(1, "seen", n=2))).replayed_by("racegate vllm run x")
    assert [one.replay for one in changed.findings] == ["racegate vllm run x"]
    new = msgspec.structs.replace(changed.findings[0], replay="racegate vllm run x --hold y")
    again = Comparison(base="1.0", new=(new,)).replayed_by("racegate vllm run x")
    assert again.findings == (new,)


def test_a_base_is_run_once_until_something_that_decides_it_is_another(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    releases = TwoReleases(Wait.DEAD, Wait.DEAD)

    def started(*options: str) -> int:
        releases.cells.clear()
        assert gate(releases, monkeypatch, "--path", ".", *options).exit_code == 0
        return len(releases.cells)

    assert [started("--against", "1.0"), started("--against", "1.0")] == [2, 1]
    assert started("--against", "1.0", "--runs", "7") == 2
    assert [started("--against", "."), started("--against", ".")] == [2, 1]
    Path("vllm", "new.py").write_text("")
    assert started("--against", ".") == 2


def forms() -> dict[str, Any]:
    """What the CI services were told of the last gate."""
    results = json.loads(Path("s.sarif").read_text())["runs"][0]["results"]
    return {
        "json": json.loads(Path("out.json").read_text()),
        "sarif": {one["ruleId"]: one for one in results},
        "junit": Path("j.xml").read_text(),
        "github": Path("summary.md").read_text(),
    }


def test_a_difference_that_is_meant_is_accepted_until_it_is_gone(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every form with its reason; what is gone is an error at the file, until it is dropped."""
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    releases = TwoReleases(Wait.DEAD, Wait.BEHIND)
    options = ("--path", ".", "--against", "1.0", "--sarif", "s.sarif", "--junit", "j.xml")
    accept = ("--github", "--accept", "meant.json")

    def gated(*more: str) -> Result:
        Path("summary.md").unlink(missing_ok=True)
        return gate(releases, monkeypatch, *options, *accept, *more)

    assert "--reason TEXT writes it" in gated().output
    assert gated("--reason", "the copy is read later now").exit_code == 0
    accepted = json.loads(Path("meant.json").read_text())["known"]
    (reason,) = {one["reason"] for one in accepted}
    assert reason == "the copy is read later now"

    done, told = gated(), forms()
    assert (done.exit_code, "::error" in done.output) == (0, False), done.output
    assert "ACCEPTED the copy is read later now" in done.output
    assert (told["json"]["compared"], told["json"]["exit_code"]) == ("SAME", 0)
    assert told["github"].startswith("## racegate: SAME\n")
    assert told["json"]["baseline"]["known"] == accepted
    for result in told["sarif"].values():
        assert result["suppressions"][0]["justification"] == reason
    assert reason in told["junit"] and reason in told["github"]

    releases.of_checkout.wait = Wait.DEAD
    done, told = gated(), forms()
    assert done.exit_code == ExitCode.BAD_INPUT, done.output
    assert told["json"]["compared"] == "STALE"
    for one in accepted:
        assert f"gone, and still in meant.json: runs: {one['signature']}" in done.output
    assert "--update-accepted drops it" in done.output
    assert told["json"]["baseline"]["gone"] == accepted
    place = told["sarif"]["stale"]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "meant.json"
    assert "::error file=meant.json" in done.output
    assert "not seen any more" in told["junit"] and "not seen any more" in told["github"]

    assert gated("--update-accepted").exit_code == 0
    assert json.loads(Path("meant.json").read_text())["known"] == []
    releases.of_checkout.wait = Wait.BEHIND
    assert gated().exit_code == ExitCode.FINDING


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--reason", "x"), "--reason needs --accept FILE"),
        (("--accept", "a.json", "--reason", " "), "says why"),
        (("--accept", "a.json", "--baseline", "b.json"), "give one of them"),
        (("--update-accepted",), "needs --baseline FILE or --accept FILE"),
    ],
)
def test_how_it_is_accepted_is_said_whole(options: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(app, ["vllm", "gate", "--release", "1.0", *options])
    assert done.exit_code == ExitCode.BAD_INPUT
    assert said in " ".join(done.output.split())


@given(st.lists(RUNS, min_size=2, max_size=2, unique_by=str))
def test_two_changes_have_two_signatures(changes: list[list[list[int]]]) -> None:
    base = base_of(ran(observed(0, "seen", n=[9, 9, 9])))
    found = [
        beside(base, ran(*(observed(at, "seen", lengths=rows) for at, rows in enumerate(steps))))
        for steps in changes
    ]
    signatures = {one.changed.signature for one in found if one.changed is not None}
    assert len(signatures) == 2


def test_an_entry_of_no_row_is_told_by_its_index() -> None:
    base = base_of(ran(observed(3, "inputs", rows=["A"], tokens=[5, 6])))
    changed = beside(base, ran(observed(3, "inputs", rows=["A"], tokens=[5, 7]))).changed
    assert changed is not None
    assert changed.message == "step 3: inputs.tokens[1] is 7, in the base 6"


def test_a_run_that_fails_behind_its_last_observation_is_no_pass() -> None:
    """It has delivered nothing, and has observed all that the base has."""
    seen = observed(1, "a", n=1)
    base = base_of(ReleaseRun(ending=Ending.FINISHED, inner=(seen,), delivered={"A": (1,)}))
    run = ReleaseRun(ending=Ending.FAILED, message="KeyError: 7", inner=(seen,))
    found = beside(base, run)
    assert found.code is ExitCode.FINDING
    assert found.changed is not None
    assert found.changed.message == "ending is failed, in the base finished; KeyError: 7"


def test_tokens_that_only_the_base_delivers_are_missed() -> None:
    base = base_of(ReleaseRun(ending=Ending.FINISHED, delivered={"A": (1,)}))
    changed = beside(base, ReleaseRun(ending=Ending.FINISHED)).changed
    assert changed is not None
    assert changed.message == "request A: delivered tokens is absent, in the base (1,)"


def test_a_field_that_one_version_alone_keeps_is_no_change() -> None:
    base = ran(observed(2, "kept in the runner", old={"A": 1}, length={"A": 5, "B": 6}))
    same = ran(observed(2, "kept in the runner", new=[3], length={"A": 5, "B": 6}))
    assert beside(base_of(base), same).code is ExitCode.CLEAN
    other = ran(observed(2, "kept in the runner", new=[3], length={"A": 5, "B": 7}))
    found = beside(base_of(base), other).findings[0]
    assert found.message == "step 2, request B: kept in the runner.length is 7, in the base 6"
    elsewhere = ran(observed(2, "metadata", length={"A": 5}, old=1))
    assert beside(base_of(elsewhere), ran(observed(2, "metadata", length={"A": 5}))).findings


def test_one_field_that_changed_is_one_cause_of_all_scenarios() -> None:
    """Whatever its values are in each; another field is another cause."""
    base = base_of(ran(observed(3, "inputs", tokens=[5, 6], rows=["A", "B"])))
    results = [
        msgspec.structs.replace(
            base.result,
            scenario=name,
            comparison=beside(base, ran(observed(3, "inputs", tokens=tokens, rows=rows))),
        )
        for name, tokens, rows in (
            ("first", [5, 7], ["A", "B"]),
            ("second", [7, 6], ["A", "B"]),
            ("third", [5, 6], ["A", "C"]),
        )
    ]
    causes = told_findings(results, benign=Benign.PASS)
    assert [one.scenarios for one in causes] == [("first", "second"), ("third",)]
    console = Console(record=True, width=100)
    print_target_gate(console, gated(results), benign=Benign.PASS)
    said = console.export_text()
    assert "1 CHANGED change/inputs.tokens" in said and "2 CHANGED change/inputs.rows" in said
    assert "2 scenarios: first, second" in said
    assert "3 scenarios, 3 changed" in said
