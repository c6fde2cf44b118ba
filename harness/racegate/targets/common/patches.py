"""Every place where foreign code is replaced: what is exchanged, by whom, for which releases, why.

A test compares this table with what is replaced in a process with a device, and with what the
sources assign. What a package offers as a setting is no patch, and operators are registered with
torch's own dispatcher, which asks for that.
"""

from __future__ import annotations

import msgspec


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """An attribute of foreign code that racegate replaces in the process of a program or an engine.

    by: the module of racegate that does it, from `racegate` on
    owner: the module or class by its full name, or words for an object that an engine makes
    attributes: names of what is replaced
    releases: of the package, where not all have it or need it; empty: all that are supported
    """

    by: str
    owner: str
    attributes: tuple[str, ...]
    why: str
    releases: str = ""


_ORDER = "what a thread hands on by it is an edge"
_SEEN = "what the host does with pinned memory is recorded"
_TAKEN_IN = "the log of calls is taken in at the program's own line"
_NOT_COMPILED = "what the release compiles is not there"
_WATCHED = "what it is given and gives is observed"

# fmt: off
# In the process of every program on a device, from `racegate torch` and of every engine.
PROGRAM = (
    Patch(by="interpose.program.threads", owner="threading",
          attributes=("Lock", "_allocate_lock", "RLock"), why=_ORDER),
    Patch(by="interpose.program.threads", owner="threading.Thread",
          attributes=("start", "_bootstrap_inner", "join", "is_alive"), why=_ORDER),
    Patch(by="interpose.program.threads", owner="threading.Event",
          attributes=("set", "is_set"), why=_ORDER),
    Patch(by="interpose.program.threads", owner="_thread",
          attributes=("start_new_thread", "start_new"), why=_ORDER),
    Patch(by="interpose.program.threads", owner="asyncio.base_events.BaseEventLoop",
          attributes=("call_soon_threadsafe",), why=_ORDER),
    Patch(by="interpose.program.threads", owner="queue", attributes=("SimpleQueue",), why=_ORDER),
    Patch(by="interpose.program.threads", owner="torch.distributed.distributed_c10d.Work",
          attributes=("wait",), why="who waits goes on from threads of C++ code"),
    Patch(by="interpose.program.arrays", owner="torch.Tensor", attributes=("numpy", "tolist"),
          why=_SEEN),
    Patch(by="interpose.program.install", owner="torch.cuda.streams.Event",
          attributes=("record", "wait"), why=_TAKEN_IN),
    Patch(by="interpose.program.install", owner="torch.cuda.streams.Event", attributes=("query",),
          why="the schedule decides what is complete"),
    Patch(by="interpose.program.install", owner="torch.Event",
          attributes=("record", "wait", "query"), why="the event of any device, likewise"),
    Patch(by="interpose.program.install", owner="torch.cuda.streams.Stream",
          attributes=("wait_event", "wait_stream", "record_event"), why=_TAKEN_IN),
    Patch(by="interpose.program.install", owner="torch.cuda.streams.Stream",
          attributes=("__new__",), why="a finding says where the program made its streams"),
    Patch(by="interpose.run_log", owner="torch.autograd.profiler.record_function",
          attributes=("__enter__", "__exit__"), releases="torch, where a run is drawn whole",
          why="ranges of the program are part of the picture"),
    Patch(by="interpose.run_log", owner="torch.cuda.nvtx",
          attributes=("range_push", "range_pop", "mark"),
          releases="torch, where a run is drawn whole",
          why="ranges of the program are part of the picture"),
    Patch(by="interpose.program.install", owner="torch.cuda.streams.Stream", attributes=("query",),
          why="the schedule decides what is complete"),
    Patch(by="interpose.program.install", owner="torch.autograd.graph",
          attributes=("_engine_run_backward",), why="autograd's threads go on from their caller"),
    Patch(by="interpose.program.install", owner="torch.autograd",
          attributes=("_engine_run_backward",), why="it has the function too"),
    Patch(by="interpose.program.install", owner="torch._C", attributes=("_cuda_memorySnapshot",),
          why="the program's own frames asked for memory, and not ours"),
    Patch(by="interpose.compiling", owner="torch", attributes=("compile",),
          releases="torch, where regions run as plain Python", why="the verdict says so"),
    Patch(by="interpose.compiling",
          owner="torch._dynamo.callback.CompilationCallbackHandler",
          attributes=("install_callbacks",),
          releases="torch, once a program imports its compiler",
          why="what the compiler computes and waits for is no part of the program"),
    Patch(by="interpose.compiling",
          owner="torch._inductor.runtime.triton_heuristics.CachingAutotuner",
          attributes=("__init__",), releases="torch, once a program compiles",
          why="an interpreter is quicker with few programs of wide blocks"),
    Patch(by="interpose.compiling", owner="torch._inductor.runtime.benchmarking",
          attributes=("benchmarker",), releases="torch, once a program compiles",
          why="the times of an interpreter say nothing"),
    Patch(by="interpose.compiling", owner="torch._inductor.async_compile.AsyncCompile",
          attributes=("cpp_pybinding",), releases="torch, once a program compiles", why=_SEEN),
    Patch(by="interpose.program.imports", owner="the loader of a module that racegate waits for",
          attributes=("exec_module",), why="what is done after an import is done right after it"),
    Patch(by="interpose.program.processes", owner="_posixsubprocess", attributes=("fork_exec",),
          why="processes that multiprocessing starts are told of in the verdict"),
)

