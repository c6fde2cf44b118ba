"""The harness: scenarios, devices, the asynchronous engine, oracles, search and reports.

The names below are what a program calls (`docs/api.md`). Each is imported when it is first used, so
that `import racegate` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from racegate.cli.drawing import draw
    from racegate.interpose.surface import observe
    from racegate.repro.public import (
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

__all__ = [
    "BadInputError",
    "NotProvedError",
    "RunResult",
    "Scenario",
    "Verdict",
    "Witness",
    "assert_proved",
    "assert_verdict",
    "build",
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

# The one place where it stands: the distribution takes it from here.
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """A name of `__all__`, from where it is defined. `observe` needs no NumPy, as programs do."""
    if name not in __all__:
        raise AttributeError(f"module 'racegate' has no attribute {name!r}")
    home = {"observe": "interpose.surface", "draw": "cli.drawing"}.get(name, "repro.public")
    value: object = getattr(import_module(f"racegate.{home}"), name)
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
