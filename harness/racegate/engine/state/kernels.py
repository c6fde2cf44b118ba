"""Launches by name: a footprint says which parameter of its kernel each buffer is.

The names are checked against the kernel's signature before anything is issued, once per kernel and
set of names. The device calls kernels by position: the order of a footprint, which a trace shows,
is the engine's own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple, get_type_hints

from racegate.device.protocol import Device, DeviceBuffer, Stream, Use
from racegate_kernels.backend import EAGER, Backend
from racegate_kernels.numerics import Array

Kernel = Callable[..., None]

_NOTHING: Mapping[str, DeviceBuffer] = MappingProxyType({})


class SignatureError(TypeError):
    """A launch does not give its kernel what it takes: says which names are missing or unknown."""


@dataclass(frozen=True, slots=True)
class KernelStream:
    """A stream, as far as it runs kernels."""

    device: Device
    stream: Stream

    def launch_kernel(
        self,
        kernel: str | Kernel,
        uses: Mapping[str, Use],
        *,
        step: int,
        name: str = "",
        constants: Mapping[str, DeviceBuffer] = _NOTHING,
        **scalars: object,
    ) -> None:
        """Issues a kernel. Raises SignatureError.

        kernel: the name of one of the backend's, or a function of a backend and arrays; a parameter
            of such a function may be a NamedTuple of arrays, whose fields are then named instead;
            one with a default may be left out
        uses, constants: by parameter of the kernel; operations touch the uses in their order
        name: of the operation, the kernel's by default; given for a function
        """
        call = bound_kernel(kernel, (*uses, *constants), tuple(scalars))
        self.device.launch(
            self.stream,
            call,
            name or str(kernel),
            step=step,
            uses=tuple(uses.values()),
            constants=tuple(constants.values()),
            **scalars,
        )


class _Parameter(NamedTuple):
    """A parameter for arrays. fields: their names; group: what makes one value of several."""

    fields: tuple[str, ...]
    group: Callable[..., object] | None


@lru_cache(maxsize=1024)
def bound_kernel(
    kernel: str | Kernel, names: tuple[str, ...], scalars: tuple[str, ...]
) -> Callable[..., None]:
    """What a device calls: kernel(backend, *arrays, **scalars), with arrays in the order of names.

    Raises SignatureError if names and scalars are not exactly what the kernel takes.
    """
    parameters, options = _signature(kernel)
    parameters = [_given(parameter, names) for parameter in parameters]
    wanted = [field for parameter in parameters for field in parameter.fields]
    _compare(kernel, "arrays", wanted, names)
    _compare(kernel, "scalars", options, scalars)
    order = [names.index(field) for field in wanted]
    if isinstance(kernel, str):
        return _of_backend(kernel, order)
    return _of_function(kernel, parameters, order)


def _signature(kernel: str | Kernel) -> tuple[list[_Parameter], list[str]]:
    """The parameters for arrays, and the names of those for scalars."""
    if isinstance(kernel, str):
        if not hasattr(EAGER, kernel):
            raise SignatureError(f"there is no kernel {kernel!r} in racegate_kernels.backend")
        found = list(inspect.signature(getattr(EAGER, kernel)).parameters.values())
        hints: dict[str, type] = {}
    else:
        _, *found = inspect.signature(kernel).parameters.values()  # the first is the backend
        hints = get_type_hints(kernel)
    arrays = [_parameter(p.name, hints.get(p.name)) for p in found if p.kind is not p.KEYWORD_ONLY]
    return arrays, [p.name for p in found if p.kind is p.KEYWORD_ONLY]


def _parameter(name: str, hint: type | None) -> _Parameter:
    fields: tuple[str, ...] | None = getattr(hint, "_fields", None)
    return _Parameter((name,), None) if fields is None else _Parameter(fields, hint)


def _given(parameter: _Parameter, names: tuple[str, ...]) -> _Parameter:
    """Without the fields that have a default and are not named."""
    optional: Mapping[str, object] = getattr(parameter.group, "_field_defaults", _NOTHING)
    kept = [field for field in parameter.fields if field in names or field not in optional]
    return parameter._replace(fields=tuple(kept))


def _compare(kernel: str | Kernel, what: str, wanted: list[str], given: tuple[str, ...]) -> None:
    if sorted(wanted) == sorted(given):
        return
    name = kernel if isinstance(kernel, str) else kernel.__name__
    missing = ", ".join(sorted(set(wanted) - set(given))) or "nothing"
    unknown = ", ".join(sorted(set(given) - set(wanted))) or "nothing"
    raise SignatureError(
        f"kernel {name}: its {what} are ({', '.join(wanted)}), the launch names"
        f" ({', '.join(given)}): missing {missing}, unknown {unknown}"
    )


def _of_backend(name: str, order: list[int]) -> Callable[..., None]:
    """By position: a seeded fault may call its parameters otherwise."""
    if order == sorted(order):

        def as_given(kernels: Backend, *arrays: Array, **scalars: object) -> None:
            getattr(kernels, name)(*arrays, **scalars)

        return as_given
    in_order = itemgetter(*order)

    def reordered(kernels: Backend, *arrays: Array, **scalars: object) -> None:
        getattr(kernels, name)(*in_order(arrays), **scalars)

    return reordered


def _of_function(
    kernel: Kernel, parameters: list[_Parameter], order: list[int]
) -> Callable[..., None]:
    if order == sorted(order) and all(parameter.group is None for parameter in parameters):
        return kernel
    places = iter(order)
    takers = [
        (parameter.group, {name: next(places) for name in parameter.fields})
        for parameter in parameters
    ]

    def arguments(arrays: tuple[Array, ...]) -> Iterator[object]:
        for group, indices in takers:
            values = {name: arrays[index] for name, index in indices.items()}
            # By name: a field that is left out may stand before one that is not.
            yield next(iter(values.values())) if group is None else group(**values)

    def grouped(kernels: Backend, *arrays: Array, **scalars: object) -> None:
        kernel(kernels, *arguments(arrays), **scalars)

    return grouped
