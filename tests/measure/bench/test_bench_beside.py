"""State updates beside those of others: who is there, who is right, and what is timed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from typer.testing import CliRunner

from kernel_twins import DEVICE
from racegate.cli.app import app
from racegate.measure.bench.beside import (
    TOLERANCES,
    KernelComparison,
    PeerBench,
    compared_entries,
    comparisons,
    relative_error,
)
from racegate.measure.bench.cuda import peer_jobs
from racegate.measure.bench.kernels import (
    UpdateInputs,
    UpdateSizes,
    convolution_inputs,
    mamba2_bytes,
)
from racegate.measure.bench.peers import (
    Contender,
    MissingPeer,
    Peer,
    Prepared,
    Update,
    WindowLayout,
    _vllm_convolution,
    find_peers,
    own_contender,
)
from racegate_kernels.backend import EAGER, triton_backend

SMALL = UpdateSizes(rows=3, drafts=2, heads=2, head_size=4, state_size=8)


class OnceClock:
    """Runs what it times once. A single job takes a millisecond, the contenders 1, 2, 3, ..."""

    def __init__(self) -> None:
        self.launches: list[int] = []

    def median_ms(self, job: Callable[[], object]) -> float:
        job()
        return 1.0

    def medians_ms(self, contenders: Sequence[Sequence[Callable[[], object]]]) -> list[float]:
        self.launches += [len(launches) for launches in contenders]
        for launches in contenders:
            for launch in launches:
                launch()
        return [float(1 + place) for place in range(len(contenders))]


def eager(inputs: UpdateInputs) -> Prepared:
    """The eager twin as a kernel of somebody."""

    def launch(table: int) -> tuple[torch.Tensor]:
        arrays = [
            x.float().numpy() if x.is_floating_point() else x.numpy() for x in arguments(table)
        ]
        output = EAGER.mamba2_update(*arrays)
        inputs.state.copy_(torch.from_numpy(arrays[-6]))
        return (torch.from_numpy(output),)

    def arguments(table: int) -> tuple[torch.Tensor, ...]:
        return inputs.arguments(table)

    def states(table: int) -> torch.Tensor:
        return inputs.state[inputs.tables[table].long()]

    return Prepared(launch=launch, states=states)


def peer(
    name: str, prepare: Callable[[UpdateInputs], Prepared] = eager, **limits: Any
) -> Contender:
    return Contender(
        name=name, release=f"{name} 1.0", update=Update.MAMBA2, prepare=prepare, **limits
    )


def wrong() -> Contender:
    """Leaves the right states behind and returns what is not the output."""

    def prepare(inputs: UpdateInputs) -> Prepared:
        right = eager(inputs)
        return Prepared(launch=lambda table: (2 * right.launch(table)[0],), states=right.states)

    return peer("wrong", prepare)


def compared(*peers: Contender, round_bytes: int = 0) -> tuple[dict[str, Any], OnceClock]:
    clock = OnceClock()
    where = PeerBench(
        clock=clock, turns=clock, device="cpu", copy_bytes=1 << 12, round_bytes=round_bytes
    )
    comparison = KernelComparison(update=Update.MAMBA2, item_bytes=4, drafts=2, rows=(1, 2))
    entries = compared_entries(comparison, [peer("racegate"), *peers], where, base=SMALL)
    return {entry.name: entry for entry in entries}, clock


def test_a_peer_that_is_right_is_timed_beside_this_project() -> None:
    entries, clock = compared(peer("slower"))
    assert clock.launches == [1, 1] * 2
    assert entries["mamba2_update_float32_k2_r1_racegate_us"].value == 1e3
    assert entries["mamba2_update_float32_k2_r2_slower_us"].value == 2e3
    assert entries["mamba2_update_float32_k2_r2_slower_over_own"].value == 2.0
    assert "slower 1.0" in entries["mamba2_update_float32_k2_r2_slower_us"].detail
    share = entries["mamba2_update_float32_k2_r2_racegate_share"].value
    moved = mamba2_bytes(msgspec.structs.replace(SMALL, rows=2))
    assert share == pytest.approx(moved / (2 * (1 << 12)))


def test_a_peer_that_computes_something_else_is_not_timed() -> None:
    entries, clock = compared(wrong(), peer("slower"))
    assert entries["mamba2_update_float32_k2_wrong_failed"].value == pytest.approx(1.0, rel=1e-4)
    assert not any("wrong" in name and name.endswith("_us") for name in entries)
    assert clock.launches == [1, 1] * 2


@pytest.mark.parametrize("update", Update)
@pytest.mark.parametrize("item_bytes", TOLERANCES)
def test_the_kernels_here_are_right_with_states_of_either_size(
    update: Update, item_bytes: int
) -> None:
    one = own_contender(triton_backend(), update)
    sizes = msgspec.structs.replace(SMALL, rows=1, item_bytes=item_bytes)
    assert relative_error(one, sizes, device=DEVICE) <= TOLERANCES[item_bytes]


@pytest.mark.parametrize("layout", WindowLayout)
def test_windows_in_either_layout_are_those_of_the_table(layout: WindowLayout) -> None:
    """vLLM's kernel gets the same numbers in both, and what it writes is what is compared."""
    inputs = convolution_inputs(SMALL, device="cpu")
    table = inputs.tables[0].long()
    before = inputs.state[table].clone()

    def negated(x: torch.Tensor, windows: torch.Tensor, *_: Any, **named: Any) -> torch.Tensor:
        assert torch.equal(windows[table], before)
        windows[table] = -windows[table]
        found: torch.Tensor = named["out"].copy_(x)
        return found

    prepared = _vllm_convolution(negated, layout, inputs)
    assert torch.equal(prepared.launch(0)[0], inputs.streamed[0])
    assert torch.equal(prepared.states(0), -before)


