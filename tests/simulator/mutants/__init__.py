"""Deliberate bugs, each a line or two, that the simulator has to find: what its silence is worth."""
