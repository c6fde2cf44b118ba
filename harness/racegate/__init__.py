"""The harness: scenarios, devices, the asynchronous engine, oracles, search and reports.

The names below are what a program calls (`docs/api.md`). Each is imported when it is first used, so
that `import racegate` costs nothing.

PYTEST_DONT_REWRITE: pytest may begin in a process that has imported this, as under `racegate torch
run`, and would warn of it; where warnings are errors no test would run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from racegate.history import __version__

if TYPE_CHECKING:
    from racegate.check.repro.public import (
        BadInputError,
        NotProvedError,
        RunResult,
        Scenario,
        Verdict,
        Witness,
        assert_proved,
        assert_verdict,
        build,
        explain,
        load,
        minimise,
        replay,
        run,
        save,
        scripts,
        search,
    )
    from racegate.interpose.surface import agree, declare_copies, observe
    from racegate.report.finding.drawing import draw

__all__ = [
    "BadInputError",
    "NotProvedError",
    "RunResult",
    "Scenario",
    "Verdict",
    "Witness",
    "__version__",
    "agree",
    "assert_proved",
    "assert_verdict",
    "build",
    "declare_copies",
    "draw",
    "explain",
    "load",
    "minimise",
    "observe",
    "replay",
    "run",
    "save",
    "scripts",
    "search",
]


def __getattr__(name: str) -> object:
    """A name of `__all__`, from where it is defined. `observe` needs no NumPy, as programs do."""
    if name not in __all__:
        raise AttributeError(f"module 'racegate' has no attribute {name!r}")
    home = {
        "agree": "interpose.surface",
        "declare_copies": "interpose.surface",
        "observe": "interpose.surface",
        "draw": "report.finding.drawing",
    }.get(name, "check.repro.public")
    value: object = getattr(import_module(f"racegate.{home}"), name)
    return value


def __dir__() -> list[str]:
    return list(__all__)
