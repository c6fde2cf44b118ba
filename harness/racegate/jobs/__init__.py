"""Jobs: work over many scenarios that ends with an exit code. The gate, a campaign (fuzz, campaign,
generated), a soak, a Hypothesis state machine, the worker pool that runs their tasks, and the
environment that a figure depends on.

A job hands tasks to the pool and adds up what comes back: no process, queue or signal elsewhere.
It knows how scenarios are searched and judged; it must not know how results are shown, nor typer.
"""
