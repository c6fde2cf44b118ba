"""Figures of the first page, and the charts of each page: read from the files, never retyped. What
a folder has no file for is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from statistics import median

from racegate.explore.features.summary import summarise
from racegate.faults.fault import FaultKind
from racegate.history.finding import Verdict
from racegate.measure.bench.virtual import BenchResult
from racegate.measure.evaluation.coverage import Coverage
from racegate.measure.evaluation.matrix import Matrix, load_matrix
from racegate.measure.evaluation.mutate import Fate
from racegate.measure.evaluation.source.results import SourceReport, SourceResult, score_of
from racegate.report.measured.gpu import GpuFolder, held_runs, load_folder, targets
from racegate.report.measured.matrix import LOOKS, STRATEGIES
from racegate.report.measured.objects import EffortObject, MutationObject, SourceMutationObject
from racegate.report.site.boards import Board, Figure
from racegate.report.site.campaigns import CAMPAIGNS, campaigns_grid, named_campaigns
from racegate.report.site.cells import engine_board
from racegate.report.site.charts import Chart, Meter, Part, Tone, parts
from racegate.report.site.grids import limits_grid, programs_grid
from racegate.report.site.reports import Reports
from racegate.report.site.shapes import (
    LitmusVirtual,
    ProgramFile,
    SanitizerFile,
)

MATRIX, MUTANTS = "faults/matrix.json", "faults/mutants.json"
SOURCE_MUTANTS = "faults/source_*.json"
FEATURES = "search/features.json"
EFFORT, BENCH = "search/effort.json", "search/bench.json"
GPU = "gpu/replay.json"
LITMUS, SANITIZER = "interposer/litmus_virtual.json", "interposer/litmus_gpu.json"
PROGRAMS = "interposer/programs/*.json"
ENGINES = {"vllm": "vLLM", "sglang": "SGLang"}


def board_of(reports: Reports) -> Board:
    """All files together. Raises BadInputError for one that is not what it should be."""
    boards = list(_boards(reports))
    charts = chain.from_iterable(board.charts.items() for board in boards)
    grids = chain.from_iterable(board.grids.items() for board in boards)
    return Board(
        proved=tuple(chain.from_iterable(board.proved for board in boards)),
        found=tuple(chain.from_iterable(board.found for board in boards)),
        speed=tuple(chain.from_iterable(board.speed for board in boards)),
        charts=dict(charts),
        grids=dict(grids),
        cells=dict(chain.from_iterable(board.cells.items() for board in boards)),
    )


def _boards(reports: Reports) -> Iterator[Board]:
    """File by file, in the order of the first page."""
    yield from _campaigns(reports)
    if reports.has(FEATURES):
        yield _features(reports.read(FEATURES, Coverage))
    if reports.has(LITMUS):
        yield _litmus(reports)
    if reports.has(MATRIX):
        yield _matrix(load_matrix(reports.folder / MATRIX))
    if reports.has(MUTANTS):
        yield _mutants(reports.read(MUTANTS, MutationObject))
    yield from _sources(reports)
    for folder, name in ENGINES.items():
        yield from engine_board(reports, folder, name)
    yield from _programs(reports)
    if reports.has(BENCH):
        yield _bench(reports.read(BENCH, BenchResult))
    if reports.has(EFFORT):
        yield _effort(reports.read(EFFORT, EffortObject))
    if reports.has(GPU):
        yield _gpu(load_folder(reports.folder / "gpu"))


def _campaigns(reports: Reports) -> Iterator[Board]:
    named = list(named_campaigns(reports))
    if not named:
        return
    page, files = "search/index.html", [one for _, one in named]
    schedules = sum(one.campaign.schedules for one in files)
    findings = sum(one.findings for one in files)
    scenarios = sum(one.campaign.scenarios for one in files)
    proved = sum(one.campaign.verdicts.get(Verdict.PROVED, 0) for one in files)
    figures = (
        Figure(
            value=f"{proved:,} of {scenarios:,}",
            label="generated scenarios PROVED: every schedule has the outcome of the run made",
            page=page,
            file=CAMPAIGNS,
        ),
        Figure(
            value=f"{schedules:,}",
            label=f"schedules of them run all the same, {findings or 'no'} findings",
            page=page,
            file=CAMPAIGNS,
        ),
    )
    grid = campaigns_grid(named)
    yield Board(proved=figures, grids={page: (grid,)})


def _features(coverage: Coverage) -> Board:
    summary, page = summarise(coverage.table), "search/features.html"
    reached = summary.possible - len(summary.missing)
    figure = Figure(
        value=f"{reached:,} of {summary.possible:,}",
        label=f"possible pairs of {len(summary.rows)} features occur in generated scenarios",
        page=page,
        file=FEATURES,
    )
    pieces = parts(occur=(reached, Tone.GOOD), do_not=(len(summary.missing), Tone.BAD))
    chart = Chart(
        title="Pairs of features",
        note=f"In {coverage.scenarios:,} generated scenarios.",
        file=FEATURES,
        meters=(Meter(label="pairs", parts=pieces),),
    )
    return Board(proved=(figure,), charts={page: (chart,)})


def _litmus(reports: Reports) -> Board:
    programs = reports.read(LITMUS, tuple[LitmusVirtual, ...])
    page, right = "interposer/index.html", sum(one.right for one in programs)
    seen = [one for one in programs if one.expected == "racy" and one.observable]
    shown = sum(one.shown for one in seen)
    meters = [
        Meter(
            label="verdict on the virtual device",
            parts=parts(right=(right, Tone.GOOD), wrong=(len(programs) - right, Tone.BAD)),
        ),
        Meter(
            label="wrong values, where one can be observed",
            parts=parts(
                shown_by_the_search=(shown, Tone.GOOD),
                named_as_a_conflict_only=(len(seen) - shown, Tone.HALF),
            ),
        ),
    ]
    meters += _sanitizer(reports) if reports.has(SANITIZER) else []
    chart = Chart(
        title="Litmus programs in plain torch",
        note="Programs of which it is known whether they race, without a GPU.",
        file=LITMUS,
        meters=tuple(meters),
    )
    figure = Figure(
        value=f"{right} of {len(programs)}",
        label="litmus programs in plain torch judged right, racy and silent",
        page=page,
        file=LITMUS,
    )
    return Board(proved=(figure,), charts={page: (chart,)})


def _sanitizer(reports: Reports) -> list[Meter]:
    """PyTorch's own, on a GPU, on the racy ones among these programs."""
    file = reports.read(SANITIZER, SanitizerFile)
    racy = [one for one in file.programs if one.expected == "racy"]
    said = sum(bool(one.sanitizer) for one in racy)
    pieces = parts(reported=(said, Tone.GOOD), not_reported=(len(racy) - said, Tone.BAD))
    return [Meter(label="racy ones, by PyTorch's sanitizer on a GPU", parts=pieces)]


