"""The core that a wheel brings: found by the sources that it was made of, and built into the wheel
of a machine on request.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from racegate.device.virtual.native import library, wheels
from racegate.order.native.errors import BadInput
from repository import ROOT


@pytest.fixture
def brought(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of an installed wheel that brought the core, where there is no compiler."""
    made = library.core_library()
    folder = tmp_path / "native"
    shutil.copytree(library.NATIVE, folder)
    monkeypatch.setattr(library, "NATIVE", folder)
    monkeypatch.setattr(library, "SOURCES", tuple(folder / p.name for p in library.SOURCES))
    shutil.copy(made, folder / library.shipped_name())
    monkeypatch.setattr(library, "compiled", no_compiler)
    return folder


def no_compiler(*given: object, **options: object) -> Path:
    raise BadInput("no C compiler")


def test_what_the_wheel_brought_needs_no_compiler(brought: Path) -> None:
    assert library.is_shipped()
    assert library.core_library() == brought / library.shipped_name()


def test_what_was_made_of_other_sources_is_not_taken(brought: Path) -> None:
    """Somebody who changes a source has it compiled, or is told that it cannot be."""
    source = brought / "walk.c"
    source.write_text(source.read_text() + "\n")
    assert not library.is_shipped()
    with pytest.raises(BadInput, match="no C compiler"):
        library.core_library()


class TestTheBuild:
    def built(self, monkeypatch: pytest.MonkeyPatch, folder: Path, version: str) -> dict[str, Any]:
        """What the hook adds to a wheel, with the command that it has run instead of a library."""

        def note(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
            Path(command[-1]).write_text(" ".join(command))
            return subprocess.CompletedProcess(command, 0, "", "")

        monkeypatch.setattr(subprocess, "run", note)
        hook = wheels.CoreHook(str(ROOT), {}, None, None, str(folder), "wheel")
        data: dict[str, Any] = {"force_include": {}}
        hook.initialize(version, data)
        return data

    def test_a_wheel_is_of_pure_python_unless_somebody_asks(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.delenv("RACEGATE_WHEEL", raising=False)
        assert self.built(monkeypatch, tmp_path, "standard") == {"force_include": {}}
        monkeypatch.setenv("RACEGATE_WHEEL", "x86_64")
        assert self.built(monkeypatch, tmp_path, "editable") == {"force_include": {}}

    @pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
    def test_the_wheel_of_a_machine_has_the_core_beside_its_sources(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, machine: str
    ) -> None:
        monkeypatch.setenv("RACEGATE_WHEEL", machine)
        data = self.built(monkeypatch, tmp_path, "standard")
        assert (data["pure_python"], data["tag"]) == (False, f"py3-none-manylinux_2_17_{machine}")
        ((out, place),) = data["force_include"].items()
        assert place == f"racegate/device/virtual/native/{library.shipped_name()}"
        command = Path(out).read_text()
        assert f"-target {machine}-linux-gnu.2.17 " in command
        assert all(str(source) in command for source in library.SOURCES)

    def test_another_machine_is_refused(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("RACEGATE_WHEEL", "riscv64")
        with pytest.raises(ValueError, match="there are wheels for x86_64 and aarch64"):
            self.built(monkeypatch, tmp_path, "standard")
