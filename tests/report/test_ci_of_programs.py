"""What torch run and the gates of other engines write for CI services: by the one writer of each
form, valid, and harmless.
"""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import xmlschema
from junitparser import JUnitXml
from typer.testing import CliRunner

from pictured import judged as judged_run
from program_verdicts import RIGHT, finding, verdicts
from racegate.cli.app import app
from racegate.history.exit_code import ExitCode
from racegate.history.finding import Verdict
from racegate.history.outcome import Checked, Failing
from racegate.interpose.outcome import Ending, Outcome
from racegate.report.ci.failing import checked_results
from racegate.report.ci.junit import junit_of
from racegate.report.ci.sarif import sarif_of
from racegate.report.finding.race import results_page
from racegate.report.targets.programs import checked_program
from racegate.targets.program.judge import ProgramVerdict, Suppression
from racegate.targets.program.launch import Program
from racegate.targets.program.result import result_of_program
from small_engine import Wait
from small_release import SmallReleases
from support import SCENARIOS

SCHEMAS = Path(__file__).parent / "schemas"
SARIF = json.loads((SCHEMAS / "sarif-2.1.0-rtm.5.json").read_text())
JUNIT = xmlschema.XMLSchema(SCHEMAS / "jenkins-junit.xsd")
NASTY = "]]></failure><script>\u202e\x1b[31m&"


def forms(checked: Checked) -> tuple[str, list[dict[str, Any]]]:
    """JUnit, and the results of SARIF: valid by their schemas."""
    junit, sarif = junit_of(checked), json.loads(msgspec.json.encode(sarif_of(checked)))
    JUNIT.validate(junit)
    jsonschema.Draft4Validator(SARIF).validate(sarif)
    return junit, sarif["runs"][0]["results"]


