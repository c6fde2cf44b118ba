"""Mutants of a release: which edits there are, and which of them its gate notices."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from signal import SIGTERM
from tempfile import TemporaryDirectory
from threading import Lock
from types import ModuleType
from typing import Any, ClassVar, cast

import msgspec
import pytest
from click.testing import Result
from rich.console import Console
from typer.testing import CliRunner

from racegate.cli.app import app
from racegate.history.exit_code import ExitCode, code_of_signal
from racegate.history.finding import Benign
from racegate.history.gates.results import gated
from racegate.interpose.outcome import Ending, Observation, Plan
from racegate.jobs.foreign.edited import EditedRelease
from racegate.jobs.foreign.releases import OpenedEngine
from racegate.jobs.stopping import TerminatedError
from racegate.measure.evaluation.foreign.edits import order_edits, release_edits
from racegate.measure.evaluation.foreign.job import ALIKE
from racegate.measure.evaluation.source.results import SourceOperator
from racegate.report.targets.results import print_target_gate
from racegate.scenario.files import load_for
from racegate.scenario.spec import Scenario
from racegate.targets.common.cell import EngineCell
from racegate.targets.common.client import Engine
from racegate.targets.common.inside.probing import ProbeTally, probe_sources
from racegate.targets.common.inside.sources import LineTracer
from racegate.targets.common.wire import AS_IT_IS, NOT_EDITED, ReleaseRun, SourceEdit, SourceOptions
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.wire import ModelRunner, StateMode

RUNNER = """\
LIMIT = 100


def count(rows):
    total = 0
    for row in rows:
        total += row
    return min(total, LIMIT)


def never(rows):
    return rows + 1
"""
SCENARIO = """\
schema = 1
name = "three_rows"
title = "three rows"

[[requests]]
name = "A"
prompt = [5, 6, 7]
max_tokens = 4
"""
STREAMS = b"""\
def copy(self, side, event):
    with torch.cuda.stream(side):
        side.wait_stream(current)
        self.cpu = self.gpu.to("cpu", non_blocking=True)
        event.record(side)
    return self.cpu
