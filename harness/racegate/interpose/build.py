"""Builds the virtual CUDA runtime for the CUDA version of the installed torch, once, and keeps it.

The library is preloaded into the program: it defines what it models, and a weak function for every
other entry point of the real runtime and driver, which ends the run with that function's name. The
names come from the installed runtime library and driver header, so none is missed.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from racegate.interpose.elf import exported_functions
from racegate.interpose.errors import BadInput
from racegate.interpose.native.library import build_operators
from racegate.order.compiled import build_order
from racegate.order.native.compiler import compiled

NATIVE = Path(__file__).parent / "device" / "native"
# Of the virtual runtime and of what stands in front of a real one; of the virtual one alone.
SHARED = ("core.c", "guard.c", "transfers.c")
SOURCES = (*SHARED, "runtime.c", "copies.c", "errors.c", "driver.c", "vmm.c", "entry_points.c")
FORWARD = Path(__file__).parent / "gpu" / "native"
FORWARD_LIBRARY = "libracegate_forward.so"
RANKS = Path(__file__).parent / "ranks" / "native"
NCCL = "libnccl.so.2"  # its soname, which torch asks for
LIBRARY = "libcuda.so.1"  # its soname: whoever loads the driver by name finds this one
NVML = "libnvidia-ml.so.1"  # likewise
# Entry points of the runtime that touch no memory of the program and order nothing.
_ASKS = re.compile(
    r"(__cuda|cuda(Get|Peek|Driver|Runtime|Choose|InitDevice|SetDevice|SetValid|Func|Occupancy|Pointer"
    r"|Profiler|HostGet|MemGetInfo|MemRangeGet|MemAdvise|MemPool[GS]et|Device[GSCED](?!ynchronize)"
    r"|EventCreate|EventElapsed|Stream(Get|Set|Is|CopyAttributes|Destroy)|ThreadExchange|Ctx|Kernel"
    r"|Graph(Get|Destroy|Create|Exec(Destroy|Get)|DebugDot|NodeGet|KernelNodeGet|Upload|.*UserObject)"
    r"|UserObject|Library|Logs))(?!.*_pt[sd][sz]$)"
)
_DRIVER_NAME = re.compile(r"\b(cu[A-Z]\w*)\s*\(|#define\s+(cu[A-Z]\w*)\s+(cu[A-Z]\w*)")


@dataclass(frozen=True, slots=True)
class Toolkit:
    """What the installed torch was built for. version: CUDA's number, 13000 for 13.0; nccl: its
    library and its header, if torch has it beside itself
    """

    torch_version: str
    version: int
    runtime: Path
    include: Path
    nccl: tuple[Path, Path] | None = None


def find_toolkit() -> Toolkit:
    """The CUDA runtime and headers that the installed torch brings, without importing torch.

    Raises BadInput if torch is missing or a CPU build, or its CUDA packages are not complete.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise BadInput(
            "torch is not installed in this Python: pip install 'racegate[torch]' (with its CUDA "
            "libraries about 6 GB; no GPU is needed)"
        )
    folder = Path(spec.origin).parent
    text = (folder / "version.py").read_text()
    cuda = re.search(r"^cuda(?:: [^=]+)? = '([\d.]+)'", text, re.MULTILINE)
    torch_version = re.search(r"^__version__ = '([^']+)'", text, re.MULTILINE)
    if cuda is None or torch_version is None:
        raise BadInput(
            "the installed torch is a build without CUDA; the virtual device needs a CUDA build "
            "(it needs no GPU): install one, for example with `pip install torch` on Linux"
        )
    major, minor = (int(part) for part in cuda[1].split(".")[:2])
    runtime = _first(folder, f"libcudart.so.{major}")
    include = _first(folder, "cuda_runtime_api.h").parent
    nccl = (*_beside(folder, NCCL), *_beside(folder, "nccl.h"))
    return Toolkit(
        torch_version[1],
        1000 * major + 10 * minor,
        runtime,
        include,
        nccl=(nccl[0], nccl[-1]) if len(nccl) > 1 else None,
    )


