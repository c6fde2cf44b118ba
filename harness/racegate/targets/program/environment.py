"""Environments with other versions of packages for a program, on top of the torch of this Python,
and the judge in the process of such an environment.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from racegate.interpose.build import find_toolkit
from racegate.interpose.errors import BadInput
from racegate.targets.common.environment import Run, run_pip
from racegate.targets.program.result import ProgramResult

_STAMP = ".installed"
_SHARED = "racegate_shared.pth"


@dataclass(frozen=True, slots=True)
class JudgedProgram:
    """What `racegate torch run` said of a program in an environment. cpu_s: of all its runs,
    imports included, in seconds.
    """

    result: ProgramResult
    exit_code: int
    cpu_s: float


def environment_for(releases: tuple[str, ...], folder: Path, *, run: Run = run_pip) -> Path:
    """The Python that has these releases: this one if there are none, else one of a virtual
    environment below the folder, which is made where it is missing and kept.

    Everything else, torch and racegate among it, is found behind the environment's own packages,
    where this Python has it.

    Args:
        releases: as pip writes them, `name==version`; the first one names the environment.
        folder: where environments are kept.
        run: what runs pip.

    Raises:
        BadInput: pip could not install a release, with the end of what it said; or this Python's
            torch is no CUDA build.
    """
    if not releases:
        return Path(sys.executable)
    home = folder / releases[0].replace("==", "-")
    python = home / "bin" / "python"
    stamp = home / _STAMP
    wanted = "\n".join((sys.executable, *releases))
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    torch = find_toolkit().torch_version.partition("+")[0]
    shutil.rmtree(home, ignore_errors=True)
    venv.create(home, with_pip=False, symlinks=True)
    packages = next(home.glob("lib/python*/site-packages"))
    (packages / _SHARED).write_text("\n".join(_shared()) + "\n")
    constraints = home / "constraints.txt"
    constraints.write_text(f"torch=={torch}\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    run([*pip, "install", "--quiet", "--constraint", str(constraints), *releases])
    stamp.write_text(wanted)
    return python


def environment_of_version(
    package: str, version: str, beside: tuple[str, ...], folder: Path, *, run: Run = run_pip
) -> Path:
    """The Python that has a version of a package, and what is installed beside it. Raises BadInput
    as `environment_for` does, and if another version is found there.
    """
    python = environment_for((f"{package}=={version}", *beside), folder, run=run)
    found = version_of(python, package)
    if found != version:
        raise BadInput(f"{package} {found} was found in the place of {version}")
    return python


def _shared() -> list[str]:
    """Where this Python finds racegate and everything else that is installed."""
    code = "import sys; print(*sys.path, sep='\\n')"
    done = subprocess.run([sys.executable, "-P", "-c", code], check=True, capture_output=True)
    standard = {sysconfig.get_path("stdlib"), sysconfig.get_config_var("DESTSHARED")}
    own = [path for path in done.stdout.decode().splitlines() if path and path not in standard]
    return list(dict.fromkeys((str(Path(__file__).parents[3]), *own)))


def version_of(python: Path, package: str) -> str:
    """Which version of a package a Python finds. Raises BadInput if it finds none."""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    done = subprocess.run([python, "-c", code], check=False, capture_output=True, text=True)
    if done.returncode:
        raise BadInput(f"{python} finds no package {package}")
    return done.stdout.strip()


def judge_in(
    python: Path,
    program: tuple[str, ...],
    *options: str,
    folder: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> JudgedProgram:
    """Judges a program by `racegate torch run` of another Python.

    Args:
        python: of an environment, as `environment_for` gives it.
        program: a script with its arguments, or `-m` and a module.
        options: of `racegate torch run`.
        folder: in which it is run; the present one without it.
        variables: of the environment, beside those of this process.

    Raises:
        BadInput: there is no verdict, with the last line of what was said instead.
    """
    with tempfile.TemporaryDirectory() as made:
        written = Path(made) / "verdict.json"
        command = [str(python), "-m", "racegate", "torch", "run", "--json", str(written), *options]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [*command, *program],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **(variables or {})},
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if not written.exists():
            said = done.stderr.strip().rpartition("\n")[2]
            raise BadInput(f"no verdict, exit code {done.returncode}: {said}")
        result = msgspec.json.decode(written.read_bytes(), type=ProgramResult)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return JudgedProgram(result, done.returncode, round(cpu_s, 1))
