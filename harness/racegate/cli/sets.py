"""Options that belong together, declared once: a set is a function from its options to a value, and
a command names the value it wants.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

import typer

from racegate.cli.options import (
    AddressOption,
    BackendOption,
    StoreOption,
    TimeoutOption,
    WorkersOption,
    fail,
    say,
)
from racegate.jobs.pools.choice import PoolBackend, WorkerPlace
from racegate.jobs.pools.time_limit import TIMEOUT_S

if TYPE_CHECKING:
    from racegate.jobs.fuzz import Bounds
    from racegate.jobs.stores.link import StoreLink

R = TypeVar("R")


def with_set(
    name: str, made: Callable[..., object]
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Gives a command the options of a set in the place of its parameter with this name.

    made: what makes the value from the options, with the annotations that typer reads
    """
    options = signature(made, eval_str=True).parameters

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
        def with_options(**given: object) -> R:
            value = made(**{option: given.pop(option) for option in options})
            return command(**given, **{name: value})

        parameters = [
            one.replace(kind=Parameter.KEYWORD_ONLY)
            for parameter in signature(command, eval_str=True).parameters.values()
            for one in (options.values() if parameter.name == name else [parameter])
        ]
        update_wrapper(with_options, command)
        with_options.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        with_options.__annotations__ = {one.name: one.annotation for one in parameters}
        return with_options

    return decorate


WebhookOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="RACEGATE_WEBHOOK",
        help="Post JSON there: each new finding, what is resolved, and the end.",
    ),
]


class CampaignOptions(NamedTuple):
    """How a search over scenarios goes on, and where.

    out: its folder; store: what it shares with others, if anything
    webhook: who is told of findings as they come
    """

    out: Path
    seconds: float | None
    scenarios: int | None
    workers: int
    seed: int
    place: WorkerPlace
    store: str | None
    timeout_s: float
    webhook: str | None

    @property
    def bounds(self) -> Bounds:
        """Where a campaign stops."""
        from racegate.jobs.fuzz import Bounds

        return Bounds(seconds=self.seconds, scenarios=self.scenarios, timeout_s=self.timeout_s)


def campaign_options(
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Witnesses and progress are kept here.")],
    seconds: Annotated[
        float | None, typer.Option(min=0.0, help="Stop after so many seconds.")
    ] = None,
    scenarios: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many scenarios in all.")
    ] = None,
    workers: WorkersOption = 1,
    seed: Annotated[int, typer.Option(min=0, help="Of the scenarios.")] = 0,
    backend: BackendOption = PoolBackend.LOCAL,
    address: AddressOption = None,
    store: StoreOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
    webhook: WebhookOption = None,
) -> CampaignOptions:
    """The options of every search over scenarios. Without an end it is refused."""
    if seconds is None and scenarios is None:
        fail("give --seconds or --scenarios, or both")
    if address is not None and backend is not PoolBackend.RAY:
        fail("--address is of a Ray cluster: give --backend ray")
    place = WorkerPlace(backend=backend, address=address)
    return CampaignOptions(out, seconds, scenarios, workers, seed, place, store, timeout, webhook)


def subject_given(fault: str | None, target: str | None) -> str | None:
    """What of a store is meant: one fault's findings, one target's, or those of neither."""
    from racegate.jobs.stores.choice import subject_of

    if fault is not None and target is not None:
        fail("give --fault or --target, not both")
    return fault if target is None else subject_of(target)


def link_to(store: str | None, subject: str | None, folder: Path) -> StoreLink | None:
    """To a shared store, if one is given. The same folder on the same machine goes on where a
    driver was killed.
    """
    if store is None:
        return None
    from platform import node

    from racegate.jobs.stores.choice import store_of
    from racegate.jobs.stores.link import StoreLink

    return StoreLink(store_of(store, subject), f"{node()}:{folder.resolve()}", say)
