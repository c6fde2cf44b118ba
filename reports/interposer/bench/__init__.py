"""Programs that `bench_events.py` times: ordinary torch programs of many small operations."""
