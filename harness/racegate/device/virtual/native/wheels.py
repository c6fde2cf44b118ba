"""Build hook: a wheel that brings the compiled core of racegate's own engine, for those without a
compiler.

    RACEGATE_WHEEL=x86_64 python -m pip wheel --no-deps --wheel-dir dist .

RACEGATE_WHEEL is x86_64 or aarch64. Without it the wheel is of pure Python, and what is in C is
compiled on first use. The compiler is that of the ziglang package: it makes both, on either, for
any Linux with glibc 2.17 or newer. The library asks nothing of Python but its stable interface.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import cast

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WHEEL = "RACEGATE_WHEEL"
MACHINES = ("x86_64", "aarch64")
GLIBC = (2, 17)


class CoreHook(BuildHookInterface[BuilderConfig]):
    """Compiles the core into the wheel of a machine."""

    def initialize(self, version: str, build_data: dict[str, object]) -> None:
        """See hatchling. Raises ValueError for a machine that is not known, RuntimeError where the
        core does not compile.
        """
        machine = os.environ.get(WHEEL)
        if not machine or version == "editable":
            return
        if machine not in MACHINES:
            raise ValueError(f"{WHEEL}={machine}: there are wheels for {' and '.join(MACHINES)}")
        sys.path.insert(0, str(Path(self.root) / "harness"))
        from racegate.device.virtual.native import library
        from racegate.order.native.compiler import FLAGS

        out = Path(self.directory) / machine / library.shipped_name()
        out.parent.mkdir(parents=True, exist_ok=True)
        target = f"{machine}-linux-gnu.{'.'.join(map(str, GLIBC))}"
        command = (sys.executable, "-m", "ziglang", "cc", "-target", target, *FLAGS, "-s")
        done = subprocess.run(
            [*command, *map(str, library.SOURCES), f"-Wl,-soname,{library.NAME}", "-o", str(out)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"the core does not compile for {target}:\n{done.stderr}")
        place = library.NATIVE.relative_to(Path(self.root) / "harness") / out.name
        forced = cast(dict[str, str], build_data["force_include"])
        forced[str(out)] = place.as_posix()
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_{GLIBC[0]}_{GLIBC[1]}_{machine}"

    def dependencies(self) -> list[str]:
        """What the build needs beside hatchling."""
        return ["ziglang>=0.13"] if os.environ.get(WHEEL) else []
