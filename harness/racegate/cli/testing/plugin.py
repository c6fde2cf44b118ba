"""What pytest loads in every session where racegate is installed, so that nothing heavy is imported
here: the options, the marker `racegate`, its fixtures, and files that are tests by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from racegate.cli.testing.settings import OPTIONS, SETTINGS, key_of, settings_of
from racegate.history import __version__

if TYPE_CHECKING:
    from racegate.cli.testing.files import RacegateFile
    from racegate.cli.testing.trial import JudgedTrial
    from racegate.history.outcome import RunResult

# The fixture of programs under the virtual CUDA device.
pytest_plugins = ("racegate.cli.testing.recording",)

MARKER = (
    "racegate(scenario, *, explore='eager', fault=None, holds=(), budget=64, verdict=('PROVED', "
    "'BENIGN'), adapter=()): the scenario has to have this verdict, on racegate's engine or on one "
    "behind an adapter; the fixture racegate_result has the run"
)
# As far as a file is read to see whether it is a scenario.
LOOK_CHARS = 1 << 16
_SCENARIO = (
    re.compile(r"^schema = \d+$", re.MULTILINE),
    re.compile(r"^\[(\[requests\]|trace)\]", re.MULTILINE),
)
# Of our own engine: others need what they were recorded with.
_WITNESS = re.compile(r'"schema": "racegate\.witness/1"|"of": "engine"')


_TRIED = pytest.StashKey["JudgedTrial"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Each has a twin in the environment and in the ini file."""
    group = parser.getgroup("racegate", "races of model runners")
    for name, (metavar, text) in OPTIONS.items():
        key = key_of(name)
        said = f"{text} (also {key.upper()}, and {key} in the ini file)"
        group.addoption(f"--racegate-{name}", dest=key, metavar=metavar, help=said)
        parser.addini(key, f"{text}: the default of --racegate-{name}", default="")
    parser.addini(
        "racegate_collect",
        "whether scenario files and *.witness.json are tests",
        type="bool",
        default=True,
    )


def pytest_configure(config: pytest.Config) -> None:
    """The marker, and the options read once."""
    config.addinivalue_line("markers", MARKER)
    config.stash[SETTINGS] = settings_of(config)


def pytest_report_header(config: pytest.Config) -> str:
    """One line: what repeats the session."""
    settings = config.stash[SETTINGS]
    told = [f"device {settings.device}", f"seed {settings.seed}"]
    told += [] if settings.replay is None else [f"replay {settings.replay}"]
    told += [] if settings.report_dir is None else [f"reports in {settings.report_dir}"]
    return f"racegate {__version__}: {', '.join(told)}"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> RacegateFile | None:
    """A scenario has to be proved, a witness has to show what it was recorded for."""
    if file_path.suffix not in (".toml", ".json") or not parent.config.getini("racegate_collect"):
        return None
    settings = parent.config.stash[SETTINGS]
    if settings.report_dir is not None and file_path.is_relative_to(settings.report_dir):
        return None  # what earlier failures left
    if not _is_test(file_path):
        return None
    from racegate.cli.testing.files import RacegateFile

    found: RacegateFile = RacegateFile.from_parent(parent, path=file_path)
    found.settings = settings
    return found


def _is_test(path: Path) -> bool:
    """Whether a file looks like a scenario or a witness; what cannot be read is somebody else's."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            text = file.read(LOOK_CHARS)
    except OSError:
        return False
    if path.name.endswith(".witness.json"):
        return _WITNESS.search(text) is not None
    return path.suffix == ".toml" and all(part.search(text) for part in _SCENARIO)


@pytest.fixture
def racegate_seed(pytestconfig: pytest.Config) -> int:
    """The seed of the session, for what a test draws itself."""
    return pytestconfig.stash[SETTINGS].seed


@pytest.fixture
def racegate_result(request: pytest.FixtureRequest) -> RunResult:
    """The run of the scenario that the test's marker names."""
    if request.node.get_closest_marker("racegate") is None:
        pytest.fail("racegate_result: mark the test with @pytest.mark.racegate(scenario=...)")
    return _tried(request.node).result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A marked test begins with the verdict of its scenario; its body comes after."""
    if item.get_closest_marker("racegate") is not None:
        from racegate.cli.testing.trial import check_verdict

        check_verdict(item, _tried(item), item.config.stash[SETTINGS])
    yield


def _tried(item: pytest.Item) -> JudgedTrial:
    """What the marker asks for, run once for each test."""
    if _TRIED not in item.stash:
        from racegate.cli.testing.trial import try_marked

        marker = item.get_closest_marker("racegate")
        assert marker is not None
        item.stash[_TRIED] = try_marked(item, marker, item.config.stash[SETTINGS])
    return item.stash[_TRIED]
