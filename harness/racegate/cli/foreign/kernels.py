"""The command kernels: the Triton kernels that a library's own tests launch, looked at inside."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from racegate.cli.ci import CiOptions, ratchet_of, with_ci, write_checked
from racegate.cli.foreign.virtual import MemoryOption
from racegate.cli.options import JsonOption, RunTimeoutOption, stderr_console, tell
from racegate.history.exit_code import ExitCode
from racegate.history.finding import Benign, Finding, KernelTotal
from racegate.report.ci.failing import checked_beside
from racegate.report.targets.kernels import print_kernels
from racegate.report.targets.programs import checked_program, render
from racegate.scenario.untrusted.text import printable_lines
from racegate.targets.common.server import PrintPlace
from racegate.targets.program.judge import ProgramVerdict, judge_on
from racegate.targets.program.launch import checked_program as found_program
from racegate.targets.program.launch import open_device
from racegate.targets.program.result import ProgramResult, result_of_program

app = typer.Typer(add_completion=False)
_PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider")


@app.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
@with_ci
def kernels(
    test: Annotated[
        list[str],
        typer.Argument(
            metavar="TEST [ARGS]", help="A pytest node, file or folder, or a script; its arguments."
        ),
    ],
    memory: MemoryOption = 0,
    timeout: RunTimeoutOption = 0.0,
    *,
    ci: CiOptions,
    json: JsonOption = None,
) -> None:
    """Run the tests of a kernel library on the virtual device and judge each Triton kernel from
    inside: 0 no finding, 1 a finding, 4 no kernel was launched; a test that fails is told and
    changes nothing of it.
    """
    program = found_program(program_of(tuple(test)), timeout_s=timeout, memory_bytes=memory)
    stdout = PrintPlace.STDERR if json == "-" else PrintPlace.PLAIN
    with open_device(stdout=stdout) as device:
        verdicts = judge_on(device, program, explores=False, runs_max=1)
    result = result_of_program(verdicts, shlex.join(["racegate", "kernels", *test]))
    ratchet = ratchet_of([result], ci, Benign.PASS)
    tell(json, result, partial(_show, verdicts, result))
    findings = (result if ratchet is None else ratchet.passed(result)).findings
    code: int = code_of_kernels(findings, result.kernels)
    case = checked_program(verdicts, result.scenario, code)
    if ratchet is not None:
        code, case = ratchet.code_of(code), checked_beside(case, ratchet)
    write_checked(case, str(verdicts.verdict), ci, json)
    raise typer.Exit(code)


def program_of(test: tuple[str, ...]) -> tuple[str, ...]:
    """The program that runs a test: a script by itself, all else under pytest."""
    path = Path(test[0].partition("::")[0])
    is_script = (
        "::" not in test[0]
        and path.suffix == ".py"
        and not (path.name.startswith("test_") or path.stem.endswith("_test"))
    )
    return test if is_script or test[0] == "-m" else (*_PYTEST, *test)


def code_of_kernels(findings: Sequence[Finding], launched: Sequence[KernelTotal]) -> ExitCode:
    """Of a test that fails what it launched before counts, and its failure does not: the values of
    an interpreter are near those of a GPU, and a test may be about more than kernels.
    """
    if findings:
        return ExitCode.FINDING
    return ExitCode.CLEAN if launched else ExitCode.INCONCLUSIVE


def _show(verdicts: ProgramVerdict, result: ProgramResult) -> None:
    print(printable_lines(render(verdicts, result.scenario)), file=sys.stderr)
    print_kernels(stderr_console(), result.kernels)
