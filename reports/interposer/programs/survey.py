"""Judges programs around packages in their newest release, and writes down what was found.

    python reports/interposer/programs/survey.py [--venvs FOLDER] [--table | --gpu] OUT [NAME ...]

`survey.toml` says which packages, and why what is found is real or none. OUT gets `survey.md` and
in `survey/` one JSON file per program; of each race a witness, which `racegate torch replay` takes
in this folder, and the page of a report. Packages are unpacked as they are below FOLDER, without
what they depend on; that is in one environment. --table judges nothing, and writes the table and
the pages again. --gpu judges the races alone, on this machine's GPU and with this Python's
packages, and writes `survey_gpu.json`. Exit 1 if a verdict is not the expected one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import textwrap
import tomllib
import zipfile
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from programs.catalogue import Case, Expected, Removed
from programs.run_all import RUNS_MAX, judge, report_of
from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import Ending
from racegate.jobs.environment import environment_of
from racegate.jobs.versions.programs import SILENT, word_of
from racegate.scenario.strict import StrictStruct
from racegate.scenario.untrusted.files import write_json
from racegate.targets.program.environment import JudgedProgram, environment_for

GPU_FILE = "survey_gpu.json"


class Finding(StrEnum):
    """What was found in a package, by its program.

    REAL: a race; SILENT: no conflict; BY_ITSELF: the program ends before there is anything to judge
    REFUSED: it asks CUDA for something that is not modelled
    """

    REAL = "real"
    SILENT = "silent"
    BY_ITSELF = "ends by itself"
    REFUSED = "refused"


class Repair(StrictStruct, frozen=True, kw_only=True):
    """A wait put into a library while it is imported: `text` of `module` becomes `by`."""

    module: str
    text: str
    by: str


class Program(StrictStruct, frozen=True, kw_only=True):
    """One program around a package.

    packages: as pip writes them, the judged one first; python: whose wheels are taken, if this
        Python has none
    why: the finding's reason, by the library's code and CUDA's rules
    harm: of a race, what a user sees; public: what public threads say
    repair: with which the same program has to be silent
    gpu: of what `--gpu` cannot judge, what was seen on a GPU
    """

    script: str
    arguments: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    python: str = ""
    found: Finding
    why: str
    harm: str = ""
    public: str = ""
    repair: Repair | None = None
    gpu: str = ""

    @property
    def name(self) -> str:
        """The script with its arguments."""
        return "_".join((Path(self.script).name, *self.arguments)).replace("/", "-")


class GpuRun(StrictStruct, frozen=True, kw_only=True):
    """A race of the survey on a real GPU.

    verdict: as of every program; message: how it ended, if not by itself, or why it was not run
    holds: with which latches showed it; observed: the value that they change, right without them
    """

    torch: str = ""
    gpu: str = ""
    verdict: str = "not run"
    conflicts: int = 0
    events: int = 0
    message: str = ""
    holds: tuple[str, ...] = ()
    observed: str = ""
    right: str = ""
    wrong: str = ""


class Survey(StrictStruct, frozen=True, kw_only=True):
    """All programs. beside: what packages import from others, installed in one environment"""

    beside: tuple[str, ...]
    programs: tuple[Program, ...]


def load() -> Survey:
    """What `survey.toml` says."""
    return msgspec.convert(tomllib.loads((HERE / "survey.toml").read_text()), Survey)


def unpacked(package: str, folder: Path, python: str) -> Path:
    """Where a package lies as it was published, after it was fetched if it is not there."""
    place = folder / package.replace("==", "-")
    if not place.exists():
        with tempfile.TemporaryDirectory() as fetched:
            other = ["--python-version", python, "--only-binary", ":all:"] if python else []
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *other]
            subprocess.run([*pip, "--dest", fetched, package], check=True)
            (archive,) = Path(fetched).iterdir()
            made = place.with_suffix(".part")
            shutil.rmtree(made, ignore_errors=True)
            _unpack(archive, made)
            made.rename(place)
    inner = list(place.iterdir())
    return inner[0] if len(inner) == 1 else place


def _unpack(archive: Path, place: Path) -> None:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(place)
    else:
        with tarfile.open(archive) as source:
            source.extractall(place, filter="data")


def case_of(program: Program) -> Case:
    """As the other programs are judged and written down."""
    expected = Expected.RACY if program.found is Finding.REAL else Expected.SILENT
    return Case(program.name, f"{program.script}.py", program.arguments, (), expected)


def judged(program: Program, python: Path, path: list[Path], witness: Path) -> dict[str, Any]:
    """The report of one program, judged with these folders before all others. witness: of a race"""
    case = case_of(program)
    options = ["--explore", "--runs", str(RUNS_MAX)]
    if program.found is Finding.REAL:
        options += ["--witness", str(witness)]
    found = _judge_before(path, case, python, *options)
    for other in witness.parent.glob(f"{program.name}-*.witness.json"):
        other.unlink()  # of the same program: one is enough
    report = report_of(case, python, found)
    report = _without_folders(report, path)
    report["releases"] = dict(package.split("==") for package in program.packages)
    report["missing_edges"] = [cause.edge for cause in found.result.causes]
    report["ending"] = found.result.ending.value
    report["repaired"] = ""
    if program.repair is not None:
        edit = Removed(program.repair.module, program.repair.text, program.repair.by)
        repaired = _judge_before(path, replace(case, removed=edit), python)
        report["repaired"] = word_of(repaired.result)
    del report["expected"], report["public"]
    return report


def _judge_before(path: list[Path], case: Case, python: Path, *options: str) -> JudgedProgram:
    """With these folders before the environment's packages."""
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([*map(str, path), *filter(None, [before])])
    try:
        return judge(case, python, *options)
    finally:
        os.environ["PYTHONPATH"] = before


