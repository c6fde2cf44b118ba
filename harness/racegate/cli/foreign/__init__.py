"""Commands for engines that live elsewhere. As all of `cli`: options and exit codes, no logic."""
