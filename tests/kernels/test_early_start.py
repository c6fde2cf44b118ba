"""Which launches may stand ready behind the kernel before: a device that does not know this would
not compile them.
"""

from __future__ import annotations

from unittest.mock import patch

import pytest
import torch

from racegate_kernels.launch import early_start

EARLY = {"EARLY": True, "launch_pdl": True}
PLAIN = {"EARLY": False}


@pytest.mark.parametrize(
    ("capability", "options"), [((8, 9), PLAIN), ((9, 0), EARLY), ((10, 0), EARLY)]
)
def test_a_device_that_knows_it_starts_early(
    capability: tuple[int, int], options: dict[str, bool]
) -> None:
    with patch.object(torch.cuda, "get_device_capability", return_value=capability):
        assert early_start.__wrapped__(torch.device("cuda")) == options


def test_the_interpreter_waits_for_nobody() -> None:
    assert early_start(torch.device("cpu")) == PLAIN
