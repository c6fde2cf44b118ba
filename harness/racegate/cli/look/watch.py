"""The command watch."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from racegate.cli.options import (
    JsonOption,
    MarkdownOption,
    say,
    tell,
    write_text,
)
from racegate.cli.sets import WebhookOption
from racegate.history.outcome import SCHEMA
from racegate.interpose.errors import BadInput
from racegate.jobs.notices.watched import notices_of
from racegate.jobs.notices.webhook import Webhook
from racegate.jobs.stores.choice import store_of
from racegate.jobs.versions.watching import (
    MissedProgram,
    VersionJudge,
    WatchedVersion,
    WatchObject,
    all_watched,
    watch_all,
)
from racegate.jobs.versions.watchlist import load_watch
from racegate.report.dashboard.versions import render_watched, watched_lines
from racegate.scenario.errors import BadInputError
from racegate.scenario.untrusted.text import printable_lines
from racegate.targets.common.environment import cache_folder

app = typer.Typer(add_completion=False)


@app.command()
def watch(
    file: Annotated[Path, typer.Argument(metavar="WATCH", help="A TOML file of programs.")],
    store: Annotated[
        str,
        typer.Option(
            metavar="PATH|URL",
            envvar="RACEGATE_STORE",
            help="What is known of each version: the folder or server of campaigns.",
        ),
    ],
    webhook: WebhookOption = None,
    markdown: MarkdownOption = None,
    json: JsonOption = None,
) -> None:
    """Judge each version of a package that is new since the last call, by a program that uses it,
    and compare it with the one before: 1 a finding that is new, 4 a version that no longer runs.
    """
    programs = load_watch(file)
    judge = VersionJudge(file.absolute().parent, cache_folder("programs"))
    name = store_of(store, None).name
    posts = None if webhook is None else Webhook(webhook, say)
    versions: list[WatchedVersion] = []
    missed: list[MissedProgram] = []
    with posts or nullcontext():
        for found in watch_all(programs, store, judge, say=say):
            if isinstance(found, MissedProgram):
                missed.append(found)
                say(f"{found.name}: {found.why}")
                continue
            versions.append(found)
            if posts is not None:
                for notice in notices_of(found, name):
                    posts.send(notice)
    told = WatchObject(
        schema=SCHEMA,
        store=name,
        programs=len(programs),
        versions=tuple(versions),
        missed=tuple(missed),
    )
    if markdown is not None:
        try:
            write_text(markdown, render_watched(all_watched(programs, store)))
        except BadInput as error:
            raise BadInputError(str(error)) from error
    tell(json, told, lambda: _show(told))
    raise typer.Exit(told.exit_code)


def _show(told: WatchObject) -> None:
    for one in told.versions:
        print(printable_lines("\n".join(watched_lines(one))))
    print(f"{len(told.versions)} new versions of the packages of {told.programs} programs")
