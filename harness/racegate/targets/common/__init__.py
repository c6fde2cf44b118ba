"""What all engines on the virtual device share: how one is started and asked, its environment, the
search over landings, the verdict and its text. `inside/` is the part that runs in an engine's own
environment; nothing but that imports torch, and nothing here knows an engine by name.
"""