def _first(torch_folder: Path, name: str) -> Path:
    found = _beside(torch_folder, name)
    if not found:
        raise BadInput(f"{name} is missing beside torch: install its nvidia packages again")
    return found[0]


def _beside(torch_folder: Path, name: str) -> list[Path]:
    roots = (torch_folder.parent / "nvidia", torch_folder / "lib")
    return [path for root in roots for path in sorted(root.glob(f"**/{name}"))]


def build_library(toolkit: Toolkit) -> Path:
    """Path of the virtual runtime for this CUDA version: from the cache, or compiled now, as the
    recorder's part is that the program's process loads.

    Raises BadInput if there is no compiler, or compiling fails.
    """
    _build_recording()
    sources = tuple(NATIVE / name for name in SOURCES)
    return _built(toolkit, LIBRARY, sources, stub_source(toolkit))


def build_nvml(toolkit: Toolkit) -> Path:
    """Path of the library that says which GPUs there are, likewise; it asks the virtual runtime."""
    return _built(toolkit, NVML, (NATIVE / "nvml.c",), "")


def build_nccl(toolkit: Toolkit) -> tuple[Path, ...]:
    """Path of the virtual NCCL, likewise; none if torch has no NCCL that it could stand for."""
    if toolkit.nccl is None:
        return ()
    library, header = toolkit.nccl
    version = re.search(r"^#define NCCL_VERSION_CODE (\d+)", header.read_text(), re.MULTILINE)
    flags = (f"-DVG_NCCL_VERSION={version[1] if version else 0}",)
    stubs = _stubs([name for name in exported_functions(library) if name.startswith("nccl")])
    return (_built(toolkit, NCCL, (RANKS / "nccl.c",), stubs, flags),)


def build_forward(toolkit: Toolkit) -> Path:
    """Path of the library that stands in front of the real runtime, likewise."""
    _build_recording()
    sources = tuple(NATIVE / name for name in SHARED)
    sources += tuple(FORWARD / name for name in ("forward.c", "latches.c", "real.c"))
    return _built(toolkit, FORWARD_LIBRARY, sources, forward_stub_source(toolkit))


def _build_recording() -> None:
    """What the program's process loads itself."""
    build_order()
    build_operators()


def _built(
    toolkit: Toolkit,
    name: str,
    sources: tuple[Path, ...],
    stubs: str,
    more: tuple[str, ...] = (),
) -> Path:
    folders = (toolkit.include, NATIVE, FORWARD)
    flags = [*more, f"-DVG_CUDA_VERSION={toolkit.version}", "-Wl,-Bsymbolic"]
    flags += [word for folder in folders for word in ("-I", str(folder))]
    flags += ["-idirafter", str(NATIVE / "fallback")]
    read = (
        path for root in (NATIVE, FORWARD, RANKS) for path in root.glob("**/*") if path.is_file()
    )
    return compiled(name, sources, read=read, flags=tuple(flags), made=("stubs.c", stubs))


def stub_source(toolkit: Toolkit) -> str:
    """C source with one weak function per entry point of the runtime and the driver."""
    header = (toolkit.include / "cuda.h").read_text(errors="replace")
    driver = {name for match in _DRIVER_NAME.finditer(header) for name in match.groups() if name}
    return _stubs(sorted(driver | set(exported_functions(toolkit.runtime))))


def forward_stub_source(toolkit: Toolkit) -> str:
    """C source with one weak function per entry point of the real runtime that may touch memory or
    order something: what only asks or configures is left to the runtime.
    """
    names = exported_functions(toolkit.runtime)
    return _stubs([name for name in names if not _ASKS.match(name)])


def _stubs(names: list[str]) -> str:
    stub = (
        "__attribute__((weak)) int {0}(void) "
        '{{ return vg_unmodelled_for("{0}", __builtin_return_address(0)); }}'
    )
    declared = "int vg_unmodelled_for(const char *, const void *);"
    return "\n".join([declared, *map(stub.format, names), ""])
