"""monai: volumes moved to the device by transforms that do not wait, and cached by threads."""

from __future__ import annotations

import torch
from monai.data import CacheDataset, ThreadDataLoader
from monai.transforms import Compose, ScaleIntensityd, ToDeviced

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
items = [{"image": torch.rand(1, 8, 8).pin_memory()} for _ in range(4)]
transform = Compose(
    [ToDeviced(keys="image", device="cuda", non_blocking=True), ScaleIntensityd(keys="image")]
)
dataset = CacheDataset(items, transform, num_workers=2, progress=False)
sums = [batch["image"].sum() for batch in ThreadDataLoader(dataset, batch_size=2, num_workers=0)]
observe("sums", torch.stack([torch.as_tensor(one) for one in sums]))
