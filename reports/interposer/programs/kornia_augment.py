"""kornia: augmentations whose parameters are drawn on the host and uploaded without waiting."""

from __future__ import annotations

import kornia
import torch

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
augment = kornia.augmentation.AugmentationSequential(
    kornia.augmentation.RandomAffine(degrees=20.0, p=1.0),
    kornia.augmentation.RandomHorizontalFlip(p=0.5),
    data_keys=["input"],
)
outputs = []
for _ in range(2):
    images = torch.rand(2, 3, 16, 16).pin_memory().to("cuda", non_blocking=True)
    outputs.append(augment(images))
observe("images", torch.stack(outputs))