def judged_on_gpu(program: Program, path: list[Path]) -> GpuRun:
    """One race on the GPU of this machine: recorded on real streams, then with latches for holds.
    Raises BadInput if there is no verdict.
    """
    options = ("--device", "cuda", "--explore", "--runs", str(RUNS_MAX))
    found = _judge_before(path, case_of(program), Path(sys.executable), *options)
    result, wrong = found.result, next((one for one in found.result.findings if one.holds), None)
    shown = {} if wrong is None else {"actual": wrong.actual, "expected": wrong.expected}
    return GpuRun(
        torch=result.torch_version,
        gpu=str(result.config.get("gpu", {}).get("name", "")),
        verdict=word_of(result),
        conflicts=sum(one.race is not None for one in result.findings),
        events=result.stats.ops,
        message=result.message[:300],
        holds=() if wrong is None else wrong.holds,
        **_first_changed(shown),
    )


def _first_changed(shown: dict[str, Any]) -> dict[str, str]:
    """What a hold changes first, as it is without it and with it."""
    pairs = zip(shown.get("expected") or (), shown.get("actual") or (), strict=False)
    for before, after in pairs:
        if before["digest"] != after["digest"]:
            return {
                "observed": before["name"],
                "right": before["preview"][:90],
                "wrong": after["preview"][:90],
            }
    return {}


def _without_folders(report: dict[str, Any], path: list[Path]) -> dict[str, Any]:
    text = json.dumps(report)
    for folder in path:
        for place in (f"{folder}/", f"{folder}/".removeprefix("/tmp/")):  # as `report_of` leaves it
            text = text.replace(place, "")
    return json.loads(text)  # type: ignore[no-any-return]


def is_expected(program: Program, report: dict[str, Any]) -> bool:
    """Whether that was found which `survey.toml` says."""
    endings = {Finding.BY_ITSELF: Ending.FAILED, Finding.REFUSED: Ending.NOT_MODELLED}
    has_races = bool(report["findings"])
    if program.found is Finding.REAL:
        return has_races and report["repaired"] == (SILENT if program.repair else "")
    return not has_races and report["ending"] == endings.get(program.found, Ending.FINISHED)


def table_of(
    programs: tuple[Program, ...], reports: dict[str, dict[str, Any]], on_gpu: dict[str, GpuRun]
) -> str:
    """The page that lists all programs."""
    told = [(program, reports[program.name]) for program in programs if program.name in reports]
    packages = {_package(program) for program, _ in told}
    racy = {_package(program) for program, _ in told if program.found is Finding.REAL}
    lines = [
        _row(program, report, on_gpu.get(program.name, GpuRun()))
        for program, report in sorted(told, key=lambda one: one[0].name)
    ]
    head = f"{len(told)} programs around {len(packages)} packages; {len(racy)} of these have a race"
    reasons = [
        line
        for program, _ in sorted(told, key=lambda one: one[0].name)
        for line in _wrapped(f"- **{program.name}**: {program.why}", indent="  ")
    ]
    return "\n".join([_HEAD, f"{head}.", "", *_COLUMNS, *lines, "", _REASONS, *reasons, ""])