"""


def test_a_record_or_a_wait_stands_one_statement_away() -> None:
    found = [edit for edit in order_edits(STREAMS) if edit.operator is SourceOperator.MOVED]
    made = [edit.apply(STREAMS).decode().splitlines() for edit in found]
    calls = [[line.strip().partition("(")[0] for line in lines[2:5]] for lines in made]
    assert sorted(calls) == [
        ["self.cpu = self.gpu.to", "side.wait_stream", "event.record"],
        ["side.wait_stream", "event.record", "self.cpu = self.gpu.to"],
    ]


def test_work_goes_to_another_stream() -> None:
    found = [edit for edit in order_edits(STREAMS) if edit.operator is SourceOperator.STREAM]
    made = {edit.shown(STREAMS)[1] for edit in found}
    assert made == {
        "with torch.cuda.stream(None):", "current.wait_stream(side)", "event.record()",
    }  # fmt: skip


def test_kernels_are_edited_and_logs_are_not() -> None:
    source = b"@triton.jit\ndef kernel(at):\n    tl.store(at, 1 + 2)\n    logger.info(1 + 3)\n"
    shown = {edit.shown(source)[0] for edit in release_edits(source)}
    assert shown == {"tl.store(at, 1 + 2)"}


class EditedEngine:
    """An engine whose only step is the function of its runner, run as it is edited."""

    start_s = cpu_s = 0.0
    runs: ClassVar[list[SourceEdit | None]] = []  # of all of them
    late: ClassVar[set[str]] = set()  # what does not end: "recorded" runs, or "traced" ones
    stops: ClassVar[set[str]] = set()  # the edit during whose run somebody stops it

    def __init__(self, cell: EngineCell, folder: Path) -> None:
        self._file = folder / "runner.py"
        is_aligned = "align" in cell.settings
        self._source = RUNNER.replace("100\n", "5  \n") if is_aligned else RUNNER

    def run(
        self,
        scenario: Scenario,
        plan: Plan,
        *,
        timeout_s: float | None = None,
        sources: SourceOptions = AS_IT_IS,
    ) -> ReleaseRun:
        source, edit = self._source, sources.edit
        self.runs.append(edit)
        if edit is not None and edit.text in self.stops:
            raise TerminatedError
        if ("traced" if sources.traces else "recorded") in self.late:
            return ReleaseRun(ending=Ending.TIMED_OUT, message="it did not end within 7 s")
        log = ProbeTally()
        if edit is not None:
            assert edit.module == "vllm.runner"
            source = source[: edit.start] + edit.text + source[edit.end :]
            if edit.start < RUNNER.index("def count"):
                told = f"vllm.runner {NOT_EDITED}"
                return ReleaseRun(ending=Ending.NOT_MODELLED, message=told)
        runner = ModuleType("vllm.runner")
        space, runner.__file__ = vars(runner), str(self._file)
        self._file.write_text(source)
        exec(compile(source, "/x/vllm/runner.py", "exec"), space)
        sys.modules[runner.__name__] = runner
        probe_sources(sources.probes, log)
        tracer = LineTracer("vllm")
        with tracer.tracing():
            try:
                text = json.dumps({"total": space["count"]([1, 2, 3])})
            except (TypeError, ValueError, NameError) as error:
                return ReleaseRun(ending=Ending.FAILED, message=f"TypeError: {error}")
        inner = (Observation("step 1 total", text, text),)
        lines = tracer.lines() if sources.traces else {}
        return ReleaseRun(
            ending=Ending.FINISHED, inner=inner, steps=1, lines=lines, alike=log.alike()
        )


@contextmanager
def opened(cell: EngineCell, **options: object) -> Iterator[OpenedEngine]:
    with TemporaryDirectory() as folder:
        engine = cast(Engine, EditedEngine(cell, Path(folder)))
        yield OpenedEngine(cell, engine, engine, dict)
    sys.modules.pop("vllm.runner", None)


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A release as `racegate vllm setup` leaves it, with one scenario beside it."""
    folder = tmp_path / "racegate" / "vllm" / "1.0"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "lib" / version / "site-packages"
    (site / "torch-2.9.0.dist-info").mkdir(parents=True)
    (site / "vllm").mkdir()
    (site / "vllm" / "runner.py").write_text(RUNNER)
    (folder / "racegate-done").write_text("1.0\n")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "three_rows.toml").write_text(SCENARIO)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("racegate.cli.foreign.releases.open_release", opened)
    monkeypatch.setattr(EditedEngine, "runs", [])
    monkeypatch.setattr(EditedEngine, "late", set())
    monkeypatch.setattr(EditedEngine, "stops", set())
    return tmp_path


COMMAND = ("vllm", "mutate", "--release", "1.0", "--file", "runner.py", "--sample", "50")


def mutate(folder: Path, *options: str) -> tuple[Result, Any]:
    out = folder / "out.json"
    arguments = [*COMMAND, "--scenarios", str(folder / "scripts"), "--json", str(out), *options]
    ran = CliRunner().invoke(app, arguments)
    return ran, msgspec.json.decode(out.read_bytes())["mutation"]


def test_what_changes_a_value_is_killed_and_what_does_not_survives(release: Path) -> None:
    ran, found = mutate(release)
    fates = {(one["before"], one["after"]): one for one in found["report"]["results"]}
    killed = fates["total += row", "total -= row"]
    assert (killed["fate"], killed["by"]) == ("killed", "three_rows")
    assert killed["how"].startswith("CHANGED step 1: total.total is -6, in the base 6")
    survivor = fates["return min(total, LIMIT)", "return total"]
    assert survivor["fate"] == "survived" and ran.exit_code == ExitCode.FINDING


@pytest.mark.parametrize(
    ("late", "what"),
    [("recorded", "three_rows was not recorded"), ("traced", "three_rows runs is not known")],
)
def test_a_run_of_the_release_that_does_not_end_is_told_with_its_limit(
    release: Path, late: str, what: str
) -> None:
    """Beside it every mutant would be noticed, or none drawn."""
    EditedEngine.late.add(late)
    keep = release / "keep.jsonl"
    ran = CliRunner().invoke(
        app, [*COMMAND, "--scenarios", str(release / "scripts"), "--keep", str(keep)]
    )
    said = " ".join(ran.output.split())
    assert ran.exit_code == ExitCode.BAD_INPUT and f"{what}: it did not end within 7 s" in said
    assert not keep.exists()


