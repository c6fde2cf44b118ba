"""bfloat16 and float8 under Triton's interpreter, with the values of compiled kernels.

The interpreter keeps these numbers as unsigned integers, and its operations are then those of
integers: a product of two of them is off by any factor, without a word. Here they are NumPy types
of their own (package ml_dtypes), whose operations compute in float32 and round to nearest even, as
the hardware does. What they have no value for is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

# Triton's name of a type to ml_dtypes' name of the same format.
_FORMATS = {
    "bf16": "bfloat16",
    "fp8e5": "float8_e5m2",
    "fp8e4nv": "float8_e4m3fn",
    "fp8e4b8": "float8_e4m3fnuz",
    "fp8e5b16": "float8_e5m2fnuz",
}
_UNKNOWN = ("fp8e4b15",)  # ml_dtypes has no such format
_ADDRESS = np.dtype(np.uint64)


def compute_narrow_floats(interpreter: Any, refuse: Callable[[str], None]) -> None:
    """Makes Triton's interpreter compute with bfloat16 and float8 as compiled kernels do.

    interpreter: the module triton.runtime.interpreter; refuse: called with the name of what cannot
    be computed, must not return.
    """
    formats = _formats_here()
    plain = interpreter._get_np_dtype
    known = dict(formats)  # by name: the interpreter asks at each operation

    def dtype_of(triton_type: Any) -> Any:
        scalar = getattr(triton_type, "element_ty", triton_type)
        if hasattr(triton_type, "address_space") or hasattr(scalar, "address_space"):
            return _ADDRESS
        name = scalar.name
        if name not in known:
            if name in (*_FORMATS, *_UNKNOWN):
                missing = "ml_dtypes, which has its values, is not installed"
                refuse(f"{name} in a Triton kernel ({missing})")
            known[name] = plain(scalar)
        return known[name]

    interpreter._get_np_dtype = dtype_of
    narrow = _Narrow(interpreter, frozenset(formats.values()))
    for name in ("masked_load", "masked_store", "atomic_cas", "atomic_rmw", "dot", "fma"):
        _put_before(interpreter.InterpreterBuilder, f"create_{name}", getattr(narrow, name))
    for name in ("cast_impl", "create_fp_to_fp"):
        _put_before(interpreter.InterpreterBuilder, name, narrow.cast)
    _widen_scaled(interpreter, narrow)


def _formats_here() -> dict[str, Any]:
    """Triton's name of a type to its NumPy type; empty where ml_dtypes is not installed."""
    try:
        import ml_dtypes
    except ImportError:  # in the environment of an engine that was set up by an earlier version
        return {}
    return {ours: np.dtype(getattr(ml_dtypes, name)) for ours, name in _FORMATS.items()}


def _put_before(builder: Any, name: str, ours: Callable[..., Any]) -> None:
    """The builder's method asks ours first, and does as before if that has no answer."""
    plain = getattr(builder, name, None)
    if plain is None:  # not in this version of Triton
        return

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        answer = ours(self, *args, **kwargs)
        return plain(self, *args, **kwargs) if answer is None else answer

    setattr(builder, name, method)


def _widen_scaled(interpreter: Any, narrow: _Narrow) -> None:
    """The operands of `tl.dot_scaled` are float32 when they are multiplied."""
    plain = getattr(interpreter, "_mxfp_value_handle_to_float32", None)
    if plain is None:
        return

    def widened(handle: Any) -> Any:
        return handle.data.astype(np.float32) if narrow.has(handle) else plain(handle)

    interpreter._mxfp_value_handle_to_float32 = widened


