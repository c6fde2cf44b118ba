# expect = "silent"
# says = ["no conflict"]
"""Errors in the runtime's own words; a graph knows whether anything was captured into it."""

import warnings

import torch


def words_of_error(code):
    try:
        torch.cuda.check_error(code)
    except torch.cuda.CudaError as error:
        return str(error)
    return ""


def warnings_of_capture(work):
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with warnings.catch_warnings(record=True) as caught, torch.cuda.stream(stream):
        warnings.simplefilter("always")
        graph.capture_begin()
        work()
        graph.capture_end()
    return [str(warning.message) for warning in caught]


x = torch.ones(4, device="cuda")
assert words_of_error(2).startswith("out of memory"), words_of_error(2)
assert words_of_error(600).startswith("device not ready"), words_of_error(600)
assert any("is empty" in text for text in warnings_of_capture(lambda: None))
assert warnings_of_capture(lambda: x.add_(1)) == []
