"""Runs the tests of PyTorch, vLLM, DeepSpeed or Megatron-core on the virtual device, one process a
test, and says what came of each. With `--together` the tests of a file are run in one process
first: if nothing in it was without order or refused, those that passed have passed, and the others
are run one by one.

    python reports/interposer/peers/run.py CHECKOUT OUT.jsonl [--file test_cuda.py ...] [NAME ...]
    python reports/interposer/peers/run.py --table OUT.jsonl

CHECKOUT: of PyTorch or of another project (`--suite NAME`), by the Python in which that is
installed, and what its tests need: PyTorch's expecttest and psutil, vLLM's pytest-asyncio and
tblib.
NAME: words of tests that are run again; without any, those that OUT.jsonl does not have are run, so
that the same command goes on where it was stopped. A line of OUT.jsonl is one test:

passed: and nothing that it did is without order
skipped: by itself, with its reason
refused: racegate does not model what it asked for; with the call
conflict: accesses without order, whatever the test itself said
failed: it failed, and racegate refused nothing
hung: it took longer than `--timeout`, or all of its threads stood still
lost: its process ended before it did

What is not passed, refused or skipped is judged by hand in `judged_SUITE.toml`: `wrong` is a fault
of racegate, `race` a real one of the test, `older` a test of another release than the installed
torch, `limit` what a device without a GPU, or the run of this suite, cannot have. What nobody has
judged counts as wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, NamedTuple
from xml.etree import ElementTree

import msgspec

from racegate.interpose.build import find_toolkit
from racegate.interpose.outcome import DeviceKind, Ending, Outcome, Plan
from racegate.interpose.program.stdin import open_stdin
from racegate.targets.common.server import PrintPlace, open_server
from racegate.targets.common.variables import environment_for
from racegate.targets.program.launch import DeviceServer, Program

sys.path.insert(0, str(Path(__file__).parent))
from prepared import MODULES

HERE = Path(__file__).parent
TITLE = "# Tests of {0} on the virtual device"
ABOUT = (
    "Made by `python reports/interposer/peers/run.py OUT.jsonl --table` from "
    "[{0}.jsonl]({0}.jsonl) and [judged_{0}.toml](judged_{0}.toml). Torch {1}; {2}. "
    "[What the columns mean](../README.md#pytorchs-own-tests)."
)
MEMORY_BYTES = 8 << 30  # a power of two: some tests expect to get whole numbers out of shares of it
KEPT_MAX = 300
TOLD_MAX = 120
TOGETHER_MAX = 4  # times the limit of one test
WORDS = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-q")


class Suite(NamedTuple):
    """A project's tests. title: its name; folder: of its checkout; words: for pytest

    modules: that take long to import and set up no CUDA, which may be done only behind the fork
    about: which release the tests are of; ranks: as how many each is run, 0 for none
    gpus: how many each sees, whose processes it starts itself; 0: one
    """

    title: str
    folder: str
    files: tuple[str, ...]
    modules: tuple[str, ...]
    words: tuple[str, ...] = ()
    about: str = ""
    ranks: int = 0
    gpus: int = 0


SUITES = {
    "deepspeed": Suite(
        "DeepSpeed",
        "tests",
        (
            "unit/comm/test_dist.py",
            "unit/runtime/comm/test_coalesced_collectives.py",
            "unit/runtime/test_data.py",
            "unit/runtime/zero/test_zero_context.py",
            "unit/v1/zero/test_offload_states.py",
            "unit/v1/zero/test_overlap_comm_record_stream.py",
            "unit/v1/zero/test_stage2_flatten_on_gpu.py",
            "unit/v1/zero/test_zero_coalesce_grad_reduction.py",
            "unit/v1/zero/test_zero_hook_count_regression.py",
        ),
        ("pytest",),
        about="DeepSpeed and its tests are 0.19.5, without its compiled extensions, on two GPUs",
        gpus=2,
    ),
    "megatron": Suite(
        "Megatron-core",
        ".",
        (
            "tests/unit_tests/distributed/test_param_and_grad_buffer.py",
            "tests/unit_tests/inference/test_scheduler.py",
            "tests/unit_tests/tensor_parallel/test_layers.py",
            "tests/unit_tests/tensor_parallel/test_random.py",
            "tests/unit_tests/test_optimizer_cpu_offloading.py",
            "tests/unit_tests/transformer/test_full_cuda_graph.py",
            "tests/unit_tests/transformer/test_transformer_block.py",
        ),
        ("pytest", "megatron.core", "megatron.training"),
        ("--noconftest", "-o", "addopts="),  # theirs asks for Transformer Engine
        "the tests are of Megatron-core 0.16.1, which is installed without Transformer Engine and "
        "runs as one rank",
        ranks=1,
    ),
    "pytorch": Suite(
        "PyTorch",
        "test",
        ("test_cuda.py", "test_cuda_sanitizer.py", "test_cuda_trace.py"),
        (
            "networkx",
            "pytest",
            "torch._dynamo.testing",
            "torch._inductor.compile_fx",
            "torch.testing._internal.common_cuda",
            "torch.testing._internal.common_utils",
            "torch.utils._triton",
        ),
        ("--noconftest",),  # theirs are of their own runs in parallel
        "the tests are of PyTorch 2.6.0",
    ),
    "vllm": Suite(
        "vLLM",
        ".",
        (
            "tests/v1/kv_offload/cpu/policies/test_factory.py",
            "tests/v1/kv_offload/cpu/test_canonical_layout.py",
            "tests/v1/kv_offload/cpu/test_capacity.py",
            "tests/v1/kv_offload/cpu/test_gpu_worker.py",
            "tests/v1/kv_offload/cpu/test_manager.py",
            "tests/v1/kv_offload/cpu/test_shared_offload_region.py",
            "tests/v1/kv_offload/cpu/test_swap_blocks_batch.py",
            "tests/v1/kv_offload/cpu/test_swap_blocks_triton.py",
            "tests/v1/kv_offload/test_factory.py",
            "tests/v1/kv_offload/test_file_mapper.py",
            "tests/v1/kv_offload/tiering/p2p/test_data_transport.py",
            "tests/v1/kv_offload/tiering/p2p/test_manager.py",
            "tests/v1/kv_offload/tiering/p2p/test_sessions.py",
            "tests/v1/kv_offload/tiering/p2p/test_zmq_transport.py",
            "tests/v1/kv_offload/tiering/test_async_lookup.py",
            "tests/v1/kv_offload/tiering/test_backpressure.py",
            "tests/v1/kv_offload/tiering/test_factory.py",
            "tests/v1/kv_offload/tiering/test_fs_tier.py",
            "tests/v1/kv_offload/tiering/test_kvcr_tier.py",
            "tests/v1/kv_offload/tiering/test_metrics.py",
            "tests/v1/kv_offload/tiering/test_obj_tier.py",
            "tests/v1/kv_offload/tiering/test_tier_poll_thread.py",
            "tests/v1/kv_offload/tiering/test_tiering_offloading.py",
            "tests/v1/sample/test_rejection_sampler.py",
            "tests/v1/sample/test_sampler.py",
            "tests/v1/sample/test_topk_topp_sampler.py",
            "tests/v1/simple_kv_offload/test_hip_mem_ops.py",
            "tests/v1/simple_kv_offload/test_integration.py",
            "tests/v1/simple_kv_offload/test_kv_events.py",
            "tests/v1/simple_kv_offload/test_scheduler.py",
            "tests/v1/simple_kv_offload/test_worker.py",
            "tests/v1/worker/test_gpu_block_table.py",
            "tests/v1/worker/test_gpu_input_batch.py",
            "tests/v1/worker/test_gpu_input_batch_v2.py",
            "tests/v1/worker/test_gpu_model_runner.py",
            "tests/v1/worker/test_mamba_utils.py",
        ),
        ("pytest", "transformers", "vllm", "vllm.v1.worker.gpu_model_runner"),
        about="vLLM and its tests are 0.33.0",
    ),
}


class Standing(StrEnum):
    """What came of a test: see above."""

    PASSED = "passed"
    SKIPPED = "skipped"
    REFUSED = "refused"
    CONFLICT = "conflict"
    FAILED = "failed"
    HUNG = "hung"
    LOST = "lost"


class Kind(StrEnum):
    """What was found by hand of a test that is not right by itself: see above."""

    WRONG = "wrong"
    RACE = "race"
    OLDER = "older"
    LIMIT = "limit"


class Judged(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of tests that have the words of its key in their names."""

    kind: Kind
    reason: str


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One test. text: why it is not passed; events: that were recorded; torch: the installed one;
    together: how many tests the process ran, to which events and seconds belong
    """

    test: str
    standing: Standing
    text: str = ""
    events: int = 0
    seconds: float = 0.0
    torch: str = ""
    together: int = 1


@contextmanager
def prepared_device(modules: tuple[str, ...]) -> Iterator[DeviceServer]:
    """A virtual device whose process has imported these modules."""
    kind = DeviceKind.VIRTUAL
    environment = environment_for(find_toolkit(), kind)
    # What the tests assume: torch's own test modules see whatever the program does.
    environment["PYTORCH_TEST_WITH_SLOW"] = "1"
    environment[MODULES] = " ".join(modules)
    with open_stdin() as stdin:
        command = [sys.executable, str(HERE / "prepared.py"), stdin.copy]
        with open_server(
            command,
            environment,
            what="the virtual device",
            stdin=stdin.file,
            stdout=PrintPlace.STDERR,
        ) as server:
            yield DeviceServer(server, kind)


def tests_in(device: DeviceServer, path: Path, suite: Suite) -> list[str]:
    """Names of the tests of a file, as pytest collects them on the device."""
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        out = Path(folder) / "names"
        program = Program(
            (str(HERE / "collect.py"), str(path), str(out), *suite.words), timeout_s=600.0
        )
        outcome = device.run(program, Plan(is_recording=False), is_quiet=True)
        if not out.exists():
            sys.exit(f"{path}: its tests could not be collected: {outcome.message}")
        return out.read_text().split()


def run_test(device: DeviceServer, test: str, root: Path, suite: Suite, *, timeout_s: float) -> Row:
    """One test under pytest, in a process of its own, recorded."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        report = Path(folder) / "report.xml"
        outcome = _under_pytest(device, test, root, suite, report, timeout_s)
        standing, text = standing_of(outcome, report)
    return Row(
        test=test,
        standing=standing,
        text=text.replace(f"{root}/", "").replace(sys.executable, "python")[:KEPT_MAX],
        events=outcome.events,
        seconds=round(time.perf_counter() - begun, 1),
        torch=outcome.torch_version,
    )


