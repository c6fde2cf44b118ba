"""Judges all programs of the catalogue with a search, and writes down what was found.

    python reports/interposer/programs/run_all.py [--venvs FOLDER] OUT [NAME ...]

OUT gets `programs.md` and one JSON file per program in `programs/`. Releases are installed into
environments below FOLDER, which share this Python's torch (a CUDA build); vLLM's are those of
`racegate vllm setup`, without its compiled kernels. Exit 1 if a verdict is not the expected one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
from pathlib import Path
from typing import Any

import msgspec

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from programs.catalogue import CASES, Case, Expected
from racegate.history.schedule import parse_holds
from racegate.interpose.outcome import Ending
from racegate.jobs.versions.cells import pairs_of
from racegate.jobs.versions.programs import word_of
from racegate.scenario.untrusted.files import write_json
from racegate.targets.program.environment import (
    JudgedProgram,
    environment_for,
    judge_in,
    version_of,
)
from racegate.targets.vllm.environment import VLLM

RUNS_MAX = 12
TIMEOUT_S = 300
_PLACES = re.compile(r"/\S*?/site-packages/|/\S*?/lib/python3\.\d+/|/tmp/")


def command_of(case: Case) -> list[str]:
    """The script with its arguments, as Python is told to run it."""
    script = [case.script, *case.arguments]
    removed = case.removed
    if removed is None:
        return script
    return ["without.py", removed.module, removed.text, removed.by, *script]


def python_for(case: Case, venvs: Path) -> Path:
    """The Python that has the releases of a case. Raises BadInput."""
    name, _, release = case.releases[0].partition("==") if case.releases else ("", "", "")
    if name != VLLM.name:
        return environment_for(case.releases, venvs)
    return VLLM.set_up(release, print, torch=Path(sys.prefix)).python


def judge(case: Case, python: Path, *options: str) -> JudgedProgram:
    """The verdict of one case, and what it cost. Raises BadInput if there is none."""
    limit = ("--timeout", str(TIMEOUT_S))
    paths = [str(HERE.parents[2] / folder) for folder in ("harness", "kernels", "reference")]
    variables = {"PYTHONPATH": os.pathsep.join(paths)}
    program = tuple(command_of(case))
    return judge_in(python, program, *limit, *options, folder=HERE, variables=variables)


def is_right(case: Case, found: JudgedProgram) -> bool:
    """Whether the verdict is the expected one."""
    result = found.result
    is_racy = case.expected is Expected.RACY
    has_races = any(finding.race for finding in result.findings)
    return result.ending is Ending.FINISHED and has_races == is_racy


def report_of(case: Case, python: Path, found: JudgedProgram) -> dict[str, Any]:
    """What is committed of a case: nothing in it names a place of this machine."""
    result = msgspec.to_builtins(found.result)
    races = [finding for finding in result["findings"] if finding["race"]]
    findings = [
        {
            "verdict": f["verdict"] or "CONFLICT",
            "hold": pairs_of(parse_holds(f["holds"])),
            **{key: f["race"][key] for key in ("signature", "buffer", "nbytes", "count", "edge")},
            **{side: _side(f["race"][side]) for side in ("first", "second")},
        }
        for f in races
    ]
    report = {
        "name": case.name,
        "command": ["python", "-m", "racegate", "torch", "run", "--explore", *command_of(case)],
        "releases": {
            name: release if name == VLLM.name else version_of(python, name)
            for name, _, release in (text.partition("==") for text in case.releases)
            if not name.startswith("-")
        },
        "torch": result["torch_version"],
        "python": platform.python_version(),
        "expected": case.expected.value,
        "public": case.public,
        "verdict": word_of(found.result),
        "message": result["message"],
        "events": result["stats"]["ops"],
        "runs": result["stats"]["schedules"] - 1,
        "cpu_s": found.cpu_s,
        "not_seen": {
            what: int(count)
            for what, _, count in (text.rpartition(": ") for text in result["not_seen"])
        },
        "observed": result["observations"],
        "observed_under_hold": next((f["actual"] for f in races if f["holds"]), []),
        "findings": findings,
    }
    return json.loads(_PLACES.sub("", json.dumps(report)))  # type: ignore[no-any-return]


def _side(side: dict[str, Any]) -> dict[str, Any]:
    keys = ("operation", "lane", "is_write", "stack")
    return {key: side[key] for key in keys}


def table_of(reports: list[dict[str, Any]]) -> str:
    """The page that lists all cases."""
    heads = ("program", "release", "verdict", "findings", "events", "runs", "CPU s", "public")
    rows = [
        "| " + " | ".join(_cells(report)) + " |"
        for report in sorted(reports, key=lambda report: report["name"])
    ]
    line = "| " + " | ".join(heads) + " |"
    rule = "| --- | --- | --- | ---: | ---: | ---: | ---: | --- |"
    return "\n".join([_HEAD, line, rule, *rows, ""])


_HEAD = """# Programs that nobody here wrote

Written by `make programs-report`: each program is a short script of ours around an untouched
release from the package index, with tiny random weights, on the virtual device, with a search.
`-without` is the same program with one wait of the library taken out while it is imported: the tool
must tell the two apart. CPU seconds are of the machine that made this page, the search's runs and
the imports included.
"""


def _cells(report: dict[str, Any]) -> tuple[str, ...]:
    releases = [f"{name} {version}" for name, version in report["releases"].items()]
    public = report["public"]
    match = re.search(r"github\.com/([^/]+/[^/]+)/(?:pull|issues)/(\d+)", public)
    link = f"[{match[1]}#{match[2]}]({public})" if match else ""
    return (
        f"[{report['name']}](programs/{report['name']}.json)",
        releases[0] if releases else f"torch {report['torch']}",
        report["verdict"],
        str(len(report["findings"])),
        str(report["events"]),
        str(report["runs"]),
        str(report["cpu_s"]),
        link,
    )


def main() -> int:
    """Judges what is named, or all; pages of others in OUT are kept."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--venvs", type=Path, default=Path(".venv/programs"))
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    cases = [case for case in CASES if case.name in options.names or not options.names]
    folder = options.out / "programs"
    folder.mkdir(parents=True, exist_ok=True)
    wrong = 0
    for case in cases:
        python = python_for(case, options.venvs.absolute())
        found = judge(case, python, "--explore", "--runs", str(RUNS_MAX))
        report = report_of(case, python, found)
        wrong += not is_right(case, found)
        mark = "" if is_right(case, found) else f"   EXPECTED {case.expected}: {report['message']}"
        print(f"{case.name}: {report['verdict']}, {found.cpu_s} CPU s{mark}", flush=True)
        write_json(folder / f"{case.name}.json", report)
    known = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    (options.out / "programs.md").write_text(table_of(known))
    print(f"{len(cases) - wrong} of {len(cases)} right")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