class _Narrow:
    """What the builder does otherwise for narrow types. A method returns None where it does not.

    types: the NumPy types that are narrow
    """

    def __init__(self, interpreter: Any, types: frozenset[Any]) -> None:
        self._module = interpreter
        self._memory = interpreter._interpreter
        self._types = types

    def has(self, handle: Any) -> bool:
        """Whether the values of a handle are bfloat16 or float8."""
        return handle.data.dtype in self._types

    def masked_load(
        self, builder: Any, pointers: Any, mask: Any, other: Any, *args: Any, **kwargs: Any
    ) -> Any:
        dtype = self._pointed(pointers)
        if dtype is None:
            return None
        if other is None:
            values = np.zeros(pointers.data.shape, dtype=_bits(dtype))
        else:
            values = np.ascontiguousarray(other.data).view(_bits(dtype))
        found = self._memory.load(pointers.data, mask.data, values, _bits(dtype))
        return self._handle(found.view(dtype), pointers.get_element_ty())

    def masked_store(self, builder: Any, pointers: Any, value: Any, mask: Any, *args: Any) -> Any:
        if not self.has(value):
            return None
        bits = np.ascontiguousarray(value.data).view(_bits(value.data.dtype))
        self._memory.store(pointers.data, bits, mask.data)
        return value  # nobody asks what a store returns; None would store again

    def atomic_cas(
        self, builder: Any, pointers: Any, compared: Any, value: Any, sem: Any, *args: Any
    ) -> Any:
        if not self.has(value):
            return None
        bits = _bits(value.data.dtype)
        old = self._memory.atomic_cas(
            pointers.data,
            np.ascontiguousarray(compared.data).view(bits),
            np.ascontiguousarray(value.data).view(bits),
            builder.ir_sem_to_interpreter_sem[sem],
        )
        return self._handle(old.view(value.data.dtype), compared.dtype.scalar)

    def atomic_rmw(
        self, builder: Any, kind: Any, pointers: Any, value: Any, mask: Any, *args: Any
    ) -> Any:
        """One element after the other: an interpreted program shares memory with nobody."""
        if not self.has(value):
            return None
        dtype = value.data.dtype
        shape = np.broadcast_shapes(pointers.data.shape, value.data.shape, mask.data.shape)
        places, values, chosen = (
            np.broadcast_to(one, shape).reshape(-1)
            for one in (pointers.data, value.data, mask.data)
        )
        old = np.zeros(places.size, dtype=dtype)
        for at in np.flatnonzero(chosen):
            here, one = places[at : at + 1].copy(), np.ones(1, dtype=bool)
            nothing = np.zeros(1, dtype=_bits(dtype))
            old[at] = self._memory.load(here, one, nothing, _bits(dtype)).view(dtype)[0]
            new = _combined(str(kind), old[at : at + 1], values[at : at + 1]).astype(dtype)
            self._memory.store(here, new.view(_bits(dtype)), one)
        return self._handle(old.reshape(shape), value.dtype.scalar)

    def dot(self, builder: Any, left: Any, right: Any, added: Any, *args: Any) -> Any:
        if not (self.has(left) or self.has(right)):
            return None
        product = np.matmul(left.data.astype(np.float32), right.data.astype(np.float32))
        total = product + added.data.astype(np.float32)
        return self._handle(total.astype(added.data.dtype), added.dtype.scalar)

    def fma(self, builder: Any, x: Any, y: Any, z: Any) -> Any:
        if not self.has(z):
            return None
        product = x.data.astype(np.float64) * y.data.astype(np.float64)  # exact
        total = _sum_rounded_to_odd(product, z.data.astype(np.float64))
        return self._handle(_rounded(_single_rounded_to_odd(total), z.data.dtype), z.dtype.scalar)

    def cast(self, builder: Any, source: Any, wanted: Any, mode: Any = None) -> Any:
        """To a narrow type: to nearest even, or towards zero if asked; out of range is the largest
        number there is for float8, as `cvt.satfinite` has it.
        """
        dtype = self._module._get_np_dtype(wanted)
        is_narrow = dtype in self._types
        if not is_narrow and not self.has(source):
            return None
        values = source.data
        if self.has(source):
            values = values.astype(np.float32)  # exact
        if is_narrow:
            rounds_down = mode is not None and str(mode).rpartition(".")[2] == "RTZ"
            single = values.astype(np.float32)
            values = _cut(single, dtype) if rounds_down else _rounded(single, dtype)
        else:
            values = values.astype(dtype)
        return self._handle(values, wanted.scalar)

    def _pointed(self, pointers: Any) -> Any:
        """The narrow type that is pointed to, or None."""
        dtype = self._module._get_np_dtype(pointers.get_element_ty())
        return dtype if dtype in self._types else None

    def _handle(self, data: Any, triton_type: Any) -> Any:
        return self._module.TensorHandle(data, triton_type)


def _bits(dtype: Any) -> Any:
    """The unsigned integer of the same size."""
    return np.dtype(np.uint8 if dtype.itemsize == 1 else np.uint16)


def _combined(kind: str, old: Any, value: Any) -> Any:
    """What a read-modify-write leaves behind. kind: `ATOMIC_OP.FADD` or another."""
    operation = kind.rpartition(".")[2]
    if operation in ("FADD", "ADD"):
        return old + value
    if operation == "XCHG":
        return value
    return np.fmax(old, value) if "MAX" in operation else np.fmin(old, value)


def _rounded(values: Any, dtype: Any) -> Any:
    """float32 or float64 to the nearest narrow number; of float8 no infinity comes of a number."""
    if dtype.itemsize == 1:
        import ml_dtypes

        about: Any = ml_dtypes.finfo
        largest = float(about(dtype).max)
        values = np.clip(values, -largest, largest)  # NaN stays
    return values.astype(dtype)


def _cut(values: Any, dtype: Any) -> Any:
    """float32 to the narrow number towards zero."""
    nearest = _rounded(values, dtype)
    is_beyond = np.abs(nearest.astype(np.float32)) > np.abs(values)
    # One less in the bits of a number that is not zero is the next one towards zero.
    return (nearest.view(_bits(dtype)) - is_beyond.astype(_bits(dtype))).view(dtype)


def _sum_rounded_to_odd(product: Any, added: Any) -> Any:
    """A sum in float64 of which a later rounding to fewer digits is as if it were the only one
    (Boldo and Melquiond 2008).
    """
    total = product + added
    part = total - product
    error = (product - (total - part)) + (added - part)
    return _made_odd(total, error, np.int64)


def _single_rounded_to_odd(values: Any) -> Any:
    """float64 to float32, with the same promise."""
    single = values.astype(np.float32)
    return _made_odd(single, values - single, np.int32)


def _made_odd(rounded: Any, error: Any, bits: Any) -> Any:
    """The neighbour with an odd last digit, of a number that is off by an error."""
    is_even = (np.ascontiguousarray(rounded).view(bits) & 1) == 0
    is_off = np.isfinite(error) & (error != 0) & is_even
    towards = np.copysign(np.inf, error).astype(rounded.dtype)
    return np.where(is_off, np.nextafter(rounded, towards), rounded)
