"""Memory of the host that nobody has written holds what nobody means."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from racegate.targets.common.inside.unwritten import LARGEST, NOBODY_MEANT, mark_unwritten


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (torch, np):
        for name in ("empty", "empty_like"):
            monkeypatch.setattr(module, name, getattr(module, name))  # as it was, afterwards
    mark_unwritten()
    yield


@pytest.mark.usefixtures("marked")
def test_whole_numbers_that_nobody_wrote_are_none_that_anybody_means() -> None:
    for tensor_type, array_type in ((torch.int32, np.int32), (torch.int64, np.int64)):
        tensor, array = torch.empty(3, dtype=tensor_type), np.empty((2, 2), dtype=array_type)
        same = torch.empty_like(tensor.clone())
        assert {*tensor.tolist(), *array.ravel().tolist(), *same.tolist()} == {NOBODY_MEANT[4]}


@pytest.mark.usefixtures("marked")
def test_what_is_no_whole_number_or_a_buffer_or_somebodys_is_left_as_it_is() -> None:
    given = torch.zeros(3, dtype=torch.int32)
    assert torch.empty(3, dtype=torch.int32, out=given) is given
    assert given.tolist() == [0, 0, 0]
    assert torch.empty(2).dtype == torch.float32
    assert NOBODY_MEANT[4] not in torch.empty(LARGEST + 1, dtype=torch.int32).tolist()
    assert torch.empty(2, dtype=torch.int32, device="meta").device.type == "meta"