def test_a_program_is_a_case_and_each_finding_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    here = str(Path.cwd() / "sub" / "x.py")
    known = Suppression(signature="b" * 12, reason="looked at")
    found = verdicts(
        finding("a" * 12, here),
        finding("b" * 12),
        verdict=Verdict.DIVERGENT,
        suppressed=(known,),
    )
    junit, results = forms(checked_program(found, "x.py --flag"))
    (suite,) = JUnitXml.fromstring(junit)
    assert (suite.name, suite.tests, suite.failures, suite.skipped) == ("programs", 1, 1, 0)
    assert [(one["ruleId"], one["baselineState"]) for one in results] == [
        ("divergence", "new"),
        ("divergence", "unchanged"),
    ]
    place = results[0]["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("sub/x.py", 5)
    assert "Replay: racegate torch run --hold 'd2h@" in results[0]["message"]["text"]


def test_a_program_without_a_finding_passes_and_one_that_was_cut_off_does_not() -> None:
    clean = checked_program(verdicts(finding("a"), verdict=Verdict.BENIGN), "x.py")
    assert forms(clean)[1] == []
    assert clean.exit_code == 0
    ended = Outcome(ending=Ending.NOT_MODELLED, message="cudaFoo")
    cut = ProgramVerdict(base=ended, shown=ended)
    (one,) = forms(checked_program(cut, "x.py"))[1]
    assert one["ruleId"] == "inconclusive"


def test_what_a_program_says_is_text() -> None:
    found = verdicts(finding(NASTY, NASTY), verdict=Verdict.CONFLICT)
    junit, results = forms(checked_program(found, NASTY))
    assert "<script>" not in junit
    assert not {"\u202e", "\x1b"} & set(junit + json.dumps(results, ensure_ascii=False))
    page = results_page([result_of_program(found, NASTY)])
    assert page.count("<script") == 1, "the page's own, of the slider"
    assert not {"\u202e", "\x1b"} & set(page)


def test_an_adapter_gate_has_what_it_cannot_run_as_skipped() -> None:
    result = judged_run("accepted-copy-after-row-move").result
    other = msgspec.structs.replace(result, refused="no preemption")
    files = {result.scenario: "s.toml"}
    checked = checked_results([result, other], files, code=ExitCode.FINDING)
    junit, results = forms(checked)
    (suite,) = JUnitXml.fromstring(junit)
    assert (suite.tests, suite.failures, suite.skipped) == (2, 1, 1)
    assert len(results) == 1
    assert checked.exit_code == 1


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small engine in the place of a release, and no installation."""

    small = SmallReleases(Wait.BEHIND)
    monkeypatch.setattr("racegate.cli.foreign.releases.open_release", small)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_gate_of_a_release_writes_both_forms_and_a_page(
    engine: str, engines: None, tmp_path: Path
) -> None:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    text = 'schema = 1\nname = "small"\ntitle = "t"\n\n[[requests]]\nname = "A"\nprompt_len = 1\n'
    (scripts / "small.toml").write_text(f"{text}max_tokens = 1\naccepts = [1]\n")
    junit, sarif = tmp_path / "j.xml", tmp_path / "s.sarif"
    words = [engine, "gate", "--release", "1.0", "--scenarios", str(scripts), "--log", "log"]
    html = tmp_path / "x.html"
    words += ["--junit", str(junit), "--sarif", str(sarif), "--html", str(html)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1, done.output
    assert "step 1: count: 4 used, 1 true" in html.read_text()
    assert "<svg" in html.read_text()
    JUNIT.validate(junit.read_text())
    jsonschema.Draft4Validator(SARIF).validate(json.loads(sarif.read_text()))
    (suite,) = JUnitXml.fromstring(junit.read_text())
    assert (suite.tests, suite.failures) == (1, 1)
    (one, *_) = json.loads(sarif.read_text())["runs"][0]["results"]
    assert one["ruleId"] == "divergence"
    assert f"Replay: racegate {engine} run {scripts}" in one["message"]["text"]


def test_a_finding_of_a_program_is_written_by_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = verdicts(finding("a" * 12), verdict=Verdict.DIVERGENT)
    command = "racegate.cli.foreign.torch"
    monkeypatch.setattr(f"{command}.open_device", lambda *given, **options: nullcontext())
    monkeypatch.setattr(f"{command}.judge_on", lambda *given, **options: found)
    (tmp_path / "x.py").write_text("")
    junit, sarif = tmp_path / "j.xml", tmp_path / "s.sarif"
    html = tmp_path / "x.html"
    words = ["torch", "run", "--junit", str(junit), "--sarif", str(sarif), "--html", str(html)]
    words.append(str(tmp_path / "x.py"))
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1, done.output
    JUNIT.validate(junit.read_text())
    assert len(json.loads(sarif.read_text())["runs"][0]["results"]) == 1
    page = html.read_text()
    for shown in ("Race on host (step)", "held until forced", "missing: nothing orders", "64.0"):
        assert shown in page


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_gate_of_a_release_has_a_baseline_and_tells_github(
    engine: str, engines: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is known passes from then on; what is new is annotated, and stands in the summary."""
    monkeypatch.chdir(tmp_path)
    Path("s").mkdir()
    text = 'schema = 1\nname = "small"\ntitle = "t"\n\n[[requests]]\nname = "A"\nprompt_len = 1\n'
    Path("s", "small.toml").write_text(f"{text}max_tokens = 1\naccepts = [1]\n")
    words = [engine, "gate", "--release", "1.0", "--scenarios", "s", "--log", "log"]
    env = {"GITHUB_STEP_SUMMARY": "summary.md"}
    done = CliRunner().invoke(app, [*words, "--github"], env=env)
    assert done.exit_code == 1
    notes = [line for line in done.stdout.splitlines() if line.startswith("::error ")]
    assert notes[0].startswith("::error file=s/small.toml,title=racegate%3A small%3A ")
    summary = Path("summary.md").read_text()
    assert summary.startswith("## racegate: DIVERGENT\n")
    assert "| small | verdict: DIVERGENT" in summary
    assert f"    racegate {engine} run s/small.toml" in summary
    known = [*words, "--baseline", "known.json"]
    assert CliRunner().invoke(app, [*known, "--write-baseline"]).exit_code == 0
    again = CliRunner().invoke(app, [*known, "--github", "--sarif", "s.sarif"], env=env)
    assert again.exit_code == 0, again.output
    assert "::error" not in again.stdout
    states = {
        one["baselineState"]
        for one in json.loads(Path("s.sarif").read_text())["runs"][0]["results"]
    }
    assert states == {"unchanged"}


def program(
    monkeypatch: pytest.MonkeyPatch,
    found: ProgramVerdict,
    *words: str,
    base: ProgramVerdict | None = None,
) -> Any:
    """`torch run` of a program that was judged so. base: what is said of old/x.py"""
    command = "racegate.cli.foreign.torch"

    def judge(_: object, program: Program, **options: object) -> ProgramVerdict:
        return base if base is not None and program.argv == ("old/x.py",) else found

    monkeypatch.setattr(f"{command}.open_device", lambda *given, **options: nullcontext())
    monkeypatch.setattr(f"{command}.judge_on", judge)
    Path("x.py").write_text("")
    return CliRunner().invoke(app, ["torch", "run", *words, "x.py"])


def test_a_program_beside_its_base_tells_what_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old").mkdir()
    Path("old", "x.py").write_text("")
    new = verdicts(finding("a" * 12), finding("b" * 12), verdict=Verdict.DIVERGENT)
    old = msgspec.structs.replace(new, base=Outcome(ending=Ending.FINISHED, observations=RIGHT))
    old = msgspec.structs.replace(old, shown=old.base)
    beside = ("--against", "old/x.py", "--json", "o.json", "--sarif", "s.sarif", "--junit", "j.xml")

    def judged(before: ProgramVerdict, *words: str) -> Any:
        found = program(monkeypatch, new, *words, base=before)
        return found, json.loads(Path("o.json").read_text())["comparison"]

    done, said = judged(new, *beside)
    assert (done.exit_code, said["known"], said["new"]) == (0, 2, []), done.output
    assert "SAME as old/x.py" in done.stderr
    done, said = judged(old, *beside)
    assert (done.exit_code, said["known"], len(said["new"])) == (1, 0, 2)
    assert "DIFFERENT from old/x.py: 1 scenario, 0 changed, 2 new conflicts" in done.stderr
    (told,) = json.loads(Path("s.sarif").read_text())["runs"][0]["results"]
    assert "1 more conflict of this edge: bbbbbbbbbbbb" in told["message"]["text"]
    accept = (*beside, "--accept", "meant.json")
    assert judged(old, *accept, "--reason", "meant")[0].exit_code == 0
    done, _ = judged(old, *accept)
    assert done.exit_code == 0 and "ACCEPTED meant" in done.stderr
    assert judged(new, *accept)[0].exit_code == ExitCode.BAD_INPUT


def test_a_program_is_annotated_at_its_own_lines_and_has_a_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = verdicts(finding("a" * 12, str(tmp_path / "sub" / "x.py")), verdict=Verdict.DIVERGENT)
    done = program(monkeypatch, found, "--github")
    assert done.exit_code == 1
    (note,) = [line for line in done.stdout.splitlines() if line.startswith("::error ")]
    assert note.startswith("::error file=sub/x.py,line=5,title=racegate%3A x.py%3A aaaaaaaaaaaa::")
    assert program(monkeypatch, found, "--baseline", "b.json", "--write-baseline").exit_code == 0
    known = program(monkeypatch, found, "--baseline", "b.json")
    assert known.exit_code == 0
    assert "b.json: 1 known finding seen, and let stand" in known.stderr
    more = verdicts(finding("a" * 12), finding("c" * 12), verdict=Verdict.DIVERGENT)
    done = program(monkeypatch, more, "--baseline", "b.json", "--github")
    assert done.exit_code == 1
    assert "not in b.json: x.py: cccccccccccc" in done.stderr
    assert [line for line in done.stdout.splitlines() if "::error " in line and "ccc" in line]


def test_a_place_is_written_told_and_grows_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = verdicts(finding("a" * 12, "/w/lib/x.py"), verdict=Verdict.DIVERGENT)
    known = ["--baseline", "b.json"]
    first = program(
        monkeypatch, found, *known, "--write-baseline", "--suppress", "lib/*:st*", "--suppress", "y"
    )
    assert first.exit_code == 0, first.output
    assert "wrote b.json: 0 findings by signature, 1 place" in first.stderr
    assert "not in b.json: --suppress y matches no race" in first.stderr
    again = program(monkeypatch, found, *known, "--github", "--sarif", "s.sarif")
    assert again.exit_code == 0
    assert "b.json: lib/*:st* lets 1 finding of 1 cause stand" in again.stderr
    assert "::error" not in again.stdout
    (result,) = json.loads(Path("s.sarif").read_text())["runs"][0]["results"]
    assert result["baselineState"] == "unchanged"
    other = msgspec.structs.replace(finding("c" * 12, "/w/lib/x.py"), edge="another wait")
    more = verdicts(finding("a" * 12, "/w/lib/x.py"), other, verdict=Verdict.DIVERGENT)
    done = program(monkeypatch, more, *known)
    assert done.exit_code == 1
    assert "lib/*:st* was written for 1, and 2 causes are there now: one of them is new" in (
        done.stderr
    )
    refused = program(monkeypatch, more, *known, "--write-baseline", "--suppress", "lib/*")
    assert refused.exit_code == 2
    assert "where a reviewer sees it" in refused.stderr
    gone = verdicts(verdict=Verdict.PROVED)
    done = program(monkeypatch, gone, *known, "--update-baseline")
    assert "gone, and still in b.json: every race at lib/*:st* (dropped)" in done.stderr
    assert "places" not in Path("b.json").read_text()
    wrong = program(monkeypatch, found, "--baseline", "n", "--write-baseline", "--suppress", ":f")
    assert wrong.exit_code == 2
    assert "FILE or FILE:FUNCTION is expected" in wrong.stderr


def test_a_failing_script_is_told_from_a_finding_by_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = Outcome(ending=Ending.FAILED, exit_code=5, message="it failed")
    failed = ProgramVerdict(base=ended, shown=ended)
    raced = verdicts(finding("a" * 12), verdict=Verdict.DIVERGENT)
    codes = {
        (name, words): program(monkeypatch, found, *words).exit_code
        for name, found in (("failed", failed), ("raced", raced))
        for words in ((), ("--error-exitcode", "99"), ("--error-exitcode", "0"))
    }
    assert codes == {
        ("failed", ("--error-exitcode", "0")): 5,
        ("raced", ("--error-exitcode", "0")): 0,
        ("failed", ()): 7,
        ("failed", ("--error-exitcode", "99")): 5,
        ("raced", ()): 1,
        ("raced", ("--error-exitcode", "99")): 99,
    }


def test_failing_parts_of_a_job_are_in_the_order_of_its_cases() -> None:
    one = Failing(name="a", file="", kind="conflict", signature="s", message="m")
    checked = checked_program(verdicts(finding("a"), verdict=Verdict.CONFLICT), "x.py")
    cases = (msgspec.structs.replace(checked.cases[0], failing=(one, one)), *checked.cases)
    assert [f.signature for f in Checked(cases=cases, exit_code=1).failing] == ["s", "s", "a"]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_without_a_folder_the_scripts_come_with_racegate(
    engine: str, engines: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, [engine, "gate", "--release", "1.0", "--json", "found.json"])
    assert f"no folder scenarios/{engine} here" in done.stderr
    names = {
        one["scenario"] for one in json.loads((tmp_path / "found.json").read_text())["results"]
    }
    left_out = set(re.findall(r"not judged: (\w+): ", done.stderr))
    assert not names & left_out
    assert names | left_out == {path.stem for path in (SCENARIOS / engine).glob("*.toml")}
    assert len(names) > len(left_out)
