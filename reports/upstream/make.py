"""Makes the reports of this folder: one finding each in the newest release of a package.

    python reports/upstream/make.py [NAME ...]

NAME.toml says what no run can; the witness is the survey's, or stands beside it. Each is run by
`racegate report --upstream` with the release that was judged (reports/interposer).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent.absolute()
INTERPOSER = HERE.parent / "interposer"
sys.path.insert(0, str(INTERPOSER))

from programs.catalogue import CASES
from programs.run_all import python_for
from programs.survey import load, unpacked

from racegate.targets.common.environment import cache_folder
from racegate.targets.program.environment import environment_for

FOLDER = cache_folder("programs")
OWN = tuple(HERE.parents[1] / folder for folder in ("harness", "kernels", "reference"))


def as_installed(folder: Path) -> Path:
    """The folder under a name that packages lie in: its files are named as installed ones are."""
    named = folder.with_name(f"{folder.name}-files") / "site-packages"
    named.parent.mkdir(exist_ok=True)
    if not named.exists():
        named.symlink_to(folder)
    return named


def found_by(name: str) -> tuple[Path, tuple[Path, ...]]:
    """The Python that runs a program, and folders in which it finds the release before others."""
    for program in load().programs:
        if program.name == name:
            released = [one for one in program.packages if not one.startswith("torch==")]
            if program.python:  # of another Python: its files as they are
                folders = [as_installed(unpacked(one, FOLDER, program.python)) for one in released]
                return Path(sys.executable), tuple(folders)
            return environment_for(tuple(released), FOLDER), ()
    (case,) = [one for one in CASES if one.name.rpartition("-")[0] == name]
    return python_for(case, FOLDER), ()


def made(name: str) -> int:
    """The exit code of the command. A history beside the facts gives the range of versions."""
    python, folders = found_by(name)
    witness = INTERPOSER / "survey" / f"{name}.witness.json"
    witness = witness if witness.exists() else HERE / witness.name
    command: list[str | Path] = [python, "-m", "racegate", "report", "--upstream", witness]
    command += ["--facts", HERE / f"{name}.toml", "--markdown", HERE / f"{name}.md"]
    history = HERE / f"{name}.history.json"
    command += ["--history", history] if history.exists() else []
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*folders, *OWN)))}
    place = INTERPOSER / "programs"
    return subprocess.run(command, cwd=place, env=variables, check=False).returncode


def main() -> int:
    names = sys.argv[1:] or sorted(path.stem for path in HERE.glob("*.toml"))
    codes = {name: made(name) for name in names}
    print(codes)
    return any(codes.values())


if __name__ == "__main__":
    sys.exit(main())
