"""An environment per release, in the user's cache directory: the release's Python as the package
index has it, and a CUDA build of the torch that it wants, shared between releases.

Compiled kernels are not installed: none is called. What serves models over a network is left out.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import DeviceKind
from racegate.targets.common.setup.before import RELEASE_GB, TORCH_GB, check_tried, room_text
from racegate.targets.common.setup.progress import Say, WatchedCommand, failure_text

# Extras that bring what is left out.
EXTRAS_LEFT_OUT = ("[image]",)
_REQUIREMENT = re.compile(r"^Requires-Dist: ([A-Za-z0-9._-]+)(\[[^\]]*\])?\s*([^;]*)(;.*)?$")
DONE = "racegate-done"
_PACKAGE = Path(__file__).parents[2]
TORCH_OLDEST = (2, 9)
_TORCH = "racegate_torch.pth"  # where an environment's torch is
# Requirements with all that they depend on: nothing is to be resolved, built or compiled for them.
_AS_LISTED = ("--no-deps", "--no-compile", "--only-binary", ":all:")
Run = Callable[[Sequence[str]], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a release asks for. torch: its version; requirements: without what is left out
    is_whole: with all that these depend on
    """

    torch: str
    requirements: tuple[str, ...]
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class Environment:
    """An installed release. checkout: a folder whose vLLM takes the place of the release's own"""

    release: str
    folder: Path
    checkout: Path | None = None

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def is_ready(self) -> bool:
        """Whether it was set up to its end, and the torch that it was put on is still there."""
        if not (self.folder / DONE).exists():
            return False
        link = _site_packages(self.folder) / _TORCH
        return not link.exists() or Path(link.read_text().strip()).exists()

    @property
    def torch_version(self) -> str:
        """Of the torch that it is on. Raises BadInput if there is none."""
        link = _site_packages(self.folder) / _TORCH
        is_shared = link.exists()
        return torch_version_of(Path(link.read_text()).parents[2] if is_shared else self.folder)

    def package(self, module: str) -> Path:
        """The folder of a package that is imported there. module: its name"""
        return (self.checkout or _site_packages(self.folder)) / module

    def variables(self, kind: DeviceKind = DeviceKind.VIRTUAL) -> dict[str, str]:
        """The environment of the engine's process, with its device. Raises BadInput."""
        paths = [str(sources_alone(_PACKAGE))]
        # Only racegate imports an installed release: what Python compiled may lie beside it.
        bytecode = {"PYTHONDONTWRITEBYTECODE": ""}
        if self.checkout is not None:
            paths.insert(0, str(self.checkout))
            bytecode = {}
        return {
            **{key: value for key, value in os.environ.items() if key != "PYTHONHOME"},
            **self.device(kind),
            **bytecode,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONHASHSEED": "0",
            "PYTHONUNBUFFERED": "1",
            "PYTHONFAULTHANDLER": "1",  # a run that a signal ends says where it was
            "OMP_NUM_THREADS": "1",
        }

    def device(self, kind: DeviceKind) -> dict[str, str]:
        """What puts a device under this environment's torch: variables. Raises BadInput."""
        command = [str(self.python), "-m", "racegate.targets.common.variables", kind.value]
        variables = {**os.environ, "PYTHONPATH": str(sources_alone(_PACKAGE))}
        done = subprocess.run(command, capture_output=True, text=True, env=variables)
        if done.returncode:
            raise BadInput(done.stderr.strip())
        return msgspec.json.decode(done.stdout, type=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePackage:
    """How an engine is packaged. title: as readers know it; name: of its folder, and its commands

    packages: on the index, the first that has a release is taken
    module: what is imported; sources: the folder of a checkout that has it
    left_out: packages that no step of the engine imports, in lower case; families: their beginnings
    added: what it has from a package that is left out
    tried: the oldest and the newest release that was run here
    """

    title: str
    name: str
    packages: tuple[str, ...]
    module: str
    sources: str = ""
    left_out: frozenset[str]
    families: tuple[str, ...]
    added: tuple[str, ...] = ()
    tried: tuple[str, str]

    def is_left_out(self, package: str) -> bool:
        """Whether no step of the engine imports this package. package: in lower case"""
        return package in self.left_out or package.startswith(self.families)

    def environment_of(self, release: str, *, checkout: str | Path | None = None) -> Environment:
        """An environment that was set up. Raises BadInput with the command to set it up if not."""
        found = Environment(release, cache_folder(self.name) / release)
        if checkout is not None:
            found = replace(found, checkout=Path(checkout, self.sources))
            inside = Path(self.sources, self.module, "__init__.py")
            if not Path(checkout, inside).is_file():
                raise BadInput(f"{checkout} holds no {self.title}: a checkout has {inside}")
        if not found.is_ready:
            raise BadInput(
                f"{self.title} {release} is not set up here: "
                f"racegate {self.name} setup --release {release}"
            )
        return found

    def set_up(
        self,
        release: str,
        say: Say,
        *,
        torch: Path | None = None,
        requirements: Path | None = None,
        is_untried: bool = False,
        run: Run | None = None,
    ) -> Environment:
        """Installs what is missing of a release; what is there already is kept. Raises BadInput,
        before anything is downloaded where that can be known.

        torch: a virtual environment whose torch takes the place of the one that the release asks
            for
        requirements: a file that lists what is installed in place of what the release asks for
        is_untried: a release that nobody has tried is set up all the same
        """
        folder = cache_folder(self.name)
        environment = Environment(release, folder / release)
        if environment.is_ready:
            say(f"{self.title} {release} is set up in {environment.folder}")
            return environment
        if not is_untried:
            check_tried(self.title, release, self.tried)
        run = WatchedCommand(say, folder) if run is None else run
        say(room_text(folder, RELEASE_GB, f"{self.title} {release} without torch"))
        say(f"1/4 the wheel of {self.title} {release}")
        wheel, wanted = self._wheel_of(release, run, torch)
        if requirements is not None:
            wanted = Wanted(wanted.torch, read_listed(requirements), is_whole=True)
        base = self._torch_at(wanted.torch, torch, say, run)
        say(f"3/4 {len(wanted.requirements)} requirements of {self.title}")
        install_release(environment, base, wanted, wheel, run)
        say("4/4 the virtual CUDA runtime")
        environment.device(DeviceKind.VIRTUAL)
        (environment.folder / DONE).write_text(f"{release}\n")
        say(f"{self.title} {release} is set up in {environment.folder}")
        return environment

    def _torch_at(self, version: str, given: Path | None, say: Say, run: Run) -> Path:
        """Where the torch is that a release runs on, which is installed if it is missing."""
        if given is not None:
            say(f"2/4 torch {version}, which is in {given}")
            return given.resolve()
        if is_too_old(version):
            oldest = ".".join(map(str, TORCH_OLDEST))
            raise BadInput(
                f"this release of {self.title} asks for torch {version}; the virtual device needs "
                f"{oldest} or newer. Torch was not downloaded"
            )
        base = torch_folder(version)
        if (base / DONE).exists():
            say(f"2/4 torch {version} with CUDA, which is there already")
            return base
        say(f"2/4 torch {version} with CUDA, shared between releases")
        say(room_text(base, TORCH_GB, f"torch {version}"))
        install_torch(base, version, run)
        return base

    def _wheel_of(self, release: str, run: Run, torch: Path | None) -> tuple[Path, Wanted]:
        """The wheel of a release, and what it asks for; of several packages with one release, that
        of the first whose torch is not too old.
        """
        wheels = cache_folder(self.name) / "wheels"
        wheel = fetch_wheel(wheels, self.packages, release, run)
        wanted = read_wanted(metadata_of(wheel), self.is_left_out)
        if torch is None and is_too_old(wanted.torch) and self.packages[1:]:
            wheel = fetch_wheel(wheels, self.packages[1:], release, run)
            wanted = read_wanted(metadata_of(wheel), self.is_left_out)
        version = wanted.torch if torch is None else torch_version_of(torch)
        return wheel, replace(
            wanted, torch=version, requirements=(*wanted.requirements, *self.added)
        )


def is_too_old(torch: str) -> bool:
    """Whether the virtual device cannot be put under this version of torch."""
    return tuple(map(int, torch.split(".")[:2])) < TORCH_OLDEST


def read_listed(path: Path) -> tuple[str, ...]:
    """The requirements of a file, one a line. Raises BadInput if it cannot be read."""
    try:
        lines = [line.partition("#")[0].strip() for line in path.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read as a list of requirements: {error}") from error
    return tuple(line for line in lines if line)


def sources_alone(package: Path) -> Path:
    """A folder from which an engine's process can import racegate, and nothing else that lies
    beside it: where racegate is installed, its numpy would come before that of the release.

    package: where racegate is
    """
    beside = package.parent
    if not any(beside.glob("*.dist-info")):
        return beside
    folder = cache_folder("alone") / hashlib.sha256(str(package).encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    for one in beside.glob(f"{package.name}*"):
        link = folder / one.name
        if one.is_dir() and one.suffix == "" and not link.is_symlink():
            made = folder / f".{one.name}.{os.getpid()}"
            made.symlink_to(one, target_is_directory=True)
            made.replace(link)
    return folder


def cache_folder(engine: str) -> Path:
    """Where environments of an engine's releases are kept: the user's cache directory."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "racegate" / engine


def torch_folder(version: str) -> Path:
    """Where a torch is kept, which releases of all engines share: that of vLLM's."""
    return cache_folder("vllm") / f"torch-{version}"


def torch_version_of(folder: Path) -> str:
    """The version of a virtual environment's torch. Raises BadInput if it has none."""
    found = sorted(_site_packages(folder).glob("torch-*.dist-info"))
    if not found:
        raise BadInput(f"no torch in {folder}: --torch names a virtual environment that has one")
    return found[-1].name.removeprefix("torch-").removesuffix(".dist-info").partition("+")[0]


def run_pip(command: Sequence[str]) -> None:
    """Runs a command of an installation. Raises BadInput with the end of what it said."""
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise BadInput(failure_text(command, done.stderr))


def read_wanted(metadata: str, left_out: Callable[[str], bool]) -> Wanted:
    """What a wheel's METADATA asks for. Raises BadInput if it names no torch.

    left_out: whether a package is not installed, by its name in lower case
    """
    torch = ""
    requirements = []
    for line in metadata.splitlines():
        found = _REQUIREMENT.match(line)
        if found is None or "extra ==" in (found[4] or ""):
            continue
        name, versions, marker = found[1].lower(), found[3].strip(), found[4] or ""
        extras = "" if found[2] in EXTRAS_LEFT_OUT else found[2] or ""
        if name == "torch" and not torch:
            torch = versions.strip("()").removeprefix("==").partition("+")[0]
        if not left_out(name):
            requirements.append(f"{found[1]}{extras}{versions}{marker}")
    if not torch:
        raise BadInput("the wheel does not say which torch it wants")
    return Wanted(torch, tuple(requirements))


def metadata_of(wheel: Path) -> str:
    """The METADATA of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        return archive.read(names[0]).decode()


def fetch_wheel(folder: Path, packages: Sequence[str], release: str, run: Run) -> Path:
    """The wheel of the first of the packages that has this release. Raises BadInput."""
    failures = []
    for package in packages:
        pattern = f"{package.replace('-', '_')}-{release}-*.whl"
        if not list(folder.glob(pattern)):
            folder.mkdir(parents=True, exist_ok=True)
            pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
            try:
                run([*pip, "--dest", str(folder), f"{package}=={release}"])
            except BadInput as error:
                failures.append(str(error))
        if found := sorted(folder.glob(pattern)):
            return found[0]
    raise BadInput("\n".join(failures))


def install_torch(base: Path, version: str, run: Run) -> None:
    """A CUDA build of torch in a folder that releases share. Raises BadInput."""
    if (base / DONE).exists():
        return
    run([sys.executable, "-m", "venv", str(base)])
    pip = [str(base / "bin" / "python"), "-m", "pip", "install"]
    # A local build counts as newer: an index that has one without CUDA would give that.
    run([*pip, f"torch=={version},!={version}+cpu", "numpy>=2.2", "msgspec", "ml_dtypes"])
    Environment(f"torch {version}", base).device(DeviceKind.VIRTUAL)  # says so if it has no CUDA
    (base / DONE).write_text(f"{version}\n")


def install_release(
    environment: Environment, base: Path, wanted: Wanted, wheel: Path, run: Run
) -> None:
    """A release with what it imports. base: where its torch is"""
    folder = environment.folder
    run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    site = _site_packages(folder)
    (site / _TORCH).write_text(f"{_site_packages(base)}\n")
    listed = folder / "requirements.txt"
    torch = () if wanted.is_whole else (f"torch=={wanted.torch}",)
    listed.write_text("\n".join([*wanted.requirements, *torch, ""]))
    pip = [sys.executable, "-m", "pip", "--python", str(environment.python), "install"]
    run([*pip, *(_AS_LISTED if wanted.is_whole else ()), "-r", str(listed)])
    _unpack(wheel, site)


def _unpack(wheel: Path, site: Path) -> None:
    """A wheel's Python; its compiled libraries are hundreds of megabytes that are never loaded."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not re.search(r"\.so(\.|$)", name)]
        archive.extractall(site, names)


def _site_packages(folder: Path) -> Path:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return folder / "lib" / version / "site-packages"