_HEAD = """# A survey of packages

Written by `python reports/interposer/programs/survey.py reports/interposer`: each program is a
short script of ours around an untouched package in its newest release that Python 3.11 or 3.12
has, with tiny random weights, on the virtual device, with a search of at most 12 runs. Chosen were
packages whose public code uses streams, events, pinned memory, copies that are not waited for, or
graphs. `missing edges` counts conflicts that one edge would order as one. A race has the page of a
report and a witness: `racegate torch replay` shows it again in an environment with the package.
Whether a finding is real was judged by reading the library's code; the reasons stand below. `GPU`
is the verdict of the same program with real streams and latches (`survey.py --gpu`), by an older
torch: [survey_gpu.json](survey_gpu.json).
"""
_COLUMNS = (
    "| program | package | verdict | conflicts | missing edges | events | judged | GPU | public |",
    "| --- | --- | --- | ---: | ---: | ---: | --- | --- | --- |",
)
_REASONS = "## Why\n"
_COLUMNS_MAX = 116


def _wrapped(text: str, *, indent: str = "") -> list[str]:
    """Lines that fit. indent: of all but the first"""
    return textwrap.wrap(
        text, _COLUMNS_MAX, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _package(program: Program) -> str:
    return (program.packages or ("torch",))[0].partition("==")[0]


def _row(program: Program, report: dict[str, Any], run: GpuRun) -> str:
    name = program.name
    link = f"[{name}](survey/{name}.{'md' if program.found is Finding.REAL else 'json'})"
    package = program.packages[0] if program.packages else f"torch=={report['torch']}"
    cells = (
        link,
        package.replace("==", " "),
        report["verdict"],
        str(len(report["findings"])),
        str(len(report["missing_edges"])),
        str(report["events"]),
        program.found.value,
        "see its page" if program.gpu else run.verdict if run.torch else "",
        program.public or "",
    )
    return f"| {' | '.join(cells)} |"


def page_of(program: Program, report: dict[str, Any], run: GpuRun) -> str:
    """The page of a report: harm, the two accesses, the edge that is missing, what is public."""
    finding = next((f for f in report["findings"] if f["hold"]), report["findings"][0])
    package = " ".join((program.packages or (f"torch=={report['torch']}",))[0].split("=="))
    lines = [
        f"# {package}: {program.harm}",
        "",
        *_wrapped(program.why),
        "",
        *_wrapped(
            f"Seen with `racegate torch run --explore {' '.join(report['command'][6:])}` on torch "
            f"{report['torch']}, Python {report['python']}, without a GPU: {report['verdict']}, "
            f"{len(report['findings'])} conflicts, {len(report['missing_edges'])} missing edges, "
            f"{report['events']} events. All is in [{program.name}.json]({program.name}.json), and "
            f" [{program.name}.witness.json]({program.name}.witness.json) shows it again."
        ),
        "",
        f"## {finding['buffer']}, {finding['nbytes']} bytes",
        "",
        *_side("first", finding["first"]),
        *_side("second", finding["second"]),
        "Missing edges:",
        "",
        *(line for edge in report["missing_edges"] for line in _wrapped(f"- {edge}", indent="  ")),
        "",
        *_shown(report),
        *_repaired(program),
        "## In public",
        "",
        *_wrapped(program.public or "No thread about it was found."),
        "",
        "## On a GPU",
        "",
        *_wrapped(program.gpu or _on_gpu(run)),
        "",
        "How often the wrong order comes by itself is unknown.",
    ]
    return "\n".join([*lines, ""])


def _on_gpu(run: GpuRun) -> str:
    """What a GPU showed, in sentences."""
    if not run.torch:
        return f"Not run: {run.message or 'nobody tried it.'}"
    seen = (
        f"{run.gpu}, torch {run.torch}, real streams: {run.verdict}, {run.conflicts} conflicts in"
    )
    seen += f" {run.events} events"
    if run.message:
        return f"{seen}; {run.message}"
    if not run.holds:
        return f"{seen}; no latch changed what is observed."
    held = " and ".join(f"`{hold}`" for hold in run.holds)
    changes = f": `{run.observed}` is `{run.wrong}`, and `{run.right}` without it"
    return f"{seen}. A latch shows it, {held}{changes if run.observed else ''}."


def _side(title: str, side: dict[str, Any]) -> list[str]:
    verb = "writes" if side["is_write"] else "reads"
    frames = [
        f"    {part}"
        for file, line, code in side["stack"]
        for part in _wrapped(f"{file}:{line} in {code}", indent="    ")
    ]
    return [f"The {title}: `{side['operation']}` {verb} it on {side['lane']}.", "", *frames, ""]


def _shown(report: dict[str, Any]) -> list[str]:
    """The value that a hold changes, shortened."""
    pairs = zip(report["observed"], report["observed_under_hold"], strict=False)
    changed = [(one, other) for one, other in pairs if one["digest"] != other["digest"]]
    if not changed:
        return []
    one, other = changed[0]
    return [
        f"Under one hold `{one['name']}` is",
        "",
        f"    {other['preview'][:90]}",
        "",
        "where it is without it",
        "",
        f"    {one['preview'][:90]}",
        "",
    ]


def _repaired(program: Program) -> list[str]:
    repair = program.repair
    if repair is None:
        return []
    said = f"The same program is silent with this in `{repair.module}`:"
    lines = _wrapped(f"- {repair.text}", indent="  ") + _wrapped(f"+ {repair.by}", indent="  ")
    return [*_wrapped(said), "", *(f"    {line}" for line in lines), ""]


def gpu_runs(out: Path) -> dict[str, GpuRun]:
    """What `survey_gpu.json` has, by program."""
    file = out / GPU_FILE
    read = msgspec.json.decode(file.read_bytes()) if file.exists() else {"programs": {}}
    return msgspec.convert(read["programs"], dict[str, GpuRun])


def judge_on_gpu(chosen: list[Program], venvs: Path, out: Path) -> int:
    """All races among them; those of others stay as they were. How many showed none."""
    runs = gpu_runs(out)
    for program in chosen:
        if program.found is not Finding.REAL or program.gpu:
            continue
        try:
            path = [unpacked(one, venvs / "unpacked", program.python) for one in program.packages]
            runs[program.name] = judged_on_gpu(program, path)
        except subprocess.CalledProcessError:
            runs[program.name] = GpuRun(message="its packages could not be fetched there")
        except BadInput as error:
            runs[program.name] = GpuRun(message=str(error)[:300])
        print(f"{program.name}: {_on_gpu(runs[program.name])}", flush=True)
        content = {"environment": environment_of("cuda"), "programs": dict(sorted(runs.items()))}
        write_json(out / GPU_FILE, content)
    return sum(not run.conflicts for run in runs.values())


def write_pages(survey: Survey, out: Path) -> None:
    """The table, and a page for each race, from the files that are there."""
    folder = out / "survey"
    known = {path.stem: path for path in folder.glob("*.json") if ".witness" not in path.name}
    reports = {name: json.loads(path.read_text()) for name, path in known.items()}
    on_gpu = gpu_runs(out)
    (out / "survey.md").write_text(table_of(survey.programs, reports, on_gpu))
    for program in survey.programs:
        if program.found is Finding.REAL and reports.get(program.name, {}).get("findings"):
            run = on_gpu.get(program.name, GpuRun())
            page = page_of(program, reports[program.name], run)
            (folder / f"{program.name}.md").write_text(page)


def main() -> int:
    """Judges what is named, or all; files of others in OUT are kept."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--venvs", type=Path, default=Path(".venv/programs"))
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    survey = load()
    folder = options.out / "survey"
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [one for one in survey.programs if one.name in options.names or not options.names]
    venvs = options.venvs.absolute()
    wrong = judge_on_gpu(chosen, venvs, options.out) if options.gpu else 0
    for program in () if options.table or options.gpu else chosen:
        try:
            path = [unpacked(one, venvs / "unpacked", program.python) for one in program.packages]
            witness = (folder / f"{program.name}.witness.json").absolute()
            alone = Path(sys.executable)  # enough for torch itself
            python = environment_for(survey.beside, venvs) if program.packages else alone
            report = judged(program, python, path, witness)
        except (BadInput, subprocess.CalledProcessError) as error:
            print(f"{program.name}: no verdict: {error}", flush=True)
            wrong += 1
            continue
        wrong += not is_expected(program, report)
        mark = "" if is_expected(program, report) else f"   EXPECTED {program.found}"
        print(f"{program.name}: {report['verdict']} {report['message'][:200]}{mark}", flush=True)
        write_json(folder / f"{program.name}.json", report)
    write_pages(survey, options.out)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