def run_together(
    device: DeviceServer, file: str, root: Path, suite: Suite, *, timeout_s: float
) -> list[Row]:
    """The tests of a file that pass in one process; none if anything in it is to be looked at."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        report = Path(folder) / "report.xml"
        outcome = _under_pytest(device, file, root, suite, report, timeout_s)
        is_whole = outcome.ending in (Ending.FINISHED, Ending.FAILED)
        if not is_whole or outcome.findings or outcome.disagreements or not report.exists():
            return []
        cases = list(ElementTree.parse(report).iter("testcase"))
    seconds = round(time.perf_counter() - begun, 1)
    rows = []
    for case in cases:
        standing, text = _standing_of_case(case)
        if standing in (Standing.PASSED, Standing.SKIPPED):
            told = Row(test=_name_of(case, file), standing=standing, text=text[:KEPT_MAX])
            rows.append(
                msgspec.structs.replace(
                    told,
                    events=outcome.events,
                    seconds=seconds,
                    torch=outcome.torch_version,
                    together=len(cases),
                )
            )
    return rows


def _under_pytest(
    device: DeviceServer,
    test: str,
    root: Path,
    suite: Suite,
    report: Path,
    timeout_s: float,
) -> Outcome:
    own = (f"--rootdir={root}", f"--junitxml={report}", f"{root}/{test}")
    program = Program(
        ("-m", "pytest", *WORDS, *suite.words, *own),
        timeout_s=timeout_s,
        memory_bytes=MEMORY_BYTES,
        ranks=suite.ranks,
        gpus=suite.gpus,
    )
    return device.run(program, Plan(), is_quiet=True)


def _name_of(case: ElementTree.Element, file: str) -> str:
    """As pytest would be told it: JUnit has the file and the classes with dots between."""
    module = file.removesuffix(".py").replace("/", ".")
    classes = case.get("classname", "").removeprefix(module).strip(".").split(".")
    return "::".join([file, *filter(None, classes), case.get("name", "")])


def standing_of(outcome: Outcome, report: Path) -> tuple[Standing, str]:
    """What came of a test, and why. report: of pytest, in JUnit's form"""
    if outcome.ending is Ending.NOT_MODELLED:
        return Standing.REFUSED, outcome.message
    if outcome.ending is Ending.TIMED_OUT:
        return Standing.HUNG, outcome.message
    if outcome.ending is Ending.LOST or not report.exists():
        return Standing.LOST, outcome.message
    if outcome.findings:
        return Standing.CONFLICT, "; ".join(race.message for race in outcome.findings)
    if outcome.disagreements:
        return Standing.CONFLICT, "; ".join(one.title for one in outcome.disagreements)
    return _standing_of_case(next(ElementTree.parse(report).iter("testcase")))


