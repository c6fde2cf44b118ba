"""From hidden states to tokens: verification's outputs, grammar masks, drafters, and the copies
that bring tokens and counts to the host.

A new sampler is a kernel that `Model.verify` launches; a new drafter is a `Drafter`, named in
`drafters`. It must not know the batch's rows beyond a step's view, nor who observes it.
"""
