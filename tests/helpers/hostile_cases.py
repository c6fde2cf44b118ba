"""Files and arguments made to hurt, one after the other through the command line.

`python tests/helpers/hostile_cases.py` runs them and prints a Markdown table: exit code, seconds of
the processor, memory, and whether all that was written can be printed. It imports nothing of
racegate, so that PYTHONPATH decides which one is asked: what came before can be put beside what is.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 30.0
MEMORY_MAX = 6 << 30
SAID_MAX = 100
WITNESS = ROOT / "scenarios" / "witnesses" / "accepted-read-before-copy.witness.json"
NASTY = "\x1b[31m\u202e[/foo][bold]\x9b"

Arguments = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """make: writes what is needed into a folder, and says what to call"""

    name: str
    make: Callable[[Path], Arguments]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a case. code: None if it did not end; seconds: of the processor
    is_clean: nothing unprintable was written
    """

    code: int | None
    seconds: float
    memory_mib: float
    is_clean: bool
    said: str


def script(*, title: str = "'a title'", more: str = "", requests: str | None = None) -> str:
    """A scenario as TOML. title: with its quotes"""
    entries = '[[requests]]\nname = "A"\nprompt_len = 6\n' if requests is None else requests
    return f'schema = 1\nname = "hostile"\ntitle = {title}\n{more}\n{entries}'


def toml(text: str, *options: str) -> Callable[[Path], Arguments]:
    """`racegate run` on this text."""

    def make(folder: Path) -> Arguments:
        path = folder / "hostile.toml"
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        return ("run", str(path), *options)

    return make


def listed(text: str, *options: str) -> Callable[[Path], Arguments]:
    """`racegate scenarios list` on a folder with this text."""

    def make(folder: Path) -> Arguments:
        (folder / "hostile.toml").write_text(text, encoding="utf-8")
        return ("scenarios", "list", "--scenarios", str(folder), *options)

    return make


def log(lines: Callable[[], str], **changes: object) -> Callable[[Path], Arguments]:
    """`racegate run --trace` on these rows of a log."""

    def make(folder: Path) -> Arguments:
        path = folder / "log.csv"
        path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + lines(), encoding="utf-8")
        options = [f"--{key}={value}" for key, value in changes.items()]
        return ("run", "--trace", str(path), *options)

    return make


def witness(change: Callable[[dict[str, object]], str | None]) -> Callable[[Path], Arguments]:
    """`racegate replay` of a witness that was changed; as text, if the change gives one."""

    def make(folder: Path) -> Arguments:
        content = json.loads(WITNESS.read_text(encoding="utf-8"))
        text = change(content)
        path = folder / "hostile.witness.json"
        path.write_text(json.dumps(content) if text is None else text, encoding="utf-8")
        return ("replay", str(path))

    return make


def special(*before: str, kind: str) -> Callable[[Path], Arguments]:
    """A command on something that is no file."""

    def make(folder: Path) -> Arguments:
        path = folder / f"special.{'witness.json' if 'replay' in before else 'toml'}"
        match kind:
            case "fifo":
                os.mkfifo(path)
            case "folder":
                path.mkdir()
            case "zero":
                path.symlink_to("/dev/zero")
            case "loop":
                path.symlink_to(path)
        return (*before, str(path))

    return make


def _with(**values: object) -> Callable[[dict[str, object]], str | None]:
    """A witness with other values."""
    return lambda content: content.update(values)


def _replaced(there: str, other: str) -> Callable[[dict[str, object]], str | None]:
    """A witness with another piece of text."""
    return lambda content: json.dumps(content).replace(there, other, 1)


def _requests(count: int, *, first: str = "prompt_len = 2", others: str = "prompt_len = 2") -> str:
    lines = (f'[[requests]]\nname = "r{i}"\n{others if i else first}\n' for i in range(count))
    return "".join(lines)


def _log_file(name: str) -> str:
    return f'[trace]\nfile = "{name}"\nrows = "0:2"\n'


def _named_file(name: str, *command: str) -> Callable[[Path], Arguments]:
    """A command on a file of this name; on its folder, if the last word is an option."""

    def make(folder: Path) -> Arguments:
        path = folder / name
        path.write_text(script(), encoding="utf-8")
        return (*command, str(folder if command[-1] == "--scenarios" else path))

    return make


