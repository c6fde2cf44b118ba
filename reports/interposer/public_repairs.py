"""Repairs the faulty releases of public races whose repair was merged, and puts ours beside theirs.

    python reports/interposer/public_repairs.py reports/interposer [CASE ...]

Each program runs in an environment with the faulty release, as in programs.md; `racegate repair`
writes its result to repairs/CASE.json below that folder, where a file that is there is kept if no
cases are named. Writes public_repairs.md; exit 1 if a conflict is neither repaired nor explained.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
from programs.catalogue import CASES, Case, Expected

from racegate.targets.common.environment import cache_folder
from racegate.targets.program.environment import environment_for
from racegate.targets.program.repairs.proof import ProgramRepair

PROGRAMS = Path(__file__).parent / "programs"
COMMAND = "python reports/interposer/public_repairs.py reports/interposer"
# What the repaired release does, read from the difference of the two releases.
THEIRS = msgspec.toml.decode(
    Path(__file__).with_name("public_repairs.toml").read_bytes(), type=dict[str, str]
)
HEAD = f"""# Repairs of public races

Written by `{COMMAND}`: `racegate repair` on programs around
the faulty releases of [programs.md](programs.md), beside what the repaired release does
([public_repairs.toml](public_repairs.toml), read from the difference of the releases). The diffs
and what else was tried are in [repairs](repairs).

"""


def repaired(case: Case, target: Path) -> None:
    """Runs `racegate repair` in the environment of the faulty release. It is named from the folder
    of the programs.
    """
    python = environment_for(case.releases, cache_folder("programs"))
    command = [str(python), "-m", "racegate", "repair", "--json", str(target)]
    subprocess.run([*command, case.script, *case.arguments], cwd=PROGRAMS, check=False)


def table(found: dict[str, ProgramRepair], cases: dict[str, Case]) -> str:
    """The page."""
    lines = [
        "| program, release | conflicts | ours | price | after | theirs |",
        "| --- | ---: | --- | --- | --- | --- |",
    ]
    for name, one in found.items():
        said = [f"`{edge.words}`" for edge in one.edges]
        said += [f"LEFT: {left.reason}" for left in one.left]
        price = "; ".join(edge.price for edge in one.edges)
        release = cases[name].releases[0]
        lines.append(
            f"| {name}, {release} | {len(one.conflicts)} | {'; '.join(said) or one.reason} | "
            f"{price} | {one.after} | {THEIRS.get(name, '')} {cases[name].public} |"
        )
    return HEAD + "\n".join(lines) + "\n"


def main() -> int:
    folder, *names = Path(sys.argv[1]), *sys.argv[2:]
    results = folder.absolute() / "repairs"  # the programs run in a folder of their own
    results.mkdir(exist_ok=True)
    racy = [one for one in CASES if one.expected is Expected.RACY and one.removed is None]
    cases = {one.name: one for one in racy if one.releases}
    for name, case in cases.items():
        target = results / f"{name}.json"
        if name in names or not (names or target.exists()):
            repaired(case, target)
    found = {
        name: msgspec.json.decode((results / f"{name}.json").read_bytes(), type=ProgramRepair)
        for name in cases
        if (results / f"{name}.json").exists()
    }
    (folder / "public_repairs.md").write_text(table(found, cases), encoding="utf-8")
    print(f"{sum(bool(one.edges) and not one.left for one in found.values())} of {len(found)}")
    return any(not one.edges and not one.left for one in found.values())


if __name__ == "__main__":
    sys.exit(main())