# On the virtual device alone.
VIRTUAL = (
    Patch(by="interpose.program.install", owner="torch.cuda",
          attributes=("_raw_device_count_nvml",),
          why="torch asks NVML first how many devices there are, and that asks the real driver"),
    Patch(by="interpose.kernels.interpreted.driver", owner="the table of Triton's backends",
          attributes=("nvidia",), why="NVIDIA's driver asks the real one, and compiles C for it"),
    Patch(by="interpose.kernels.interpreted.arguments", owner="triton.runtime.interpreter",
          attributes=("_implicit_cvt",), why="a float argument has a type, as compiled"),
    Patch(by="interpose.kernels.interpreted.libdevice",
          owner="triton.runtime.interpreter.InterpreterBuilder",
          attributes=("create_extern_elementwise",),
          why="NVIDIA's own functions, of which the interpreter has none"),
    Patch(by="interpose.kernels.interpreted.reductions",
          owner="triton.runtime.interpreter.ReduceOps",
          attributes=("generic_reduce",), why="the interpreter goes element by element"),
    Patch(by="interpose.kernels.interpreted.reductions",
          owner="triton.runtime.interpreter.ScanOps",
          attributes=("generic_scan",), why="the interpreter goes element by element"),
    Patch(by="interpose.kernels.triton_kernels", owner="triton.runtime.interpreter.GridExecutor",
          attributes=("__call__", "_init_args_hst", "_restore_args_dev"),
          why="a launch is an operation of a stream, on the device's own memory"),
    Patch(by="interpose.kernels.triton_kernels", owner="triton.runtime.interpreter",
          attributes=("_patch_lang", "inspect"),
          why="the interpreter keeps to what compiled kernels mean"),
    Patch(by="interpose.kernels.narrow_floats", owner="triton.runtime.interpreter",
          attributes=("_get_np_dtype",), why="bfloat16 and float8 have their own values"),
    Patch(by="interpose.kernels.narrow_floats", owner="triton.runtime.interpreter",
          attributes=("_mxfp_value_handle_to_float32",), releases="that have it",
          why="operands of `tl.dot_scaled` are float32 when they are multiplied"),
    Patch(by="interpose.kernels.narrow_floats",
          owner="triton.runtime.interpreter.InterpreterBuilder",
          attributes=("cast_impl", "create_fp_to_fp", "create_dot", "create_fma"),
          releases="of these those that a version has",
          why="bfloat16 and float8 have the values of compiled ones"),
    Patch(by="interpose.kernels.triton_kernels",
          owner="triton.runtime.interpreter.InterpreterBuilder",
          attributes=("create_masked_load", "create_masked_store"),
          why="what a kernel loads and stores is noted; narrow floats are computed before"),
    Patch(by="interpose.kernels.triton_kernels",
          owner="triton.runtime.interpreter.InterpreterBuilder",
          attributes=("create_atomic_cas", "create_atomic_rmw"),
          why="what a kernel loads and stores is noted; narrow floats are computed before"),
    Patch(by="interpose.kernels.triton_kernels",
          owner="triton.runtime.interpreter.InterpreterBuilder",
          attributes=("create_maxnumf", "create_minnumf"), releases="Triton up to 3.6",
          why="the maximum of a number and NaN is the number, as compiled"),
    Patch(by="interpose.kernels.triton_kernels", owner="triton.runtime.autotuner.Autotuner",
          attributes=("_bench",), why="the times of an interpreter say nothing"),
    Patch(by="interpose.kernels.triton_kernels",
          owner="triton.experimental.gluon._runtime.GluonJITFunction", attributes=("run",),
          releases="Triton, once a program imports Gluon", why="no interpreter knows its kernels"),
)

