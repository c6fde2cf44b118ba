"""What becomes of a finding once it is there: which revision brought it."""