def test_where_nobody_sees_a_bar_each_part_has_a_line(release: Path) -> None:
    ran, found = mutate(release)
    lines = ran.stderr.splitlines()
    judged = [line for line in lines if ": killed runner.py:" in line]
    assert "racegate: 1 of 1: three_rows" in lines
    assert len(judged) == sum(one["fate"] == "killed" for one in found["report"]["results"]) > 0


def test_an_edit_that_never_makes_another_value_has_no_run_of_its_own(release: Path) -> None:
    _, found = mutate(release)
    survivors = [one for one in found["report"]["results"] if one["fate"] == "survived"]
    alike = {one["after"] for one in survivors if one["how"] == ALIKE}
    assert alike == {"return min(total, LIMIT + 1)", "return total"}
    edited = {one.text for one in EditedEngine.runs if one is not None}
    assert not {"LIMIT + 1", "total"} & edited and edited


def test_what_was_judged_before_a_stop_is_a_page(release: Path) -> None:
    """And another time goes on behind it, where what was found is kept."""
    keep, page = release / "keep.jsonl", release / "page.md"
    _, whole = mutate(release)
    edits = [one for one in EditedEngine.runs if one is not None]
    EditedEngine.stops.add(edits[-1].text)
    ran, found = mutate(release, "--keep", str(keep), "--markdown", str(page))
    judged = len(found["report"]["results"])
    assert ran.exit_code == code_of_signal(SIGTERM) and 0 < judged < len(whole["report"]["results"])
    said = f"{judged} of 50 mutants judged; to go on: the same command"
    assert said in " ".join(ran.stderr.split())
    assert f"Of these {judged} were tried" in " ".join(page.read_text().split())
    assert len(keep.read_bytes().splitlines()) == judged


def test_no_mutant_is_begun_when_the_minutes_are_over(release: Path) -> None:
    page = release / "page.md"
    ran, found = mutate(release, "--minutes", "0", "--markdown", str(page))
    assert found["report"]["results"] == [] and found["reached"] > 0
    assert "0 were tried" in page.read_text() and ran.exit_code == ExitCode.INCONCLUSIVE
    assert "nothing is known of what is noticed" in " ".join(ran.stdout.split())


def test_the_command_of_a_page_says_what_was_chosen(release: Path) -> None:
    page, kept_out = release / "page.md", release / "scripts" / "left_out.toml"
    kept_out.write_text(SCENARIO.replace("three_rows", "left_out"))
    mutate(release, "--except", "left_out", "--markdown", str(page))
    command = page.read_text().partition("    racegate")[2].partition("\n\n")[0].split()
    chosen = {"--scenarios": str(release / "scripts"), "--except": "left_out"}
    for option, value in ({"--file": "runner.py"} | chosen).items():
        assert command[command.index(option) + 1] == value


class Sibling(EditedEngine):
    """Its runs are in processes of their own, so that two at a time have nothing in common."""

    one_at_a_time: ClassVar[Lock] = Lock()

    def __init__(self, cell: EngineCell, folder: Path) -> None:
        super().__init__(cell, folder)
        self.ran = 0

    def run(self, *given: Any, **options: Any) -> ReleaseRun:
        with self.one_at_a_time:
            self.ran += 1
            return super().run(*given, **options)


