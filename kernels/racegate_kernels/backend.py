"""The set of kernels a device runs: the eager twins on the CPU, the Triton launchers on a GPU.

Both have the same signatures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from racegate_kernels._triton import load
from racegate_kernels.accepted_count import (
    accepted_count_eager,
    accepted_count_first_hole_eager,
    accepted_count_first_hole_triton,
    accepted_count_triton,
)
from racegate_kernels.argmax import argmax_eager, argmax_triton
from racegate_kernels.attention_gate import attention_gate_eager, attention_gate_triton
from racegate_kernels.cache_write import cache_write_eager, cache_write_triton
from racegate_kernels.cascade_attention import cascade_attention_eager, cascade_attention_triton
from racegate_kernels.column_plan import column_plan_eager, column_plan_triton
from racegate_kernels.conv_by_token import conv_by_token_eager, conv_by_token_triton
from racegate_kernels.conv_update import conv_update_eager, conv_update_triton
from racegate_kernels.count_correction import (
    correct_computed_eager,
    correct_computed_triton,
    select_accepted_eager,
    select_accepted_triton,
)
from racegate_kernels.draft_inputs import draft_inputs_eager, draft_inputs_triton
from racegate_kernels.draw_drafts import draw_drafts_eager, draw_drafts_triton
from racegate_kernels.embedding import embedding_eager, embedding_triton
from racegate_kernels.fill import fill_eager, fill_triton
from racegate_kernels.gate import gate_eager, gate_triton
from racegate_kernels.gated_delta_update import gated_delta_update_eager, gated_delta_update_triton
from racegate_kernels.input_ids import scatter_inputs_eager, scatter_inputs_triton
from racegate_kernels.linear import linear_eager, linear_triton
from racegate_kernels.mamba2_update import mamba2_update_eager, mamba2_update_triton
from racegate_kernels.mask_logits import mask_logits_eager, mask_logits_triton
from racegate_kernels.mrope import mrope_eager, mrope_triton
from racegate_kernels.mrope_correction import correct_mrope_eager, correct_mrope_triton
from racegate_kernels.next_token import next_token_eager, next_token_triton
from racegate_kernels.ngram_draft import ngram_draft_eager, ngram_draft_triton
from racegate_kernels.norm import head_norm_eager, head_norm_triton, norm_eager, norm_triton
from racegate_kernels.pad_batch import (
    pad_rows_eager,
    pad_rows_triton,
    pad_tokens_eager,
    pad_tokens_triton,
)
from racegate_kernels.paged_attention import paged_attention_eager, paged_attention_triton
from racegate_kernels.positions import positions_eager, positions_triton
from racegate_kernels.rejection_verify import rejection_verify_eager, rejection_verify_triton
from racegate_kernels.rotary import rotary_eager, rotary_triton
from racegate_kernels.scripted_draft import scripted_draft_eager, scripted_draft_triton
from racegate_kernels.slot_mapping import slot_mapping_eager, slot_mapping_triton
from racegate_kernels.slot_rows import (
    gather_rows_eager,
    gather_rows_triton,
    scatter_rows_eager,
    scatter_rows_triton,
)
from racegate_kernels.state_migration import (
    boundary_plan_eager,
    boundary_plan_triton,
    migrate_states_eager,
    migrate_states_triton,
    migrate_windows_eager,
    migrate_windows_triton,
)
from racegate_kernels.token_blocks import token_blocks_eager, token_blocks_triton
from racegate_kernels.trim_drafts import trim_drafts_eager, trim_drafts_triton
from racegate_kernels.verify_drawn import verify_drawn_eager, verify_drawn_triton
from racegate_kernels.zero_blocks import zero_blocks_eager, zero_blocks_triton

Kernel = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One function per kernel; shapes and dtypes in each kernel's own file."""

    embedding: Kernel
    norm: Kernel
    head_norm: Kernel
    linear: Kernel
    gate: Kernel
    attention_gate: Kernel
    rotary: Kernel
    mrope: Kernel
    argmax: Kernel
    conv_update: Kernel
    conv_by_token: Kernel
    mamba2_update: Kernel
    gated_delta_update: Kernel
    cache_write: Kernel
    paged_attention: Kernel
    cascade_attention: Kernel
    positions: Kernel
    slot_mapping: Kernel
    correct_computed: Kernel
    select_accepted: Kernel
    correct_mrope: Kernel
    scatter_inputs: Kernel
    trim_drafts: Kernel
    mask_logits: Kernel
    rejection_verify: Kernel
    verify_drawn: Kernel
    accepted_count: Kernel
    accepted_count_first_hole: Kernel
    next_token: Kernel
    draft_inputs: Kernel
    scripted_draft: Kernel
    draw_drafts: Kernel
    ngram_draft: Kernel
    zero_blocks: Kernel
    fill: Kernel
    pad_tokens: Kernel
    pad_rows: Kernel
    migrate_states: Kernel
    migrate_windows: Kernel
    boundary_plan: Kernel
    column_plan: Kernel
    token_blocks: Kernel
    gather_rows: Kernel
    scatter_rows: Kernel


