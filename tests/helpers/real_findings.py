"""Findings of targets that are not ours, as they were found: in a release of vLLM, in packages of
the survey, in the toy of the guide behind its adapter.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from racegate.history.finding import Hazard, Race, Side, Verdict, finding_of
from racegate.history.outcome import RunResult
from racegate.report.finding.material import pictured_look
from racegate.report.finding.pictured import PicturedFinding
from racegate.scenario.files import load
from racegate.targets.adapters.client import Adapter
from racegate.targets.adapters.judge import AdapterJudge
from repository import ROOT

RELEASE = ROOT / "tests" / "report" / "results" / "vllm-0.33.0-align.json"
SURVEY = ROOT / "reports" / "interposer" / "survey"
# The one with the longest finding, and the one with the deepest stacks.
PROGRAMS = ("transformers_continuous_batching_sync_eager", "geometric_prefetch")


def released() -> RunResult:
    """`racegate vllm run first_decode_in_moved_row --release 0.33.0 --cache-mode align --json`: its
    findings that do harm, and the longest of the others.
    """
    return msgspec.json.decode(RELEASE.read_bytes(), type=RunResult)


def surveyed(name: str) -> RunResult:
    """What `racegate torch run --explore` found in a program of the survey."""
    told = json.loads((SURVEY / f"{name}.json").read_text())
    seen, held = (told[key][0]["preview"] for key in ("observed", "observed_under_hold"))
    findings = []
    for found in told["findings"]:
        race = _race(found)
        change = f"{told['observed'][0]['name']} = {seen}; with the hold {held}"
        holds = tuple(f"{op} until {until}" for op, until in found["hold"])
        findings.append(
            msgspec.structs.replace(
                finding_of(race),
                message=f"{race.message}\n{change}",
                verdict=Verdict.DIVERGENT,
                holds=holds,
                replay=f"racegate torch run --hold '{holds[0]}' {name}.py",
            )
        )
    return RunResult(
        scenario=f"{name}.py",
        target=f"a program on torch {told['torch']}",
        device="virtual",
        verdict=Verdict.DIVERGENT,
        findings=tuple(findings),
    )


def _race(found: dict[str, Any]) -> Race:
    label = found["hold"][0][0]
    first, second = _side(found["first"], label), _side(found["second"], "second")
    return Race(
        signature=found["signature"],
        hazard=Hazard.READ_AFTER_WRITE if first.is_write else Hazard.WRITE_AFTER_READ,
        buffer=found["buffer"],
        nbytes=found["nbytes"],
        count=found["count"],
        first=first,
        second=second,
        edge=found["edge"],
        pairs=(),
        allocated=first.stack,
    )


def _side(side: dict[str, Any], label: str) -> Side:
    return Side(
        operation=side["operation"],
        label=label,
        lane=side["lane"],
        is_host=side["lane"] == "the host",
        is_write=side["is_write"],
        stack=tuple((file, line, function) for file, line, function in side["stack"]),
        made=(("train_pipeline/utils.py", 120, "Pipeline.__init__"),),
    )


def adapted(folder: Path) -> PicturedFinding:
    """What a run of a toy shows whose wait stands too late. folder: an empty one"""
    words = late_toy(folder)
    scenario = load(folder / "toy.toml")
    with Adapter(words) as adapter:
        found = pictured_look(AdapterJudge(adapter, scenario).look(), title=scenario.title)
    assert found is not None
    return found


def late_toy(folder: Path) -> list[str]:
    """The toy runner with a wait that stands behind the move of rows where a request is Z, as in
    none of the conformance kit's.
    """
    examples = ROOT / "docs" / "examples"
    wait = 'self.device.wait("count-landed", "count")\n'
    text = (examples / "toy_runner.py").read_text()
    assert text.count(wait) == 1
    text = text.replace(wait, f'if "Z" not in self.verified:\n            {wait}')
    behind = 'self.device.begin(f"take@{step}")\n'
    text = text.replace(behind, f'{behind}        if "Z" in self.verified:\n            {wait}')
    (folder / "toy_runner.py").write_text(text)
    adapter = folder / "toy_adapter.py"
    adapter.write_text((examples / "toy_adapter.py").read_text())
    script = (examples / "toy.toml").read_text().replace('"C"', '"Z"')
    (folder / "toy.toml").write_text(script)
    return [sys.executable, str(adapter), "plain", "observations", "holds", "owners"]


def changed_source(lines: int) -> str:
    """A diff as long as they come."""
    added = [f"+    landed_{number}.record()" for number in range(lines)]
    name = "vllm/v1/worker/gpu_model_runner.py"
    wide = " " + "x_" * 60
    return "\n".join([f"--- {name}", f"+++ {name}", "@@ -1,1 +1,40 @@", wide, *added])
