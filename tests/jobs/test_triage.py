"""Bisection over revisions: a law without git, then real revisions of a small repository."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from pictured import path_of
from racegate.cli.app import app
from racegate.history.exit_code import ExitCode
from racegate.history.witness import load_witness
from racegate.jobs.triage import origin
from racegate.jobs.triage.bisect import Shows, bisected
from racegate.jobs.triage.checkout import Checkout, RevisionError, git
from racegate.jobs.triage.origin import OriginObject, OriginOutcome, origin_of
from stored import FAULT

WITNESS = load_witness(path_of(FAULT))
GOOD, BAD, OTHER, BROKEN, UNREALISED = 6, 1, 5, 3, 4
AUTHOR = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org")
REPLAY = """\
import sys
with open(sys.argv[sys.argv.index("--json") + 1], "w") as file:
    file.write('{{"digests": {digests}, "last": {{"holds": [{{"matched": {matched}}}]}}}}')
sys.exit({code})
"""


@given(st.data())
def test_the_first_bad_one_is_among_the_suspects_and_all_others_were_skipped(
    data: st.DataObject,
) -> None:
    last = data.draw(st.integers(1, 40))
    first_bad = data.draw(st.integers(1, last))
    mute = data.draw(st.sets(st.integers(1, max(1, last - 1)))) - {last}
    asked: list[int] = []

    def ask(place: int) -> Shows:
        asked.append(place)
        return Shows.SKIPPED if place in mute else Shows.BAD if place >= first_bad else Shows.GOOD

    good, bad = bisected(last, ask)
    assert good < first_bad <= bad
    assert set(range(good + 1, bad)) <= mute
    assert len(asked) == len(set(asked))
    assert mute or len(asked) <= last.bit_length()


def committed(folder: Path, source: str, subject: str) -> None:
    """A revision whose command is this source."""
    module = folder / "harness" / "racegate" / "__main__.py"
    module.parent.mkdir(parents=True, exist_ok=True)
    (module.parent / "__init__.py").touch()
    module.write_text(source)
    git(folder, "add", ".")
    git(folder, *AUTHOR, "commit", "--quiet", "--allow-empty", "--message", subject)


def replaying(code: int, digests: int = 1, matched: int = 1) -> str:
    return REPLAY.format(code=code, digests=digests, matched=matched)


def repository(folder: Path, codes: Sequence[int]) -> Path:
    """A checkout with one revision for each exit code of a replay, `r0` to the last."""
    git(folder, "init", "--quiet")
    for number, code in enumerate(codes):
        committed(folder, f"# {number}\n{replaying(code)}", f"revision {number} \x1b[2J")
        git(folder, "tag", f"r{number}")
    return folder


def found_in(folder: Path, good: str = "r0", bad: str = "HEAD") -> OriginObject:
    return origin_of(WITNESS, Checkout(folder), good=good, bad=bad, timeout_s=60)


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fifth brings the finding, and the third cannot replay the witness."""
    codes = (GOOD, GOOD, GOOD, 2, GOOD, BAD, BAD, BAD)
    return repository(tmp_path_factory.mktemp("eight"), codes)


def test_the_revision_that_brought_it_is_named_and_the_checkout_left_alone(eight: Path) -> None:
    hook = eight / ".git" / "hooks" / "post-checkout"
    hook.write_text("#!/bin/sh\ntouch hooked\n")
    hook.chmod(0o755)
    before = git(eight, "status", "--porcelain", "--branch"), git(eight, "rev-parse", "HEAD")
    found = found_in(eight)
    assert (found.outcome, found.exit_code) == (OriginOutcome.FOUND, ExitCode.FINDING)
    assert [one.subject[:10] for one in found.suspects] == ["revision 5"]
    assert found.good.subject.startswith("revision 4")
    skipped = [one for one in found.asked if one.shows is Shows.SKIPPED]
    assert [one.why for one in skipped] == ["it cannot replay the witness"]
    after = git(eight, "status", "--porcelain", "--branch"), git(eight, "rev-parse", "HEAD")
    assert before == after
    assert git(eight, "worktree", "list").count("\n") == 1


def test_between_revisions_that_say_nothing_it_is_one_of_them_or_the_next(tmp_path: Path) -> None:
    found = found_in(repository(tmp_path, (GOOD, GOOD, OTHER, BROKEN, BAD, BAD)))
    assert (found.outcome, found.exit_code) == (OriginOutcome.RANGE, ExitCode.INCONCLUSIVE)
    assert [one.subject[:10] for one in found.suspects] == [f"revision {n}" for n in (2, 3, 4)]


def test_a_python_that_cannot_begin_shows_nothing(tmp_path: Path) -> None:
    folder = repository(tmp_path, (GOOD,))
    committed(folder, "import nothing_of_this_name\n", "broken")  # ends with 1 as a finding does
    committed(folder, replaying(BAD), "bad")
    found = found_in(folder)
    assert [one.subject for one in found.suspects] == ["broken", "bad"]
    assert "nothing_of_this_name" in found.asked[-1].why


def test_where_a_wait_breaks_the_hold_off_it_is_good_and_where_it_names_nothing_who_knows(
    tmp_path: Path,
) -> None:
    folder = repository(tmp_path, (UNREALISED,))
    committed(folder, replaying(UNREALISED, matched=0), "renamed")
    committed(folder, replaying(BAD), "bad")
    found = found_in(folder)
    assert [one.subject for one in found.suspects] == ["renamed", "bad"]
    assert [one.why for one in found.asked] == ["", "", "a hold names nothing there"]


def test_replays_that_differ_end_it(tmp_path: Path) -> None:
    folder = repository(tmp_path, (GOOD,))
    committed(folder, replaying(BAD, digests=2), "flaky")
    assert found_in(folder).exit_code is ExitCode.BROKEN_HARNESS


def test_a_revision_that_takes_too_long_is_skipped(
    eight: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = subprocess.run

    def slow(command: Sequence[str], **how: object) -> object:
        if "replay" in command:
            raise subprocess.TimeoutExpired(command, 5)
        return run(command, **how)  # type: ignore[call-overload]

    monkeypatch.setattr(origin.subprocess, "run", slow)  # type: ignore[attr-defined]
    with pytest.raises(RevisionError, match=r"was to be good, and is skipped \(no answer in 60 s"):
        found_in(eight)


@pytest.mark.parametrize(
    ("good", "bad", "why"),
    [
        ("r5", "r7", "was to be good, and is bad"),
        ("r0", "r2", "was to be bad, and is good"),
        ("r7", "r0", "does not lie before"),
        ("r0", "r0", "does not lie before"),
        ("none", "HEAD", "git says"),
        ("--all", "HEAD", "git says"),
    ],
)
def test_ends_that_are_not_what_they_should_be_are_refused(
    eight: Path, good: str, bad: str, why: str
) -> None:
    with pytest.raises(RevisionError, match=why):
        found_in(eight, good, bad)


def test_what_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RevisionError, match="not a git repository"):
        Checkout(tmp_path)


def test_the_command_says_it_and_a_subject_does_nothing_to_a_terminal(eight: Path) -> None:
    words = ["campaign", "bisect", str(path_of(FAULT)), "--good", "r3~1", "--checkout", str(eight)]
    said = CliRunner().invoke(app, words)
    assert said.exit_code == ExitCode.FINDING
    assert "revision 5" in said.stdout
    assert "\x1b[2J" not in said.output
    shown = CliRunner().invoke(app, [*words, "--json", "-"])
    assert msgspec.json.decode(shown.stdout)["suspects"][0]["subject"].startswith("revision 5")
