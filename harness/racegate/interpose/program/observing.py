"""The bytes of a value that the program marked."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from racegate.interpose.device.session import Session
from racegate.interpose.kernels.aliases import alias_of, bytes_of, is_plain, parts_of
from racegate.interpose.native.streams import current_stream
from racegate.interpose.program.arrays import array_ranges


def read_value(session: Session, value: Any) -> tuple[bytes, str]:
    """(bytes that must not change, how to show them).

    A CUDA tensor is read as its current stream would see it, without an edge for the program;
    pinned memory is read by the host, and recorded as such.
    """
    if isinstance(value, torch.Tensor) and not is_plain(type(value)):
        parts = [read_value(session, part) for _, part in parts_of(value)]
        return b"".join(data for data, _ in parts), ", ".join(shown for _, shown in parts)
    if isinstance(value, torch.Tensor):
        if value.is_cuda:
            session.drain()
            session.force_stream(current_stream())
            with session.own():
                value = alias_of(session, value).clone()
        elif session.spans.find(value.data_ptr()) is not None:
            session.host_access("host read (observe)", bytes_of(session, value), ())
        with session.own():
            plain = value.detach().contiguous().reshape(-1)
            return plain.view(torch.uint8).numpy().tobytes(), str(value.tolist())
    if isinstance(value, np.ndarray):
        plain_array = value.view(np.ndarray)
        if session.spans.find(plain_array.__array_interface__["data"][0]) is not None:
            session.host_access("host read (observe)", array_ranges(plain_array), ())
        return plain_array.tobytes(), str(plain_array.tolist())
    return repr(value).encode(), repr(value)