EAGER = Backend(
    embedding=embedding_eager,
    norm=norm_eager,
    head_norm=head_norm_eager,
    linear=linear_eager,
    gate=gate_eager,
    attention_gate=attention_gate_eager,
    rotary=rotary_eager,
    mrope=mrope_eager,
    argmax=argmax_eager,
    conv_update=conv_update_eager,
    conv_by_token=conv_by_token_eager,
    mamba2_update=mamba2_update_eager,
    gated_delta_update=gated_delta_update_eager,
    cache_write=cache_write_eager,
    paged_attention=paged_attention_eager,
    cascade_attention=cascade_attention_eager,
    positions=positions_eager,
    slot_mapping=slot_mapping_eager,
    correct_computed=correct_computed_eager,
    select_accepted=select_accepted_eager,
    correct_mrope=correct_mrope_eager,
    scatter_inputs=scatter_inputs_eager,
    trim_drafts=trim_drafts_eager,
    mask_logits=mask_logits_eager,
    rejection_verify=rejection_verify_eager,
    verify_drawn=verify_drawn_eager,
    accepted_count=accepted_count_eager,
    accepted_count_first_hole=accepted_count_first_hole_eager,
    next_token=next_token_eager,
    draft_inputs=draft_inputs_eager,
    scripted_draft=scripted_draft_eager,
    draw_drafts=draw_drafts_eager,
    ngram_draft=ngram_draft_eager,
    zero_blocks=zero_blocks_eager,
    fill=fill_eager,
    pad_tokens=pad_tokens_eager,
    pad_rows=pad_rows_eager,
    migrate_states=migrate_states_eager,
    migrate_windows=migrate_windows_eager,
    boundary_plan=boundary_plan_eager,
    column_plan=column_plan_eager,
    token_blocks=token_blocks_eager,
    gather_rows=gather_rows_eager,
    scatter_rows=scatter_rows_eager,
)


def triton_backend() -> Backend:
    """The Triton launchers, for torch tensors on one device; an ImportError without Triton."""
    load()
    return Backend(
        embedding=embedding_triton,
        norm=norm_triton,
        head_norm=head_norm_triton,
        linear=linear_triton,
        gate=gate_triton,
        attention_gate=attention_gate_triton,
        rotary=rotary_triton,
        mrope=mrope_triton,
        argmax=argmax_triton,
        conv_update=conv_update_triton,
        conv_by_token=conv_by_token_triton,
        mamba2_update=mamba2_update_triton,
        gated_delta_update=gated_delta_update_triton,
        cache_write=cache_write_triton,
        paged_attention=paged_attention_triton,
        cascade_attention=cascade_attention_triton,
        positions=positions_triton,
        slot_mapping=slot_mapping_triton,
        correct_computed=correct_computed_triton,
        select_accepted=select_accepted_triton,
        correct_mrope=correct_mrope_triton,
        scatter_inputs=scatter_inputs_triton,
        trim_drafts=trim_drafts_triton,
        mask_logits=mask_logits_triton,
        rejection_verify=rejection_verify_triton,
        verify_drawn=verify_drawn_triton,
        accepted_count=accepted_count_triton,
        accepted_count_first_hole=accepted_count_first_hole_triton,
        next_token=next_token_triton,
        draft_inputs=draft_inputs_triton,
        scripted_draft=scripted_draft_triton,
        draw_drafts=draw_drafts_triton,
        ngram_draft=ngram_draft_triton,
        zero_blocks=zero_blocks_triton,
        fill=fill_triton,
        pad_tokens=pad_tokens_triton,
        pad_rows=pad_rows_triton,
        migrate_states=migrate_states_triton,
        migrate_windows=migrate_windows_triton,
        boundary_plan=boundary_plan_triton,
        column_plan=column_plan_triton,
        token_blocks=token_blocks_triton,
        gather_rows=gather_rows_triton,
        scatter_rows=scatter_rows_triton,
    )