def test_several_engines_find_what_one_does(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran_by: list[Sibling] = []

    @contextmanager
    def several(cell: EngineCell, *, count: int, **options: object) -> Iterator[OpenedEngine]:
        with TemporaryDirectory() as folder:
            ran_by[:] = [Sibling(cell, Path(folder)) for _ in range(count)]
            first, *others = (OpenedEngine(cell, one, one, dict) for one in cast(Any, ran_by))
            yield replace(first, siblings=tuple(others))

    _, alone = mutate(release)
    monkeypatch.setattr("racegate.cli.foreign.releases.open_release", several)
    keep = release / "keep.jsonl"
    _, found = mutate(release, "--workers", "3", "--keep", str(keep))
    fates = [[one["key"], one["fate"], one["by"]] for one in found["report"]["results"]]
    assert fates == [[one["key"], one["fate"], one["by"]] for one in alone["report"]["results"]]
    assert len(keep.read_bytes().splitlines()) == len(fates)
    assert len(ran_by) == 3 and all(one.ran for one in ran_by)


def test_a_stop_ends_what_several_engines_judge(
    release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is judged behind the mutant at which it was stopped is not kept."""
    _, whole = mutate(release)
    edits = [one for one in EditedEngine.runs if one is not None]
    EditedEngine.stops.add(edits[-1].text)

    @contextmanager
    def two(cell: EngineCell, **options: object) -> Iterator[OpenedEngine]:
        with TemporaryDirectory() as folder:
            first, other = (
                OpenedEngine(cell, one, one, dict)
                for one in (cast(Any, Sibling(cell, Path(folder))) for _ in range(2))
            )
            yield replace(first, siblings=(other,))

    monkeypatch.setattr("racegate.cli.foreign.releases.open_release", two)
    ran, found = mutate(release, "--workers", "2")
    assert ran.exit_code == code_of_signal(SIGTERM)
    assert 0 < len(found["report"]["results"]) < len(whole["report"]["results"])


def test_what_no_scenario_runs_is_told_and_not_judged(release: Path) -> None:
    _, found = mutate(release)
    assert {one["scope"] for one in found["report"]["results"]} == {"count"}
    (never,) = found["unrun"]
    assert (never["scope"], never["is_whole"], never["lines"]) == ("never", True, [12])


def entries(survivors: list[Any], reason: str) -> str:
    return "".join(
        f'[[equivalent]]\nfile = "runner.py"\nscope = "count"\nbefore = "{one["before"]}"\n'
        f'after = "{one["after"]}"\nreason = "{reason}"\n'
        for one in survivors
    )


def test_what_a_survivor_lacks_is_told_and_counted(release: Path) -> None:
    """A feature that no scenario turns on is left out of the second score."""
    _, found = mutate(release)
    survivors = [one for one in found["report"]["results"] if one["fate"] == "survived"]
    missing, page = release / "missing.toml", release / "page.md"
    missing.write_text(
        entries(survivors[:1], "configuration: a limit of two")
        + entries(survivors[1:], "scenario: many rows")
    )
    ran, told = mutate(release, "--missing", str(missing), "--markdown", str(page))
    text = page.read_text()
    others = len(survivors) - 1
    assert ran.exit_code == ExitCode.FINDING and len(told["missing"]) == len(survivors)
    assert f"configuration (1), scenario ({others})." in text and "a limit of two" in text
    killed = sum(one["fate"] == "killed" for one in found["report"]["results"])
    assert f"were noticed: {killed} of {killed + others}." in " ".join(text.split())


def test_it_goes_on_where_it_was_and_takes_reasons(release: Path) -> None:
    keep, reasons = release / "keep.jsonl", release / "equivalent.toml"
    _, first = mutate(release, "--keep", str(keep))
    size = keep.stat().st_size
    survivors = [one for one in first["report"]["results"] if one["fate"] == "survived"]
    reasons.write_text(entries(survivors, "the limit is never reached"))
    page = release / "page.md"
    ran, again = mutate(
        release, "--keep", str(keep), "--equivalent", str(reasons), "--markdown", str(page)
    )
    assert keep.stat().st_size == size and survivors
    fates = [one["fate"] for one in again["report"]["results"]]
    assert fates.count("equivalent") == len(survivors) and "survived" not in fates
    assert ran.exit_code == ExitCode.CLEAN
    assert "the limit is never reached" in page.read_text() and "`never`" in page.read_text()


def test_a_reason_may_hold_in_one_setting_alone(release: Path) -> None:
    _, first = mutate(release)
    survivors = [one for one in first["report"]["results"] if one["fate"] == "survived"]
    reasons = release / "equivalent.toml"
    for setting, fate in (("v1", "equivalent"), ("v2", "survived")):
        told = entries(survivors, "the limit is never reached")
        reasons.write_text(told.replace("reason =", f'within = "{setting}"\nreason ='))
        _, again = mutate(release, "--equivalent", str(reasons))
        fates = [one["fate"] for one in again["report"]["results"]]
        assert fates.count(fate) == len(survivors) and survivors


def test_what_nobody_notices_is_judged_with_other_options_too(release: Path) -> None:
    keep, page = release / "keep.jsonl", release / "page.md"
    _, first = mutate(release, "--keep", str(keep))
    also = ("--also", "--cache-mode align", "--markdown", str(page))
    _, found = mutate(release, "--keep", str(keep), *also)
    before, after = ({one["key"]: one for one in of["report"]["results"]} for of in (first, found))
    assert before.keys() == after.keys()
    (noticed,) = [one for one in after.values() if one["after"] == "return total"]
    assert before[noticed["key"]]["fate"] == "survived"
    assert (noticed["fate"], noticed["by"]) == ("killed", "three_rows, v1 align")
    assert noticed["key"] not in found["missing"]
    assert '--also "--cache-mode align"' in page.read_text()
    assert keep.with_name("keep-v1-align.jsonl").exists()


def test_what_is_said_to_change_nothing_has_to_do_so_with_other_options(release: Path) -> None:
    _, first = mutate(release)
    reasons = release / "equivalent.toml"
    survivors = [one for one in first["report"]["results"] if one["after"] == "return total"]
    reasons.write_text(entries(survivors, "the limit is never reached"))
    arguments = ["vllm", "mutate", "--release", "1.0", "--file", "runner.py", "--sample", "50"]
    arguments += ["--scenarios", str(release / "scripts"), "--equivalent", str(reasons)]
    ran = CliRunner().invoke(app, [*arguments, "--also", "--cache-mode align"])
    assert ran.exit_code == ExitCode.BAD_INPUT and "delete the entry" in ran.output
    wrong = CliRunner().invoke(app, [*arguments, "--also", "--cash-mode align"])
    assert wrong.exit_code == ExitCode.BAD_INPUT and "No such option" in wrong.output


def test_an_edit_is_told_as_the_gate_tells_a_checkout(release: Path) -> None:
    """With the first value that differs; what only an import runs cannot be edited."""
    scenario = load_for("vLLM", release / "scripts" / "three_rows.toml")
    cell = Cell(release="1.0", runner=ModelRunner.V1, mode=StateMode.NONE)
    at, top = RUNNER.index("return min"), RUNNER.index("100")
    with opened(cell) as engine:
        edited = EditedRelease(engine)
        edited.record([scenario], lambda name: None)
        other = SourceEdit("vllm.runner", at, at + len("return min(total, LIMIT)"), "return 7")
        result = edited.result(scenario.name, other)
        same = edited.result(scenario.name, SourceEdit("vllm.runner", at, at, ""))
        assert edited.result(scenario.name, SourceEdit("vllm.runner", top, top, "1")) is None
    assert same is not None and same.gate_code() is ExitCode.CLEAN
    assert result is not None and result.gate_code() is ExitCode.FINDING
    console = Console(record=True, width=100)
    print_target_gate(console, gated([result]), benign=Benign.PASS)
    assert "step 1: total.total is 7, in the base 6" in console.export_text()


def test_only_what_survived_is_judged_again(release: Path) -> None:
    """With a scenario more, say: neither what was noticed, nor what nobody had drawn."""
    keep = release / "mutants.jsonl"
    mutate(release, "--keep", str(keep))
    lines = [msgspec.json.decode(line) for line in keep.read_bytes().splitlines()]
    drawn = [line for line in lines if line[1]["after"] != "return total"]  # a survivor
    keep.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in drawn))
    renamed = SCENARIO.replace("three_rows", "other_rows")
    (release / "scripts" / "other_rows.toml").write_text(renamed)
    _, found = mutate(release, "--keep", str(keep), "--again")
    again = [one["after"] for one in found["report"]["results"]]
    assert again == ["return min(total, LIMIT + 1)"] and len(drawn) == len(lines) - 1


def test_some_scenarios_do_not_say_of_all_that_a_value_is_the_same(release: Path) -> None:
    keep = release / "mutants.jsonl"
    mutate(release, "--keep", str(keep))
    lines = [msgspec.json.decode(line) for line in keep.read_bytes().splitlines()]
    alike = {one["key"] for _, one in lines if one["how"] == ALIKE}
    other = [("of another time", one | {"how": ""}) for _, one in lines]
    keep.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in other))
    _, found = mutate(release, "--keep", str(keep), "--again")
    again = {one["key"]: one["how"] for one in found["report"]["results"]}
    assert alike and {again[key] for key in alike} == {""}


def test_without_a_kept_file_there_is_nothing_to_judge_again(release: Path) -> None:
    arguments = ["vllm", "mutate", "--release", "1.0", "--again"]
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == ExitCode.BAD_INPUT and "--keep" in ran.output
