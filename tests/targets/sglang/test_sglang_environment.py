"""Setting up a release of SGLang: what is left out, what is shared with vLLM."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from racegate.interpose.errors import BadInput
from racegate.targets.common.environment import Environment, read_wanted
from racegate.targets.sglang.environment import SGLANG

METADATA = """Metadata-Version: 2.4
Name: sglang
Requires-Dist: aiohttp
Requires-Dist: IPython
Requires-Dist: flashinfer_python==0.6.11.post1
Requires-Dist: nvidia-cutlass-dsl[cu13]==4.5.1
Requires-Dist: sglang-kernel==0.4.2.post2
Requires-Dist: torch==2.11.0
Requires-Dist: torchao==0.17.0
Requires-Dist: torchvision
Requires-Dist: transformers==5.6.0
Requires-Dist: accelerate; extra == "diffusion"
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(Environment, "device", lambda self, kind: {})
    return tmp_path / "racegate"


class Pip:
    """Does what pip and venv leave behind."""

    def __init__(self) -> None:
        self.commands: list[str] = []

    def __call__(self, command: Sequence[str]) -> None:
        self.commands.append(" ".join(command))
        if "download" in command:
            folder = Path(command[command.index("--dest") + 1])
            name = command[-1].replace("==", "-")
            with zipfile.ZipFile(folder / f"{name}-cp311-x.whl", "w") as wheel:
                wheel.writestr(f"{name}.dist-info/METADATA", METADATA)
                wheel.writestr("sglang/__init__.py", "")
        if "venv" in command:
            version = f"python{sys.version_info.major}.{sys.version_info.minor}"
            Path(command[-1], "lib", version, "site-packages").mkdir(parents=True, exist_ok=True)


def test_compiled_kernels_are_left_out() -> None:
    wanted = read_wanted(METADATA, SGLANG.is_left_out)
    assert wanted.torch == "2.11.0"
    assert wanted.requirements == ("aiohttp", "torchvision", "transformers==5.6.0")


def test_a_release_is_set_up_once(cache: Path) -> None:
    pip, said = Pip(), []
    found = SGLANG.set_up("0.5.13", said.append, run=pip)
    assert found.is_ready and SGLANG.environment_of("0.5.13") == found
    assert [text[:3] for text in said if "/4 " in text] == ["1/4", "2/4", "3/4", "4/4"]
    assert list(cache.glob("sglang/0.5.13/**/sglang/__init__.py"))
    requirements = next(cache.glob("sglang/0.5.13/requirements.txt")).read_text().splitlines()
    assert {"dill", "numpy<2.4", "torch==2.11.0"} <= set(requirements)
    before = len(pip.commands)
    assert SGLANG.set_up("0.5.13", said.append, run=pip) == found
    assert len(pip.commands) == before


def test_torch_is_shared_with_vllm(cache: Path) -> None:
    SGLANG.set_up("0.5.13", lambda text: None, run=Pip())
    site = next(cache.glob("sglang/0.5.13/lib/*/site-packages"))
    shared = (site / "racegate_torch.pth").read_text()
    assert shared.startswith(str(cache / "vllm" / "torch-2.11.0"))


def test_a_release_that_is_not_set_up_says_how(cache: Path) -> None:
    with pytest.raises(BadInput, match=r"racegate sglang setup --release 0\.5\.13"):
        SGLANG.environment_of("0.5.13")


def test_a_checkout_has_to_be_one(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds no SGLang"):
        SGLANG.environment_of("0.5.13", checkout=tmp_path)


def test_a_checkout_is_imported_from_its_python_folder(cache: Path, tmp_path: Path) -> None:
    SGLANG.set_up("0.5.13", lambda text: None, run=Pip())
    package = tmp_path / "python" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    found = SGLANG.environment_of("0.5.13", checkout=tmp_path)
    paths = found.variables()["PYTHONPATH"].split(":")
    assert paths[0] == str(tmp_path / "python")
