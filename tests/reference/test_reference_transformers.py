"""The reference's layers against those of HuggingFace transformers, with the same weights.

Whole layers of Mamba2 and of Qwen3-Next, residual stream and MLP included: over a prompt at once,
in chunks, and token by token behind it, from the states that the prompt left.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from racegate.scenario.settings import LayerKind, ModelPart, ModelSpec, Numerics
from racegate_reference.model import Layer, Model, build_model, normed
from racegate_reference.numbers import Array
from racegate_reference.recompute import recompute

MAMBA2 = ModelSpec(
    numerics=Numerics.FLOAT32,
    layers=(LayerKind.MAMBA2,),
    vocab_size=11,
    hidden_size=16,
    heads=4,
    head_size=8,
    state_size=6,
    groups=2,
    parts=(ModelPart.NORM_WEIGHTS, ModelPart.BIASES, ModelPart.GATED_NORM),
)
QWEN3_NEXT = ModelSpec(
    numerics=Numerics.FLOAT32,
    layers=(LayerKind.GATED_DELTA, LayerKind.ATTENTION, LayerKind.GATED_DELTA),
    vocab_size=11,
    hidden_size=16,
    heads=4,
    kv_heads=2,
    key_heads=2,
    head_size=8,
    rotary_size=4,
    state_size=6,
    mlp_size=24,
    parts=(ModelPart.NORM_WEIGHTS, ModelPart.QK_NORM, ModelPart.OUTPUT_GATE),
)
TOKENS = [(7 * place + place // 3) % 11 for place in range(40)]
PROMPT = 21  # more than two chunks


@pytest.fixture(scope="module")
def transformers() -> Iterator[Any]:
    """Looks nothing up: only its layers are used."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setenv("HF_HUB_OFFLINE", "1")
        warnings.simplefilter("ignore")
        yield pytest.importorskip("transformers", reason="transformers is in the test extra")


def rounded(model: Model) -> Model:
    """With weights that float32 holds."""

    def round_all(weights: Any) -> dict[str, Array]:
        return {
            name: value.astype(np.float32).astype(np.float64) for name, value in weights.items()
        }

    layers = tuple(Layer(layer.kind, round_all(layer.weights)) for layer in model.layers)
    return Model(model.spec, model.numerics, layers, round_all(model.ends), model.draft)


def fill(module: Any, values: dict[str, Array]) -> None:
    """Gives every parameter of a module its value."""
    shapes = {name: parameter.shape for name, parameter in module.named_parameters()}
    state = {
        name: torch.tensor(value, dtype=torch.float32).reshape(shapes[name])
        for name, value in values.items()
    }
    module.load_state_dict(state)


def mamba2_weights(index: int, layer: Layer) -> dict[str, Array]:
    prefix, w = f"layers.{index}.", layer.weights
    return {
        f"{prefix}norm.weight": w["norm"],
        f"{prefix}mixer.dt_bias": w["dt_bias"],
        f"{prefix}mixer.A_log": w["a_log"],
        f"{prefix}mixer.D": w["skip"],
        f"{prefix}mixer.conv1d.weight": w["conv"][:, None],
        f"{prefix}mixer.conv1d.bias": w["conv_bias"],
        f"{prefix}mixer.in_proj.weight": w["in_proj"],
        f"{prefix}mixer.in_proj.bias": w["in_bias"],
        f"{prefix}mixer.norm.weight": w["gated_norm"],
        f"{prefix}mixer.out_proj.weight": w["out_proj"],
        f"{prefix}mixer.out_proj.bias": w["out_bias"],
    }


def mamba2_model(transformers: Any, model: Model) -> Any:
    spec = model.spec
    config = transformers.Mamba2Config(
        num_hidden_layers=len(spec.layers),
        vocab_size=spec.vocab_size,
        hidden_size=spec.hidden_size,
        num_heads=spec.heads,
        head_dim=spec.head_size,
        state_size=spec.state_size,
        n_groups=spec.groups,
        conv_kernel=spec.conv_width,
        use_bias=True,
        layer_norm_epsilon=1e-6,
        chunk_size=8,
    )
    theirs = transformers.Mamba2Model(config).eval()
    values = {"embeddings.weight": model.ends["embed"], "norm_f.weight": model.ends["final_norm"]}
    for index, layer in enumerate(model.layers):
        values |= mamba2_weights(index, layer)
    fill(theirs, values)
    return theirs


def half_split(spec: ModelSpec) -> list[int]:
    """Where the elements of a head stand that turn by halves, not as neighbours."""
    turning = range(spec.rotary_width)
    return [*turning[0::2], *turning[1::2], *range(spec.rotary_width, spec.head_size)]


