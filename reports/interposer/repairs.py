"""Repairs every racy litmus program, each in memory and proved, and writes what came of it.

    python reports/interposer/repairs.py reports/interposer [NAME ...]

Writes repairs.json and repairs.md in that folder; exit 1 if a conflict is neither repaired nor
explained. Programs that the file has already are kept where no names are given.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import msgspec

from racegate.interpose.build import find_toolkit
from racegate.interpose.outcome import DeviceKind
from racegate.scenario.strict import StrictStruct
from racegate.scenario.untrusted.files import write_json
from racegate.targets.common.server import open_server
from racegate.targets.common.variables import environment_for
from racegate.targets.program.launch import DeviceServer, Program
from racegate.targets.program.repairs.proof import ProgramRepair, repair_program

LITMUS = Path(__file__).parents[2] / "tests" / "interpose"
COMMAND = "python reports/interposer/repairs.py reports/interposer"
HEAD = f"""# Repairs of the litmus programs

Written by `{COMMAND}`: `racegate repair` on each of the racy
[litmus programs](../../tests/interpose/litmus/README.md), on the virtual device. A repair counts if
the program has no conflict with it, observes and prints what it did, and has a conflict again
without any one of its edges. [repairs.json](repairs.json) has the diffs, the candidates that were
no repair, and the dearer repairs.

"""


class RepairedProgram(StrictStruct, frozen=True, kw_only=True):
    """A litmus program, and what came of its repair."""

    name: str
    theme: str
    repair: ProgramRepair

    @property
    def is_proved(self) -> bool:
        """Nothing is left, and every edge is needed."""
        found = self.repair
        return (
            bool(found.edges)
            and not found.left
            and found.after == "PROVED"
            and all(edge.without for edge in found.edges)
        )

    @property
    def is_explained(self) -> bool:
        """All candidates were tried, or the reason why there are none is said."""
        return bool(self.repair.left) and self.repair.is_complete


def repaired(device: DeviceServer, theme: str, name: str) -> RepairedProgram:
    """The repair of one program. It is named from the folder of the litmus programs."""
    argv = (str(LITMUS / "litmus_one.py"), theme, name)
    found = repair_program(device, Program(argv, timeout_s=120))
    named = msgspec.structs.replace(found, argv=("litmus_one.py", theme, name))
    return RepairedProgram(name=name, theme=theme, repair=named)


def table(rows: list[RepairedProgram]) -> str:
    """The page."""
    proved = [row.repair for row in rows if row.is_proved]
    free = sum(all(edge.waiter == "nobody" for edge in one.edges) for one in proved)
    hosts = sum(any(edge.waiter == "host" for edge in one.edges) for one in proved)
    lines = [
        f"{len(rows)} racy programs: {len(proved)} have a proved repair; in {free} of these nobody "
        f"waits for it,",
        f"in {hosts} the host does. For the others the reason stands in the table.",
        "",
        "| program | conflicts | edges | price | repair, or why none |",
        "| --- | ---: | ---: | --- | --- |",
    ]
    lines += [_row(row) for row in rows]
    return HEAD + "\n".join(lines) + "\n"


def _row(row: RepairedProgram) -> str:
    found = row.repair
    price = "; ".join(edge.price for edge in found.edges)
    said = [edge.words for edge in found.edges] + [f"LEFT: {one.reason}" for one in found.left]
    text = "; ".join(f"`{one}`" if "(" in one else one for one in said) or found.reason
    return f"| {row.name} | {len(found.conflicts)} | {len(found.edges)} | {price} | {text} |"


def main() -> int:
    folder, *names = Path(sys.argv[1]), *sys.argv[2:]
    target = folder / "repairs.json"
    known: dict[str, RepairedProgram] = {}
    if target.exists():
        rows = msgspec.json.decode(target.read_bytes(), type=list[RepairedProgram])
        known = {row.name: row for row in rows}
    sys.path.insert(0, str(LITMUS))
    programs = importlib.import_module("litmus.registry").load()
    racy = [one for one in programs.values() if one.expected.value == "racy"]
    command = [sys.executable, str(LITMUS / "litmus_device.py"), ""]
    environment = environment_for(find_toolkit(), DeviceKind.VIRTUAL)
    with open_server(command, environment, what="the device of litmus programs") as server:
        device = DeviceServer(server)
        for one in racy:
            if one.name in names or (not names and one.name not in known):
                known[one.name] = repaired(device, one.theme, one.name)
                write_json(target, [known[row.name] for row in racy if row.name in known])
    rows = [known[one.name] for one in racy if one.name in known]
    (folder / "repairs.md").write_text(table(rows), encoding="utf-8")
    wrong = [row.name for row in rows if not (row.is_proved or row.is_explained)]
    print(f"{sum(row.is_proved for row in rows)} of {len(rows)} proved; neither: {wrong}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
