"""The history of vLLM releases: what is run, what is kept of it, and the page."""
