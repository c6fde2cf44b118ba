"""The command docs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from racegate.cli.help.named import pages as page_names
from racegate.cli.options import (
    JsonOption,
    fail,
    folder_to_fill,
    say,
    stdout_console,
    tell,
    write_bytes,
)
from racegate.scenario.shipped import shipped_docs, shipped_examples
from racegate.scenario.untrusted.near import near_it
from racegate.scenario.untrusted.reading import read_text
from racegate.scenario.untrusted.text import quoted

PAGE_BYTES_MAX = 1 << 20

app = typer.Typer(add_completion=False)


@app.command()
def docs(
    page: Annotated[
        str | None,
        typer.Argument(metavar="[PAGE]", help="One from the list.", autocompletion=page_names),
    ] = None,
    examples: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Copy the files that pages show here.", callback=folder_to_fill
        ),
    ] = None,
    json: JsonOption = None,
) -> None:
    """List the pages that come with racegate, or show one."""
    if examples is not None:
        _copy_examples(examples)
        return
    pages = shipped_docs()
    if page is None:
        titles = {name: _title(path) for name, path in pages.items()}
        tell(json, titles, lambda: _print_list(titles))
        return
    wanted = page.removesuffix(".md").replace("-", "_")
    if wanted not in pages:
        fail(f"no page {quoted(page)}{near_it(page, pages)}; `racegate docs` lists them")
    text = read_text(pages[wanted], PAGE_BYTES_MAX)
    tell(json, text, lambda: _print_page(text))


def _copy_examples(folder: Path) -> None:
    """What is there already under the name of one is kept."""
    for path in sorted(shipped_examples().rglob("*")):
        target = folder / path.relative_to(shipped_examples())
        if path.suffix not in (".py", ".toml", ".yml"):
            continue
        if target.exists():
            say(f"{target} is there already, and is kept")
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(target, path.read_bytes())
        print(target)


def _title(path: Path) -> str:
    lines = read_text(path, PAGE_BYTES_MAX).splitlines()
    return next((line.removeprefix("# ") for line in lines if line.startswith("# ")), "")


def _print_list(titles: dict[str, str]) -> None:
    width = max(map(len, titles))
    for name, title in titles.items():
        print(f"{name:{width}}  {title}")
    print("\nracegate docs PAGE shows one.")


def _print_page(text: str) -> None:
    """In a terminal as a page; elsewhere as it is written."""
    console = stdout_console()
    if not console.is_terminal:
        print(text, end="")
        return
    from rich.markdown import Markdown

    with console.pager(styles=True):
        console.print(Markdown(text))
