"""What is observed between a step's inputs and its outputs: what the scheduler chose, what masks
forbid, what is accepted and drafted. Legal schedules may change some of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from racegate.targets.common.inside.fields import name_of
from racegate.targets.common.inside.session import Tensor
from racegate.targets.vllm.inside.truth.compare import CHOSEN
from racegate.targets.vllm.inside.truth.groups import GroupTable
from racegate.targets.vllm.inside.watch import RunnerWatch

Rows = Callable[[], list[str]]
Given = dict[str, Any]  # arguments, by the names of their parameters


def groups_of(scheduler: Any, *, moves: bool) -> tuple[list[GroupTable], dict[str, int]]:
    """Groups of layers, and which group a layer is in. moves: states change their blocks"""
    found = scheduler.kv_cache_config.kv_cache_groups
    groups: list[GroupTable] = []
    numbers: dict[str, int] = {}
    for number, group in enumerate(found):
        is_state = type(group.kv_cache_spec).__name__ == "MambaSpec"
        groups.append(
            GroupTable(
                size=int(group.kv_cache_spec.block_size),
                is_state=is_state,
                moves=is_state and moves,
                is_window=getattr(group.kv_cache_spec, "sliding_window", None) is not None,
            )
        )
        numbers |= dict.fromkeys(group.layer_names, number)
    return groups, numbers


def watch_choice(watch: RunnerWatch, scheduler: Any, scheduled: Any) -> None:
    """What the scheduler chose for a step. asked: drafts that it wants of each row, None if it does
    not say. known: how many tokens a request has that comes, or
    comes again; None if it goes on. computed: as the scheduler believes
    """
    counts: dict[str, int] = scheduled.num_scheduled_tokens
    known, computed = _beginnings(scheduler, scheduled)
    manager = scheduler.kv_cache_manager
    asked = getattr(scheduled, "num_spec_tokens_to_schedule", None)
    watch.inner_on_host(
        CHOSEN,
        asked=0 if getattr(scheduled, "skip_drafts", False) else asked,
        requests={
            name_of(one): {
                "tokens": int(count),
                "drafts": len(scheduled.scheduled_spec_decode_tokens.get(one, ())),
                "computed": int(computed[one]),
                "known": known.get(one),
                "blocks": [list(map(int, blocks)) for blocks in manager.get_block_ids(one)],
            }
            for one, count in counts.items()
            if one in computed and one in scheduler.requests
        },
    )


def _beginnings(scheduler: Any, scheduled: Any) -> tuple[dict[str, int], dict[str, int]]:
    """Tokens that requests have which come or come again, and what is computed of all."""
    known: dict[str, int] = {}
    computed: dict[str, int] = {}
    for new in scheduled.scheduled_new_reqs:
        tokens = getattr(new, "prefill_token_ids", None) or new.prompt_token_ids
        known[new.req_id], computed[new.req_id] = len(tokens), new.num_computed_tokens
    cached = scheduled.scheduled_cached_reqs
    resumed = getattr(cached, "resumed_req_ids", None)
    if resumed is None:  # releases before it have a flag for each
        flags = zip(cached.req_ids, cached.resumed_from_preemption, strict=True)
        resumed = {one for one, is_resumed in flags if is_resumed}
    for at, one in enumerate(cached.req_ids):
        computed[one] = cached.num_computed_tokens[at]
        if one in resumed:
            prompt = scheduler.requests[one].num_prompt_tokens
            known[one] = prompt + cached.num_output_tokens[at]
    return known, computed


def watch_adapters(watch: RunnerWatch, runner: Any, rows: Rows) -> None:
    """Which adapter each token is run with, by what the host says and by the slots on the device.

    ids: of the adapters in these slots; active: those that the step needs
    """
    present: list[str] = []  # runner V2 knows its rows later
    if hasattr(runner, "lora_state"):
        before(
            runner.lora_state,
            "make_lora_inputs",
            lambda given: present.__setitem__(slice(None), map(name_of, given["req_ids"])),
        )
    plain = runner._set_active_loras

    def set_active(prompts: Any, tokens: Any, requests: Any, *args: Any, **kwargs: Any) -> None:
        plain(prompts, tokens, requests, *args, **kwargs)
        manager = runner.lora_manager._adapter_manager
        (wrapper,) = manager.punica_wrapper_mapping.values()
        watch.inner_on_device(
            "adapters",
            {"slots": wrapper.token_lora_indices},
            rows=list(present) or rows(),
            tokens=list(map(int, tokens)),
            ids=list(manager.lora_index_to_id),
            active=sorted(one.lora_int_id for one in requests),
        )

    runner._set_active_loras = set_active


def watch_previous(watch: RunnerWatch, runner: Any, rows: Rows) -> None:
    """Which row of the step before each row comes from: the runner with persistent rows."""
    plain = getattr(runner, "_compute_prev_positions", None)
    if plain is None:
        return

    def compute(num_reqs: int) -> None:
        plain(num_reqs)
        at = watch.on_host_now({"at": runner.prev_positions.cpu[:num_reqs]})
        watch.inner_on_host("previous rows", rows=rows(), **at)

    runner._compute_prev_positions = compute


def before(
    owner: Any, name: str, note: Callable[[Given], None], *, running: list[str] | None = None
) -> None:
    """Notes the arguments of a method when it is called. running: methods that are, of several that
    call each other: only the first one's arguments are noted
    """
    plain = getattr(owner, name)
    signature = inspect.signature(plain)
    others = [] if running is None else running

    def called(*args: Any, **kwargs: Any) -> Any:
        if not others:
            note(signature.bind(*args, **kwargs).arguments)
        others.append(name)
        try:
            return plain(*args, **kwargs)
        finally:
            others.pop()

    setattr(owner, name, called)


def after(owner: Any, name: str, note: Callable[[Given, Any], None]) -> None:
    """Notes the arguments of a method and what it returns."""
    plain = getattr(owner, name)
    signature = inspect.signature(plain)

    def called(*args: Any, **kwargs: Any) -> Any:
        made = plain(*args, **kwargs)
        note(signature.bind(*args, **kwargs).arguments, made)
        return made

    setattr(owner, name, called)


def forbidden(logits: Tensor) -> Tensor:
    """How many tokens a row's grammar forbids, and their sum. Returns int64 [rows, 2]"""
    is_forbidden = logits == float("-inf")
    places = torch.arange(logits.shape[-1])
    return torch.stack([is_forbidden.sum(-1), (is_forbidden * places).sum(-1)], dim=-1)


