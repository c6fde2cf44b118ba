"""A virtual device's process that has imported what PyTorch's tests import: `run.py` starts it.

As `python -m racegate.interpose.child`, whose arguments it takes; the imports take longer than most
of the tests, and a run is forked from here.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from unittest import mock

import torch

from racegate.interpose import child

# None of them sets up CUDA, which may be done only behind the fork.
MODULES = (
    "networkx",
    "pytest",
    "torch._dynamo.testing",
    "torch._inductor.compile_fx",
    "torch.testing._internal.common_cuda",
    "torch.testing._internal.common_utils",
    "torch.utils._triton",
)
# They ask whether there is a GPU: of NVML, for a process that asked the runtime may not fork.
ASK_NVML = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


def prepare() -> None:
    """Imports them. Exits if CUDA is set up behind that."""
    asks = mock.patch.object(torch.cuda, "_raw_device_count_nvml", lambda: 1)
    with asks, mock.patch.dict(os.environ, ASK_NVML):
        for name in MODULES:
            importlib.import_module(name)
    gc.freeze()  # or each run looks through all of it
    if torch.cuda.is_initialized():
        sys.exit("one of torch's test modules has set up CUDA, which cannot be forked then")


if __name__ == "__main__":
    child.main(prepare)
