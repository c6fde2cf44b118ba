"""What all targets share: how their processes are started and asked for runs."""
