"""Fields of an engine's objects as values that can be compared with those of another process.

A field is found by what it holds and not by its name, so that a release may have others. Two
versions are compared by those that both have.
"""

from __future__ import annotations

import dataclasses
import re
import zlib
from array import array
from collections import deque
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import partial
from typing import Any

import msgspec
import numpy as np
import torch

from racegate.interpose.device.kept import peek
from racegate.targets.common.inside.watch import Values

LONG = 48  # values of a list that is told by its end and a checksum
_SHOWN = 4
# Endings of fields that no two runs have in common: clocks, and files of an engine's own.
_UNLIKE = ("time", "timestamp", "_seconds", "_path")
NOTHING = object()  # of a value that says nothing: an object of another library, bytes of a hash
_AS_IT_IS = frozenset({bool, int, type(None)})
_PLAIN = (bool, int, str, type(None))
_DECIMALS = 4  # of what is computed
_SUFFIX = re.compile(r"-[0-9a-f]{8}$")
_IDENTITIES = ("request_id", "rid")  # of requests, by what engines call it


def name_of(request_id: str) -> str:
    """The scenario's name of a request: vLLM adds a suffix of eight digits."""
    return _SUFFIX.sub("", request_id)


def fields_of(owner: Any, prefix: str = "", *, records: int = 0) -> Values:
    """Fields of an object that can be told, by their names. records: how many objects may be told
    in each other
    """
    of = f"{prefix}." if prefix else ""
    told = ((name, plain(value, records)) for name, value in named(owner) if is_told(name))
    return {f"{of}{name}": value for name, value in told if value is not NOTHING}


def by_name(owners: Mapping[str, Any], prefix: str, *, records: int = 0) -> Values:
    """Objects of requests: by field, and then by request."""
    found: dict[str, dict[str, object]] = {}
    for identity, owner in owners.items():
        for name, value in fields_of(owner, prefix, records=records).items():
            found.setdefault(name, {})[name_of(identity)] = value
    return dict(found)


def named(owner: Any) -> Iterable[tuple[str, Any]]:
    """Fields of an object: of a class of its own, a dataclass, a struct or a named tuple."""
    if isinstance(owner, msgspec.Struct):
        return [(name, getattr(owner, name)) for name in owner.__struct_fields__]
    if dataclasses.is_dataclass(owner):
        return [(one.name, getattr(owner, one.name)) for one in dataclasses.fields(owner)]
    if hasattr(owner, "_fields"):
        return list(zip(owner._fields, owner, strict=True))
    return list(vars(owner).items())


def past_guards(values: np.ndarray) -> np.ndarray:
    """The values of an array now. Pages of pinned memory that the device may be using are closed,
    and to read them as the engine does would be taken for a touch by the engine.
    """
    is_flat = values.flags.c_contiguous and values.nbytes and not values.dtype.hasobject
    low = values.__array_interface__["data"][0]
    held = peek(low, low + values.nbytes) if is_flat else None
    return values if held is None else np.frombuffer(held, values.dtype).reshape(values.shape)


def is_told(name: str) -> bool:
    """Whether another run may have the same in a field: it is no clock, and no path of a file."""
    return not name.endswith(_UNLIKE)


def plain(value: Any, records: int = 0) -> Any:
    """A value as it can be compared with that of another process; NOTHING if it cannot."""
    if type(value) in _AS_IT_IS:  # most are, and each is looked at in every step
        return value
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, str):
        return name_of(value)
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, float | np.floating):
        return round(float(value), _DECIMALS)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, torch.Tensor) and records and value.device.type == "cpu":
        told = value.detach()
        value = (told.float() if told.dtype is torch.bfloat16 else told).numpy()
    if isinstance(value, np.ndarray) and records:
        return _short(past_guards(value).tolist())
    if isinstance(value, array):
        return _short(value.tolist())
    if isinstance(value, torch.Generator):
        return value.initial_seed()
    if isinstance(value, dict):
        entries = [(key, one) for key, one in value.items() if is_told(str(key))]
        return {str(_inside(key, records)): _inside(one, records) for key, one in entries}
    if isinstance(value, set | frozenset):
        return sorted(map(partial(_inside, records=records), value), key=repr)
    is_record = _is_record(value)
    if isinstance(value, list | tuple | deque) and not is_record:
        return _short([_inside(one, records) for one in value])
    if is_record and records:
        return fields_of(value, records=records - 1)
    return _of_object(value)


def _is_record(value: Any) -> bool:
    if isinstance(value, tuple | list | deque):
        return hasattr(value, "_fields")
    return isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value)


def _inside(value: Any, records: int) -> Any:
    """An entry of a list: one that says nothing is told by its type."""
    found = plain(value, records)
    return f"<{type(value).__name__}>" if found is NOTHING else found


def _short(values: list[Any]) -> Any:
    """A long list by its length, its end and a checksum."""
    if len(values) <= LONG:
        return values
    checksum = zlib.crc32(msgspec.json.encode(values))
    return {"count": len(values), "last": values[-_SHOWN:], "checksum": checksum}


def _of_object(value: Any) -> Any:
    """Requests by their names, blocks by their numbers and how many use them."""
    known = getattr(value, "__dict__", {})
    for identity in _IDENTITIES:
        if isinstance(known.get(identity), str):
            return name_of(known[identity])
    if hasattr(value, "block_id") and hasattr(value, "ref_cnt"):
        return [value.block_id, value.ref_cnt]
    return NOTHING