# On a GPU alone.
GPU = (
    Patch(by="interpose.gpu.install", owner="torch.cuda.streams.Event", attributes=("query",),
          why="a query that is answered 'ready' waits until that is so"),
    Patch(by="interpose.gpu.install", owner="torch.cuda.streams.Stream", attributes=("query",),
          why="a query that is answered 'ready' waits until that is so"),
    Patch(by="interpose.gpu.triton_kernels", owner="triton.runtime.jit.JITFunction",
          attributes=("run",), why="a launch is an operation of a stream"),
    Patch(by="interpose.gpu.triton_kernels", owner="triton.runtime.jit.JITFunction",
          attributes=("__call__",), why="an interpreted kernel calls interpreted ones"),
)

# In the environment of a release of vLLM.
VLLM = (
    Patch(by="targets.vllm.inside.scripted.computed", owner="the model",
          attributes=("forward", "compute_logits"), why="tokens follow from what is computed"),
    Patch(by="targets.vllm.inside.hollow", owner="the model",
          attributes=("forward", "compute_logits"), why="tokens follow from the scenario alone"),
    Patch(by="targets.vllm.inside.standins", owner="torch._ops._OpNamespace",
          attributes=("__getattr__",),
          why="what the release compiles is not there, and tables name it when imported"),
    Patch(by="targets.vllm.inside.standins", owner="importlib.metadata", attributes=("version",),
          why="the CPU wheel's Python is that of the CUDA wheel but for its version"),
    Patch(by="targets.vllm.inside.standins", owner="vllm.vllm_flash_attn.flash_attn_interface",
          attributes=("is_fa_version_supported", "fa_version_unsupported_reason"),
          releases="whose CPU wheels have no Python of it", why=_NOT_COMPILED),
    Patch(by="targets.vllm.inside.standins", owner="numba",
          attributes=("jit", "njit", "prange", "get_num_threads", "set_num_threads"),
          releases="that import it with the runner", why="it is not installed: plain Python"),
    Patch(by="targets.vllm.inside.standins", owner="vllm.platforms",
          attributes=("_current_platform",), why="what the driver would be asked is answered"),
    Patch(by="targets.vllm.inside.standins", owner="vllm.model_executor.models.registry",
          attributes=("_run_in_subprocess",), why="a process of its own would have no device"),
    Patch(by="targets.vllm.inside.standins", owner="vllm._custom_ops",
          attributes=("apply_repetition_penalties_cuda",), releases="that have its twin in torch",
          why=_NOT_COMPILED),
    Patch(by="targets.vllm.inside.standins",
          owner="vllm.model_executor.models.qwen3_next.QwenNextMixtureOfExperts",
          attributes=("set_moe_parameters",), why="the models here have no experts"),
    Patch(by="targets.vllm.inside.standins", owner="vllm.v1.worker.gpu_worker.Worker",
          attributes=("compile_or_warm_up_model",), why="there is nothing to compile or to warm"),
    Patch(by="targets.vllm.inside.standins", owner="the class of the model runner",
          attributes=("profile_run",), why="there is no memory to measure"),
    Patch(by="targets.vllm.inside.standins", owner="the executor",
          attributes=("async_output_thread",), releases="that wait for outputs in a thread",
          why="a thread does not outlive a fork, and wakes up when it likes"),
    Patch(by="targets.vllm.inside.standins", owner="vllm.ir.op", attributes=("_ENABLE_TORCH_WRAP",),
          releases="that have `vllm.ir`", why="operators are called as Python, without wrapping"),
    Patch(by="targets.vllm.inside.watch", owner="the builders of attention and state metadata",
          attributes=("build",), why=_WATCHED),
    Patch(by="targets.vllm.inside.layers", owner="the builders of attention and state metadata",
          attributes=("build",), why=_WATCHED),
    Patch(by="targets.vllm.inside.watch_steps", owner="the model runner",
          attributes=("_compute_prev_positions",), releases="that have it", why=_WATCHED),
    Patch(by="targets.common.inside.exchange", owner="functions of a mutated module",
          attributes=("__code__",), why="a mutant runs in an engine that has started"),
    Patch(by="targets.vllm.inside.watch", owner="the scheduler", attributes=("update_from_output",),
          why=_WATCHED),
    Patch(by="targets.vllm.inside.watch", owner="the class of the batch",
          attributes=("swap_states", "condense"), releases="with rows that move",
          why="moves of rows are counted"),
    Patch(by="targets.vllm.inside.watch", owner="vllm.v1.worker.utils.KVBlockZeroer",
          attributes=("zero_block_ids",), releases="that zero fresh blocks", why=_WATCHED),
    Patch(by="targets.vllm.inside.watch", owner="vllm.v1.worker.utils",
          attributes=("_zero_kv_blocks_kernel",), releases="that zero fresh blocks", why=_WATCHED),
    Patch(by="targets.vllm.inside.conditions", owner="the manager of structured output",
          attributes=("backend", "_use_async_grammar_compilation"),
          why="grammars without a tokenizer, compiled at once"),
    Patch(by="targets.vllm.inside.conditions", owner="vllm.SamplingParams",
          attributes=("_validate_structured_outputs",),
          why="no tokenizer validates the grammars here"),
    Patch(by="targets.vllm.inside.engine", owner="the model runner", attributes=("execute_model",),
          why=_WATCHED),
    Patch(by="targets.vllm.inside.engine", owner="the model state", attributes=("prepare_attn",),
          releases="with the second runner", why=_WATCHED),
    Patch(by="targets.vllm.inside.serve", owner="torch.cuda", attributes=("_is_in_bad_fork",),
          why="the device is memory, which may be forked"),
)

