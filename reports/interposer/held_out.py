"""Programs that racegate once judged wrongly, and correct twins of them: judged again, as a table.

    python reports/interposer/held_out.py [--jobs N] OUT.json [NAME ...]

Prints, by topic, how many cases are right, wrong passes, lost findings, false findings, hangs and
otherwise wrong, and what is wrong of each; exit 1 if anything is. NAME is a topic, or TOPIC/CASE.

A case is one script, `tests/interpose/cases/TOPIC/CASE.py`. It begins with comments that are TOML:

    # expect = "conflict"
    # says = ["host read (sum)", "host threads of the program"]

expect: `silent` (exit code 0), `conflict` (1), `refused` (2), `not modelled` (3), `inconclusive`
    (4), or `fails`: the script fails by itself, with the exit code `code`
says: what the command has to print, on either of its outputs; says_not: what it must not print
twin: in a silent case, the cases in the same topic that it repairs. Every case that is not silent
    has to have one.
command: words in front of the script, `["torch", "run"]` if not given; options go here too. With
    `{script}` among them the script stands there, `{folder}` is an empty folder of the case's own,
    `{root}` the checkout and `{python}` the interpreter
timeout_s: after which it hangs, 120 if not given

The script runs in an empty folder. `tests/interpose/test_held_out.py` judges all of them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from functools import partial
from itertools import takewhile
from pathlib import Path

import msgspec

from racegate.scenario.untrusted.files import write_json

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "interpose" / "cases"


class Expect(StrEnum):
    """How a command ends that judges a script."""

    SILENT = "silent"
    CONFLICT = "conflict"
    REFUSED = "refused"
    NOT_MODELLED = "not modelled"
    INCONCLUSIVE = "inconclusive"
    FAILS = "fails"


EXIT_CODES = {
    Expect.SILENT: 0,
    Expect.CONFLICT: 1,
    Expect.REFUSED: 2,
    Expect.NOT_MODELLED: 3,
    Expect.INCONCLUSIVE: 4,
}


class Standing(StrEnum):
    """What became of a case. OTHER: not the expected exit code or words, in another way"""

    RIGHT = "right"
    WRONG_PASS = "wrong pass"
    LOST = "lost finding"
    FALSE = "false finding"
    HANG = "hang"
    OTHER = "otherwise wrong"


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a script says of itself: see above."""

    expect: Expect
    code: int | None = None
    says: tuple[str, ...] = ()
    says_not: tuple[str, ...] = ()
    twin: tuple[str, ...] = ()
    command: tuple[str, ...] = ("torch", "run")
    timeout_s: float = 120.0

    @property
    def exit_code(self) -> int:
        """The expected one. Raises ValueError: a case that fails has to say with what."""
        code = EXIT_CODES.get(self.expect, self.code)
        if code is None:
            raise ValueError("`fails` needs `code`")
        return code


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one case. text: what was printed, where it is not right"""

    name: str
    standing: Standing
    expected: int
    exit_code: int | None
    text: str = ""


# (words, folder, seconds) to exit code and what was printed; raises subprocess.TimeoutExpired.
Run = Callable[[tuple[str, ...], Path, float], tuple[int, str]]


def scripts(names: Iterable[str] = ()) -> list[Path]:
    """Of these topics and cases, or of all."""
    wanted = tuple(names)
    return [
        path
        for path in sorted(CASES.glob("*/*.py"))
        if not wanted or {path.parent.name, name_of(path)} & set(wanted)
    ]


def name_of(script: Path) -> str:
    """Topic and case."""
    return f"{script.parent.name}/{script.stem}"


def read(script: Path) -> Case:
    """What the script says of itself. Raises msgspec.ValidationError."""
    lines = takewhile(lambda line: line.startswith("#"), script.read_text().splitlines())
    return msgspec.toml.decode("\n".join(line[1:].strip() for line in lines), type=Case)


def judge(script: Path, run: Run) -> Row:
    """Runs a case, and compares what came of it with what it says."""
    case = read(script)
    row = Row(name=name_of(script), standing=Standing.HANG, expected=case.exit_code, exit_code=None)
    with tempfile.TemporaryDirectory(prefix="held-out-") as folder:
        words = _words(case, script, Path(folder))
        try:
            code, text = run(words, Path(folder), case.timeout_s)
        except subprocess.TimeoutExpired:
            return row
    standing = _standing(case, code, text)
    shown = "" if standing is Standing.RIGHT else text
    return msgspec.structs.replace(row, standing=standing, exit_code=code, text=shown)


def _words(case: Case, script: Path, folder: Path) -> tuple[str, ...]:
    words = case.command if "{script}" in case.command else (*case.command, "{script}")
    own = folder / "own"
    own.mkdir()
    places = {"script": script, "folder": own, "root": ROOT, "python": sys.executable}
    return tuple(word.format(**places) for word in words)


def _standing(case: Case, code: int, text: str) -> Standing:
    is_told = all(word in text for word in case.says)
    is_told = is_told and not any(word in text for word in case.says_not)
    if code == case.exit_code and is_told:
        return Standing.RIGHT
    if code == 0 and case.exit_code != 0:
        return Standing.WRONG_PASS
    if case.expect is Expect.CONFLICT:
        return Standing.LOST
    return Standing.FALSE if code == EXIT_CODES[Expect.CONFLICT] else Standing.OTHER


def run_alone(words: tuple[str, ...], folder: Path, timeout_s: float) -> tuple[int, str]:
    """`racegate WORDS` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "racegate", *words],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=timeout_s,
    )
    return done.returncode, done.stdout


def table(rows: Iterable[Row]) -> str:
    """Markdown: a line for each topic, and one for all."""
    counted: dict[str, Counter[Standing]] = {}
    for row in rows:
        for topic in (row.name.partition("/")[0], "all"):
            counted.setdefault(topic, Counter())[row.standing] += 1
    counted["all"] = counted.pop("all", Counter())
    heads = ["topic", "cases", *(kind.value for kind in Standing)]
    lines = [f"| {' | '.join(heads)} |", f"| --- |{' ---: |' * (len(heads) - 1)}"]
    for topic, counts in counted.items():
        numbers = [counts.total(), *(counts[kind] for kind in Standing)]
        lines.append(f"| {topic} | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(partial(judge, run=run_alone), scripts(options.names)))
    write_json(options.out, rows)
    wrong = [row for row in rows if row.standing is not Standing.RIGHT]
    for row in wrong:
        print(f"{row.name}: {row.standing} (exit code {row.exit_code}, not {row.expected})")
        print("  " + row.text.replace("\n", "\n  "))
    print(table(rows))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
