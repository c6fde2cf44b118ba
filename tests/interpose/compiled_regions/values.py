"""What regions compute, and their gradients: each as eager does, up to rounding."""

import copy

import torch
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def add(x, y, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(out + at, tl.load(x + at, inside) + tl.load(y + at, inside), inside)


def with_a_kernel():
    """The compiler stops at a Triton kernel of the program, and goes on behind it."""
    twice, out = x * 2, torch.empty_like(x)
    add[(8,)](twice, x, out, x.numel(), BLOCK=64)
    return out + 1


torch.manual_seed(0)
x, w = torch.randn(16, 32, device="cuda"), torch.randn(32, 8, device="cuda")
narrow = x.bfloat16()
rows = torch.tensor([3, 0, 3, 7], device="cuda")
REGIONS = {
    "reductions": lambda: x.sum(0)[:16] + x.mean(1) + x.amax(1) + x.var(1),
    "softmax of a product": lambda: F.softmax(x @ w, -1),
    "norm and activations": lambda: F.layer_norm(F.gelu(x) + x.erf() + x.tanh(), (32,)),
    "scans and indices": lambda: x.cumsum(1)[:, :8] + x.argmax(1, keepdim=True),
    "scattered rows": lambda: torch.zeros_like(x).index_add(0, rows, x[rows] * 2),
    "narrow floats": lambda: (narrow * 2).float().sum(1),
    "convolution": lambda: F.conv2d(x.view(1, 2, 16, 16), w.view(1, 2, 8, 16)[:, :, :3, :3]),
    "a kernel of the program": with_a_kernel,
    "a part on the host": lambda: (x.cpu() * 2).sum().cuda() + x,
}
for name, region in REGIONS.items():
    compiled, plain = torch.compile(region)(), region()
    close = torch.allclose(compiled, plain, atol=1e-4, rtol=1e-4)
    assert close and compiled.is_contiguous() == plain.is_contiguous(), (name, compiled, plain)

model = torch.nn.Sequential(torch.nn.Linear(32, 16), torch.nn.GELU(), torch.nn.LayerNorm(16))
model = model.to("cuda")
twin = copy.deepcopy(model)
compiled = torch.compile(model, mode="reduce-overhead")
for _ in range(3):  # warmed up, captured, replayed
    for one in (compiled, twin):
        one.zero_grad()
        one(x).square().mean().backward()
for one, other in zip(model.parameters(), twin.parameters(), strict=True):
    assert torch.allclose(one.grad, other.grad, atol=1e-5), (one.grad, other.grad)

dropped = torch.compile(lambda x: F.dropout(x, 0.5))
torch.manual_seed(1)
first = dropped(x)
torch.manual_seed(1)
assert torch.equal(first, dropped(x)) and 0.2 < (first == 0).float().mean() < 0.8

doubled = torch.compile(lambda x: x.relu() * 2, dynamic=True)
for length in (2, 5, 16):
    assert torch.equal(doubled(x[:length]), x[:length].relu() * 2)
