"""Exports findings of litmus programs as plain tests, and runs these without and with a GPU.

    python reports/interposer/exported.py OUT [NAME ...]
    python reports/interposer/exported.py --gpu [--times 20] OUT

The first writes OUT/exported/test_NAME.py for each NAME, else for what is missing of ten, as
`racegate export` writes it, runs the files on the virtual device by `racegate torch run
--error-exitcode 0 -m pytest`, and writes what came of it to exported.json. The second runs the
files that are there as plain pytest on this machine's GPU, and writes exported_gpu.json: how often
each test passed. Exit 1 if one failed.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

from racegate.jobs.environment import environment_of
from racegate.scenario.strict import StrictStruct
from racegate.scenario.untrusted.files import write_json

LITMUS = Path(__file__).parents[2] / "tests" / "interpose"
RACEGATE = (sys.executable, "-m", "racegate")
# Of every kind of edge: an upload, a download, two streams, an event at a wrong place, a graph.
# What goes wrong is read before the latch opens, so that a GPU has to show it.
NAMES = (
    "upload_source_rewritten",
    "download_source_overwritten",
    "download_side_item_on_default",
    "event_too_early",
    "event_on_wrong_stream",
    "event_waited_by_wrong_stream",
    "pool_stream_beside_default",
    "missing_wait_stream",
    "graph_input_rewritten",
    "graph_replayed_before_input",
)


class ExportedProgram(StrictStruct, frozen=True, kw_only=True):
    """A finding as a plain test. tests: by name, how often each passed; runs: of how many"""

    name: str
    runs: int
    tests: dict[str, int]

    @property
    def is_right(self) -> bool:
        """Every test passed every time."""
        return bool(self.tests) and set(self.tests.values()) == {self.runs}


class ExportedReport(StrictStruct, frozen=True, kw_only=True):
    """What the files were run on, and what came of them."""

    command: str
    environment: dict[str, str]
    programs: tuple[ExportedProgram, ...]


def script_of(module: ModuleType, name: str) -> str:
    """One litmus program as a script: what it needs of its module, and its call."""
    text = inspect.getsource(module)
    parts = {key: node for node in ast.parse(text).body for key in _bound(node)}
    wanted, found = [name], dict[str, ast.stmt]()
    while wanted:
        key = wanted.pop()
        if key in parts and key not in found:
            found[key] = parts[key]
            body = ast.Module(getattr(parts[key], "body", [parts[key]]), [])
            wanted += [one.id for one in ast.walk(body) if isinstance(one, ast.Name)]
    ordered = sorted({id(node): node for node in found.values()}.values(), key=lambda n: n.lineno)
    lines = [_text_of(node, text) for node in ordered]
    return "\n\n".join([*lines, f"{name}()\n"])


def _bound(node: ast.stmt) -> list[str]:
    """The names that a statement of a module defines."""
    match node:
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [one.asname or one.name.partition(".")[0] for one in names]
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


def _text_of(node: ast.stmt, text: str) -> str:
    """Its source, without decorators; what is the registry's has the plain counterpart."""
    if isinstance(node, ast.ImportFrom) and node.module == "registry":
        return "from racegate.interpose import observe\n\nN = 1024"
    return ast.get_source_segment(text, node) or ""


def exported(module: ModuleType, name: str, target: Path) -> None:
    """Writes the test of one program. Raises CalledProcessError with what was said."""
    with tempfile.TemporaryDirectory() as folder:
        script, witness = Path(folder) / f"{name}.py", Path(folder) / "witness.json"
        script.write_text(script_of(module, name), encoding="utf-8")
        told = (*RACEGATE, "torch", "run", "--witness", witness, script.name)
        subprocess.run(told, cwd=folder, capture_output=True, check=False)
        made = (*RACEGATE, "export", witness, "--pytest", target)
        subprocess.run(made, cwd=folder, capture_output=True, check=True, text=True)


def run_tests(before: Sequence[str], files: Sequence[Path], *, times: int) -> Counter[str]:
    """How often each `FILE TEST` passed."""
    passed: Counter[str] = Counter()
    for _ in range(times):
        with tempfile.NamedTemporaryFile(suffix=".xml") as junit:
            command = [*before, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0"]
            command += ["--rootdir", str(files[0].parent), "-c", "/dev/null"]
            subprocess.run([*command, "--junit-xml", junit.name, *map(str, files)], check=False)
            for case in ElementTree.parse(junit.name).iter("testcase"):
                key = f"{case.get('classname', '').rpartition('.')[2]} {case.get('name')}"
                passed[key] += not any(
                    child.tag in ("failure", "error", "skipped") for child in case
                )
    return passed


def counted(files: Sequence[Path], passed: Counter[str], times: int) -> tuple[ExportedProgram, ...]:
    """By program."""
    return tuple(
        ExportedProgram(
            name=file.stem.removeprefix("test_"),
            runs=times,
            tests={
                key.partition(" ")[2]: count
                for key, count in sorted(passed.items())
                if key.partition(" ")[0] == file.stem
            },
        )
        for file in files
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    folder = options.out.absolute() / "exported"
    folder.mkdir(exist_ok=True)
    if options.gpu:
        times, before, written = options.times, [sys.executable], "exported_gpu.json"
    else:
        sys.path.insert(0, str(LITMUS))
        programs = importlib.import_module("litmus.registry").load()
        missing = [name for name in NAMES if not (folder / f"test_{name}.py").exists()]
        for name in options.names or missing:
            theme = importlib.import_module(f"litmus.{programs[name].theme}")
            exported(theme, name, folder / f"test_{name}.py")
        times, written = 1, "exported.json"
        before = [*RACEGATE, "torch", "run", "--error-exitcode", "0"]
    files = sorted(folder.glob("test_*.py"))
    found = counted(files, run_tests(before, files, times=times), times)
    report = ExportedReport(
        command=f"python reports/interposer/exported.py{' --gpu' * options.gpu} reports/interposer",
        environment=environment_of("cuda" if options.gpu else "virtual"),
        programs=found,
    )
    write_json(options.out / written, report)
    wrong = [one.name for one in found if not one.is_right]
    print(
        f"{len(found) - len(wrong)} of {len(found)} right every time, {times} runs; wrong: {wrong}"
    )
    return bool(wrong or not found)


if __name__ == "__main__":
    sys.exit(main())
