"""Options that say which vLLM or SGLang is judged, release and settings."""

from __future__ import annotations

from typing import Annotated

import typer

from racegate.cli.help.named import ReleaseOption
from racegate.cli.options import PathOption
from racegate.scenario.spec import DRAFT_LEN_MAX
from racegate.targets.common.wire import Fidelity
from racegate.targets.sglang.cell import SchedulerCell
from racegate.targets.sglang.wire import ModelKind, Repair
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.wire import (
    DRAFTS_USUAL,
    AdapterMode,
    CaptureMode,
    ConnectorKind,
    DraftMode,
    DraftSchedule,
    ImageMode,
    LayerMode,
    ModelRunner,
    PositionMode,
    PriorityMode,
    ProposerKind,
    SchedulingMode,
    StateMode,
    ThinkingMode,
    VocabularyMode,
)

ScheduleOption = Annotated[
    DraftSchedule,
    typer.Option("--draft-schedule", help="How many drafts; by-batch: fewer in a larger one."),
]
SchedulingOption = Annotated[
    SchedulingMode,
    typer.Option("--scheduling", help="sync: a step waits for the output of the one before."),
]
ImagesOption = Annotated[
    ImageMode,
    typer.Option("--images", help="encoded: they are encoded, and merged into the prompt."),
]
ThinkingOption = Annotated[
    ThinkingMode, typer.Option("--thinking", help="budgets: of all requests but the first.")
]
AdaptersOption = Annotated[
    AdapterMode, typer.Option("--adapters", help="lora: two of three requests have one of two.")
]
ConnectorOption = Annotated[
    ConnectorKind, typer.Option("--connector", help="What keeps blocks in the host's memory.")
]
DraftModeOption = Annotated[
    DraftMode, typer.Option("--draft-mode", help="Which drafts of sampled requests.")
]
ThrottleOption = Annotated[
    int,
    typer.Option(
        "--throttle",
        min=0,
        metavar="N",
        help="Prefills wait for every Nth step, as ranks of data parallelism agree.",
    ),
]
PrioritiesOption = Annotated[
    PriorityMode, typer.Option("--priorities", help="newest: who comes later is more urgent.")
]
VocabularyOption = Annotated[
    VocabularyMode,
    typer.Option("--vocabulary", help="wide: more tokens than a block of a kernel."),
]


def vllm_cell(
    release: ReleaseOption,
    path: PathOption = None,
    runner: Annotated[
        ModelRunner, typer.Option("--runner", help="vLLM's model runner.")
    ] = ModelRunner.V1,
    cache_mode: Annotated[
        StateMode, typer.Option("--cache-mode", help="How recurrent states are kept for prefixes.")
    ] = StateMode.NONE,
    fidelity: Annotated[
        Fidelity, typer.Option("--fidelity", help="full: the model computes what it says.")
    ] = Fidelity.HOLLOW,
    drafts: Annotated[
        int,
        typer.Option("--drafts", min=0, max=DRAFT_LEN_MAX, help="Of a request in a step; 0: none."),
    ] = DRAFTS_USUAL,
    drafter: Annotated[
        ProposerKind, typer.Option("--drafter", help="What proposes drafts.")
    ] = ProposerKind.MTP,
    draft_mode: DraftModeOption = DraftMode.GREEDY,
    draft_schedule: ScheduleOption = DraftSchedule.FIXED,
    scheduling: SchedulingOption = SchedulingMode.ASYNC,
    graphs: Annotated[
        CaptureMode, typer.Option("--graphs", help="Captured before the first step.")
    ] = CaptureMode.NONE,
    layers: Annotated[LayerMode, typer.Option("--layers", help="Of the model.")] = LayerMode.HYBRID,
    positions: Annotated[
        PositionMode, typer.Option("--positions", help="Of the model; mrope: three numbers each.")
    ] = PositionMode.TEXT,
    images: ImagesOption = ImageMode.POSITIONS,
    thinking: ThinkingOption = ThinkingMode.NONE,
    adapters: AdaptersOption = AdapterMode.NONE,
    connector: ConnectorOption = ConnectorKind.NONE,
    throttle: ThrottleOption = 0,
    priorities: PrioritiesOption = PriorityMode.NONE,
    vocabulary: VocabularyOption = VocabularyMode.USUAL,
    engine_arg: Annotated[
        list[str] | None,
        typer.Option(
            "--engine-arg",
            metavar="NAME=JSON",
            help="Of vLLM's EngineArgs (prefill_schedule_interval=2); can be repeated.",
        ),
    ] = None,
) -> Cell:
    """The options that say which vLLM is judged."""
    return Cell(
        release=release,
        checkout=None if path is None else str(path),
        runner=runner,
        mode=cache_mode,
        fidelity=fidelity,
        drafts=drafts,
        drafter=drafter,
        draft_mode=draft_mode,
        draft_schedule=draft_schedule,
        scheduling=scheduling,
        graphs=graphs,
        layers=layers,
        positions=positions,
        images=images,
        thinking=thinking,
        adapters=adapters,
        connector=connector,
        throttle=throttle,
        priorities=priorities,
        vocabulary=vocabulary,
        arguments=tuple(engine_arg or ()),
    )


def scheduler_cell(
    release: ReleaseOption,
    path: PathOption = None,
    model: Annotated[ModelKind, typer.Option("--model", help="What is served.")] = ModelKind.HYBRID,
    without: Annotated[
        list[Repair] | None,
        typer.Option("--without", help="Switch a repair of sglang#24221 off; can be repeated."),
    ] = None,
) -> SchedulerCell:
    """The options that say which SGLang is judged."""
    checkout = None if path is None else str(path)
    return SchedulerCell(
        release=release, checkout=checkout, model=model, without=tuple(without or ())
    )