def test_launches_go_over_tables_until_the_cache_is_left() -> None:
    base = msgspec.structs.replace(SMALL, rows=2)
    comparison = KernelComparison(update=Update.MAMBA2, item_bytes=2, drafts=2)
    sizes = comparison.sizes(base, rows=2, round_bytes=3_000)
    assert sizes.item_bytes == 2 and sizes.tables == 3
    assert comparison.sizes(base, rows=2).tables == 1
    _, clock = compared(round_bytes=3_000)
    assert min(clock.launches) > 1


def test_a_contender_serves_what_it_does() -> None:
    single = peer("single", drafts=0, item_bytes=(4,))
    none = msgspec.structs.replace(SMALL, drafts=0)
    assert single.serves(none) and not single.serves(SMALL)
    assert not single.serves(msgspec.structs.replace(none, item_bytes=2))
    assert peer("slower").serves(SMALL)


def install(folder: Path, name: str, init: str) -> None:
    """A package with one module `inner`, and what says that it is installed."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(init)
    (folder / name / "inner.py").write_text("VALUE = 7\n")
    (folder / f"{name}-2.5.dist-info").mkdir()
    (folder / f"{name}-2.5.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: 2.5\n")


def test_peers_are_the_installed_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from racegate.measure.bench.peers import _without_init

    install(tmp_path, "heavy_peer", "import a_compiled_module_that_is_not_there\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def load(release: str) -> tuple[Contender, ...]:
        with _without_init("heavy_peer"):
            import heavy_peer.inner  # type: ignore[import-not-found]

            assert heavy_peer.inner.VALUE == 7
        return (peer(f"heavy {release}"),)

    def broken(release: str) -> tuple[Contender, ...]:
        import heavy_peer  # noqa: F401

        return ()

    def of(name: str, distribution: str, load: Callable[[str], tuple[Contender, ...]]) -> Peer:
        return Peer(
            name=name,
            package="heavy_peer",
            distribution=distribution,
            install=f"pip install {distribution}",
            load=load,
        )

    found, missing = find_peers(
        (of("a", "heavy_peer", load), of("b", "nobody", load), of("c", "heavy_peer", broken))
    )
    assert [one.name for one in found] == ["heavy 2.5"]
    assert "heavy_peer" not in sys.modules
    reasons = {one.name: one.reason for one in missing}
    assert reasons["b"] == "nobody is not installed: pip install nobody"
    assert "a_compiled_module_that_is_not_there" in reasons["c"]


def test_every_update_is_compared_with_both_dtypes_and_with_and_without_drafts() -> None:
    names = [comparison.name for comparison in comparisons()]
    assert len(set(names)) == 4 * len(Update)
    assert {"mamba2_update_bfloat16_k0", "gated_delta_update_float32_k3"} < set(names)


def bench(monkeypatch: pytest.MonkeyPatch, found: Any, *options: str) -> Any:
    module = "racegate.cli.measure.bench"
    monkeypatch.setattr(f"{module}.open_cuda", object)
    monkeypatch.setattr(f"{module}.find_peers", lambda: found)
    monkeypatch.setattr(f"{module}.environment_of", lambda device: {"gpu": "none"})
    return CliRunner().invoke(app, ["bench", "--peers", *options])


def test_without_any_peer_the_command_says_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = (MissingPeer(name="fla", reason="x is not installed: pip install x"),)
    result = bench(monkeypatch, ((), missing), "--device", "cuda")
    assert result.exit_code == 2
    assert "fla: x is not installed: pip install x" in result.stderr


@pytest.mark.parametrize(
    "options", [("--device", "virtual"), ("--device", "cuda", "--part", "all")]
)
def test_peers_are_for_a_gpu_and_no_part(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    if "--part" in options:
        options = (*options[:-1], "engine")
    result = bench(monkeypatch, ((), ()), *options)
    assert result.exit_code == 2
    assert "--peers" in result.stderr


def test_a_missing_peer_stands_among_the_figures() -> None:
    class Cuda:
        backend = triton_backend()

    missing = (MissingPeer(name="fla", reason="not installed"),)
    first, *others = peer_jobs(Cuda(), [peer("slower")], missing)  # type: ignore[arg-type]
    (entry,) = first.measure()
    assert (entry.name, entry.detail) == ("fla_missing", "not installed")
    assert [job.name for job in others] == [comparison.name for comparison in comparisons()]
