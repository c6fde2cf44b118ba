"""Sources: what can be mutated, and who judges it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from racegate.measure.evaluation.source.c_operators import c_edits_of
from racegate.measure.evaluation.source.child import ChildLimits, Say
from racegate.measure.evaluation.source.operators import edits_of
from racegate.measure.evaluation.source.reach import LineReach
from racegate.measure.evaluation.source.results import Edit, SourceMutant
from racegate.scenario.errors import BadInputError
from racegate.scenario.strict import StrictStruct
from racegate.scenario.untrusted.near import nearest

# Of a checkout: an installed racegate has neither tests nor scenarios.
ROOT = Path(__file__).parents[5]


class Source(StrictStruct, frozen=True):
    """name: of a room; folders: of its files, or files; tests: that have to kill its mutants, none
    where the gate has to; without: parts of paths that are left out, as they need a GPU
    elsewhere: tests, in this order, of which processes of their own run the mutants too, so that
        nobody counts lines: they judge what the others do not notice, and what is in C
    """

    name: str
    folders: tuple[str, ...]
    tests: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()


def _room(name: str, *more_tests: str) -> Source:
    return Source(
        name=name,
        folders=(f"harness/racegate/{name}",),
        tests=(f"tests/{name}", *more_tests),
    )


def _named(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for name in names)


# Without test_removal, which makes whole runs of every fault: what kills has to be a law.
OF_ORACLES = (
    "agreement",
    "counts",
    "findings",
    "invariants",
    "losslessness",
    "missing_edge",
    "ordering",
    "ownership",
    "pages",
    "paths",
    "recall",
    "retimed",
    "stepwise",
)
# What the engine tells an observer: it judges, so that tests have to notice and not the gate alone.
OBSERVING = _named("observe", "details.py", "probe.py", "probe_blocks.py", "recording.py")
SOURCES = {
    source.name: source
    for source in (
        Source(
            name="engine",
            folders=("harness/racegate/engine", "kernels/racegate_kernels"),
            without=("_triton.py", "launch.py", *OBSERVING),
        ),
        Source(
            name="tiers",
            folders=_named("harness/racegate/engine/cache", "carriers.py", "store.py", "parts.py"),
        ),
        Source(
            name="observe",
            folders=("harness/racegate/engine/observe",),
            tests=(
                *_named("tests/engine", "test_recording.py", "test_observing.py"),
                *_named("tests/oracles", "test_ownership.py", "test_stepwise.py"),
            ),
        ),
        _room("scenario"),
        _room("history", "tests/check", "tests/report", "tests/jobs/test_ratchet.py"),
        Source(
            name="device",
            folders=("harness/racegate/device",),
            tests=(
                "tests/device",
                "tests/oracles/test_ownership.py",
                "tests/explore/test_dpor.py",
                "tests/check/test_meeting.py",
            ),
            without=("cuda/torch.py", "litmus.py"),
            elsewhere=(
                "tests/device/test_compiled_kernels.py",
                "tests/check/test_checkpoint.py",
                "tests/kernels",
            ),
        ),
        Source(
            name="oracles",
            folders=("harness/racegate/oracles",),
            tests=tuple(f"tests/oracles/test_{each}.py" for each in OF_ORACLES),
        ),
        Source(
            name="order",
            folders=("harness/racegate/order",),
            tests=(
                *_named("tests/order", "test_order.py", "test_ranges.py", "test_lanes.py"),
                *_named("tests/order", "test_remedies.py", "test_fewest_edges.py"),
                "tests/oracles/test_ordering.py",
                "tests/interpose/test_recorder.py",
            ),
            without=("native/compiler.py",),
            elsewhere=("tests/order/test_order.py", "tests/order/test_ranges.py"),
        ),
        _room(
            "explore",
            "tests/check/repro",
            *_named("tests/measure/evaluation", "test_coverage.py", "test_covering.py"),
        ),
        _room("faults"),
        _room("check"),
        Source(
            name="repro",
            folders=("harness/racegate/check/repro",),
            tests=("tests/check/repro",),
            elsewhere=("tests/cli/test_search_cli.py",),
        ),
        _room(
            "jobs",
            "tests/targets/vllm/test_vllm_changed.py",
            "tests/targets/vllm/test_vllm_beside.py",
            "tests/targets/adapters/test_adapter_beside.py",
        ),
        Source(
            name="interpose",
            folders=_named(
                "harness/racegate/interpose/device",
                *("queue.py", "graphs.py", "session.py", "calls.py", "spans.py"),
                *("native/core.c", "native/runtime.c"),
            ),
            tests=_named(
                "tests/interpose",
                *("test_queue.py", "test_graph_parts.py", "test_touches.py"),
                *("test_torn_copies.py", "test_interpose_latches.py", "test_spans.py"),
            ),
            elsewhere=_named(
                "tests/interpose",
                *("test_runtime_calls.py", "test_program.py", "test_interpose_litmus.py"),
                "test_memory.py",
                *("test_interpose_search.py", "test_no_gpu.py"),
            ),
        ),
        Source(
            name="adapters",
            folders=("harness/racegate/targets/adapters",),
            tests=("tests/targets/adapters", "tests/targets/test_every_judge.py"),
        ),
        Source(
            name="targets",
            folders=_named(
                "harness/racegate/targets",
                *("common/judge.py", "common/landings.py", "common/search.py"),
                *("common/sensitivity.py", "common/result.py", "vllm/sensitivity.py"),
                *("program/judge.py", "program/explore.py"),
            ),
            tests=(
                *_named(
                    "tests/targets",
                    *("common", "test_every_judge.py", "vllm/test_vllm_landings.py"),
                    *("vllm/test_vllm_search.py", "vllm/test_vllm_sensitivity.py"),
                    "vllm/test_vllm_settings.py",
                ),
                "tests/interpose/test_interpose_search.py",
            ),
        ),
        Source(
            name="evaluation",
            folders=("harness/racegate/measure/evaluation",),
            tests=("tests/measure/evaluation",),
        ),
    )
}

# Whose mutants the gate judges alone.
BY_GATE = frozenset(name for name, source in SOURCES.items() if not source.tests)


class SourceError(BadInputError):
    """A source that there is not, or that is not here: says which there are."""


def find_source(name: str) -> Source:
    """By its name. Raises SourceError."""
    if name not in SOURCES:
        raise SourceError(f"no source '{name}' to mutate{nearest(name, SOURCES)}")
    if not (ROOT / "tests").is_dir() or not (ROOT / "scenarios").is_dir():
        raise SourceError(
            f"{ROOT} is no checkout: the gate's scenarios and the tests have to be there"
        )
    return SOURCES[name]


def files_of(source: Source) -> list[Path]:
    """Its files, in the order of their paths."""
    return [
        path
        for folder in source.folders
        for path in _files_in(ROOT / folder)
        if path.name != "__init__.py"
        and not any(str(path).endswith(part) for part in source.without)
    ]


def _files_in(folder: Path) -> list[Path]:
    """In the order of their paths; a file is in itself."""
    if folder.is_file():
        return [folder]
    return sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".c"))


def mutants_of(path: Path) -> list[SourceMutant]:
    """Every mutant of a file."""
    content = path.read_bytes()
    edits = (c_edits_of if path.suffix == ".c" else edits_of)(content)
    return mutants_by(edits, str(path.relative_to(ROOT)), content)


def mutants_by(edits: Iterable[Edit], file: str, content: bytes) -> list[SourceMutant]:
    """The mutants that edits make of the content of a file."""
    alike: Counter[tuple[str, ...]] = Counter()
    found = []
    for edit in edits:
        before, after = edit.shown(content)
        looks = (edit.scope, edit.operator, before, after)
        found.append(
            SourceMutant(file=file, edit=edit, before=before, after=after, nth=alike[looks])
        )
        alike[looks] += 1
    return found


def module_of(file: str) -> str:
    """`racegate.engine.engine` for `harness/racegate/engine/engine.py`."""
    return ".".join(Path(file).with_suffix("").parts[1:])


class MutantJudge(Protocol):
    """A judge of mutants. limits: of a child in which it judges"""

    limits: ChildLimits

    def prepare(self) -> None:
        """Once in a worker: what every child would do again."""
        ...

    def judge(self, names: Sequence[str], say: Say) -> None:
        """In a child: says at which scenario or test it is, and what it found there."""
        ...


def look_of(source: Source) -> MutantJudge:
    """The gate or the tests."""
    if source.tests:
        from racegate.measure.evaluation.source.by_tests import TestsLook

        return TestsLook(ROOT, source.tests)
    from racegate.measure.evaluation.source.by_gate import GateLook

    return GateLook(ROOT / "scenarios")


class LineRecording(Protocol):
    """Says which lines judges execute, one part of them at a time."""

    def prepare(self) -> None:
        """Once in a worker."""
        ...

    def record(self, part: str) -> LineReach:
        """Of one part (minutes for some tests). Raises BrokenHarnessError if a test fails."""
        ...


def parts_of(source: Source) -> list[str]:
    """What is recorded on its own: a file of tests, or all that the gate looks at."""
    found = [
        path
        for each in source.tests
        for path in ([ROOT / each] if each.endswith(".py") else (ROOT / each).rglob("test_*.py"))
    ]
    # The longest files first, which take longest: nobody waits for the last one.
    found.sort(key=lambda path: (-path.stat().st_size, path))
    return [str(path.relative_to(ROOT)) for path in found] or ["scenarios"]


def recording_of(source: Source, parts: Sequence[str]) -> LineRecording:
    """Of the gate, or of these files of tests."""
    files = files_of(source)
    if source.tests:
        from racegate.measure.evaluation.source.by_tests import TestsLook, TestsRecording

        return TestsRecording(TestsLook(ROOT, parts), ROOT, files)
    from racegate.measure.evaluation.source.by_gate import GateRecording

    return GateRecording(ROOT / "scenarios", ROOT, files)
