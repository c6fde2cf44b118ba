"""torchrec: embeddings looked up on the host for the next batch, while the present one is uploaded.

The sharded table and the dense model are stand-ins; the pipeline is the package's.
"""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

import torch
from torchrec.distributed.train_pipeline import experimental_pipelines as module
from torchrec.distributed.types import LazyNoWait
from torchrec.sparse.jagged_tensor import KeyedTensor

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)


class Table:
    """Looks nothing up: the rows are the batch."""

    forward = SimpleNamespace(name="table")

    def compute_and_output_dist(self, context, rows):
        return LazyNoWait(KeyedTensor(keys=["a"], length_per_key=[64], values=rows))


class Batch(SimpleNamespace):
    def to(self, *args, **options):
        return self


class Pipeline(module.EvalPipelineCPUSparse):
    def __init__(self) -> None:
        self._pinned_buffers, self._pipelined_modules = {}, [Table()]
        self._pipelined_postprocs, self._pipeline_depth = [], 2
        self._device, self._memcpy_stream = torch.device("cuda"), torch.cuda.Stream()
        self._enable_inplace_copy_batch, self._execute_all_batches = False, True
        self._sparse_executor = self._sparse_future = None
        self._batch_count = 0
        self.batches, self.contexts = deque(), deque()
        self._stream_context = torch.cuda.stream

    def _next_batch(self, batches):
        return next(batches, None)

    def _create_context(self):
        return module.CPUEmbeddingTrainPipelineContext(index=self._batch_count)

    def _pipeline_model(self, batch, context, forward):
        start(self._pipelined_modules, batch, context)

    def _set_module_context(self, context):
        self._present = context

    def _model_fwd(self, batch):
        values = self._present.gpu_embedding_outputs["table"].values()
        return None, (values @ values.t()).sum()


def start(modules, batch, context):
    context.module_contexts["table"] = None
    context.input_dist_tensors_requests["table"] = LazyNoWait(batch.rows)


module._start_data_dist = start
batches = iter([Batch(rows=torch.randn(8, 64)) for _ in range(5)])
pipeline = Pipeline()
outputs = []
try:
    while True:
        outputs.append(pipeline.progress(batches))
except StopIteration:
    pass
observe("outputs", torch.stack(outputs))