def _matrix(matrix: Matrix) -> Board:
    totals, page = matrix.totals, "faults/index.html"
    seeded = [row for row in matrix.rows if row.kind is not FaultKind.CONTROL]
    seen = sum(any(cell.seen for cell in row.oracles.values()) for row in seeded)
    figure = Figure(
        value=f"{seen} of {totals.faults}",
        label=f"seeded faults seen; {totals.silent_controls} of {totals.controls} controls silent",
        page=page,
        file=MATRIX,
    )
    strategies = Chart(
        title="Which way to choose schedules shows a fault",
        note="Of all seeded faults. Running eagerly, as an ordinary test does, is one of them.",
        file=MATRIX,
        meters=tuple(
            Meter(
                label=STRATEGIES[strategy].name,
                page="faults/matrix.html",
                parts=parts(
                    by_a_wrong_value=(total.killed, Tone.GOOD),
                    named_as_a_race_only=(len(total.flagged), Tone.HALF),
                    missed=(len(total.missed) - len(total.flagged), Tone.BAD),
                ),
            )
            for strategy, total in totals.strategies.items()
        ),
    )
    looks = Chart(
        title="Which oracle sees a fault",
        note="In some run; it is enough that one does. The last two lines are what comparing the "
        "final tokens would see.",
        file=MATRIX,
        meters=tuple(
            Meter(
                label=LOOKS[look].name,
                page="faults/matrix.html",
                parts=parts(
                    seen=(total.found, Tone.GOOD), not_seen=(len(total.missed), Tone.QUIET)
                ),
            )
            for look, total in totals.oracles.items()
        ),
    )
    return Board(found=(figure,), charts={page: (strategies, looks)})


def _mutants(found: MutationObject) -> Board:
    page, fates = "faults/mutants.html", Counter(one.fate for one in found.mutants)
    matter = len(found.mutants) - fates[Fate.EQUIVALENT]
    figure = Figure(
        value=f"{fates[Fate.KILLED]} of {matter}",
        label=f"broken edges of the engine killed; {fates[Fate.EQUIVALENT]} more are shown "
        "to change nothing",
        page=page,
        file=MUTANTS,
    )
    by_edge: dict[str, Counter[Fate]] = {}
    for one in found.mutants:
        by_edge.setdefault(one.edge, Counter())[one.fate] += 1
    chart = Chart(
        title="Every edge, broken in every way",
        note="Equivalent: a path of other edges still orders every pair.",
        file=MUTANTS,
        meters=tuple(Meter(label=edge, parts=_fates(counts)) for edge, counts in by_edge.items()),
    )
    return Board(found=(figure,), charts={page: (chart,)})


