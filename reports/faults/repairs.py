"""Repairs every seeded ordering fault of racegate's own engine, and writes what came of it.

    python reports/faults/repairs.py reports/faults

Each fault is run in the first scenario that shows it, by `racegate repair SCENARIO --fault NAME`.
Writes repairs.json and repairs.md in that folder; exit 1 if a conflict is neither repaired nor
explained, or an edge is not needed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec

from racegate.scenario.untrusted.files import write_json
from racegate.targets.program.repairs.proof import ProgramRepair

RACEGATE = (sys.executable, "-m", "racegate")
HEAD = """# Repairs of the seeded faults

Written by `python reports/faults/repairs.py reports/faults`: `racegate repair SCENARIO --fault
NAME` for each seeded ordering fault, in the first scenario that shows it. An edge that the fault
drops or moves is kept again, or an event that no edge of the engine has is put in. Each edge is
needed: without it a conflict is back. `after` is the verdict of all oracles with the edges: where
it is not PROVED, the reason stands in the row.

| fault | scenario | before | repair, or why none | who waits | after |
| --- | --- | --- | --- | --- | --- |
"""


def row(found: ProgramRepair) -> str:
    """One line of the table."""
    scenario, _, fault = found.argv
    said = "; ".join(edge.words for edge in found.edges)
    said += "; ".join(f" LEFT {one.signature}: {one.reason}" for one in found.left)
    waits = "; ".join(f"{edge.waiter}, {edge.operations} times" for edge in found.edges)
    return (
        f"| {fault} | {scenario} | {found.before} | {said or found.reason} | {waits} | "
        f"{found.after} |"
    )


def is_explained(found: ProgramRepair) -> bool:
    """Something is said of every conflict, and no edge could be left out."""
    whole = bool(found.reason or found.edges or found.left)
    return whole and all(edge.without for edge in found.edges)


def told(*words: str, scenario: str = "") -> bytes:
    """The JSON of a command."""
    command = [*RACEGATE, *words, "--json", "-", *([scenario] if scenario else [])]
    return subprocess.run(command, check=False, stdout=subprocess.PIPE).stdout


def main() -> int:
    folder = Path(sys.argv[1])
    found = []
    for fault in json.loads(told("faults", "list")):
        if fault["kind"] == "ordering":
            text = told("repair", "--fault", fault["name"], scenario=fault["scenarios"][0])
            found.append(msgspec.json.decode(text, type=ProgramRepair))
            print(row(found[-1]), flush=True)
    write_json(folder / "repairs.json", found)
    (folder / "repairs.md").write_text(HEAD + "".join(f"{row(one)}\n" for one in found))
    return not all(map(is_explained, found))


if __name__ == "__main__":
    sys.exit(main())
