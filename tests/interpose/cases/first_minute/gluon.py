# expect = "not modelled"
# says = ["the Gluon kernel add_one"]
"""A kernel in Gluon, which Triton's interpreter does not know."""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def add_one(values, count: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    at = gl.arange(0, count, layout=layout)
    gl.store(values + at, gl.load(values + at) + 1)


add_one[(1,)](torch.zeros(32, device="cuda"), 32, num_warps=1)
