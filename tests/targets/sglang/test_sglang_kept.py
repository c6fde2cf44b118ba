"""What is kept of requests between iterations, of a scheduler that has no SGLang."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any

from bare_session import engine_session
from racegate.targets.common.inside.watch import Values, Watch
from racegate.targets.sglang.inside.kept import note_output, watch_kept, watch_passes


def request(name: str, committed: int) -> Any:
    return SimpleNamespace(
        rid=name,
        output_ids=array("q", range(committed)),
        is_retracted=False,
        queue_time_start=12.5,
        kv=SimpleNamespace(kv_committed_len=committed),
    )


def scheduler(committed: int = 3) -> Any:
    """A runs, B is in the last batch too, C waits, D is between two chunks."""
    a, b, c, d = (request(name, committed) for name in "ABCD")
    pool = SimpleNamespace(available_size=lambda: 7)
    return SimpleNamespace(
        waiting_queue=[c],
        running_batch=SimpleNamespace(reqs=[a, b], batch_is_full=False, launch_ts=3.5),
        last_batch=SimpleNamespace(
            reqs=[b], batch_is_full=True, prefill_stats=SimpleNamespace(log_hit_tokens=6)
        ),
        chunked_req=d,
        forward_ct=4,
        watched_since=99.5,
        total_busy_us=71,
        nccl_port=41217,
        folder="/somewhere/engine-1",
        new_token_ratio_tracker=SimpleNamespace(current=0.75),
        req_to_token_pool=pool,
        token_to_kv_pool_allocator=pool,
        tree_cache=SimpleNamespace(evictable_size=lambda: 5, protected_size=lambda: (1, 2)),
    )


def noted(made: Any) -> Values:
    watch = Watch(engine_session())
    watch_kept(watch, made)()
    ((_, name, values),) = watch.inner
    assert name == "kept in the scheduler"
    return values


def test_requests_are_told_wherever_they_are_and_what_each_run_has_of_its_own_is_not() -> None:
    of = noted(scheduler())
    assert of["requests.kv.kv_committed_len"] == dict.fromkeys("ABCD", 3)
    assert of["requests.output_ids"] == {key: [0, 1, 2] for key in "ABCD"}
    assert (of["waiting_queue"], of["chunked_req"], of["forward_ct"]) == (["C"], "D", 4)
    assert (of["running_batch.reqs"], of["last_batch.batch_is_full"]) == (["A", "B"], True)
    assert of["ratio.current"] == 0.75 and of["last_batch.prefill_stats.log_hit_tokens"] == 6
    ones = {"watched_since", "total_busy_us", "nccl_port", "folder", "running_batch.launch_ts"}
    assert not (ones | {"requests.queue_time_start"}) & set(of)


def test_sizes_of_pools_and_of_the_tree_are_numbers() -> None:
    of = noted(scheduler())
    assert (of["slots.available_size"], of["rows.available_size"]) == (7, 7)
    assert (of["tree.evictable_size"], of["tree.protected_size"]) == (5, "(1, 2)")
    assert "states.available_size" not in of


def test_what_a_request_holds_is_compared() -> None:
    first, second = noted(scheduler()), noted(scheduler(committed=4))
    changed = {name for name, value in first.items() if second[name] != value}
    assert changed == {"requests.output_ids", "requests.kv.kv_committed_len"}


def test_a_pass_and_an_output_are_told_as_the_host_has_them() -> None:
    watch = Watch(engine_session())
    runner = SimpleNamespace(forward=lambda batch, more: (batch, more))
    watch_passes(watch, runner)
    batch = SimpleNamespace(seq_lens_sum=5, rids=["A"], launch_ts=1.5)
    assert runner.forward(batch, more=2) == (batch, 2)
    note_output(watch, SimpleNamespace(rids=["A"], output_ids=[array("q", [4])], sent_time=2.5))
    assert watch.inner == [
        (0, "kept for the runner", {"seq_lens_sum": 5, "rids": ["A"]}),
        (0, "kept for clients", {"rids": ["A"], "output_ids": [[4]]}),
    ]
