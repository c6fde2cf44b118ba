"""Twins of operators that only CUDA has, against plain definitions and their gradients."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the interposer needs torch")

from racegate.interpose.kernels.twins import TWINS, NoTwinError, attention, layers  # noqa: E402

DOUBLE = torch.float64
sdpa = torch.nn.functional.scaled_dot_product_attention


def drawn(*shape: int, leaf: bool = True) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, dtype=DOUBLE, generator=generator).requires_grad_(leaf)


def assert_equal(actual: object, expected: object) -> None:
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)


def test_every_twin_stands_for_an_operator_of_torch() -> None:
    known = set(torch._C._dispatch_get_all_op_names())
    assert TWINS.keys() <= known


@pytest.mark.parametrize("causal", [False, True], ids=["all keys", "causal"])
def test_attention_and_its_gradients(causal: object) -> None:
    is_causal = bool(causal)
    given = [drawn(2, 4, 5, 8) + i for i in range(3)]
    expected = sdpa(*given, is_causal=is_causal)
    grad = drawn(2, 4, 5, 8, leaf=False)
    gradients = torch.autograd.grad(expected, given, grad)
    made = attention.sdpa_flash(*given, 0.0, is_causal)
    assert_equal(made[0], expected)
    rest = (None, None, 5, 5, 0.0, is_causal, None, None)
    backward = attention.sdpa_flash_backward(grad, *given, made[0], made[1], *rest)
    for one, other in zip(backward, gradients, strict=True):
        assert_equal(one, other)
    rows_first = [one.transpose(1, 2) for one in given]
    dense = attention.flash_forward(*rows_first, None, None, 5, 5, 0.0, is_causal, False)
    assert_equal(dense[0].transpose(1, 2), expected)


def test_attention_with_a_bias() -> None:
    given = [drawn(2, 4, 5, 8) + i for i in range(3)]
    bias = drawn(1, 4, 5, 5)
    expected = sdpa(*given, attn_mask=bias)
    made = attention.sdpa_efficient(*given, bias, True)
    assert_equal(made[0], expected)
    assert made[1].shape == (2, 4, 32)
    grad = torch.ones_like(expected)
    seeds = (made[2], made[3], 0.0, [True] * 4)
    backward = attention.sdpa_efficient_backward(grad, *given, bias, *made[:2], *seeds)
    gradients = torch.autograd.grad(expected, (*given, bias), grad)
    for one, other in zip(backward, gradients, strict=True):
        assert_equal(one, other)


def test_attention_over_sequences_of_several_lengths_with_shared_heads() -> None:
    query, key, value = drawn(7, 4, 8), drawn(7, 2, 8), drawn(7, 2, 8) + 1
    bounds = torch.tensor([0, 3, 7], dtype=torch.int32)
    made = attention.flash_forward(query, key, value, bounds, bounds, 4, 4, 0.0, True, False)
    for low, high in ((0, 3), (3, 7)):
        part = [one[low:high].transpose(0, 1)[None] for one in (query, key, value)]
        expected = sdpa(*part, is_causal=True, enable_gqa=True)[0].transpose(0, 1)
        assert_equal(made[0][low:high], expected)
    windowed = attention.flash_forward(
        query,
        key,
        value,
        None,
        None,
        7,
        7,
        0.0,
        False,
        False,
        window_size_left=0,
        window_size_right=0,
    )
    assert_equal(windowed[0], value.repeat_interleave(2, 1))  # each query sees its own key alone


def test_what_a_twin_does_not_know_is_refused() -> None:
    given = [drawn(1, 1, 2, 8)] * 3
    with pytest.raises(NoTwinError, match="dropout"):
        attention.sdpa_flash(*given, 0.5)
    with pytest.raises(NoTwinError, match="alibi_slopes"):
        attention.flash_forward(
            *given, None, None, 2, 2, 0.0, False, False, alibi_slopes=torch.ones(1)
        )


def test_recurrent_cells_and_their_gradients() -> None:
    batch, state, cell = drawn(2, 3, leaf=False), drawn(2, 4), drawn(2, 4) + 1
    lstm = torch.nn.LSTMCell(3, 4).double()
    gates = (batch @ lstm.weight_ih.T).detach().requires_grad_()
    made = layers.lstm_cell(gates, state @ lstm.weight_hh.T, cell, lstm.bias_ih, lstm.bias_hh)
    for one, other in zip(made, lstm(batch, (state, cell)), strict=False):
        assert_equal(one, other)
    grads = (drawn(2, 4, leaf=False), drawn(2, 4, leaf=False) + 2)
    expected = torch.autograd.grad(made[:2], (gates, cell), grads, retain_graph=True)
    backward = layers.lstm_cell_backward(*grads, cell, made[1], made[2], True)
    assert_equal(backward[:2], expected)
    assert_equal(backward[2], expected[0].sum(0))

    gru = torch.nn.GRUCell(3, 4).double()
    gates, hidden = (batch @ gru.weight_ih.T).detach(), (state @ gru.weight_hh.T).detach()
    leaves = [gates.requires_grad_(), hidden.requires_grad_(), state]
    made = layers.gru_cell(*leaves, gru.bias_ih, gru.bias_hh)
    assert_equal(made[0], gru(batch, state))
    expected = torch.autograd.grad(made[0], leaves, grads[0])
    assert_equal(layers.gru_cell_backward(grads[0], made[1], True)[:3], expected)


def test_the_gradient_of_rms_norm() -> None:
    batch, weight, grad = drawn(2, 3, 5), drawn(5), drawn(2, 3, 5, leaf=False)
    made = torch.nn.functional.rms_norm(batch, (5,), weight, 1e-5)
    rstd = (batch.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    backward = layers.rms_norm_backward(grad, batch, [5], rstd, weight, [True, True])
    assert_equal(backward, torch.autograd.grad(made, (batch, weight), grad))


def test_batch_norm_over_two_devices_is_batch_norm_over_both_batches() -> None:
    batch, weight, bias = drawn(4, 3, 5), drawn(3, leaf=False), drawn(3, leaf=False)
    running = [torch.zeros(3, dtype=DOUBLE), torch.ones(3, dtype=DOUBLE)]
    expected_running = [one.clone() for one in running]
    expected = torch.nn.functional.batch_norm(
        batch, *expected_running, weight, bias, True, 0.1, 1e-5
    )
    parts = [layers.batch_norm_stats(part, 1e-5) for part in batch.split(2)]
    means, deviations = (torch.stack(one) for one in zip(*parts, strict=True))
    for gather, count in (
        (layers.batch_norm_gather_stats_with_counts, torch.tensor([10, 10])),
        (layers.batch_norm_gather_stats, 10),
    ):
        state = [one.clone() for one in running]
        stats = gather(batch, means, deviations, *state, 0.1, 1e-5, count)
        assert_equal(layers.batch_norm_elemt(batch, weight, bias, *stats, 1e-5), expected)
        assert_equal(state, expected_running)
    grad = drawn(4, 3, 5, leaf=False)
    sums = layers.batch_norm_backward_reduce(grad, batch, *stats, weight, True, True, True)
    actual = layers.batch_norm_backward_elemt(
        grad, batch, *stats, weight, *sums[:2], torch.tensor([10, 10])
    )
    assert_equal(actual, torch.autograd.grad(expected, batch, grad)[0])
    assert_equal(sums[3], grad.sum((0, 2)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_16_bits_with_a_result_of_32(name: str, dtype: torch.dtype) -> None:
    given = drawn(3, 5, leaf=False).to(dtype)
    wide = given.float().requires_grad_()
    expected = getattr(torch, name)(wide, 1)
    forward, backward = TWINS[f"aten::_{name}"], TWINS[f"aten::_{name}_backward_data"]
    made = forward(given, 1, True)
    assert torch.equal(made, expected)
    grad = drawn(3, 5, leaf=False).float()
    (gradient,) = torch.autograd.grad(expected, wide, grad)
    assert torch.equal(backward(grad, made, 1, dtype), gradient.to(dtype))
    out = torch.empty(0)
    assert TWINS[f"aten::_{name}.out"](given, 1, True, out=out.resize_(3, 5)) is out
    assert torch.equal(out, made)
