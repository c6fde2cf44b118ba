"""The commands torch run, replay and doctor: PyTorch programs on the virtual CUDA device.

`python -m racegate.interpose` is `racegate torch run`.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from racegate.cli.ci import CiOptions, NoStoreOption, ratchet_of, with_ci, write_checked
from racegate.cli.foreign.pictures import (
    Written,
    write_program_causes,
    write_results_page,
    write_run_trace,
)
from racegate.cli.foreign.searching import minimised_file, search_target
from racegate.cli.foreign.versions import (
    AgainstOptions,
    against_options,
    code_beside,
    compared_with,
)
from racegate.cli.foreign.virtual import (
    CompileOption,
    GpusOption,
    MemoryOption,
    RanksOption,
    ranks_for,
)
from racegate.cli.help.named import GpuOption
from racegate.cli.options import (
    JsonOption,
    RunTimeoutOption,
    StrictOption,
    benign_of,
    fail,
    place_to_write,
    progress_bar,
    say,
    stderr_console,
    tell,
)
from racegate.cli.pictures import HtmlOption, OutOption, TraceOutOption
from racegate.cli.replay import replay
from racegate.cli.sets import CampaignOptions, campaign_options, with_set
from racegate.history.exit_code import ExitCode
from racegate.history.gates.results import gated
from racegate.history.replayed import ReplaySummary
from racegate.history.schedule import parse_holds
from racegate.interpose.outcome import CompileMode, DeviceKind
from racegate.jobs.foreign.draws import ScenarioDraw
from racegate.jobs.foreign.opened import NUMBER, TargetOptions
from racegate.jobs.foreign.program_bases import with_comparison
from racegate.jobs.stores.failures import last_failures
from racegate.report.ci.failing import checked_beside, checked_results
from racegate.report.targets.programs import checked_program, render
from racegate.report.targets.results import Reasons, compared_line, print_comparison
from racegate.scenario.untrusted.text import printable_lines
from racegate.targets.common.server import PrintPlace
from racegate.targets.program.doctor import toolkit_facts
from racegate.targets.program.judge import (
    ProgramTarget,
    ProgramVerdict,
    judge_on,
    suppressing,
    under,
)
from racegate.targets.program.launch import DeviceServer, Program, open_device
from racegate.targets.program.launch import checked_program as found_program
from racegate.targets.program.result import ProgramResult, result_of_program
from racegate.targets.program.workflow.replay import replay_program
from racegate.targets.program.workflow.suppressions import load_suppressions
from racegate.targets.program.workflow.witness import (
    PROGRAM_WITNESSES,
    ProgramSubject,
    ProgramWitness,
    save_witnesses,
    witnesses_of,
)

app = typer.Typer(no_args_is_help=True, help="Judge a PyTorch program, unmodified, without a GPU.")


DeviceKindOption = Annotated[DeviceKind, typer.Option(help="The virtual device, or a real GPU.")]
HoldOption = Annotated[
    list[str] | None,
    typer.Option(metavar="'OPERATION until ACCESS'", help="A run under it, and one without."),
]
NotReadyOption = Annotated[
    int, typer.Option(min=0, help='With --hold: how often queries are answered "not ready".')
]
SuppressionsOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Findings to let stand, with reasons.")
]
ErrorCodeOption = Annotated[
    int | None,
    typer.Option(
        "--error-exitcode",
        min=0,
        max=125,
        metavar="N",
        help="End with N for a finding, and with the script's own code if that fails by itself; 0 "
        "where tests race on purpose and judge it themselves.",
    ),
]


WitnessFileOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        callback=place_to_write,
        help="Explore, and write what replays each DIVERGENT finding.",
    ),
]


@app.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
@with_ci
@with_set("against", against_options)
def run(
    program: Annotated[
        list[str], typer.Argument(metavar="SCRIPT [ARGS]", help="Or -m MODULE [ARGS].")
    ],
    explore: Annotated[
        bool | None,
        typer.Option("--explore", help="Search for a landing that changes what is observed."),
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs that the search may make.")] = 64,
    witness: WitnessFileOption = None,
    suppressions: SuppressionsOption = None,
    hold: HoldOption = None,
    not_ready: NotReadyOption = 0,
    device: DeviceKindOption = DeviceKind.VIRTUAL,
    gpu: GpuOption = "",
    memory: MemoryOption = 0,
    ranks: RanksOption = 0,
    gpus: GpusOption = 0,
    compiling: CompileOption = None,
    timeout: RunTimeoutOption = 0.0,
    error_exitcode: ErrorCodeOption = None,
    strict: StrictOption = None,
    no_store: NoStoreOption = None,
    *,
    against: AgainstOptions,
    ci: CiOptions,
    html: HtmlOption = None,
    out: OutOption = None,
    trace_out: TraceOutOption = None,
    json: JsonOption = None,
) -> None:
    """Run a program on the virtual CUDA device and judge the order of all it does: 0 no conflict, 1
    a finding, 3 something that is not modelled; a script that fails keeps its own exit code.
    """
    known, explores = load_suppressions(suppressions), bool(explore) or witness is not None
    checked = found_program(
        tuple(program),
        timeout_s=timeout,
        suppressed=tuple(one.signature for one in known),
        memory_bytes=memory,
        gpu=gpu,
        compiling=compiling,
        ranks=ranks_for(ranks, gpus),
    )
    checked = replace(checked, gpus=gpus)
    stdout, holds, base = _print_place(json), parse_holds(hold or ()), against.base_of(checked)
    with open_device(device, stdout=stdout) as opened, SearchProgress() as progress:
        how = partial(judge_on, explores=explores, runs_max=runs, suppressions=known)
        ask = partial(how, opened, checked, on_run=progress.show)
        if holds:
            verdicts = suppressing(under(opened, checked, holds, polls=not_ready), known)
        else:
            is_new = no_store or not explores or ranks or gpus
            verdicts = ask() if is_new else _behind_last_failures(ask, device, opened, checked)
        write_run_trace(trace_out, ProgramTarget(opened, checked).run, shlex.join(program))
        beside = compared_with(how, opened, base, verdicts, checked)
    told = _told_again(device, memory=memory, gpu=gpu, compiling=compiling, ranks=ranks, gpus=gpus)
    command, benign = shlex.join([*told, *program]), benign_of(strict)
    beside = against.replayed(beside, [*told, *program])
    verdicts = msgspec.structs.replace(verdicts, benign=benign)
    judged = with_comparison(result_of_program(verdicts, command, device), beside)
    result = msgspec.structs.replace(judged, baseline=ratchet_of([judged], ci, benign))
    written = write_program_causes(out, result, verdicts, checked)
    tell(json, result, partial(_show, result, verdicts, written, ci.reasons()))
    code = _tell_ci(verdicts, result, ci, json)
    write_results_page(html, [result])
    _save(verdicts, checked, witness, _told_again(device))
    raise typer.Exit(code if error_exitcode is None else _told_apart(code, result, error_exitcode))


def _print_place(json: str | None) -> PrintPlace:
    """Where what the program prints goes, beside a result that may go to standard output."""
    return PrintPlace.STDERR if json == "-" else PrintPlace.PLAIN


def _show(
    result: ProgramResult, verdicts: ProgramVerdict, written: Written, reasons: Reasons
) -> None:
    """What is read, on standard error: what the program prints has the other. Beside a base what
    differs from it.
    """
    if result.comparison is None:
        text = render(verdicts, result.scenario, written)
        print(printable_lines(text), file=sys.stderr)
    else:
        print_comparison(stderr_console(), result, reasons)
        stderr_console().print(compared_line(gated([result], result.baseline)))


def _behind_last_failures(
    ask: Callable[[], ProgramVerdict], kind: DeviceKind, device: DeviceServer, program: Program
) -> ProgramVerdict:
    """The last failures of the program first: who repaired one knows it before the search."""

    def again(witness: ProgramWitness) -> ReplaySummary:
        return replay_program(device, witness, times=1, timeout_s=program.timeout_s)

    failures = last_failures(["torch", kind.value, *program.argv], say)
    replayed = failures.replay(failures.read(PROGRAM_WITNESSES), again)
    found = ask()
    if found.is_finished:
        failures.keep(witnesses_of(found, program), replayed)
    return found


def _tell_ci(
    verdicts: ProgramVerdict, result: ProgramResult, ci: CiOptions, json: str | None
) -> int:
    """Writes what CI services read, and gives the exit code: what is let stand is no finding."""
    ratchet, code = result.baseline, code_beside(verdicts, result.comparison)
    if ratchet is not None:
        passed = ratchet.passed(result)
        if passed is not result and code == ExitCode.FINDING:
            code = ExitCode.CLEAN if passed.comparison is None else passed.comparison.code
        code = ratchet.code_of(code)
    if result.comparison is None:
        word = str(verdicts.verdict)
        case = checked_program(verdicts, result.scenario, code)
        case = case if ratchet is None else checked_beside(case, ratchet)
    else:
        word = gated([result], ratchet).word
        case = checked_results([result], {}, code=code, ratchet=ratchet)
    write_checked(case, word, ci, json)
    return code


def _told_apart(code: int, result: ProgramResult, error_exitcode: int) -> int:
    """With --error-exitcode: a code of the caller's for a finding, and the script's own for its
    failure. 0 is no code of a finding: the script's own stands, also beside one.
    """
    if code == ExitCode.FINDING and error_exitcode:
        return error_exitcode
    is_own = code in (ExitCode.FINDING, ExitCode.SCRIPT_FAILED)
    return result.exit_code if is_own else code


@app.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
@with_set("options", campaign_options)
def search(
    options: CampaignOptions,
    program: Annotated[
        list[str],
        typer.Argument(metavar="SCRIPT [ARGS]", help="{seed} among ARGS is the drawn number."),
    ],
    runs: Annotated[int, typer.Option(min=0, help="Runs under holds, of each number.")] = 64,
    strict: StrictOption = None,
    json: JsonOption = None,
) -> None:
    """Run a program with one drawn number after the other, each with the landings of what races;
    keep a witness of each kind of finding.
    """
    found_program(tuple(program))
    if not any(NUMBER in word for word in program):
        fail(f"say where the drawn number goes: {NUMBER} among the arguments of the program")
    how = TargetOptions(runs_max=runs, run_s=options.timeout_s or None)
    subject = ProgramSubject(argv=tuple(program), compiling=None)
    benign, draw = benign_of(strict), ScenarioDraw.NUMBERS
    search_target(subject, how, options, benign=benign, json=json, draw=draw)


app.command()(replay)
app.command("minimise")(minimised_file)


@app.command()
def doctor() -> None:
    """Say whether programs can be run here: torch, its CUDA version, the compiler, the runtime."""
    for name, value in {"python": sys.executable, **toolkit_facts()}.items():
        print(f"{name:9} {value}")


class SearchProgress:
    """A bar on standard error that appears with the first run of a search."""

    def __init__(self) -> None:
        self._bar = progress_bar()
        self._task = self._bar.add_task("searching", total=None)

    def show(self, made: int, most: int) -> None:
        """After a run: how many were made, and how many may be."""
        self._bar.start()
        self._bar.update(self._task, completed=made, total=most)

    def __enter__(self) -> SearchProgress:
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.stop()


def _told_again(
    device: DeviceKind,
    *,
    memory: int = 0,
    gpu: str = "",
    compiling: CompileMode | None = None,
    ranks: int = 0,
    gpus: int = 0,
) -> list[str]:
    """The options of the device, as commands that are printed repeat them."""
    if device is not DeviceKind.VIRTUAL:
        return ["--device", device.value]
    told = ["--gpu", gpu] if gpu else []
    told += ["--memory", f"{memory >> 20}M"] if memory else []
    told += ["--ranks", str(ranks)] if ranks else []
    told += ["--gpus", str(gpus)] if gpus else []
    return told + (["--compile", compiling.value] if compiling else [])


def _save(
    verdicts: ProgramVerdict, program: Program, target: Path | None, where: list[str]
) -> None:
    if target is None:
        return
    files = save_witnesses(verdicts, program, target)
    for file in files:
        replay_it = shlex.join(["racegate", "torch", "replay", *where, str(file)])
        say(f"wrote {file}: {replay_it}")
    if not files:
        say("no witness: no finding is DIVERGENT")
