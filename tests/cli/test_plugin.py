"""The pytest plugin, in sessions of pytest of its own."""

from __future__ import annotations

import shutil
import sys
from importlib.metadata import entry_points
from xml.etree import ElementTree

import pytest
import torch

from racegate.cli.testing.settings import OPTIONS
from repository import ROOT
from support import SCENARIOS

pytest_plugins = ["pytester"]

PLUGIN = "racegate.cli.testing.plugin"
SCRIPT = "finish_and_condense.toml"
WITNESS = "accepted-copy-after-row-move.witness.json"
TESTS = """
    import pytest

    FAULT = "accepted-copy-after-row-move"

    @pytest.mark.racegate("finish_and_condense.toml", fault=FAULT, explore="ladder")
    def test_wrong():
        raise AssertionError("the verdict comes first")

    @pytest.mark.racegate(scenario="finish_and_condense.toml", fault=FAULT, verdict="CONFLICT")
    def test_expected(racegate_result, racegate_seed):
        assert racegate_result.findings[0].buffer == "accepted_counts_cpu"
        assert racegate_seed == 3

    @pytest.mark.racegate("finish_and_condense.toml", folt=1)
    def test_mistyped():
        pass

    @pytest.mark.racegate("finish_and_condense.toml", holds=["one until two until three"])
    def test_no_hold():
        pass

    def test_without_a_marker(racegate_result):
        pass
"""


def options() -> list[str]:
    """The plugin, if it is not installed with the package."""
    is_installed = any(point.value == PLUGIN for point in entry_points(group="pytest11"))
    return ["-p", "no:cacheprovider", *([] if is_installed else ["-p", PLUGIN])]


def test_marked_tests_files_and_reports(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_marked=TESTS)
    shutil.copy(SCENARIOS / SCRIPT, pytester.path)
    shutil.copy(SCENARIOS / "witnesses" / WITNESS, pytester.path)
    pytester.path.joinpath("broken.toml").write_text("schema = 1\n[[requests]]\nnome = 'A'\n")
    pytester.path.joinpath("other.toml").write_text("[tool]\nname = 'x'\n")
    seed = ("--racegate-seed", "3", "--racegate-report-dir", "reports", "--junit-xml", "all.xml")
    result = pytester.runpytest_inprocess(*options(), "--strict-markers", *seed)
    result.assert_outcomes(passed=3, failed=4, errors=1)
    result.stdout.fnmatch_lines(
        [
            "racegate *: device virtual, seed 3, reports in *",
            "*racegate_result: mark the test with*",
            "*broken.toml: *nome*",
            "finish-and-condense is DIVERGENT, not PROVED or BENIGN",
            "*accepted_counts_cpu rows 2, and no path of edges orders them*",
            "*Captured racegate call*",
            "replay: racegate replay *test_wrong.witness.json",
            "or: pytest *::test_wrong --racegate-replay *test_wrong.witness.json",
            "picture: *test_wrong.html",
            "@pytest.mark.racegate: got an unexpected keyword argument 'folt'",
            "@pytest.mark.racegate: *one until two*",
        ]
    )
    cases = {case.get("name"): case for case in ElementTree.parse("all.xml").iter("testcase")}
    said = {item.get("name"): item.get("value") for item in cases["test_wrong"].iter("property")}
    assert said["racegate.verdict"] == "DIVERGENT"
    assert said["racegate.seed"] == "3"
    assert said["racegate.signature"] == "ownership/accepted_counts_cpu/host:prepare_inputs"
    (witness,) = pytester.path.glob("reports/*.witness.json")
    assert (said["racegate.finding"] or "").startswith("finish-and-condense is DIVERGENT, not")
    files = [
        one.get("value")
        for one in cases["test_wrong"].iter("property")
        if one.get("name") == "racegate.attachment"
    ]
    assert files == [str(witness.with_name("test_marked.py-test_wrong.html")), str(witness)]
    result.stdout.fnmatch_lines([f"[[][[]ATTACHMENT|{file}]]" for file in files])
    again = ("-k", "test_expected", "--racegate-replay", str(witness), "--racegate-seed", "3")
    replayed = pytester.runpytest_inprocess(*options(), *again)
    replayed.stdout.fnmatch_lines(["finish-and-condense is DIVERGENT, not CONFLICT"])


def test_options_have_twins(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makeini("[pytest]\nracegate_seed = 4\nracegate_report_dir = out\n")
    told = pytester.runpytest_inprocess(*options(), "--collect-only")
    told.stdout.fnmatch_lines(
        [f"racegate *: device virtual, seed 4, reports in {pytester.path}/out"]
    )
    monkeypatch.setenv("RACEGATE_SEED", "5")
    told = pytester.runpytest_inprocess(*options(), "--collect-only")
    told.stdout.fnmatch_lines(["racegate *: device virtual, seed 5, *"])
    told = pytester.runpytest_inprocess(*options(), "--collect-only", "--racegate-seed", "6")
    told.stdout.fnmatch_lines(["racegate *: device virtual, seed 6, *"])
    assert set(OPTIONS) == {"device", "replay", "seed", "report-dir"}


def test_an_engine_behind_an_adapter(pytester: pytest.Pytester) -> None:
    toy = ROOT / "docs" / "examples"
    command = (sys.executable, str(toy / "toy_adapter.py"), "plain", "holds")
    pytester.makepyfile(
        f"""
        import pytest

        @pytest.mark.racegate({str(toy / "toy.toml")!r}, adapter={command}, explore="ladder")
        def test_proved(racegate_result):
            assert racegate_result.device == "cpu"

        @pytest.mark.racegate({str(toy / "toy.toml")!r}, adapter={command[:2]})
        def test_says_too_little():
            pass
        """
    )
    result = pytester.runpytest_inprocess(*options())
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["toy is INCONCLUSIVE, not PROVED or BENIGN", "not exercised: *"])


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--racegate-device=tpu", "there is virtual and cuda"),
        ("--racegate-seed=-1", "a number from 0 on"),
        ("--racegate-replay=none.json", "there is no such file"),
    ],
)
def test_an_option_that_cannot_be_used(pytester: pytest.Pytester, option: str, said: str) -> None:
    result = pytester.runpytest_inprocess(*options(), option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{option.replace('=', ' ')}: {said}"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_cuda_is_skipped(pytester: pytest.Pytester) -> None:
    shutil.copy(SCENARIOS / SCRIPT, pytester.path)
    result = pytester.runpytest_inprocess(*options(), "--racegate-device", "cuda", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*take --device virtual, or a machine with an NVIDIA GPU*"])


def test_switched_off_nothing_is_left_of_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing_is_loaded():
            assert not any(name.startswith("racegate") for name in sys.modules)
        """
    )
    shutil.copy(SCENARIOS / SCRIPT, pytester.path)
    command = (sys.executable, "-m", "pytest", "-p", "no:racegate", "-p", "no:hypothesispytest")
    result = pytester.run(*command, "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("racegate *: device*")


def test_under_xdist_workers_have_the_options(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_seed(racegate_seed, worker_id):
            assert (racegate_seed, worker_id) == (7, "gw0")
        """
    )
    words = ("-p", "no:hypothesispytest", "-n", "1", "--racegate-seed", "7")
    result = pytester.runpytest_inprocess(*options(), *words)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["racegate *: device virtual, seed 7"])
