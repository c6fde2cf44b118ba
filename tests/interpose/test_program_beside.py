"""A program beside its base: another script, or the same over another version of a package."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from program_verdicts import finding, side, verdicts
from racegate.history.exit_code import ExitCode
from racegate.history.finding import Race, Verdict
from racegate.history.outcome import Comparison
from racegate.interpose.errors import BadInput
from racegate.jobs.foreign.program_bases import ProgramBase, base_of, compare_program
from racegate.order.findings import race_signature
from racegate.targets.program.judge import ProgramVerdict, judge_on
from racegate.targets.program.launch import DeviceServer, Program

RIGHT = """\
import time
import torch
import racegate

def main():
    side = torch.cuda.Stream()
    given = torch.arange(8.0, device="cuda")
    host = torch.empty(8, pin_memory=True)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        host.copy_(given, non_blocking=True)
    side.synchronize()
    racegate.observe("sums", [0, host.sum().item()])

main()
"""
RACY = RIGHT.replace("    side.synchronize()\n", "")
OTHER = RIGHT.replace("8.0", "9.0").replace("(8,", "(9,")
UNSTEADY = RIGHT.replace("host.sum().item()", "time.time_ns()")
FAILING = RIGHT.replace("\nmain()", "\nmain()\nraise ValueError('behind it')")
OVER = (
    "import torch, racegate, piece\nracegate.observe('n', torch.tensor(piece.N, device='cuda'))\n"
)
HOW = partial(judge_on, explores=False, runs_max=1)


def beside(device: DeviceServer, program: Program, base: ProgramBase) -> Comparison:
    judged = HOW(device, program, is_quiet=True)
    return compare_program(HOW, device, base, judged, program)


def scripts(folder: Path, before: str, after: str) -> tuple[Program, ProgramBase]:
    """Of two names: a change and its base."""
    (folder / "before.py").write_text(before)
    (folder / "after.py").write_text(after)
    program = Program((str(folder / "after.py"),))
    return program, base_of(program, script=str(folder / "before.py"), folder=None)


@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        (RIGHT, RIGHT, (0, 0, 0)),
        (RACY, RACY, (0, 0, 1)),
        (RIGHT, RACY, (1, 0, 0)),
        (RACY, RIGHT, (0, 1, 0)),
    ],
    ids=["same", "known", "new", "repaired"],
)
def test_conflicts_of_two_scripts_are_compared_by_their_places(
    device: DeviceServer, tmp_path: Path, before: str, after: str, counts: tuple[int, int, int]
) -> None:
    found = beside(device, *scripts(tmp_path, before, after))
    assert (len(found.new), len(found.repaired), found.known) == counts
    assert found.changed is None
    assert found.code is (ExitCode.FINDING if counts[0] else ExitCode.CLEAN)


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (OTHER, "sums[1] is 36.0, in the base 28.0"),
        (FAILING, "ending is failed, in the base finished; ValueError: behind it"),
        (RIGHT.replace("    racegate.obs", "    0 and racegate.obs"), "sums is absent, in the"),
    ],
    ids=["value", "failure", "nothing"],
)
def test_what_changes_with_nothing_held_is_named(
    device: DeviceServer, tmp_path: Path, after: str, said: str
) -> None:
    changed = beside(device, *scripts(tmp_path, RIGHT, after)).changed
    assert changed is not None
    assert said in changed.message


def test_what_differs_from_run_to_run_is_no_change_and_no_pass(
    device: DeviceServer, tmp_path: Path
) -> None:
    found = beside(device, *scripts(tmp_path, UNSTEADY, UNSTEADY))
    assert found.changed is None
    assert found.unmet == ("not compared, because it differs from run to run: sums",)
    assert found.code is ExitCode.INCONCLUSIVE


def test_a_program_over_two_versions_of_a_package(
    device: DeviceServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, number in (("one", 1), ("two", 2), ("none", None)):
        (tmp_path / folder).mkdir()
        if number is not None:
            (tmp_path / folder / "piece.py").write_text(f"N = {number}\n")
    (tmp_path / "one" / "over.py").write_text(OVER)
    program = Program((str(tmp_path / "one" / "over.py"),))
    two, one, none = (
        base_of(program, script="", folder=tmp_path / name) for name in ("two", "one", "none")
    )
    changed = beside(device, program, two).changed
    assert changed is not None
    assert changed.message == "n is 1, in the base 2"
    assert beside(device, program, one).code is ExitCode.CLEAN
    with pytest.raises(BadInput, match="nothing that the program imports comes from"):
        beside(device, program, none)


def test_a_base_is_a_script_or_a_folder_that_is_there(tmp_path: Path) -> None:
    program = Program(("-m", "module"))
    with pytest.raises(BadInput, match="takes --against-path DIR"):
        base_of(program, script="x.py", folder=None)
    with pytest.raises(BadInput, match="no such folder"):
        base_of(program, script="", folder=tmp_path / "none")
    with pytest.raises(BadInput, match="does not exist"):
        base_of(Program(("x.py",)), script=str(tmp_path / "none.py"), folder=None)


def placed(name: str) -> Race:
    """A race in a script of this name."""
    first, second = (side(name, is_write=is_write) for is_write in (True, False))
    signature = race_signature(first, second)
    return msgspec.structs.replace(finding(signature), first=first, second=second)


NAMES = st.from_regex(r"[a-z@:.#]{1,8}", fullmatch=True).map("{}.py".format)


@given(NAMES, NAMES, st.booleans())
def test_the_name_of_a_script_makes_no_difference(old: str, new: str, races: bool) -> None:  # noqa: FBT001
    judged = {
        name: verdicts(*([placed(name)] if races else []), verdict=Verdict.DIVERGENT)
        for name in (old, new)
    }

    def judge(device: DeviceServer, program: Program, *, is_quiet: bool = False) -> ProgramVerdict:
        return judged[program.argv[0]]

    base = ProgramBase(Program((old,)), "its base")
    nothing: DeviceServer = None  # type: ignore[assignment]  # nothing differs, nothing is run
    found = compare_program(judge, nothing, base, judged[new], Program((new,)))
    assert found == Comparison(base="its base", known=int(races))
