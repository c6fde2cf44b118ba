"""Commands that show what there is. As all of `cli`: options and exit codes, no logic."""
