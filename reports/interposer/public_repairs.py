"""Repairs the faulty releases of public races whose repair was merged, and puts ours beside theirs.

    python reports/interposer/public_repairs.py reports/interposer [CASE ...]

Each program runs in an environment with the faulty release, as in programs.md. `racegate repair`
writes its result to repairs/CASE.json below that folder; its diff and that of the merged repair,
theirs/CASE.diff, are judged alike by `racegate repair --patch`, to repairs/CASE.ours.json and
CASE.theirs.json. What is there is kept if no cases are named. Writes public_repairs.md; exit 1 if a
conflict is neither repaired nor explained, or if ours is dearer than theirs.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
from programs.catalogue import CASES, Case, Expected
from programs.run_all import python_for

from racegate.targets.common.environment import cache_folder
from racegate.targets.program.repairs.patches import PatchResult
from racegate.targets.program.repairs.proof import ProgramRepair

HERE = Path(__file__).parent.absolute()
COMMAND = "python reports/interposer/public_repairs.py reports/interposer"
# What the repaired release does, read from the difference of the two releases.
THEIRS = msgspec.toml.decode((HERE / "public_repairs.toml").read_bytes(), type=dict[str, str])
HEAD = f"""# Repairs of public races

Written by `{COMMAND}`: `racegate repair` on programs around
the faulty releases of [programs.md](programs.md), beside the order of the merged repair, which was
read from the difference of the two releases and written in as few lines ([theirs](theirs)), judged
by `racegate repair --patch` as ours is. The price is how many operations its waits, and waits of
the program that come to cover more by it, have to wait for. The diffs and what else was tried are
in [repairs](repairs).

"""


class Beside(NamedTuple):
    """A repair of ours, what its diff does, and what the merged one does."""

    found: ProgramRepair
    ours: PatchResult | None
    theirs: PatchResult | None

    @property
    def is_right(self) -> bool:
        """All is repaired, or why not is said, and at no higher price."""
        if self.ours is None or self.theirs is None:
            return bool(self.found.left)
        return not self.ours.exit_code and self.ours.operations <= self.theirs.operations


class Files(NamedTuple):
    """Where the results of a case are."""

    found: Path
    ours: Path
    theirs: Path


def repaired(case: Case, files: Files) -> None:
    """Runs `racegate repair` in the environment of the faulty release. It is named from the folder
    of the programs.
    """
    python = python_for(case, cache_folder("programs"))

    def repair(written: Path, *options: str) -> None:
        command = [str(python), "-m", "racegate", "repair", "--json", str(written), *options]
        command += [case.script, *case.arguments]
        subprocess.run(command, cwd=HERE / "programs", check=False)

    repair(files.found)
    diff = msgspec.json.decode(files.found.read_bytes(), type=ProgramRepair).diff
    with tempfile.NamedTemporaryFile("w", suffix=".diff") as ours:
        ours.write(diff)
        ours.flush()
        if diff:
            repair(files.ours, "--patch", ours.name)
    repair(files.theirs, "--patch", str(HERE / "theirs" / f"{case.name}.diff"))


def read(files: Files) -> Beside:
    """What is kept of a case."""
    patches = [
        msgspec.json.decode(file.read_bytes(), type=PatchResult) if file.exists() else None
        for file in files[1:]
    ]
    return Beside(msgspec.json.decode(files.found.read_bytes(), type=ProgramRepair), *patches)


def rows(found: dict[str, Beside], cases: dict[str, Case]) -> Iterator[tuple[str, ...]]:
    for name, one in found.items():
        said = [f"`{edge.words}`" for edge in one.found.edges]
        said += [f"LEFT: {left.reason}" for left in one.found.left]
        priced = [
            cell
            for told in (one.ours, one.theirs)
            for cell in ((str(told.operations), told.after) if told else ("", ""))
        ]
        yield (
            f"{name}, {cases[name].releases[0]}",
            str(len(one.found.conflicts)),
            "; ".join(said) or one.found.reason,
            *priced[:2],
            f"{THEIRS.get(name, '')} {cases[name].public}".strip(),
            *priced[2:],
        )


def table(found: dict[str, Beside], cases: dict[str, Case]) -> str:
    """The page."""
    lines = [
        "| program, release | conflicts | ours | price | after | theirs | price | after |",
        "| --- | ---: | --- | ---: | --- | --- | ---: | --- |",
    ]
    lines += ["| " + " | ".join(row) + " |" for row in rows(found, cases)]
    return HEAD + "\n".join(lines) + "\n"


def main() -> int:
    folder, *names = Path(sys.argv[1]), *sys.argv[2:]
    results = folder.absolute() / "repairs"  # the programs run in a folder of their own
    results.mkdir(exist_ok=True)
    racy = [one for one in CASES if one.expected is Expected.RACY and one.removed is None]
    cases = {one.name: one for one in racy if one.releases and one.name in THEIRS}
    files = {
        name: Files(*(results / f"{name}{kind}.json" for kind in ("", ".ours", ".theirs")))
        for name in cases
    }
    for name, one in files.items():
        if name in names or not (names or one.theirs.exists()):
            repaired(cases[name], one)
    found = {name: read(one) for name, one in files.items() if one.theirs.exists()}
    (folder / "public_repairs.md").write_text(table(found, cases), encoding="utf-8")
    wrong = [name for name, one in found.items() if not one.is_right]
    print(f"{len(found) - len(wrong)} of {len(found)}; not: {', '.join(wrong) or 'none'}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