def _fates(counts: Counter[Fate]) -> tuple[Part, ...]:
    return parts(
        killed=(counts[Fate.KILLED], Tone.GOOD),
        equivalent=(counts[Fate.EQUIVALENT], Tone.QUIET),
        survived=(counts[Fate.SURVIVED] + counts[Fate.IDLE], Tone.BAD),
    )


def _sources(reports: Reports) -> Iterator[Board]:
    """All rooms in one figure, and each on its page."""
    files = {
        file: reports.read(file, SourceMutationObject).report
        for file in reports.matching(SOURCE_MUTANTS)
    }
    if not files:
        return
    score = score_of([one for report in files.values() for one in report.results])
    names = ", ".join(report.source for report in files.values())
    figure = Figure(
        value=score.percent(),
        label=f"of {score.matter} edits of the source that change something are noticed ({names})",
        page=next(iter(files)).replace(".json", ".html"),
        file=SOURCE_MUTANTS,
    )
    charts: dict[str, tuple[Chart, ...]] = {
        file.replace(".json", ".html"): (_source(file, one),) for file, one in files.items()
    }
    yield Board(found=(figure,), charts=charts)


def _source(file: str, report: SourceReport) -> Chart:
    by_operator: dict[str, list[SourceResult]] = {}
    for one in report.results:
        by_operator.setdefault(one.operator, []).append(one)
    groups = [("all", list(report.results)), *sorted(by_operator.items())]
    return Chart(
        title="Edits of the source, by what was done",
        note=f"{len(report.results)} drawn of {report.total:,} mutants.",
        file=file,
        meters=tuple(Meter(label=name, parts=_scores(some)) for name, some in groups),
    )


def _scores(results: list[SourceResult]) -> tuple[Part, ...]:
    score = score_of(results)
    return parts(
        killed=(score.killed, Tone.GOOD),
        equivalent=(score.equivalent, Tone.QUIET),
        inconclusive=(score.inconclusive, Tone.HALF),
        survived=(score.survived + score.unreached, Tone.BAD),
    )


def _programs(reports: Reports) -> Iterator[Board]:
    programs = [reports.read(file, ProgramFile) for file in reports.matching(PROGRAMS)]
    if not programs:
        return
    page, racy = "interposer/programs.html", [p for p in programs if p.expected == "racy"]
    found = sum(one.is_right for one in racy)
    silent = [one for one in programs if one.expected == "silent"]
    quiet = sum(one.is_right for one in silent)
    figure = Figure(
        value=f"{found} of {len(racy)}",
        label=f"races in others' PyTorch programs found; {quiet} of {len(silent)} repaired or "
        "sound ones silent",
        page=page,
        file=PROGRAMS,
    )
    yield Board(found=(figure,), grids={page: (programs_grid(programs, PROGRAMS),)})


def _bench(bench: BenchResult) -> Board:
    values = {entry.name: entry.value for entry in bench.results}
    figures = [
        Figure(
            value=f"{values[name]:,.0f} / s",
            label=label,
            page="search/index.html",
            file=BENCH,
        )
        for name, label in (
            ("schedules_per_second", "schedules on one core without a GPU, judged by all oracles"),
        )
        if name in values
    ]
    return Board(speed=tuple(figures))


def _effort(effort: EffortObject) -> Board:
    ordering = [one for one in effort.results if one.flagged_first is not None]
    if not ordering:
        return Board()
    flagged = sum(one.flagged_first or 0 for one in ordering)
    starts = sum(one.seeds for one in ordering)
    middle = median(one.schedules_median or 0 for one in ordering)
    page = "search/effort.html"
    named = Figure(
        value="1 schedule" if flagged == starts else f"{flagged:,} of {starts:,}",
        label=f"names the race: {flagged:,} of {starts:,} starts flagged in the first run",
        page=page,
        file=EFFORT,
    )
    reached = Figure(
        value=f"{middle:.0f} schedules",
        label=f"to a wrong value, median over {len(ordering)} ordering faults",
        page=page,
        file=EFFORT,
    )
    return Board(speed=(named, reached))


def _gpu(folder: GpuFolder) -> Board:
    page, found = "gpu/index.html", targets(folder)
    met = sum(target.is_met for target in found)
    held = Figure(
        value=f"{held_runs(folder):,}",
        label=f"runs with an operation held on a real GPU; {met} of {len(found)} limits met",
        page=page,
        file="gpu/*.json",
    )
    return Board(speed=(held,), grids={"index.html": (limits_grid(found, "gpu/*.json"),)})
