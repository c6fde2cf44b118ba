"""Runs test files of a kernel library under `racegate kernels`, and keeps what came of them.

    python reports/kernels/survey.py RECORDS.jsonl LIBRARY VERSION FILES...

in the folder of the library's tests. FILES: names with spaces between them are of one run, which
saves the imports of a large library; `-p PLUGIN` may stand among them. What follows a kernel that
nobody can compute, which ends the run, is run again. Records are added: one for each run, for each
kernel in it, and for each finding. `survey_table.py` makes the table.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import msgspec

from racegate.history.finding import Finding, Frame, KernelTotal

_RUNS_MAX = 12  # of one file
_EACH_CPU_S_MAX = 20
_RUN_S_MAX = 1500


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, tag="run", tag_field="kind"):
    """One run of a test file. ending: as of `racegate kernels`, "lost" if it told nothing"""

    library: str
    version: str
    test: str
    ending: str
    message: str
    not_seen: tuple[str, ...]
    tests: int
    cpu_s: float


class KernelRecord(msgspec.Struct, frozen=True, kw_only=True, tag="kernel", tag_field="kind"):
    """What one run saw of a kernel. file: below the folder where the library is installed"""

    library: str
    version: str
    test: str
    kernel: str
    file: str
    line: int
    launches: int
    programs: int
    findings: int
    untold: int


class FindingRecord(msgspec.Struct, frozen=True, kw_only=True, tag="finding", tag_field="kind"):
    """A finding of one run: what does it, in which line of a kernel or a program, and the message.
    count: how often
    """

    library: str
    version: str
    test: str
    first: str
    second: str
    count: int
    message: str


Record = RunRecord | KernelRecord | FindingRecord


class _Result(msgspec.Struct):
    """What is read of `racegate kernels --json`."""

    ending: str
    message: str
    refused: str
    not_seen: tuple[str, ...]
    findings: tuple[Finding, ...]
    kernels: tuple[KernelTotal, ...]


_NOTHING = _Result("lost", "", "", (), (), ())


def main(records: Path, library: str, version: str, groups: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, records.open("ab") as out:
        for files in groups:
            for record in records_of(Path(folder), library, version, files):
                out.write(msgspec.json.encode(record) + b"\n")
                out.flush()


def records_of(folder: Path, library: str, version: str, files: str) -> Iterator[Record]:
    """All runs of test files. folder: for what the runs leave to each other"""
    test = " ".join(name for name in files.split() if name.endswith(".py"))
    begun, told = folder / "begun", folder / "result.json"
    begun.write_text("")
    for _ in range(_RUNS_MAX):
        before = len(begun.read_text().splitlines())
        told.unlink(missing_ok=True)
        cpu_s = run(files, begun, told)
        result = msgspec.json.decode(told.read_bytes(), type=_Result) if told.exists() else _NOTHING
        tests = len(begun.read_text().splitlines()) - before
        yield RunRecord(
            library=library,
            version=version,
            test=test,
            ending=result.ending,
            message=(result.message or result.refused)[:400],
            not_seen=result.not_seen,
            tests=tests,
            cpu_s=round(cpu_s, 1),
        )
        for one in result.kernels:
            yield kernel_record(one, library, version, test)
        for finding in result.findings:
            yield finding_record(finding, library, version, test)
        if result.ending in ("finished", "failed") or not tests:
            return


def run(files: str, begun: Path, told: Path) -> float:
    """One run of the tests that have not begun yet; returns its CPU seconds."""
    before = getrusage(RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "racegate", "kernels", "--timeout", str(_RUN_S_MAX)]
    command += [
        "--json",
        str(told),
        *files.split(),
        "-p",
        "smallest_of_each",
        "--begun",
        str(begun),
    ]
    log = told.with_suffix(".log")
    with log.open("wb") as out:
        subprocess.run(
            [*command, "--each-cpu-s-max", str(_EACH_CPU_S_MAX)],
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
        )
    print(log.read_text(errors="replace")[-2000:], file=sys.stderr)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def kernel_record(one: KernelTotal, library: str, version: str, test: str) -> KernelRecord:
    return KernelRecord(
        library=library,
        version=version,
        test=test,
        kernel=one.name,
        file=below_packages(one.file),
        line=one.line,
        launches=one.launches,
        programs=one.programs,
        findings=one.findings,
        untold=one.untold,
    )


def finding_record(finding: Finding, library: str, version: str, test: str) -> FindingRecord:
    race = finding.race
    first, second = (
        ("", "")
        if race is None
        else (place_of(side.operation, side.stack) for side in (race.first, race.second))
    )
    return FindingRecord(
        library=library,
        version=version,
        test=test,
        first=first,
        second=second,
        count=1 if race is None else race.count,
        message=finding.message,
    )


def place_of(operation: str, stack: tuple[Frame, ...]) -> str:
    if not stack:
        return operation
    file, line, _ = stack[0]
    return f"{operation} {below_packages(file)}:{line}"


def below_packages(file: str) -> str:
    """The path of a file below the first folder of the import path that holds it."""
    for folder in sorted(filter(None, sys.path), key=len, reverse=True):
        if file.startswith(folder + "/"):
            return file[len(folder) + 1 :]
    return Path(file).name


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])