def _words(*words: str) -> Callable[[Path], Arguments]:
    return lambda folder: words


DEEP = 5_000
PARTS = 100_000
LIST = ("scenarios", "list", "--json", "-", "--scenarios")
SHARE = 'prompt_len = 2\nshares = "r0"\nshares_tokens = 1'
TIME = "2023-11-16 18:15:46"
CASES = (
    Case("markup in a title, listed", listed(script(title="'[/foo] [bold]x'"))),
    Case("ESC and bidi mark in a title, listed", listed(script(title=json.dumps(NASTY)))),
    Case("the same, as JSON", listed(script(title=json.dumps(NASTY)), "--json", "-")),
    Case("ESC in a field name", toml(script(more='"x\\u001b[31m\\u202e" = 1'))),
    Case("ESC in a value", toml(script(more='seed = "\\u001b[31m"'))),
    Case("ESC in the schema", toml('schema = "\\u001b[31m\\u202e"')),
    Case("file name with ESC, listed", _named_file("a\x1b[31m\u202e.toml", *LIST)),
    Case("file name with ESC, as what is not there", _words("run", "no\x1b[31m\u202e.toml")),
    Case("file name with markup, run", _named_file("[bold]a.toml", "run")),
    Case("file name that is no UTF-8, listed", _named_file("a\udcff.toml", *LIST)),
    Case("option with ESC", _words("run", "--\x1b[31m\u202e")),
    Case("command with ESC", _words("\x1b[31m\u202e")),
    Case("fault with ESC", toml(script(), "--fault", NASTY)),
    Case("nested arrays in TOML", toml(script(more="seed = " + "[" * DEEP + "]" * DEEP))),
    Case("nested tables in TOML", toml(script(more="seed = " + "{a=" * DEEP + "1" + "}" * DEEP))),
    Case("key of 100,000 parts", toml(".".join(["a"] * PARTS) + " = 1\n" + script())),
    Case("table of 100,000 parts", toml(script() + f"[{'.'.join(['a'] * PARTS)}]\n")),
    Case("integer of 10,000 digits", toml(script(more=f"seed = {'9' * 10_000}"))),
    Case("hexadecimal of 20,000 digits", toml(script(more=f"seed = 0x{'f' * 20_000}"))),
    Case("the same in a limit", toml(script(requests=f"[engine]\nblocks = 0x{'f' * 20_000}\n"))),
    Case("NUL in the file of a log", toml(script(requests=_log_file("a\\u0000b")))),
    Case("log that is /dev/zero", toml(script(requests=_log_file("/dev/zero")))),
    Case("rows of 5,000 digits", log(lambda: f"{TIME},374,44\n", rows=f"0:{'9' * 5_000}")),
    Case("mixed time zones", log(lambda: f"{TIME},374,44\n{TIME}+02:00,374,44\n", rows="0:2")),
    Case("tokens of 4,300 digits", log(lambda: f"{TIME},{'9' * 4_300},44\n", rows="0:1")),
    Case("one line of 60 MB", log(lambda: "," * 60_000_000, rows="0:1")),
    Case(
        "row 3,000,000 of 60 MB",
        log(lambda: "2023-11-16,1,1\n" * 4_000_000, rows="3000000:3000001"),
    ),
    Case("15,000 requests", toml(script(requests=_requests(15_000)))),
    Case("12,000 requests that share", toml(script(requests=_requests(12_000, others=SHARE)))),
    Case(
        "2,000 prompts of 131,072 tokens",
        toml(script(requests=_requests(2_000, others="prompt_len = 131072"))),
    ),
    Case("file of 2 MiB", toml("#" * (1 << 21))),
    Case("/dev/zero as scenario", special("run", kind="zero")),
    Case("FIFO as scenario", special("run", kind="fifo")),
    Case("folder as scenario", special("run", kind="folder")),
    Case("link to itself", special("run", kind="loop")),
    Case("/dev/zero as witness", special("replay", kind="zero")),
    Case("FIFO as witness", special("replay", kind="fifo")),
    Case("FIFO as witness of vLLM", special("vllm", "replay", kind="fifo")),
    Case(
        "/dev/zero as suppressions", _words("torch", "run", "--suppressions", "/dev/zero", "x.py")
    ),
    Case("FIFO as earlier matrix", special("faults", "matrix", "--against", kind="fifo")),
    Case("nested JSON", witness(lambda content: "[" * 100_000)),
    Case("nested JSON in a field", witness(_replaced('"holds": [', '"holds": [' + "[" * 50_000))),
    Case("schema of 4 MB", witness(_with(schema="x" * 4_000_000))),
    Case("schema with ESC", witness(_with(schema=NASTY))),
    Case(
        "integer of 4,000 digits in JSON", witness(_replaced('"seed": ', '"seed": ' + "9" * 4_000))
    ),
    Case("hold of 1,000,000 characters", witness(_with(holds=["a" * 1_000_000]))),
    Case("hold with a row of 5,000 digits", toml(script(), f"--hold=a@1[{'9' * 5_000}:] until b")),
    Case("hold with ESC", toml(script(), "--hold", NASTY)),
    Case("-k with 3,000 parentheses", _words("gate", "--list", "-k", "(" * 3_000 + ")" * 3_000)),
    Case("-k with 3,000 nots", _words("gate", "--list", "-k", "not " * 3_000 + "a")),
    Case("-k with 3,000 ors", _words("gate", "--list", "-k", " or ".join(["b"] * 3_000))),
    Case("JSON into no folder", toml(script(), "--json", "/no/such/folder/x.json")),
    Case("Markdown into no folder", _words("faults", "effort", "--markdown", "/no/such/x.md")),
    Case("witness into no folder", toml(script(), "--witness", "/no/such/x.witness.json")),
)