# In the environment of a release of SGLang.
SGLANG = (
    Patch(by="targets.sglang.inside.missing", owner="importlib.util", attributes=("find_spec",),
          why="who asks whether a package is installed is told the truth"),
    Patch(by="targets.sglang.inside.missing", owner="importlib.metadata", attributes=("version",),
          why="a package that is not installed has a version when it is asked for one"),
    Patch(by="targets.sglang.inside.standins", owner="torch.library", attributes=("register_fake",),
          why="what the release compiles is not there, so it has no shapes"),
    Patch(by="targets.sglang.inside.standins",
          owner="sglang.srt.layers.utils.multi_platform.MultiPlatformOp",
          attributes=("dispatch_forward",), why=_NOT_COMPILED),
    Patch(by="targets.sglang.inside.standins", owner="sglang.srt.managers.overlap_utils",
          attributes=("_resolve_future_token_ids",), releases="that have its plain form",
          why=_NOT_COMPILED),
    Patch(by="targets.sglang.inside.standins", owner="sglang.srt.mem_cache.memory_pool",
          attributes=("can_use_store_cache",), releases="that ask it", why=_NOT_COMPILED),
    Patch(by="targets.sglang.inside.standins", owner="sglang.srt.model_executor.forward_batch_info",
          attributes=("clamp_position",), releases="that have its plain form", why=_NOT_COMPILED),
    Patch(by="targets.sglang.inside.standins", owner="sglang.srt.models.qwen3_next",
          attributes=("Qwen2MoeSparseMoeBlock",), why="a dense layer in the place of experts"),
    Patch(by="targets.sglang.inside.standins",
          owner="sglang.srt.eplb.expert_location.ExpertLocationMetadata",
          attributes=("init_trivial",), why="the models here have no experts"),
    Patch(by="targets.sglang.inside.standins",
          owner="sglang.srt.layers.attention.linear.kernels.gdn_triton",
          attributes=("chunk_gated_delta_rule",), releases="that have the module",
          why="its kernels compute float32, which its entry refuses"),
    Patch(by="targets.sglang.inside.standins", owner="modules of sglang",
          attributes=("is_arch_support_pdl",), why="an interpreter has no dependent launches"),
    Patch(by="targets.sglang.inside.repairs", owner="the pool of requests",
          attributes=("donate_mamba_ping_pong_slot",), releases="with the repair donated-slot",
          why="the release without its repair"),
    Patch(by="targets.sglang.inside.repairs", owner="the tree of prefixes",
          attributes=("_match_post_processor",), releases="with the repair forward-copy",
          why="the release without its repair"),
    Patch(by="targets.sglang.inside.repairs", owner="sglang.srt.managers.scheduler",
          attributes=("is_cuda",), releases="with the repair war-barrier",
          why="the release without its repair"),
    Patch(by="targets.sglang.inside.watch", owner="the model runner", attributes=("forward",),
          why=_WATCHED),
    Patch(by="targets.sglang.inside.watch", owner="the scheduler",
          attributes=("process_batch_result",), why=_WATCHED),
    Patch(by="targets.sglang.inside.engine", owner="the scheduler",
          attributes=("recv_requests", "on_idle", "process_batch_result"),
          why="requests come from the scenario, and results stay here"),
    Patch(by="targets.sglang.inside.engine", owner="the class of what the scheduler sends to",
          attributes=("send_output",), why="results stay here"),
    Patch(by="targets.sglang.inside.serve", owner="torch.cuda", attributes=("_is_in_bad_fork",),
          why="the device is memory, which may be forked"),
)

# fmt: on
PATCHES = (*PROGRAM, *VIRTUAL, *GPU, *VLLM, *SGLANG)
