"""A program that writes what of foreign code racegate has replaced: `patched.py FILE`.

One row for each attribute of a module, or of a class that a module defines, whose value racegate
has made: its owner, its name and the identity of the value.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType

import torch
import triton.runtime.autotuner
import triton.runtime.interpreter  # noqa: F401

import racegate

# Ours, under whatever names the process that runs programs is known.
SKIPPED = ("racegate", "__main__", "__mp_main__")
OURS = str(Path(racegate.__file__).parent)


def is_ours(value: object) -> bool:
    """Whether it is a function or class of racegate, or an instance of one of its classes."""
    kind = type(value)  # of a lazy stand-in nothing may be asked
    if issubclass(kind, staticmethod | classmethod):
        return is_ours(value.__func__)  # type: ignore[attr-defined]
    if issubclass(kind, FunctionType):
        return value.__code__.co_filename.startswith(OURS)  # type: ignore[attr-defined]
    made = value if issubclass(kind, type) else kind
    return str(getattr(made, "__module__", "")).startswith("racegate.")


def owners() -> Iterator[tuple[str, object]]:
    """Modules that are not racegate's, and the classes that they define."""
    for name, module in list(sys.modules.items()):
        if not isinstance(module, ModuleType) or name.partition(".")[0] in SKIPPED:
            continue
        yield name, module
        for value in list(vars(module).values()):
            if issubclass(type(value), type) and value.__module__ == name:
                yield f"{name}.{value.__qualname__}", value


def main(file: Path) -> None:
    torch.zeros(1, device="cuda")
    found = {
        (owner, name): id(value)
        for owner, holder in owners()
        for name, value in list(vars(holder).items())
        if is_ours(value)
    }
    file.write_text(json.dumps([[*place, number] for place, number in found.items()]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
