"""The command campaign serve."""

from __future__ import annotations

import socket
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from racegate.check.checker import Checker
from racegate.cli.help.named import FaultOption
from racegate.cli.options import (
    TargetOption,
    WrittenStoreOption,
    fail,
    reason_of,
    say,
)
from racegate.cli.sets import subject_given
from racegate.jobs.fleet.matrix import matrix_in
from racegate.jobs.stores.choice import written_store
from racegate.report.finding.drawing import pictured_beside, seen_in_witness

if TYPE_CHECKING:
    from racegate.history.witness import Witness

LOOPBACK = ("127.0.0.1", "localhost")
PORT = 8470


def serve(
    store: WrittenStoreOption,
    fault: FaultOption = None,
    target: TargetOption = None,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; others than this machine ask.")
    ] = LOOPBACK[0],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: one that is free.")] = PORT,
) -> None:
    """Show the campaigns of a store in a browser, while they run. Nothing can be changed there."""
    try:
        import uvicorn

        from racegate.report.dashboard.server import dashboard
    except ImportError as error:
        fail(f"{error.name} is missing: pip install 'racegate[campaign]'")
    is_local = host in LOOPBACK
    application = dashboard(
        written_store(store, subject_given(fault, target)),
        drawn,
        hosts=LOOPBACK if is_local else ("*",),
        read_targets=partial(matrix_in, store),
    )
    settings = uvicorn.Config(application, log_level="warning", access_log=False, lifespan="off")
    with closing(_listening(host, port)) as listener:
        where = f"http://{host}:{listener.getsockname()[1]}/"
        readers = "" if is_local else ", to whoever reaches it"
        say(f"{where} shows the campaigns{readers}; Ctrl-C ends it")
        with suppress(KeyboardInterrupt):
            uvicorn.Server(settings).run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port))
    except OSError as error:
        fail(f"cannot listen at {host}:{port}: {reason_of(error)}; --port takes another")


def drawn(witness: Witness, file: str) -> str | None:
    """The page of a finding; None if a run of its witness finds nothing."""
    from racegate.report.finding.page import Trail, finding_page

    checker = Checker(witness.scenario, replay=f"racegate run {file}")
    seen = seen_in_witness(witness, checker, Path(file))
    trail = Trail(home="../", home_title="All findings")
    return None if seen is None else finding_page(pictured_beside(seen), trail=trail)
