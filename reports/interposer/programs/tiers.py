"""Judges the programs around connectors on release after release, and writes down what was found.

    python reports/interposer/programs/tiers.py [--package NAME --versions X,Y] [--remove] OUT

OUT gets `tiers.md`, and in `tiers` one file for each release and a witness for each program that
comes to a wrong value. What is there is kept. Releases of vLLM are those of `racegate vllm setup`,
without its compiled kernels; `--remove` deletes each again.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from run_all import HERE, TIMEOUT_S

from racegate.jobs.versions.cells import CellReport, ScenarioReport, read_cell
from racegate.jobs.versions.programs import program_report
from racegate.jobs.versions.running import Keep, run_history
from racegate.targets.common.environment import cache_folder
from racegate.targets.common.setup.progress import Say
from racegate.targets.program.environment import environment_of_version, judge_in
from racegate.targets.vllm.environment import VLLM

RUNS_MAX = 12
PROGRAMS = {
    "vllm": (
        "vllm_offload.py store",
        "vllm_offload.py load",
        "vllm_simple_offload.py store",
        "vllm_simple_offload.py load",
    ),
    "sglang": ("sglang_hicache.py load", "sglang_hicache.py write"),
}
# The half that each public change repairs, by program.
PUBLIC = {
    "vllm_offload.py store": "vllm-project/vllm#31341",
    "vllm_offload.py load": "vllm-project/vllm#50696",
    "vllm_simple_offload.py store": "vllm-project/vllm#45704",
    "vllm_simple_offload.py load": "vllm-project/vllm#47282",
    "sglang_hicache.py load": "sgl-project/sglang#36738",
    "sglang_hicache.py write": "sgl-project/sglang#20611",
}


class TiersHistory:
    """The connectors of one engine, as `run_history` asks for them. out: of cells and witnesses"""

    def __init__(self, package: str, out: Path, venvs: Path, *, is_removing: bool) -> None:
        self._package, self._out, self._venvs = package, out, venvs
        self._is_removing = is_removing

    @property
    def names(self) -> tuple[str, ...]:
        """The programs, with their arguments."""
        return PROGRAMS[self._package]

    def cells(self, version: str) -> Sequence[CellReport]:
        """One of each release."""
        return (CellReport(release=version, model=self._package),)

    def set_up(self, version: str, say: Say) -> None:
        """Installs a release. Raises BadInput."""
        self._python(version, say)

    def _python(self, version: str, say: Say) -> Path:
        if self._package == VLLM.name:
            return VLLM.set_up(version, say, torch=Path(sys.prefix)).python
        return environment_of_version(self._package, version, ("--no-deps",), self._venvs)

    def judge(self, cell: CellReport, names: Sequence[str], keep: Keep) -> None:
        """Each program with a search, and its witness where it comes to a wrong value."""
        python = self._python(cell.release, lambda _: None)
        now = msgspec.structs.replace(cell, python=platform.python_version())
        for name in names:
            torch, report = self._judged(python, name, cell.release)
            scenarios = {**now.scenarios, name: report}
            now = msgspec.structs.replace(now, torch=torch, scenarios=scenarios)
            keep(now)

    def _judged(self, python: Path, name: str, version: str) -> tuple[str, ScenarioReport]:
        witness = self._out / witness_name(version, name)
        options = ("--explore", "--runs", str(RUNS_MAX), "--timeout", str(TIMEOUT_S))
        paths = [str(HERE.parents[2] / folder) for folder in ("harness", "kernels", "reference")]
        found = judge_in(
            python,
            tuple(name.split()),
            *(*options, "--witness", str(witness.absolute())),
            folder=HERE,
            variables={"PYTHONPATH": os.pathsep.join(paths)},
        )
        return found.result.torch_version, program_report(found.result, found.cpu_s)

    def remove(self, version: str) -> None:
        """What was installed, if that is asked for."""
        if self._is_removing:
            shutil.rmtree(self._venvs / f"{self._package}-{version}", ignore_errors=True)
            if self._package == VLLM.name:
                shutil.rmtree(cache_folder(VLLM.name) / version, ignore_errors=True)


_HEAD = """# Connectors, release after release

Written by `python reports/interposer/programs/tiers.py`: small programs around unmodified classes
that move KV blocks between the GPU and the host, on the virtual device, with a search. A wrong
value has a witness, which `racegate torch replay` runs again in the folder of the programs, with
the release. `n/a`: the release has not the modules that the program is about.
"""


def page_of(folder: Path) -> str:
    """A table for each engine: a row for each release, a column for each program."""
    found = (read_cell(path) for path in folder.glob("[0-9]*.json") if "witness" not in path.name)
    cells = [cell for cell in found if cell is not None]
    tables = [_table(name, [cell for cell in cells if cell.model == name]) for name in PROGRAMS]
    return "\n".join([_HEAD, *tables])


def _table(package: str, cells: Sequence[CellReport]) -> str:
    names = PROGRAMS[package]
    heads = [f"`{name}` ({PUBLIC[name]})" for name in names]
    rows = [
        [cell.release, cell.torch.partition("+")[0], *(_said(cell, name) for name in names)]
        for cell in sorted(cells, key=lambda cell: [int(part) for part in cell.release.split(".")])
    ]
    lines = [[package, "torch", *heads], ["---"] * (2 + len(names)), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _said(cell: CellReport, name: str) -> str:
    report = cell.scenarios.get(name)
    if report is None:
        return f"not run: {cell.cannot}"
    if "ModuleNotFoundError" in report.message:
        return "n/a"
    if not report.is_wrong:
        return " ".join(filter(None, (report.verdict, report.message)))
    return f"[{report.verdict}](tiers/{witness_name(cell.release, name)})"


def witness_name(release: str, name: str) -> str:
    """The file of the witness of a program in a release."""
    return f"{release}-{name.replace('.py ', '-').replace('_', '-')}.witness.json"


def main() -> int:
    """Judges what is missing of the releases, and writes the page of all that are kept."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--package", choices=sorted(PROGRAMS))
    parser.add_argument("--versions", default="")
    parser.add_argument("--venvs", type=Path, default=Path(".venv/programs"))
    parser.add_argument("--remove", action="store_true")
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    folder = given.out / "tiers"
    folder.mkdir(parents=True, exist_ok=True)
    if given.package:
        venvs = given.venvs.absolute()
        history = TiersHistory(given.package, folder, venvs, is_removing=given.remove)
        run_history(history, given.versions.split(","), folder, print)
    (given.out / "tiers.md").write_text(page_of(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
