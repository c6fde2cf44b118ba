"""Gates unmodified copies of releases beside the releases, and asks whether anything is found.

    python reports/vllm/unmodified.py reports/vllm/unmodified.jsonl [--release X] [--only WORD]
        [--minutes M]

Each cell of unmodified.toml is a release with a runner, a cache mode and options. Its package is
copied out as a checkout, and gated beside the release: `racegate vllm gate --release X --path COPY
--against X --runs 0`. Whatever does not end with exit code 0 is a false alarm, or a scenario that
the release does not do twice alike. One record a line, and a page beside it; cells whose record has
exit code 0 are not run again. `--only WORD` runs those whose command has the word, `--minutes M`
begins no cell behind that. A release that is not set up is left for later.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from math import inf
from pathlib import Path
from time import monotonic

import msgspec
from mistakes import SCRIPTS, shown

from racegate.history.gates.results import GatedResults
from racegate.history.outcome import RunResult
from racegate.interpose.errors import BadInput
from racegate.jobs.environment import commit_here
from racegate.targets.vllm.environment import VLLM

CELLS = Path(__file__).with_name("unmodified.toml")
LEFT_OUT = re.compile(r"^racegate: not judged: ([\w.]+): (.+)$", re.MULTILINE)
PAGE = """\
# Unmodified releases of vLLM, beside themselves

Written by `python reports/vllm/unmodified.py reports/vllm/unmodified.jsonl`: the cells of
[unmodified.toml](unmodified.toml), each a copy of a release's package that nobody has edited, gated
beside that release:

    racegate vllm gate --release RELEASE --path COPY --against RELEASE --runner RUNNER \\
        --cache-mode MODE OPTIONS --runs RUNS

**{clean} of {all} end with exit code 0**, with {compared} scenarios compared. {open} cells of the
file were not run. With `--runs 0` recorded runs alone are compared, otherwise landings too. *Left
out*: scenarios that the settings do not allow, or that the release refuses. *Not reached*: a run
did not exercise what its scenario expects, or not as often, the same on both sides. *Failed*: it
ended with an error on both. Seconds are those of the command on two cores or one of them, with the
start of both engines and often beside other work: they compare nothing. *load* is what the machine
had to do in the last five of its minutes, where it was noted.
In the cells of commit d79da2b it was about 20.

| release | runner | mode | options | scenarios | runs | exit | compared | left out | not reached \
| failed | seconds | load | commit | the first thing found |
| --- | --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- \
|"""


class Cells(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Releases in all of these runners and modes. options: of the gate, besides

    scenarios: the only ones that are judged, all if none is named; runs: under holds at most
    """

    releases: tuple[str, ...]
    runners: tuple[str, ...]
    modes: tuple[str, ...]
    options: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()
    runs: int = 0


class Unmodified(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One cell, as `Cells` has it, and what the gate said of it: code, its exit code.

    compared: how many scenarios ran; left_out, refused: those that did not, with the reason
    unmet: what did not happen in one, on both sides; failed: how its run ended, on both sides
    findings: scenario to the first thing that is said to differ; message: the end of what it
        printed, where it gave no result
    seconds: of the command; load: of the machine in the five minutes before it ended, 0 where
        nobody noted it
    commit: of racegate
    """

    release: str
    runner: str
    mode: str
    options: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()
    runs: int = 0
    code: int | None = None
    compared: int = 0
    left_out: dict[str, str] = {}
    refused: dict[str, str] = {}
    unmet: dict[str, str] = {}
    failed: dict[str, str] = {}
    findings: dict[str, str] = {}
    message: str = ""
    seconds: float = 0.0
    load: float = 0.0
    commit: str = ""

    @property
    def asked(self) -> tuple[object, ...]:
        """What tells the cell from others."""
        named = (self.release, self.runner, self.mode)
        return (*named, self.options, self.scenarios, self.runs)

    @property
    def command(self) -> list[str]:
        """Options of the gate that name no file."""
        where = ["--release", self.release, "--against", self.release, "--runner", self.runner]
        return [*where, "--cache-mode", self.mode, *self.options, "--runs", str(self.runs)]


def main() -> None:
    """Gates what has no record with exit code 0 yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--release", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--minutes", type=float, default=inf)
    given = parser.parse_args()
    until = monotonic() + 60 * given.minutes
    for cell in to_run(cells(), records(given.out)):
        is_asked = given.release in ("", cell.release) and given.only in " ".join(cell.command)
        if is_asked and monotonic() < until:
            run_one(cell, given.out)
    given.out.with_suffix(".md").write_text(page(records(given.out)))


def run_one(cell: Unmodified, out: Path) -> None:
    """Gates one cell and keeps its record, unless its release is not set up."""
    try:
        judged = gate(cell)
    except BadInput as error:
        print(f"not run: {error}", flush=True)
        return
    keep(out, judged)
    print(f"{judged.code} {' '.join(cell.command)}: {tell(judged)}", flush=True)


def cells() -> list[Unmodified]:
    """Those of the file, in its order, without what was said of them."""
    sets = msgspec.convert(tomllib.loads(CELLS.read_text())["cells"], list[Cells])
    return [
        Unmodified(
            release=release, runner=runner, mode=mode,
            options=one.options, scenarios=one.scenarios, runs=one.runs,
        )
        for one in sets
        for release, runner, mode in product(one.releases, one.runners, one.modes)
    ]  # fmt: skip


