"""Judges all programs of the catalogue with a search, and writes down what was found.

    python reports/interposer/programs/run_all.py [--venvs FOLDER] OUT [NAME ...]

OUT gets `programs.md` and one JSON file per program in `programs/`. Releases are installed into
environments below FOLDER, which share this Python's torch (a CUDA build). Exit 1 if a verdict is
not the expected one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from programs.catalogue import CASES, Case, Expected
from programs.environments import environment_for, version_of
from racegate.scenario.untrusted.files import write_json

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


def judge(case: Case, python: Path, *options: str) -> dict[str, Any]:
    """The verdict of one case as `racegate torch run --json` writes it, and what it cost.

    Raises RuntimeError if there is none.
    """
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "verdict.json"
        command = [str(python), "-m", "racegate", "torch", "run", "--json", str(written)]
        command += ["--timeout", str(TIMEOUT_S), *options, *command_of(case)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            command, cwd=HERE, capture_output=True, text=True, check=False, env=_environment()
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if not written.exists():
            raise RuntimeError(f"{case.name}: exit code {done.returncode}\n{done.stderr[-3000:]}")
        verdicts: dict[str, Any] = json.loads(written.read_text())
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"exit_code": done.returncode, "cpu_s": round(cpu_s, 1), **verdicts}


def _environment() -> dict[str, str]:
    """This process's, with the path of racegate's packages: the environments have none."""
    paths = [path for path in sys.path if path and path != str(HERE.parent)]
    roots = [path for path in paths if any(Path(path).glob("racegate*/__init__.py"))]
    known = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [*roots, known]))}


def verdict_of(found: dict[str, Any]) -> str:
    """The worst verdict of all findings, or how the run ended."""
    outcome = found["outcome"]
    if outcome["ending"] != "finished":
        return str(outcome["ending"])
    if not outcome["findings"]:
        return "no conflict"
    judged = {j["verdict"] for j in found["search"]["judged"]} if found.get("search") else set()
    return next((v for v in ("DIVERGENT", "CONFLICT", "BENIGN") if v in judged), "CONFLICT")


def is_right(case: Case, found: dict[str, Any]) -> bool:
    """Whether the verdict is the expected one."""
    is_racy = case.expected is Expected.RACY
    return (
        found["outcome"]["ending"] == "finished" and bool(found["outcome"]["findings"]) == is_racy
    )


def report_of(case: Case, python: Path, found: dict[str, Any]) -> dict[str, Any]:
    """What is committed of a case: nothing in it names a place of this machine."""
    outcome = found["outcome"]
    search = found.get("search")
    judged = {j["signature"]: j for j in search["judged"]} if search else {}
    findings = [
        {
            "verdict": judged.get(f["signature"], {}).get("verdict", "CONFLICT"),
            "hold": judged.get(f["signature"], {}).get("hold", []),
            **{key: f[key] for key in ("signature", "buffer", "nbytes", "count", "edge")},
            **{side: _side(f[side]) for side in ("first", "second")},
        }
        for f in outcome["findings"]
    ]
    report = {
        "name": case.name,
        "command": ["python", "-m", "racegate", "torch", "run", "--explore", *command_of(case)],
        "releases": {r.partition("==")[0]: version_of(python, r) for r in case.releases},
        "torch": outcome["torch_version"],
        "python": platform.python_version(),
        "expected": case.expected.value,
        "public": case.public,
        "verdict": verdict_of(found),
        "message": outcome["message"],
        "events": outcome["events"],
        "runs": search["runs"] if search else 0,
        "cpu_s": found["cpu_s"],
        "not_seen": outcome["not_seen"],
        "observed": outcome["observations"],
        "observed_under_hold": next((j["actual"] for j in judged.values() if j["hold"]), []),
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
        python = environment_for(case.releases, options.venvs.absolute())
        found = judge(case, python, "--explore", "--runs", str(RUNS_MAX))
        report = report_of(case, python, found)
        wrong += not is_right(case, found)
        mark = "" if is_right(case, found) else f"   EXPECTED {case.expected}: {report['message']}"
        print(f"{case.name}: {report['verdict']}, {found['cpu_s']} CPU s{mark}", flush=True)
        write_json(folder / f"{case.name}.json", report)
    known = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    (options.out / "programs.md").write_text(table_of(known))
    print(f"{len(cases) - wrong} of {len(cases)} right")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