def _standing_of_case(case: ElementTree.Element) -> tuple[Standing, str]:
    for tag, standing in (
        ("failure", Standing.FAILED),
        ("error", Standing.FAILED),
        ("skipped", Standing.SKIPPED),
    ):
        found = case.find(tag)
        if found is not None:
            return standing, found.get("message", "")
    return Standing.PASSED, ""


# ---- what is kept, and the table


def read_rows(path: Path) -> dict[str, Row]:
    """By test; the last line of a test counts."""
    if not path.exists():
        return {}
    rows = (msgspec.json.decode(line, type=Row) for line in path.read_bytes().splitlines())
    return {row.test: row for row in rows}


def judgements(suite: str) -> dict[str, Judged]:
    """By words of a test's name. Raises msgspec.ValidationError."""
    text = (HERE / f"judged_{suite}.toml").read_bytes()
    return msgspec.toml.decode(text, type=dict[str, Judged])


def judged(row: Row, known: dict[str, Judged]) -> Judged | None:
    """What was found of a test by hand, if it has to be judged at all."""
    if row.standing in (Standing.PASSED, Standing.SKIPPED, Standing.REFUSED):
        return None
    for words, found in known.items():
        if words in row.test:
            return found
    return Judged(Kind.WRONG, "nobody has judged it")


