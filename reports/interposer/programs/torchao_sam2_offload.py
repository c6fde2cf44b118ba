"""torchao: SAM2's video predictor with its state on the host puts masks of two objects together.

The network is a stand-in; what stores its masks and puts them together is the package's.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torchao._models.sam2.sam2_video_predictor import SAM2VideoPredictor

from racegate.interpose import observe

torch.manual_seed(0)
predictor = SimpleNamespace(
    image_size=64,
    hidden_dim=8,
    fill_hole_area=0,
    _get_image_feature=lambda *_: (None, None, None, None, None),
    _get_maskmem_pos_enc=lambda *_: None,
    track_step=lambda **_: {
        "maskmem_features": None,
        "pred_masks": torch.randn(1, 1, 16, 16).to("cuda") * 2,
        "obj_ptr": torch.ones(1, 8, device="cuda"),
        "object_score_logits": torch.ones(1, 1, device="cuda"),
    },
)
state = {
    "storage_device": torch.device("cpu"),  # offload_state_to_cpu=True
    "device": torch.device("cuda"),
    "num_frames": 1,
    "obj_id_to_idx": {1: 0, 2: 1},
    "obj_idx_to_id": {0: 1, 1: 2},
    "obj_ids": [1, 2],
    "temp_output_dict_per_obj": {},
    "output_dict_per_obj": {},
}
predictor._get_obj_num = lambda _: 2
for index in range(2):
    out, _ = SAM2VideoPredictor._run_single_frame_inference(
        predictor, inference_state=state, output_dict={}, frame_idx=0, batch_size=1,
        is_init_cond_frame=True, point_inputs=None, mask_inputs=None, reverse=False,
        run_mem_encoder=False,
    )  # fmt: skip
    empty = {"cond_frame_outputs": {}, "non_cond_frame_outputs": {}}
    state["temp_output_dict_per_obj"][index] = {
        "cond_frame_outputs": {0: out},
    }
    state["output_dict_per_obj"][index] = empty
together = SAM2VideoPredictor._consolidate_temp_output_across_obj(
    predictor, state, 0, is_cond=True, run_mem_encoder=False
)
observe("masks", together["pred_masks"])
