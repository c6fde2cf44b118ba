"""A plugin of pytest: what is in C is compiled with the address and the undefined-behaviour
sanitizer, also that of the devices that tests start. What they see ends the process.

    python tests/helpers/sanitized.py TEST...
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from racegate.interpose.errors import BadInput
from racegate.order.native import compiler

FLAGS = "-g -fsanitize=address,undefined -fno-sanitize-recover=all"
# Leaks: of what Python keeps to its end. Faults of guarded pages are the device's own.
OPTIONS = "detect_leaks=0:handle_segv=0:verify_asan_link_order=0"
LIBRARY = "RACEGATE_SANITIZER"  # the variable that says which these are


# What has to be loaded before Python. The sanitizer looks for C++'s throw when it starts, and ends
# the process at the first exception if nobody has loaded it by then.
LIBRARIES = ("libasan.so", "libstdc++.so.6")


def sanitizer() -> str:
    """The libraries, with colons between them; empty if the compiler has no sanitizer."""
    found = [_library(name) for name in LIBRARIES]
    return ":".join(filter(None, found)) if found[0] else ""


def _library(name: str) -> str:
    try:
        command = [*compiler.find_compiler(), f"-print-file-name={name}"]
    except BadInput:
        return ""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = Path(done.stdout.strip())
    return str(found) if found.is_absolute() and found.exists() else ""


def variables(folder: Path) -> dict[str, str]:
    """The environment of a process whose C is compiled so. folder: for what is compiled"""
    plain = " ".join(compiler.find_compiler())
    compile_ = folder / "sanitizing-cc"
    compile_.write_text(f'#!/bin/sh\nunset LD_PRELOAD\nexec {plain} {FLAGS} "$@"\n')
    compile_.chmod(0o755)
    library = sanitizer()
    path = [str(Path(__file__).parent), *sys.path]
    return {
        **os.environ,
        "CC": str(compile_),
        "XDG_CACHE_HOME": str(folder),
        "LD_PRELOAD": library,
        LIBRARY: library,
        "ASAN_OPTIONS": OPTIONS,
        "PYTHONPATH": os.pathsep.join(path),
    }


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Python with these arguments, so compiled; its output is captured."""
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(
            [sys.executable, *arguments],
            env=variables(Path(folder)),
            capture_output=True,
            text=True,
            check=False,
        )


def pytest_configure() -> None:
    """Devices that are started from here on load the sanitizer behind the virtual runtime."""
    from racegate.targets.program import launch

    plain, library = launch.environment_for, os.environ[LIBRARY]

    def sanitized(*arguments: Any) -> dict[str, str]:
        made = plain(*arguments)
        return {**made, "LD_PRELOAD": f"{made['LD_PRELOAD']}:{library}"}

    launch.environment_for = sanitized


if __name__ == "__main__":
    # Not by file descriptor: what the sanitizer says when it ends the process would be lost.
    plain = ("-m", "pytest", "-p", "sanitized", "-p", "no:cacheprovider", "--capture=sys")
    done = run(*plain, *sys.argv[1:])
    print(done.stdout, done.stderr, sep="\n")
    raise SystemExit(done.returncode)
