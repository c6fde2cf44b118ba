"""The target model: weights, pools, layers, the forward pass, and its graphs with their padding.

A new layer kind is a function of `layers`, its weights, and a line in `model`. Numerics live in
racegate_kernels. It works on the buffers that it is bound to, and must not know which requests
stand in the rows, nor what comes behind the forward pass.
"""
