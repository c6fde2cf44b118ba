"""The fixture, in runs of pytest under the virtual device and without it."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cuda_torch import needs_cuda_torch
from warmed import Warmth, run_command

pytest_plugins = ["pytester"]

PLUGIN = "racegate.cli.testing.plugin"
TESTS = """
    import racegate
    import torch

    def load(waits):
        host = torch.zeros(64, pin_memory=True)
        host.copy_(torch.ones(64, device="cuda"), non_blocking=True)
        if waits:
            torch.cuda.synchronize()
        return float(host.sum())

    def test_waits(racegate_recording):
        assert load(True) == 64
        assert racegate_recording.findings == ()

    def test_does_not_wait(racegate_recording):
        assert load(False) == 64
        (finding,) = racegate_recording.findings
        assert finding.first.operation == "d2h"

    def test_fails_by_itself(racegate_recording):
        load(False)
        raise ValueError("mine")

    def test_without_the_fixture():
        assert load(False) == 64
"""


def options() -> list[str]:
    """pytest, with the plugin if it is not installed with the package."""
    is_installed = any(point.value == PLUGIN for point in entry_points(group="pytest11"))
    plugin = [] if is_installed else ["-p", PLUGIN]
    return ["pytest", "-rs", "-p", "no:cacheprovider", *plugin]


def under_device(
    folder: Path, *arguments: str, after: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    words = ("torch", "run", *arguments, "-m", *options(), *after)
    return run_command(*words, cwd=folder, warmth=Warmth.PROGRAMS)


@needs_cuda_torch
def test_a_test_fails_with_what_it_did_unless_that_is_suppressed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_load=TESTS)
    wanted = ("--junit-xml", "all.xml", "--racegate-report-dir", "reports")
    done = under_device(pytester.path, after=wanted)
    assert done.returncode == 1
    assert "2 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    failures = done.stdout.partition("= FAILURES =")[2]
    head, own = failures.split("test_fails_by_itself", 1)
    assert "no edge of the program orders these accesses" in head
    assert "test_load.py:6 in load" in head
    assert "_pytest" not in head
    assert "ValueError: mine" in own
    assert "Captured racegate call" in own
    signature = done.stderr.partition("CONFLICT 1 [")[2].partition("]")[0]
    cases = ElementTree.parse(pytester.path / "all.xml").iter("testcase")
    said = {
        case.get("name"): {one.get("name"): one.get("value") for one in case.iter("property")}
        for case in cases
    }
    assert said["test_waits"] == said["test_without_the_fixture"] == {}
    for name in ("test_does_not_wait", "test_fails_by_itself"):
        assert said[name]["racegate.signature"] == signature
        assert "test_load.py:6 in load" in (said[name]["racegate.finding"] or "")
        page = Path(said[name]["racegate.attachment"] or "")
        assert f"[[ATTACHMENT|{page}]]" in failures
        assert "Race on " in page.read_text()
    known = f'[[suppression]]\nsignature = "{signature}"\nreason = "known"\n'
    (pytester.path / "known.toml").write_text(known)
    done = under_device(pytester.path, "--suppressions", "known.toml")
    assert "1 failed, 3 passed" in done.stdout, done.stdout + done.stderr  # by itself


def test_without_the_device_it_says_how_to_get_one(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_load="""
            import sys

            def test_waits(racegate_recording):
                raise AssertionError("has to be skipped")

            def test_imports_nothing_heavy():
                assert "torch" not in sys.modules
        """
    )
    done = pytester.run(sys.executable, "-m", *options())
    done.assert_outcomes(skipped=1, passed=1)
    done.stdout.fnmatch_lines(["*needs the virtual CUDA device: racegate torch run -m pytest*"])


def test_the_plugin_imports_nothing_but_pytest_until_a_test_asks(tmp_path: Path) -> None:
    """Neither what racegate is made of, nor what it is built on."""
    (tmp_path / "test_it.py").write_text("def test_it() -> None:\n    pass\n")
    (tmp_path / "conftest.py").write_text(
        "import sys\n\ndef pytest_sessionfinish():\n    print('\\nloaded', *sorted(sys.modules))\n"
    )
    command = [sys.executable, "-m", *options(), "-s"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    (line,) = [one for one in done.stdout.splitlines() if one.startswith("loaded ")]
    tops = {name.partition(".")[0] for name in line.split()}
    assert not tops & {"msgspec", "numpy", "typer", "rich", "jinja2", "torch", "triton"}
    ours = {name for name in line.split() if name.startswith("racegate")}
    assert ours <= {
        "racegate",
        "racegate.cli",
        "racegate.cli.testing",
        "racegate.cli.testing.plugin",
        "racegate.cli.testing.recording",
        "racegate.cli.testing.settings",
        "racegate.history",
    }
    assert "racegate.cli.testing.plugin" in ours


# As in a program under `torch run`, which begins when racegate has long been imported.
AFTER_RACEGATE = (
    "import racegate.interpose.current, pytest, sys; sys.exit(pytest.main(sys.argv[1:]))"
)
# As in a script that checks something, and then runs its tests.
AFTER_A_CHECK = (
    "import racegate_kernels, racegate.check.checker, racegate.cli.testing.plugin, pytest, sys; "
    "sys.exit(pytest.main(sys.argv[1:]))"
)


@pytest.mark.parametrize(
    "start",
    [("-W", "error", "-m", "pytest"), ("-c", AFTER_RACEGATE), ("-W", "error", "-c", AFTER_A_CHECK)],
)
def test_a_project_in_which_warnings_are_errors_runs_its_tests(
    start: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (tmp_path / "test_it.py").write_text("def test_it() -> None:\n    pass\n")
    command = [sys.executable, *start, "-q", "-W", "error", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout + done.stderr
