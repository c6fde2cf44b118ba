"""Small programs of several ranks, half of them right: `rank_one.py` runs one of them."""
