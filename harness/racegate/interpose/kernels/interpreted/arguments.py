"""Arguments of Triton kernels that the interpreter hands on as Python's own numbers."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np


def type_floats(interpreter: ModuleType) -> None:
    """interpreter: triton.runtime.interpreter. A float is a float32 of the kernel, as compiled: it
    has a type and methods, and what it meets is promoted by them.
    """
    plain = interpreter._implicit_cvt
    tl: Any = interpreter.tl

    def typed(argument: Any) -> Any:
        if not isinstance(argument, float):
            return plain(argument)
        handle = interpreter.TensorHandle(np.array([argument], dtype=np.float32), tl.float32)
        return tl.tensor(handle, tl.float32)

    interpreter._implicit_cvt = typed  # type: ignore[attr-defined]
