"""Programs that nobody here wrote, each driven by a short script; `run_all.py` judges them."""
