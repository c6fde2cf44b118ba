"""Environments with one release each, which share the torch of the Python that makes them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from racegate.interpose.build import find_toolkit

_STAMP = ".installed"


def environment_for(releases: tuple[str, ...], folder: Path) -> Path:
    """The Python with these releases installed: this one if there are none.

    Raises subprocess.CalledProcessError if pip fails; its message is on stderr.
    """
    if not releases:
        return Path(sys.executable)
    home = folder / releases[0].replace("==", "-")
    python = home / "bin" / "python"
    stamp = home / _STAMP
    wanted = "\n".join((sys.executable, *releases))
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(home, ignore_errors=True)
    venv.create(home, with_pip=False, symlinks=True)
    packages = next(home.glob("lib/python*/site-packages"))
    (packages / "shared.pth").write_text(sysconfig.get_path("purelib"))
    constraints = home / "constraints.txt"
    constraints.write_text(f"torch=={find_toolkit().torch_version.partition('+')[0]}\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    install = [*pip, "install", "--quiet", "--constraint", str(constraints), *releases]
    subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
    stamp.write_text(wanted)
    return python


def version_of(python: Path, release: str) -> str:
    """What is installed of a release, asked of that Python."""
    name = release.partition("==")[0]
    code = f"from importlib.metadata import version; print(version({name!r}))"
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip()
