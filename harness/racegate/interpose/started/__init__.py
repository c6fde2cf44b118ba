"""What runs in a Python that a program on the virtual device has started."""
