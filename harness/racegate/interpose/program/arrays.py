"""NumPy views of pinned memory: what the host reads and writes through them, before it does."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from racegate.interpose.device.session import Session
from racegate.interpose.kernels.aliases import bytes_of
from racegate.order.ranges import Ranges, element_ranges, strided_ranges

_READING = (
    "tolist", "item", "copy", "sum", "max", "min", "any", "all", "astype", "nonzero", "argmax",
    "argmin", "argsort", "tobytes", "repeat", "cumsum", "mean", "std", "var", "prod", "flatten",
    "take", "dot", "clip", "searchsorted", "round", "compress", "cumprod", "ptp", "trace",
    "__contains__", "__int__", "__bool__", "__float__", "__index__", "__complex__", "tofile",
    "choose", "dump", "dumps", "__reduce__", "__copy__", "__deepcopy__", "__str__", "__repr__",
    "__format__",
)  # fmt: skip
_unseen = torch._C._DisableTorchDispatch
_WRITING = ("fill", "sort", "put", "partition", "byteswap")


def track_arrays(session: Session) -> type:
    """Tensor.numpy() of a pinned tensor gives an array that reports accesses; returns its type."""
    array_type = _array_type(session)
    numpy, tolist = torch.Tensor.numpy, torch.Tensor.tolist

    def tracked_numpy(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        session.drain()  # it may have been allocated a moment ago
        if type(tensor) is torch.Tensor and tensor.is_cpu and not _is_lazy(tensor):
            with _unseen():  # torch asks for lazy bits, each by the way through modes
                array = numpy(tensor, *args, **kwargs)
        else:
            array = numpy(tensor, *args, **kwargs)
        if type(array) is np.ndarray and _is_pinned(session, array):
            return array.view(array_type)
        return array

    def tracked_tolist(tensor: Any) -> Any:
        if tensor.is_cuda:
            return tolist(tensor.cpu())
        if tensor.numel() and session.spans.find(tensor.data_ptr()) is not None:
            session.host_access("host read (tolist)", bytes_of(session, tensor), ())
            with session.own():
                return tolist(tensor)
        return tolist(tensor)

    torch.Tensor.numpy = tracked_numpy
    torch.Tensor.tolist = tracked_tolist
    return array_type


def _is_lazy(tensor: Any) -> bool:
    """Whether its values are others than its bytes say."""
    return bool(tensor.is_neg() or tensor.is_conj())


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _is_pinned(session: Session, array: Any) -> bool:
    return bool(array.size) and session.spans.find(_address(array)) is not None


def array_ranges(array: Any) -> Ranges:
    """The bytes of an array."""
    return strided_ranges(_address(array), array.shape, array.strides, array.itemsize)


def picked_ranges(array: Any, key: Any) -> Ranges:
    """The bytes that array[key] reads or writes."""
    if _is_basic(key):
        picked = _picked(array, key)
        return array_ranges(picked) if picked.size else ()
    offsets = np.zeros((), np.int64)
    for size, stride in zip(array.shape, array.strides, strict=True):
        offsets = offsets[..., None] + np.arange(size) * stride
    places = np.unique(offsets[key]).tolist()
    return element_ranges(0, (), 1) if not places else _at(_address(array), places, array.itemsize)


def _picked(array: Any, key: Any) -> Any:
    """array[key] of a basic key, as a view even of a single element: to read it here would be a
    touch that nobody reported.
    """
    keys = key if isinstance(key, tuple) else (key,)
    return array[keys if Ellipsis in keys else (*keys, ...)]


def _at(address: int, places: list[int], itemsize: int) -> Ranges:
    if all(place % itemsize == 0 for place in places):
        return element_ranges(address, (place // itemsize for place in places), itemsize)
    return tuple((address + place, address + place + itemsize) for place in places)


def _is_basic(key: Any) -> bool:
    keys = key if isinstance(key, tuple) else (key,)
    return all(item is None or item is Ellipsis or isinstance(item, (slice, int)) for item in keys)


def _plain(value: Any) -> Any:
    """The value with tracked arrays as plain ones."""
    if isinstance(value, np.ndarray):
        return value.view(np.ndarray)
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(item) for item in value)
    return value


def _arrays(value: Any) -> list[Any]:
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, (list, tuple)):
        return [array for item in value for array in _arrays(item)]
    return []


def _array_type(session: Session) -> type:
    def touch(verb: str, *, reads: Any = (), writes: Any = ()) -> None:
        read = [r for a in reads if _is_pinned(session, _plain(a)) for r in array_ranges(_plain(a))]
        written = [
            r for a in writes if _is_pinned(session, _plain(a)) for r in array_ranges(_plain(a))
        ]
        if read or written:
            session.host_access(verb, tuple(read), tuple(written))

    class PinnedArray(np.ndarray):
        """A NumPy array over pinned memory."""

        def __getitem__(self, key: Any) -> Any:
            plain = self.view(np.ndarray)
            if isinstance(key, np.ndarray):
                touch("host read (numpy)", reads=[key])
            key = _plain(key)
            if _is_basic(key):
                picked = _picked(plain, key)
                if picked.ndim:
                    return picked.view(type(self))
            if _is_pinned(session, plain):
                session.host_access("host read (numpy)", picked_ranges(plain, key), ())
            return plain[key]

        def __setitem__(self, key: Any, value: Any) -> None:
            plain = self.view(np.ndarray)
            touch("host read (numpy)", reads=_arrays(value) + _arrays(key))
            key = _plain(key)
            if _is_pinned(session, plain):
                session.host_access("host write (numpy)", (), picked_ranges(plain, key))
            plain[key] = _plain(value)

        def __iter__(self) -> Any:
            return (self[index] for index in range(len(self)))

        def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
            out = kwargs.get("out", ())
            written = list(out) + ([inputs[0]] if method == "at" else [])
            touch("host access (numpy)", reads=_arrays(inputs), writes=written)
            if out:
                kwargs["out"] = _plain(tuple(out))
            if isinstance(kwargs.get("where"), np.ndarray):
                touch("host read (numpy)", reads=[kwargs["where"]])
                kwargs["where"] = _plain(kwargs["where"])
            result = getattr(ufunc, method)(*_plain(inputs), **kwargs)
            return out[0] if len(out) == 1 else result

        def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            out = kwargs.get("out")
            first = args[:1] if func in (np.copyto, np.put, np.place, np.putmask) else ()
            reads = _arrays(args[len(first) :]) + _arrays(list(kwargs.values()))
            touch("host access (numpy)", reads=reads, writes=_arrays(out) + _arrays(first))
            plain_kwargs = {name: _plain(value) for name, value in kwargs.items()}
            result = func(*_plain(args), **plain_kwargs)
            return out if out is not None else result

    for names, is_write in ((_READING, False), (_WRITING, True)):
        for name in names:
            if hasattr(np.ndarray, name):
                setattr(PinnedArray, name, _method(name, touch, is_write=is_write))
    return PinnedArray


def _method(name: str, touch: Any, *, is_write: bool) -> Any:
    original = getattr(np.ndarray, name)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        verb = f"host {'write' if is_write else 'read'} (numpy)"
        touch(
            verb,
            reads=_arrays(args) + ([] if is_write else [self]),
            writes=[self] if is_write else [],
        )
        return original(self.view(np.ndarray), *_plain(args), **kwargs)

    return method
