# expect = "silent"
"""Products with a result of another type, and the CTC loss of lengths on the device."""

import torch

torch.manual_seed(0)
factor = torch.randn(8, 8, device="cuda", dtype=torch.bfloat16)
wide = torch.mm(factor, factor, out_dtype=torch.float32)
assert wide.dtype is torch.float32
torch.testing.assert_close(wide, factor.float() @ factor.float())
scores = torch.randn(10, 2, 5).log_softmax(2)
targets, lengths = torch.randint(1, 5, (2, 4)), (torch.tensor([10, 9]), torch.tensor([4, 3]))
expected = torch.nn.functional.ctc_loss(scores, targets, *lengths)
actual = torch.nn.functional.ctc_loss(
    scores.cuda().requires_grad_(), targets.cuda(), *(one.cuda() for one in lengths)
)
actual.backward()
torch.testing.assert_close(actual.detach().cpu(), expected)
