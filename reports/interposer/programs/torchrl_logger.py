"""torchrl: metrics on the device made safe for a logger in another process."""

from __future__ import annotations

import torch
from torchrl.record.loggers.common import _make_metrics_safe

from racegate.interpose import observe

torch.manual_seed(0)
metrics = {"loss": torch.randn(1).to("cuda") * 2, "lengths": torch.arange(4).to("cuda") + 1}
observe("metrics", sorted(map(str, _make_metrics_safe(metrics).items())))
