"""Runs the exported tests of released packages as plain pytest, on the faulty and on the repaired
release: they must fail on the one and pass on the other.

    python reports/interposer/exported_releases.py [--gpu] [--times 20] FOLDER OUT

FOLDER has each release unpacked as NAME-VERSION, without what it depends on. Each test was written
by `racegate export WITNESS --pytest FILE --kind regression` of a program in `programs`. Without
--gpu they are run on the virtual device, once. Writes exported_releases.json, or
exported_releases_gpu.json; exit 1 if a test did not do as it should.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from exported import RACEGATE, run_tests

from racegate.jobs.environment import environment_of
from racegate.scenario.strict import StrictStruct
from racegate.scenario.untrusted.files import write_json

# The file, and the faulty and the repaired release.
RELEASES = (
    ("test_sglang_hicache_load.py", "sglang-0.5.18", "sglang-0.5.19"),
    ("test_sglang_hicache_write.py", "sglang-0.5.22", "sglang-0.5.23"),
)


class ReleasedTest(StrictStruct, frozen=True, kw_only=True):
    """One test on one release. passed: in how many of the runs; wanted: in how many it must"""

    test: str
    release: str
    passed: int
    wanted: int
    runs: int


class ReleasedReport(StrictStruct, frozen=True, kw_only=True):
    """What the tests were run on, and what came of them."""

    command: str
    environment: dict[str, str]
    tests: tuple[ReleasedTest, ...]


def ran(before: list[str], file: Path, release: Path, *, wanted: int, times: int) -> ReleasedTest:
    """One test with one release in front of all other packages. Raises SystemExit without it."""
    if not release.is_dir():
        raise SystemExit(f"{release} is missing: unpack the wheel of this release there")
    path = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(release), path]))
    try:
        passed = run_tests(before, [file], times=times).total()
    finally:
        os.environ["PYTHONPATH"] = path
    return ReleasedTest(
        test=file.name, release=release.name, passed=passed, wanted=wanted, runs=times
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("releases", type=Path, metavar="FOLDER")
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    times = options.times if options.gpu else 1
    virtual = [*RACEGATE, "torch", "run", "--error-exitcode", "0"]
    before = [sys.executable] if options.gpu else virtual
    folder = Path(__file__).absolute().with_suffix("")
    tests = tuple(
        ran(before, folder / name, options.releases.absolute() / one, wanted=wanted, times=times)
        for name, faulty, repaired in RELEASES
        for one, wanted in ((faulty, 0), (repaired, times))
    )
    report = ReleasedReport(
        command=" ".join(["python", "reports/interposer/exported_releases.py", *sys.argv[1:-2]]),
        environment=environment_of("cuda" if options.gpu else "virtual"),
        tests=tests,
    )
    write_json(
        options.out / f"exported_releases{'_gpu' * options.gpu}.json",
        report,
    )
    for one in tests:
        print(f"{one.test} {one.release}: passed {one.passed} of {one.runs}, wanted {one.wanted}")
    return any(one.passed != one.wanted for one in tests)


if __name__ == "__main__":
    sys.exit(main())