def watch_masks(watch: RunnerWatch, runner: Any, rows: Rows) -> None:
    """Which tokens the grammars of rows forbid, when they are sampled."""

    def noted(given: Given) -> None:
        logits, batch = given["logits"], given.get("input_batch")
        names = rows() if batch is None else [name_of(one) for one in batch.req_ids]
        if watch.has_grammars:
            size, looks = int(logits.shape[-1]), {"forbidden": forbidden}
            watch.inner_look("masks", {"forbidden": logits}, looks, rows=names, size=size)

    running: list[str] = []
    for name in ("sampler", "rejection_sampler"):
        sampler = getattr(runner, name, None)
        if sampler is not None:
            if isinstance(sampler, torch.nn.Module):
                before(sampler, "forward", noted, running=running)
            else:
                before(type(sampler), "__call__", noted, running=running)


def watch_drafting(watch: RunnerWatch, runner: Any, rows: Rows) -> None:
    """What verification accepted, on the device, and what the drafter makes of it."""
    drafter = getattr(runner, "drafter", None)
    if drafter is None:
        drafter = runner.speculator

    def proposed(given: Given, made: Any) -> None:
        batch = given.get("input_batch")
        names = rows() if batch is None else [name_of(one) for one in batch.req_ids]
        if isinstance(made, tuple):  # of n-grams, also how many were found
            made = made[0]
        if isinstance(made, torch.Tensor):
            watch.inner_on_device("drafts", {"tokens": made[: len(names)]}, rows=names)

    def counted(_: Given, made: Any) -> None:
        tokens, counts, *_rest = made
        names = rows()
        watch.inner_on_device("accepted", {"next": tokens, "counts": counts}, rows=names)

    def rejected(_: Given, made: Any) -> None:
        *_rest, counts = made
        watch.inner_on_device("accepted", {"rejected": counts}, rows=rows())

    def given_counts(given: Given) -> None:
        batch = given["input_batch"]
        names = [name_of(one) for one in batch.req_ids]
        count = len(names)
        tensors = {
            "counts": given["num_sampled"][:count],
            "rejected": given["num_rejected"][:count],
            "last": given["last_sampled"],
            "prompt": given["next_prefill_tokens"],
            "index": batch.idx_mapping[:count],
        }
        watch.inner_on_device("accepted", tensors, rows=names)

    for name, note in (("prepare_next_token_ids_padded", counted),
                       ("update_token_ids_ngram", counted),
                       ("prepare_inputs_padded", rejected)):  # fmt: skip
        if hasattr(drafter, name):
            after(drafter, name, note)
    if "num_sampled" in inspect.signature(drafter.propose).parameters:
        before(drafter, "propose", given_counts)
    after(drafter, "propose", proposed)
    watch_draws(watch, drafter, rows)


def watch_draws(watch: RunnerWatch, drafter: Any, rows: Rows) -> None:
    """Counts drafts that are drawn: of both runners, as far as they have them."""

    def drawn(given: Given, made: Any) -> None:
        has_weights = isinstance(made, tuple) and made[1] is not None
        if has_weights or given.get("draft_logits") is not None:
            watch.counters["drawn_drafts"] += sum(name in watch.drawn for name in rows())

    for name in ("_sample_draft_tokens", "sample_draft"):
        if hasattr(drafter, name):
            after(drafter, name, drawn)
