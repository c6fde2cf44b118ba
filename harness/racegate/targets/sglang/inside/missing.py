"""Packages that are not installed, because nothing of them is called: they can be imported, and
their names can be read; what is called ends the run with its name.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import FrameType, ModuleType
from typing import Any

# Import names of what `environment` leaves out, and of what compiled kernels come in.
PACKAGES = frozenset({
    "IPython", "anthropic", "av", "blobfile", "cutlass", "datasets", "decord", "deep_gemm",
    "flash_attn", "flash_mla", "flashinfer", "kernels", "mistral_common", "modelscope", "nvshmem",
    "openai_harmony", "quack", "sgl_kernel", "smg_grpc_proto", "smg_grpc_servicer", "soundfile",
    "tilelang", "timm", "tokenspeed_mla", "torch_memory_saver", "torchao", "torchaudio",
    "torchcodec", "tvm_ffi",
})  # fmt: skip
OPERATORS = frozenset({"sgl_kernel", "flashinfer"})  # namespaces
# Asked about the device: whether it has what only compiled kernels use.
ANSWERS = {"sgl_kernel.utils.is_arch_support_pdl": False}
VERSION = "99.0.0"
Refuse = Callable[[str], None]


class Missing:
    """Something of a package that is not there. As a decorator it leaves functions as they are."""

    def __init__(self, name: str, refuse: Refuse) -> None:
        self.__name__ = self.__qualname__ = name
        self._refuse = refuse

    def __getattr__(self, name: str) -> Missing:
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self.__name__}.{name}", self._refuse)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and callable(args[0]):
            return args[0]
        if self.__name__ in ANSWERS:
            return ANSWERS[self.__name__]
        self._refuse(self.__name__)
        raise RuntimeError(f"racegate: {self.__name__} was called and is not installed")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (object,)

    def __or__(self, other: object) -> Missing:
        return self

    __ror__ = __or__


class MissingPackage(ModuleType):
    """A package that is not there."""

    def __init__(self, name: str, refuse: Refuse) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__version__ = VERSION
        self._refuse = refuse

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self.__name__}.{name}", self._refuse)


class MissingPackages(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds packages that no other finder has."""

    def __init__(self, refuse: Refuse) -> None:
        self._refuse = refuse

    def install(self) -> None:
        """Behind all other finders: what is installed is used. Who only asks is told the truth."""
        sys.meta_path.append(self)
        find = importlib.util.find_spec

        def find_spec(name: str, package: str | None = None) -> Any:
            spec = find(name, package)
            return None if spec is not None and spec.loader is self else spec

        importlib.util.find_spec = find_spec
        plain = importlib.metadata.version

        def version(distribution_name: str) -> str:
            try:
                return plain(distribution_name)
            except importlib.metadata.PackageNotFoundError:
                if is_missing(distribution_name):
                    return VERSION
                raise

        importlib.metadata.version = version

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """As importlib asks."""
        if name.partition(".")[0] not in PACKAGES or not _is_asked_by_sglang():
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """As importlib asks."""
        return MissingPackage(spec.name, self._refuse)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


def _is_asked_by_sglang() -> bool:
    """Other packages do well without: they are told that it is not there."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _name(frame).startswith((__name__, "importlib", "_frozen")):
        frame = frame.f_back
    return frame is not None and _name(frame).partition(".")[0] in {"sglang", *PACKAGES}


def _name(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def is_missing(distribution: str) -> bool:
    """Whether a distribution is one of those that are left out. distribution: in any spelling"""
    name = distribution.lower().replace("-", "_")
    return name in PACKAGES or name.startswith(("flashinfer", "sgl_", "sglang_kernel"))
