# expect = "fails"
# code = 7
# says = ["the script failed by itself: it ended with exit code 3"]
"""A program that ends with a code which would mean something else here."""

import sys

import torch

print(float(torch.ones(64, device="cuda").sum()))
sys.exit(3)