def table(rows: Iterable[Row], known: dict[str, Judged], suite: str) -> str:
    """Markdown: a line for each file; which calls were refused, of how many tests; and each test
    that was judged by hand.
    """
    rows = list(rows)
    releases = " and ".join(sorted({row.torch for row in rows if row.torch}))
    kinds = [(row, found) for row in rows if (found := judged(row, known)) is not None]
    refused = [row for row in rows if row.standing is Standing.REFUSED]
    about = ABOUT.format(suite, releases, SUITES[suite].about)
    parts = [TITLE.format(SUITES[suite].title), "", textwrap.fill(about, 120), ""]
    parts += [_counts(rows, known), "", "## Refused", "", *_refusals(refused), "", "## By hand", ""]
    for row, found in sorted(kinds, key=lambda pair: (pair[1].kind, pair[0].test)):
        said = _one_line(row.text)
        parts.append(_item(f"{found.kind}: `{row.test}` ({row.standing}: {said}): {found.reason}"))
    return "\n".join(parts)


def _counts(rows: list[Row], known: dict[str, Judged]) -> str:
    heads = ["passed", "refused", "race", "limit", "older", "wrong", "skipped"]
    counted: dict[str, Counter[str]] = {}
    for row in rows:
        found = judged(row, known)
        column = row.standing.value if found is None else found.kind.value
        counted.setdefault(row.test.partition("::")[0], Counter())[column] += 1
    lines = [f"| file | tests | {' | '.join(heads)} |", f"| --- |{' ---: |' * (len(heads) + 1)}"]
    for name, counts in counted.items():
        numbers = [counts.total(), *(counts[head] for head in heads)]
        lines.append(f"| {name} | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines)


def _refusals(rows: list[Row]) -> list[str]:
    """By what was asked for, the most frequent first."""
    by_call: dict[str, list[str]] = {}
    for row in rows:
        by_call.setdefault(_one_line(row.text), []).append(row.test.rpartition("::")[2])
    ordered = sorted(by_call.items(), key=lambda item: (-len(item[1]), item[0]))
    return [_item(f"{len(tests)}: {call} (`{'`, `'.join(tests)}`)") for call, tests in ordered]


def _item(text: str) -> str:
    """Of a list, within the width of a page."""
    return textwrap.fill(text, 116, initial_indent="- ", subsequent_indent="  ")


def _one_line(text: str) -> str:
    first = next(iter(text.splitlines()), "")
    return first[:TOLD_MAX]


def run_all(options: argparse.Namespace) -> None:
    """Runs what is missing, or what is named, and adds a line for each."""
    known = read_rows(options.out)
    suite = SUITES[options.suite]
    root = (options.checkout / suite.folder).resolve()
    with prepared_device(suite.modules) as device, options.out.open("ab") as out:
        for file in options.file or suite.files:
            names = [f"{file}::{name}" for name in tests_in(device, root / file, suite)]
            if options.names:
                missing = [one for one in names if any(word in one for word in options.names)]
            else:
                missing = [one for one in names if one not in known]
            if missing and options.together:
                limit_s = options.timeout * TOGETHER_MAX
                others = [f"--deselect={root}/{one}" for one in names if one not in missing]
                these = suite._replace(words=(*suite.words, *others))
                rows = run_together(device, file, root, these, timeout_s=limit_s)
                keep(rows, out)
                done = {row.test for row in rows}
                missing = [one for one in missing if one not in done]
            for test in missing:
                keep([run_test(device, test, root, suite, timeout_s=options.timeout)], out)


def keep(rows: Iterable[Row], out: BinaryIO) -> None:
    """A line of the file, and one for who waits, for each."""
    for row in rows:
        out.write(msgspec.json.encode(row) + b"\n")
        print(f"{row.seconds:6.1f} s  {row.standing:8}  {row.test}  {_one_line(row.text)}")
    out.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("checkout", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--suite", choices=sorted(SUITES), default="pytorch")
    parser.add_argument("--file", action="append")
    parser.add_argument("--timeout", type=float, default=600.0)
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_intermixed_args()
    if options.table:
        rows = read_rows(options.checkout).values()
        print(table(rows, judgements(options.suite), options.suite))
        return
    if options.out is None:
        parser.error("no OUT.jsonl")
    run_all(options)


if __name__ == "__main__":
    main()
