"""Makes the reports of this folder: one finding each in the newest release of a package.

    python reports/upstream/make.py [NAME ...]

NAME.toml says what no run can; the witness is the survey's. Each is run by `racegate report
--upstream` in an environment with the release that the survey judged (reports/interposer).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent.absolute()
INTERPOSER = HERE.parent / "interposer"
sys.path.insert(0, str(INTERPOSER))

from programs.survey import load

from racegate.targets.common.environment import cache_folder
from racegate.targets.program.environment import environment_for


def made(name: str) -> int:
    """The exit code of the command. A history beside the facts gives the range of versions."""
    (program,) = [one for one in load().programs if one.name == name]
    released = [one for one in program.packages if not one.startswith("torch==")]
    python = environment_for(tuple(released), cache_folder("programs"))
    witness = INTERPOSER / "survey" / f"{name}.witness.json"
    command = [python, "-m", "racegate", "report", "--upstream", witness]
    command += ["--facts", HERE / f"{name}.toml", "--markdown", HERE / f"{name}.md"]
    history = HERE / f"{name}.history.json"
    command += ["--history", history] if history.exists() else []
    return subprocess.run(command, cwd=INTERPOSER / "programs", check=False).returncode


def main() -> int:
    names = sys.argv[1:] or sorted(path.stem for path in HERE.glob("*.toml"))
    codes = {name: made(name) for name in names}
    print(codes)
    return any(codes.values())


if __name__ == "__main__":
    sys.exit(main())
