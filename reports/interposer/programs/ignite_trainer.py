"""pytorch-ignite: a trainer that uploads batches without waiting, with mixed precision."""

from __future__ import annotations

import torch
from ignite.engine import create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import MeanSquaredError

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(8, 1).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = torch.nn.MSELoss()
batches = [(torch.randn(4, 8).pin_memory(), torch.randn(4, 1).pin_memory()) for _ in range(4)]
trainer = create_supervised_trainer(
    model, optimizer, loss, device="cuda", non_blocking=True, amp_mode="amp", scaler=True
)
trainer.run(batches, max_epochs=1)
evaluator = create_supervised_evaluator(
    model, {"error": MeanSquaredError()}, device="cuda", non_blocking=True
)
observe("error", evaluator.run(batches).metrics["error"])
