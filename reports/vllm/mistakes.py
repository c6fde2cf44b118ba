"""Plants one mistake after the other in a release of vLLM, and asks whether the gate notices it.

    python reports/vllm/mistakes.py OUT.jsonl [--mode none] [--only WORD]

Each mistake of mistakes.toml is made in a copy of the release's sources, which is gated beside the
release: `racegate vllm gate --release X --path COPY --against X --runs 0`. What ends with exit
code 1 was noticed. One record a line, and a page beside it; mistakes that have a record are not
planted again.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from racegate.targets.common.environment import EnginePackage
from racegate.targets.sglang.environment import SGLANG
from racegate.targets.vllm.environment import VLLM

RELEASES = {VLLM.name: (VLLM, "0.33.0"), SGLANG.name: (SGLANG, "0.5.23")}
RELEASE = "0.33.0"
SHOWN_MAX = 100
COLUMNS = 110  # of the terminal that a gate prints to
PAGE = """\
# Mistakes in vLLM {release}, beside the release

Written by `python reports/vllm/mistakes.py reports/vllm/mistakes.jsonl`: each mistake of
[mistakes.toml](mistakes.toml) in a copy of the release, on runner V1 if no other is named, with
`--runs 0`.
**{noticed} of {matter} that matter are noticed**, from the recorded runs alone. {nothing} more
change nothing, as their rows say.

| mistake | kind | mode | noticed | changed | new | the first thing found |
| --- | --- | --- | --- | ---: | ---: | --- |"""
SCRIPTS = Path(__file__).parents[2] / "scenarios" / "vllm"
MISTAKES = Path(__file__).with_name("mistakes.toml")


class Mistake(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A text of one file of an engine, and what takes its place. kind: race or logic

    options: of the gate, where the usual ones do not run it; scenario: the only one that is judged
    nothing: why it changes nothing, by mode; origin: the public repair that it undoes
    """

    name: str
    kind: str
    file: str
    before: str
    after: str
    options: tuple[str, ...] = ()
    scenario: str = ""
    nothing: dict[str, str] = {}
    origin: str = ""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate said. code: its exit code; changed: scenario to the first value that differs

    new: conflicts that the release has not; message: the end of what it printed, where it gave no
        result
    """

    name: str
    kind: str
    mode: str
    code: int
    changed: dict[str, str] = {}
    new: tuple[str, ...] = ()
    message: str = ""


def main() -> None:
    """Plants what has no record yet, and counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--mode", default="none")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    done = records(given.out)
    known = {(one.name, one.mode) for one in done}
    planted = mistakes()
    for mistake in planted:
        if given.only in mistake.name and (mistake.name, given.mode) not in known:
            judged = judge(mistake, given.mode)
            done.append(judged)
            with given.out.open("ab") as file:
                file.write(msgspec.json.encode(judged) + b"\n")
            print(f"{judged.code} {judged.name}: {tell(judged)}", flush=True)
    given.out.with_suffix(".md").write_text(page(done))
    print(f"{noticed(done)} of {len(done)} noticed")


def mistakes() -> list[Mistake]:
    """Those of the file."""
    return msgspec.convert(tomllib.loads(MISTAKES.read_text())["mistake"], list[Mistake])


def noticed(done: Sequence[Judged]) -> int:
    """How many ended with exit code 1."""
    return sum(one.code == 1 for one in done)


def page(done: Sequence[Judged]) -> str:
    """The table of all records, as Markdown."""
    nothing = {(one.name, mode): f"(changes nothing: {why})" for one in mistakes()
               for mode, why in one.nothing.items()}  # fmt: skip
    rows = [
        f"| {one.name} | {one.kind} | {one.mode} | {'yes' if one.code == 1 else 'no'} "
        f"| {len(one.changed)} | {len(one.new)} "
        f"| {nothing.get((one.name, one.mode)) or shown(tell(one))} |"
        for one in done
    ]
    figures = PAGE.format(
        release=RELEASE,
        noticed=noticed(done),
        matter=sum((one.name, one.mode) not in nothing for one in done),
        nothing=len(nothing),
    )
    return "\n".join([figures, *rows, ""])


def shown(text: str) -> str:
    """As a cell: one line, not too long."""
    line = text.replace("|", "/").replace("\n", " ")
    return line if len(line) <= SHOWN_MAX else f"{line[:SHOWN_MAX]}..."


def records(path: Path) -> list[Judged]:
    """What was judged before."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=Judged) for line in lines]


def tell(judged: Judged) -> str:
    """The first thing that was found."""
    return next(iter((*judged.changed.values(), *judged.new)), judged.message)


def judge(mistake: Mistake, mode: str) -> Judged:
    """One mistake, in a copy that is gone afterwards."""
    gated = gate(mistake, "--cache-mode", mode)
    sides = {one["scenario"]: one["comparison"] for one in gated.results}
    new = {one["message"] for side in sides.values() for one in side["new"]}
    return Judged(
        name=mistake.name,
        kind=mistake.kind,
        mode=mode,
        code=gated.code,
        changed={k: one["changed"]["message"] for k, one in sides.items() if one["changed"]},
        new=tuple(sorted(new)),
        message="" if gated.results else gated.end,
    )


class CopyGate(NamedTuple):
    """What a gate ended with, its results as in its JSON, what it printed, and its last error."""

    code: int
    results: list[dict[str, Any]]
    text: str
    end: str


def gate(mistake: Mistake, *options: str, engine: str = VLLM.name) -> CopyGate:
    """The gate of a copy of the engine's release that has the mistake."""
    package, release = RELEASES[engine]
    with tempfile.TemporaryDirectory() as folder:
        plant(mistake, Path(folder), package, release)
        out = Path(folder, "out.json")
        command = [sys.executable, "-m", "racegate", engine, "gate", "--release", release]
        command += ["--path", folder, "--against", release, *options]
        command += [*mistake.options, *only(mistake.scenario, Path(folder))]
        # What differs shows in the recorded runs; landings would say what harm it does.
        command += ["--runs", "0", "--json", str(out), "--log", str(Path(folder, "log"))]
        wide = os.environ | {"COLUMNS": str(COLUMNS)}
        done = subprocess.run(command, capture_output=True, text=True, env=wide)
        found = msgspec.json.decode(out.read_bytes())["results"] if out.exists() else []
    text = done.stdout.replace(folder, "COPY")
    return CopyGate(done.returncode, found, text, done.stderr.strip().rpartition("\n")[2])


def only(scenario: str, folder: Path) -> list[str]:
    """Options of a gate that judges one scenario, if one is named. folder: it is copied there"""
    if not scenario:
        return []
    scripts = folder / "scripts"
    scripts.mkdir()
    shutil.copy(SCRIPTS / f"{scenario}.toml", scripts)
    return ["--scenarios", str(scripts)]


def plant(mistake: Mistake, folder: Path, package: EnginePackage, release: str) -> None:
    """A copy of the release with the mistake. Raises SystemExit if its place is not there."""
    installed = package.environment_of(release).folder
    (site,) = installed.glob(f"lib/python*/site-packages/{package.module}")
    copy = folder / package.sources / package.module
    shutil.copytree(site, copy, copy_function=os.link)  # compiled files stay valid
    file = copy / mistake.file
    text = file.read_text()
    if text.count(mistake.before) != 1:
        raise SystemExit(
            f"{mistake.name}: its text stands {text.count(mistake.before)} times there"
        )
    file.unlink()
    file.write_text(text.replace(mistake.before, mistake.after))


if __name__ == "__main__":
    main()