def run_case(case: Case) -> Outcome:
    """Runs a case in a folder of its own."""
    with TemporaryDirectory() as place:
        arguments = case.make(Path(place))
        code, out = _run(arguments)
        text = out.replace(place, "DIR")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Outcome(
        code=code,
        seconds=used.ru_utime + used.ru_stime,
        memory_mib=used.ru_maxrss / 1024,
        is_clean=not any(is_unprintable(c) for c in text),
        said=text,
    )


def is_unprintable(character: str) -> bool:
    """What a terminal would act on, or would not show."""
    return character != "\n" and unicodedata.category(character) in ("Cc", "Cf", "Cs")


def _run(arguments: Arguments) -> tuple[int | None, str]:
    command = [sys.executable, "-c", "from racegate.cli.start import main; main()"]
    called = [os.fsencode(part) for part in (*command, *arguments)]
    try:
        result = subprocess.run(
            called, cwd=ROOT, capture_output=True, check=False, timeout=SECONDS_MAX
        )
    except subprocess.TimeoutExpired:
        return None, f"no end within {SECONDS_MAX:g} s"
    text = (result.stdout + result.stderr).decode("utf-8", "surrogateescape")
    return result.returncode, text


def row_of(case: Case, found: Outcome) -> str:
    """A row of the table, with the last line that was written."""
    last = next((line for line in reversed(found.said.splitlines()) if line.strip()), "")
    shown = "".join("?" if is_unprintable(c) else c for c in last.replace("|", "/"))[:SAID_MAX]
    clean = "yes" if found.is_clean else "**no**"
    code = "none" if found.code is None else found.code
    figures = f"{code} | {found.seconds:.2f} | {found.memory_mib:.0f} | {clean}"
    return f"| {case.name} | {figures} | {shown} |\n"


def main() -> None:
    """The table, a row as soon as it is known."""
    words = sys.argv[1:]
    print("| case | exit code | seconds | MiB | printable | says |\n|---|---:|---:|---:|---|---|")
    for case in CASES:
        if words and not any(word in case.name for word in words):
            continue
        # Each in a process of its own, so that the peak of memory is the case's.
        read, write = os.pipe()
        if not (child := os.fork()):
            os.close(read)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
            text = row_of(case, run_case(case))
            os.write(write, text.encode("utf-8", "replace"))
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as told:
            print(told.read(), end="", flush=True)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
