"""Calls that torch's own samples do not make: with and without the arguments that a wait hangs on.

By name, functions of no arguments. Every tensor is made on the device of the moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def _on(*values: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype, device="cuda")


def _ints(*values: int) -> torch.Tensor:
    return _on(*values, dtype=torch.int64)


def _flags(*values: bool) -> torch.Tensor:
    return _on(*values, dtype=torch.bool)


def _host(*values: int) -> torch.Tensor:
    return torch.tensor(values)


def _matrix() -> torch.Tensor:
    return torch.eye(4, device="cuda") * 2 + torch.ones(4, 4, device="cuda")


def _scalar(value: float, device: str = "cuda") -> torch.Tensor:
    return torch.tensor(value, device=device)


def _put(index: torch.Tensor, value: Any, **how: Any) -> object:
    return torch.zeros(4, device="cuda").index_put_((index,), value, **how)


def _log_probs() -> torch.Tensor:
    return torch.randn(12, 2, 5, device="cuda").log_softmax(2)


_ATEN = torch.ops.aten
CALLS: dict[str, Callable[[], object]] = {
    "repeat_interleave": lambda: torch.repeat_interleave(_ints(1, 2)),
    "repeat_interleave output_size": lambda: torch.repeat_interleave(_ints(1, 2), output_size=3),
    "segment_reduce lengths": lambda: torch.segment_reduce(
        _on(1, 2, 3), "sum", lengths=_ints(1, 2)
    ),
    "segment_reduce lengths unsafe": lambda: torch.segment_reduce(
        _on(1, 2, 3), "sum", lengths=_ints(1, 2), unsafe=True
    ),
    "segment_reduce offsets": lambda: torch.segment_reduce(
        _on(1, 2, 3), "sum", offsets=_ints(0, 1, 3)
    ),
    "nonzero": lambda: _on(1, 0, 2).nonzero(),
    "nonzero out": lambda: torch.nonzero(_on(1, 0, 2), out=_ints()),
    "nonzero_static": lambda: torch.nonzero_static(_on(1, 0, 2), size=2),
    "masked_select": lambda: _on(1, 2).masked_select(_flags(True, False)),
    "masked_select out": lambda: torch.masked_select(_on(1, 2), _flags(True, False), out=_on()),
    "index mask": lambda: _on(1, 2)[_flags(True, False)],
    "index indices": lambda: _on(1, 2)[_ints(1, 0)],
    "index host": lambda: _on(1, 2)[_host(1, 0)],
    "index pinned": lambda: _on(1, 2)[_host(1, 0).pin_memory()],
    "index host mask": lambda: _on(1, 2)[torch.tensor([True, False])],
    "index_put indices": lambda: _put(_ints(1, 0), _on(1, 2)),
    "index_put accumulate": lambda: _put(_ints(1, 0), _on(1, 2), accumulate=True),
    "index_put mask": lambda: _put(_flags(True, False, True, False), _on(1, 2)),
    "index_put mask of a host value": lambda: _put(
        _flags(True, False, True, False), torch.tensor(1.0)
    ),
    "index_put host": lambda: _put(_host(1, 0), _on(1, 2)),
    "index_put host value": lambda: _put(_ints(1, 0), torch.tensor(1.0)),
    "index_put value": lambda: _put(_ints(1, 0), _scalar(1.0)),
    "masked_fill host value": lambda: _on(1, 2).masked_fill_(
        _flags(True, False), torch.tensor(1.0)
    ),
    "masked_fill value": lambda: _on(1, 2).masked_fill_(_flags(True, False), _scalar(1.0)),
    "masked_fill number": lambda: _on(1, 2).masked_fill_(_flags(True, False), 1.0),
    "index_fill host value": lambda: _on(1, 2).index_fill_(0, _ints(0), torch.tensor(1.0)),
    "index_fill value": lambda: _on(1, 2).index_fill_(0, _ints(0), _scalar(1.0)),
    "where host value": lambda: torch.where(_flags(True, False), _on(1, 2), torch.tensor(1.0)),
    "where number": lambda: torch.where(_flags(True, False), _on(1, 2), 1.0),
    "unique": lambda: _ATEN._unique2(_ints(1, 2, 1)),
    "unique unsorted": lambda: _ATEN._unique2(_ints(1, 2, 1), False, False, True),
    "unique old": lambda: _ATEN._unique(_ints(1, 2, 1)),
    "unique inverse": lambda: _ATEN._unique2(_ints(1, 2, 1), True, True, True),
    "unique_dim": lambda: _ATEN.unique_dim(_ints(1, 2, 1), 0, True, True, True),
    "unique_dim plain": lambda: _ATEN.unique_dim(_ints(1, 2, 1), 0),
    "unique_consecutive": lambda: _ATEN.unique_consecutive(_ints(1, 2, 1)),
    "unique_consecutive all": lambda: _ATEN.unique_consecutive(_ints(1, 2, 1), True, True),
    "unique_consecutive dim": lambda: _ATEN.unique_consecutive(_ints(1, 2, 1), True, True, 0),
    "unique_dim_consecutive": lambda: _ATEN.unique_dim_consecutive(_ints(1, 2, 1), 0, True, True),
    "bincount": lambda: torch.bincount(_ints(1, 2)),
    "bincount weights": lambda: torch.bincount(_ints(1, 2), _on(1, 2), 5),
    "histc": lambda: torch.histc(_on(1, 2), 4),
    "histc range": lambda: torch.histc(_on(1, 2), 4, 0, 5),
    "equal": lambda: torch.equal(_on(1, 2), _on(1, 2)),
    "equal other shape": lambda: torch.equal(_on(1, 2), _on(1)),
    "linspace": lambda: torch.linspace(_scalar(0.0), _scalar(1.0), 4, device="cuda"),
    "linspace host": lambda: torch.linspace(
        _scalar(0.0, "cpu"), _scalar(1.0, "cpu"), 4, device="cuda"
    ),
    "normal std": lambda: torch.normal(_on(0, 0), _on(1, 1)),
    "normal number": lambda: torch.normal(_on(0, 0), 1.0),
    "normal mean number": lambda: torch.normal(0.0, _on(1, 1)),
    "multinomial": lambda: torch.multinomial(_on(1, 2, 3), 2),
    "multinomial replacement": lambda: torch.multinomial(_on(1, 2, 3), 2, replacement=True),
    "isin few": lambda: torch.isin(torch.arange(100, device="cuda"), _ints(1, 2)),
    "isin many": lambda: torch.isin(_ints(1, 2), torch.arange(100, device="cuda")),
    "isin many unique": lambda: torch.isin(
        _ints(1, 2), torch.arange(100, device="cuda"), assume_unique=True
    ),
    "mode": lambda: _ATEN.mode(torch.arange(8, device="cuda")),
    "mode many": lambda: _ATEN.mode(torch.arange(5000, device="cuda")),
    "sort many": lambda: torch.sort(torch.rand(50_000, device="cuda")),
    "topk": lambda: torch.topk(torch.rand(5000, device="cuda"), 10),
    "median": lambda: torch.median(_on(1, 2, 3)),
    "randperm": lambda: torch.randperm(16, device="cuda"),
    "randperm many": lambda: torch.randperm(100_000, device="cuda"),
    "embedding renorm": lambda: _ATEN.embedding_renorm_(_matrix(), _ints(0, 1), 1.0, 2.0),
    "embedding_bag": lambda: _ATEN._embedding_bag(_matrix(), _ints(0, 1), _ints(0)),
    "embedding_bag max": lambda: _ATEN._embedding_bag(_matrix(), _ints(0, 1), _ints(0), False, 2),
    "embedding backward": lambda: _ATEN.embedding_dense_backward(
        torch.ones(2, 4, device="cuda"), _ints(0, 1), 4, -1, True
    ),
    "ctc_loss lists": lambda: torch.ctc_loss(
        _log_probs(), _ints(1, 2, 1, 2).view(2, 2), [12, 12], [2, 2], 0, 0
    ),
    "ctc_loss tensors": lambda: torch.ctc_loss(
        _log_probs(), _ints(1, 2, 1, 2).view(2, 2), _ints(12, 12), _ints(2, 2), 0, 0
    ),
    "ctc_loss host tensors": lambda: torch.ctc_loss(
        _log_probs(), _ints(1, 2, 1, 2).view(2, 2), _host(12, 12), _host(2, 2), 0, 0
    ),
    "cholesky": lambda: torch.linalg.cholesky(_matrix()),
    "cholesky_ex": lambda: torch.linalg.cholesky_ex(_matrix()),
    "cholesky_ex checked": lambda: torch.linalg.cholesky_ex(_matrix(), check_errors=True),
    "solve_ex checked": lambda: torch.linalg.solve_ex(
        _matrix(), _on(1, 2, 3, 4), check_errors=True
    ),
    "lu_factor_ex checked": lambda: torch.linalg.lu_factor_ex(_matrix(), check_errors=True),
    "ldl_factor_ex checked": lambda: torch.linalg.ldl_factor_ex(_matrix(), check_errors=True),
    "inv_ex": lambda: torch.linalg.inv_ex(_matrix()),
    "inv_ex checked": lambda: torch.linalg.inv_ex(_matrix(), check_errors=True),
    "solve_ex": lambda: torch.linalg.solve_ex(_matrix(), _on(1, 2, 3, 4)),
    "lu_factor_ex": lambda: torch.linalg.lu_factor_ex(_matrix()),
    "lu_factor_ex no pivot": lambda: torch.linalg.lu_factor_ex(_matrix(), pivot=False),
    "ldl_factor_ex": lambda: torch.linalg.ldl_factor_ex(_matrix()),
    "qr": lambda: torch.linalg.qr(_matrix()),
    "eigh": lambda: torch.linalg.eigh(_matrix()),
    "eig": lambda: torch.linalg.eig(_matrix()),
    "svd": lambda: torch.linalg.svd(_matrix()),
    "svd gesvd": lambda: torch.linalg.svd(_matrix(), driver="gesvd"),
    "svd gesvda": lambda: torch.linalg.svd(_matrix(), driver="gesvda"),
    "svdvals": lambda: torch.linalg.svdvals(_matrix()),
    "lstsq": lambda: torch.linalg.lstsq(_matrix(), _matrix()),
    "solve_triangular": lambda: torch.linalg.solve_triangular(_matrix(), _matrix(), upper=True),
    "fused adam host rate": lambda: _ATEN._fused_adam_.tensor_lr(
        [_on(1)], [_on(1)], [_on(1)], [_on(1)], [], [_scalar(1.0)], lr=torch.tensor(0.1), beta1=0.9,
        beta2=0.9, weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False,
    ),
    "fused adam rate": lambda: _ATEN._fused_adam_.tensor_lr(
        [_on(1)], [_on(1)], [_on(1)], [_on(1)], [], [_scalar(1.0)], lr=_scalar(0.1), beta1=0.9,
        beta2=0.9, weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False,
    ),
    "foreach_copy up": lambda: torch._foreach_copy_(
        [_on(1), _on(2)], [torch.ones(1).pin_memory()] * 2, non_blocking=True
    ),
    "foreach_copy down": lambda: torch._foreach_copy_(
        [torch.ones(1).pin_memory() for _ in range(2)], [_on(1), _on(2)], non_blocking=True
    ),
    "foreach_copy down blocking": lambda: torch._foreach_copy_(
        [torch.ones(1).pin_memory() for _ in range(2)], [_on(1), _on(2)]
    ),
    "foreach_copy": lambda: torch._foreach_copy_([_on(1), _on(2)], [_on(3), _on(4)]),
    "foreach_mul host": lambda: torch._foreach_mul_([_on(1)], torch.tensor(2.0)),
    "foreach_mul": lambda: torch._foreach_mul_([_on(1)], _scalar(2.0)),
    "foreach_addcdiv host": lambda: torch._foreach_addcdiv_(
        [_on(1)], [_on(1)], [_on(1)], torch.ones(1)
    ),
    "foreach_norm": lambda: torch._foreach_norm([_on(1), _on(2)]),
    "foreach_max": lambda: torch._foreach_max([_on(1), _on(2)]),
    "cat": lambda: torch.cat([_on(1), _on(2)]),
    "cat many": lambda: torch.cat([_on(1)] * 200),
    "split_copy out": lambda: torch.split_with_sizes_copy(
        _on(1, 2), [1, 1], out=[_on(0), _on(0)]
    ),
    "copy down": lambda: torch.zeros(2).copy_(_on(1, 2)),
    "copy down pinned": lambda: torch.zeros(2).pin_memory().copy_(_on(1, 2), non_blocking=True),
    "copy up": lambda: torch.zeros(2, device="cuda").copy_(torch.ones(2)),
    "copy up later": lambda: torch.zeros(2, device="cuda").copy_(torch.ones(2), non_blocking=True),
    "copy up pinned": lambda: torch.zeros(2, device="cuda").copy_(
        torch.ones(2).pin_memory(), non_blocking=True
    ),
    "item": lambda: _scalar(1.0).item(),
    "all true": lambda: _ATEN._is_all_true(_flags(True)),
    "any true": lambda: _ATEN._is_any_true(_flags(True)),
}  # fmt: skip