def attention_weights(spec: ModelSpec, w: Any) -> dict[str, Array]:
    size, order = spec.head_size, half_split(spec)
    hp, kp = spec.heads * size, spec.kv_head_count * size
    parts = np.split(w["qkv_proj"], [hp, hp + kp, hp + 2 * kp])
    q, k, v, gate = (part.reshape(-1, size, spec.hidden_size) for part in parts)
    return {
        "self_attn.q_proj.weight": np.concatenate([q[:, order], gate], axis=1),
        "self_attn.k_proj.weight": k[:, order],
        "self_attn.v_proj.weight": v,
        "self_attn.o_proj.weight": w["out_proj"],
        "self_attn.q_norm.weight": w["q_norm"][order] - 1,
        "self_attn.k_norm.weight": w["k_norm"][order] - 1,
    }


def gated_delta_weights(spec: ModelSpec, w: Any) -> dict[str, Array]:
    keys, hp = spec.key_head_count, spec.heads * spec.head_size
    kn, columns = keys * spec.state_size, spec.hidden_size
    ends = np.cumsum([kn, kn, hp, hp, spec.heads])
    parts = np.split(w["in_proj"], ends)
    # Theirs stand by key head: what belongs to one is together.
    q, k, v, z, b, g = (part.reshape(keys, -1, columns) for part in parts)
    return {
        "linear_attn.dt_bias": w["dt_bias"],
        "linear_attn.A_log": w["a_log"],
        "linear_attn.conv1d.weight": w["conv"][:, None],
        "linear_attn.in_proj_qkvz.weight": np.concatenate([q, k, v, z], axis=1),
        "linear_attn.in_proj_ba.weight": np.concatenate([b, g], axis=1),
        "linear_attn.norm.weight": w["head_norm"],
        "linear_attn.out_proj.weight": w["out_proj"],
    }


def qwen3_next_weights(spec: ModelSpec, layer: Layer) -> dict[str, Array]:
    w = layer.weights
    gate, up = np.split(w["mlp_in"], 2)
    is_attention = layer.kind is LayerKind.ATTENTION
    return {
        "input_layernorm.weight": w["norm"] - 1,
        "post_attention_layernorm.weight": w["mlp_norm"] - 1,
        "mlp.gate_proj.weight": gate,
        "mlp.up_proj.weight": up,
        "mlp.down_proj.weight": w["mlp_out"],
        **(attention_weights if is_attention else gated_delta_weights)(spec, w),
    }


def qwen3_next_model(transformers: Any, model: Model) -> Any:
    spec = model.spec
    kinds = {LayerKind.ATTENTION: "full_attention", LayerKind.GATED_DELTA: "linear_attention"}
    config = transformers.Qwen3NextConfig(
        num_hidden_layers=len(spec.layers),
        layer_types=[kinds[kind] for kind in spec.layers],
        mlp_only_layers=list(range(len(spec.layers))),
        vocab_size=spec.vocab_size,
        hidden_size=spec.hidden_size,
        intermediate_size=spec.mlp_size,
        num_attention_heads=spec.heads,
        num_key_value_heads=spec.kv_head_count,
        head_dim=spec.head_size,
        linear_num_value_heads=spec.heads,
        linear_num_key_heads=spec.key_head_count,
        linear_key_head_dim=spec.state_size,
        linear_value_head_dim=spec.head_size,
        linear_conv_kernel_dim=spec.conv_width,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": spec.rotary_width / spec.head_size,
        },
        attn_implementation="eager",
    )
    theirs = transformers.Qwen3NextModel(config).eval()
    ends = model.ends
    values = {"embed_tokens.weight": ends["embed"], "norm.weight": ends["final_norm"] - 1}
    for index, layer in enumerate(model.layers):
        for name, value in qwen3_next_weights(spec, layer).items():
            values[f"layers.{index}.{name}"] = value
    fill(theirs, values)
    return theirs


def hidden_of(theirs: Any, cache: str) -> tuple[Array, Array]:
    """What its layers make of the tokens, normed: all at once, and the prompt, then one by one.
    cache: how older releases call the model's cache; newer ones call each `cache`
    """
    if "cache" in inspect.signature(theirs.forward).parameters:
        cache = "cache"
    ids = torch.tensor([TOKENS])
    with torch.no_grad():
        at_once = theirs(ids, use_cache=False).last_hidden_state[0]
        found = theirs(ids[:, :PROMPT], use_cache=True)
        one_by_one = [found.last_hidden_state[0]]
        for place in range(PROMPT, len(TOKENS)):
            kept = {cache: getattr(found, cache)}
            found = theirs(ids[:, place : place + 1], use_cache=True, **kept)
            one_by_one.append(found.last_hidden_state[0])
    return at_once.numpy(), torch.cat(one_by_one).numpy()


def assert_same(model: Model, theirs: Any, cache: str) -> None:
    ours = normed(model, recompute(model, TOKENS).hidden, model.ends["final_norm"])
    for found in hidden_of(theirs, cache):
        np.testing.assert_allclose(found, ours, rtol=1e-5, atol=1e-5)


def test_mamba2(transformers: Any) -> None:
    model = rounded(build_model(MAMBA2))
    assert_same(model, mamba2_model(transformers, model), "cache_params")


def test_qwen3_next(transformers: Any) -> None:
    model = rounded(build_model(QWEN3_NEXT))
    assert_same(model, qwen3_next_model(transformers, model), "past_key_values")