def to_run(asked: Sequence[Unmodified], done: Sequence[Unmodified]) -> list[Unmodified]:
    """Cells that were not clean when they were last run, or were not run."""
    clean = {one.asked for one in done if one.code == 0}
    return [one for one in asked if one.asked not in clean]


def records(path: Path) -> list[Unmodified]:
    """What was judged before."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=Unmodified) for line in lines]


def keep(path: Path, judged: Unmodified) -> None:
    """Adds a record, in the place of an older one of the same cell."""
    others = [one for one in records(path) if one.asked != judged.asked]
    path.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in (*others, judged)))


def gate(cell: Unmodified) -> Unmodified:
    """One cell, in a copy that is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        copy_of(cell.release, Path(folder))
        out = Path(folder, "out.json")
        command = [sys.executable, "-m", "racegate", "vllm", "gate", "--path", folder]
        command += [*cell.command, *named(cell.scenarios, Path(folder))]
        command += ["--json", str(out), "--log", str(Path(folder, "log"))]
        begun = monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = round(monotonic() - begun, 1)
        found = out.read_bytes() if out.exists() else None
    said = () if found is None else msgspec.json.decode(found, type=GatedResults).results
    return judged_as(cell, done.returncode, said, done.stderr, seconds=seconds)


def judged_as(
    cell: Unmodified, code: int, said: Sequence[RunResult], told: str, *, seconds: float
) -> Unmodified:
    """The record of a gate. said: of its scenarios; told: what it printed to standard error"""
    ran = [one for one in said if not one.refused]
    findings = {one.scenario: first_of(one) for one in ran}
    return msgspec.structs.replace(
        cell,
        code=code,
        compared=len(ran),
        left_out=dict(LEFT_OUT.findall(told)),
        refused={one.scenario: one.refused for one in said if one.refused},
        unmet={one.scenario: "; ".join(one.unmet) for one in ran if one.unmet},
        failed={one.scenario: one.message for one in ran if one.message},
        findings={name: first for name, first in findings.items() if first},
        message="" if said else told.strip().rpartition("\n")[2],
        seconds=seconds,
        load=round(os.getloadavg()[1], 1),
        commit=commit_here(),
    )


def first_of(result: RunResult) -> str:
    """The first thing that a scenario is said to differ in, or why it was not compared."""
    beside = result.comparison
    if beside is None:
        return "it was not compared"
    return next(iter((*(one.message for one in beside.findings), *beside.unmet)), "")


def copy_of(release: str, folder: Path) -> None:
    """The release's package as a checkout. Compiled files stay valid."""
    shutil.copytree(site_of(release), folder / "vllm", copy_function=os.link)


def site_of(release: str) -> Path:
    """Where a release's package was installed."""
    (site,) = VLLM.environment_of(release).folder.glob("lib/python*/site-packages/vllm")
    return site


def named(scenarios: Sequence[str], folder: Path) -> list[str]:
    """Options of a gate that judges these alone, if any is named. folder: they are copied there"""
    if not scenarios:
        return []
    scripts = folder / "scripts"
    scripts.mkdir()
    for name in scenarios:
        shutil.copy(SCRIPTS / f"{name}.toml", scripts)
    return ["--scenarios", str(scripts)]


def tell(judged: Unmodified) -> str:
    """In a line: what was found first, or how much was compared."""
    found = next(iter(judged.findings.items()), None)
    if found is not None:
        return f"{found[0]}: {found[1]}"
    return judged.message or f"{judged.compared} compared, {judged.seconds:.0f} s"


def page(done: Sequence[Unmodified]) -> str:
    """The table of all records, and why scenarios did not run or did nothing, as Markdown."""
    figures = PAGE.format(
        clean=sum(one.code == 0 for one in done),
        all=len(done),
        compared=sum(one.compared for one in done if one.code == 0),
        open=len({one.asked for one in cells()} - {one.asked for one in done}),
    )
    texts = [
        *reasons("Left out", "left_out", done),
        *reasons("Refused by the release", "refused", done),
        *reasons("Not reached", "unmet", done),
        *reasons("Failed", "failed", done),
    ]
    return "\n".join([figures, *map(row, done), *texts, ""])


def row(one: Unmodified) -> str:
    """One record, as a row of the table."""
    first = next(iter(one.findings.items()), None)
    found = f"{first[0]}: {first[1]}" if first is not None else one.message
    cells_of = (
        one.release, one.runner.upper(), one.mode, " ".join(one.options),
        ", ".join(one.scenarios) or "all", one.runs, one.code, one.compared,
        len(one.left_out) + len(one.refused), len(one.unmet), len(one.failed),
        f"{one.seconds:.0f}", f"{one.load:.0f}" if one.load else "", one.commit, shown(found),
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells_of))} |"


def reasons(title: str, field: str, done: Sequence[Unmodified]) -> list[str]:
    """A table of reasons: of which scenarios, and in how many records. field: that has them"""
    among: defaultdict[str, set[str]] = defaultdict(set)
    counts: defaultdict[str, int] = defaultdict(int)
    for one in done:
        told = getattr(one, field)
        for name, reason in told.items():
            among[shown(reason)].add(name)
        for reason in {shown(reason) for reason in told.values()}:
            counts[reason] += 1
    if not among:
        return []
    head = ["", f"## {title}", "", "| reason | scenarios | cells |", "| --- | --- | ---: |"]
    rows = [f"| {why} | {', '.join(sorted(names))} | {counts[why]} |"
            for why, names in sorted(among.items())]  # fmt: skip
    return head + rows


if __name__ == "__main__":
    main()
