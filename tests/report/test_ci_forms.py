"""What the gate writes for CI services: valid by the schemas of others, and harmless."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from io import StringIO
from pathlib import Path

import jsonschema
import msgspec
import pytest
import xmlschema
from junitparser import JUnitXml
from rich.console import Console
from typer.testing import CliRunner

from racegate.cli.app import app
from racegate.history.finding import Verdict
from racegate.history.replayed import ReplayOutcome
from racegate.jobs.gate import GateResult, MustFail
from racegate.report.ci.failing import checked_gate
from racegate.report.ci.github import ANNOTATIONS_MAX, annotations_of, summary_of
from racegate.report.ci.junit import junit_of
from racegate.report.ci.sarif import sarif_of
from racegate.report.text import print_gate
from racegate.scenario.config import OptionChange
from support import SCENARIOS

SCHEMAS = Path(__file__).parent / "schemas"
SARIF = json.loads((SCHEMAS / "sarif-2.1.0-rtm.5.json").read_text())
JUNIT = xmlschema.XMLSchema(SCHEMAS / "jenkins-junit.xsd")
SCRIPT = "finish_and_condense.toml"
FILES = {"finish-and-condense": f"scripts/{SCRIPT}"}
NASTY = "]]></failure><script>::error::%0A\u202e\x1b[31m|[x](y)`&\n::set-output name=x::y"


class Gated(msgspec.Struct, frozen=True, kw_only=True):
    """A gate that found a race, with the files that it wrote."""

    result: GateResult
    junit: str
    sarif: str
    summary: str
    output: str


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Gated:
    folder = tmp_path_factory.mktemp("ci")
    scripts = folder / "scripts"
    scripts.mkdir()
    (scripts / SCRIPT).write_text((SCENARIOS / SCRIPT).read_text())
    paths = {name: folder / name for name in ("gate.json", "j.xml", "s.sarif", "summary.md")}
    words = ["gate", "--scenarios", str(scripts), "--fault", "accepted-copy-after-row-move"]
    words += ["--json", str(paths["gate.json"]), "--junit", str(paths["j.xml"])]
    words += ["--sarif", str(paths["s.sarif"]), "--github", "--workers", "1"]
    env = {**os.environ, "GITHUB_STEP_SUMMARY": str(paths["summary.md"])}
    done = CliRunner().invoke(app, words, env=env)
    assert done.exit_code == 1, done.output
    found, *texts = (path.read_text() for path in paths.values())
    result = msgspec.json.decode(found, type=GateResult)
    return Gated(
        result=result, junit=texts[0], sarif=texts[1], summary=texts[2], output=done.output
    )


def hostile(result: GateResult) -> GateResult:
    """Every text that a file or a program may have said is made to hurt."""
    (run,) = result.scenarios
    finding = msgspec.structs.replace(
        run.findings[0], message=NASTY, signature=NASTY, replay=NASTY, buffer=NASTY
    )
    missed = MustFail(
        witness=f"witnesses/{NASTY}",
        fault=None,
        expected_signature=NASTY,
        signature=None,
        outcome=ReplayOutcome.NOTHING,
    )
    wrong = msgspec.structs.replace(run, scenario=NASTY, findings=(finding,))
    change = OptionChange(option=NASTY, asked=NASTY, effective=NASTY, because=NASTY)
    cut = msgspec.structs.replace(
        run,
        resolved=(change,),
        scenario="cut",
        verdict=Verdict.INCONCLUSIVE,
        findings=(),
        unmet=(NASTY,),
    )
    selfcheck = msgspec.structs.replace(result.selfcheck, problems=(NASTY,))
    return msgspec.structs.replace(
        result,
        scenarios=(wrong, cut),
        must_fail=(missed,),
        selfcheck=selfcheck,
        unmet=(NASTY,),
    )


def assert_valid(result: GateResult, files: Mapping[str, str]) -> tuple[str, str]:
    checked = checked_gate(result, files)
    junit, sarif = junit_of(checked), msgspec.json.encode(sarif_of(checked)).decode()
    JUNIT.validate(junit)
    jsonschema.Draft4Validator(SARIF).validate(json.loads(sarif))
    return junit, sarif


def test_what_the_gate_writes_is_valid(gated: Gated) -> None:
    JUNIT.validate(gated.junit)
    jsonschema.Draft4Validator(SARIF).validate(json.loads(gated.sarif))
    suites = {suite.name: suite for suite in JUnitXml.fromstring(gated.junit)}
    assert {name: (suite.tests, suite.failures) for name, suite in suites.items()} == {
        "scenarios": (1, 1),
        "self-check": (1, 0),
    }
    (entry,) = json.loads(gated.sarif)["runs"][0]["results"]
    assert entry["ruleId"] == "conflict"
    place = entry["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert place.endswith(f"scripts/{SCRIPT}")
    assert "Replay: racegate run" in entry["message"]["text"]


def test_the_schemas_would_see_what_is_wrong(gated: Gated) -> None:
    with pytest.raises(xmlschema.XMLSchemaException):
        JUNIT.validate(gated.junit.replace("classname=", "klass="))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft4Validator(SARIF).validate(
            json.loads(gated.sarif.replace('"ruleIndex"', '"ruleNumber"'))
        )


def test_a_step_of_github_is_told(gated: Gated) -> None:
    assert gated.summary.startswith("## racegate: DIVERGENT\n")
    assert "| finish-and-condense | DIVERGENT | 2 |" in gated.summary
    (line,) = [line for line in gated.output.splitlines() if line.startswith("::error ")]
    assert f"scripts/{SCRIPT},title=racegate%3A finish-and-condense%3A ownership/" in line
    assert "%0Areplay: racegate run" in line


def test_an_option_that_gave_way_is_told(gated: Gated) -> None:
    (run,) = gated.result.scenarios
    change = OptionChange(option="cascade", asked="on", effective="off", because="drafts")
    result = msgspec.structs.replace(
        gated.result, scenarios=(msgspec.structs.replace(run, resolved=(change,)),)
    )
    told = f"warning: {run.scenario}: drafts: cascade on becomes off"
    assert f"- {told}\n" in summary_of(result, FILES)
    junit, _ = assert_valid(result, FILES)
    assert "warning: drafts: cascade on becomes off" in junit
    console = Console(file=StringIO(), width=200)
    print_gate(console, result)
    assert isinstance(console.file, StringIO)
    assert told in console.file.getvalue()


def test_what_a_file_says_is_text(gated: Gated) -> None:
    result = hostile(gated.result)
    files = {NASTY: NASTY}
    junit, sarif = assert_valid(result, files)
    page, notes = summary_of(result, files), annotations_of(checked_gate(result, files))
    for text in (junit, sarif, page, *notes):
        assert not {"\u202e", "\x1b"} & set(text)
    assert "<script>" not in junit
    # Only in a block of code, which Markdown shows as it is.
    assert all(line.startswith("    ") for line in page.splitlines() if "<script>" in line)
    assert all(line.startswith("::error ") and "\n" not in line for line in notes)
    assert all(line.count("::set-output") == line.count("%0A::set-output") for line in notes)


def test_what_is_broken_or_missed_is_told_in_every_form(gated: Gated) -> None:
    result = hostile(gated.result)
    kinds = [one.kind for one in checked_gate(result, FILES).failing]
    assert kinds == ["conflict", "inconclusive", "missed", "inconclusive", "broken"]
    suites = {
        suite.name: suite for suite in JUnitXml.fromstring(junit_of(checked_gate(result, FILES)))
    }
    assert (suites["self-check"].errors, suites["witnesses"].failures) == (1, 1)


def test_one_annotation_for_each_signature_and_no_more_than_are_shown(gated: Gated) -> None:
    (run,) = gated.result.scenarios

    def many(count: int, signature: str) -> GateResult:
        runs = [
            msgspec.structs.replace(
                run,
                scenario=f"s{number}",
                findings=(
                    msgspec.structs.replace(run.findings[0], signature=signature.format(number)),
                ),
            )
            for number in range(count)
        ]
        return msgspec.structs.replace(gated.result, scenarios=tuple(runs))

    def annotated(signature: str) -> int:
        return len(annotations_of(checked_gate(many(20, signature), {})))

    assert (annotated("conflict/one"), annotated("conflict/{}")) == (1, ANNOTATIONS_MAX)
    assert len(summary_of(many(5000, "conflict/{}"), {}).encode()) < 1 << 20
