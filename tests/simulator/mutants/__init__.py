"""Deliberate bugs of a line or two that the simulator has to find. They show what it means that it finds
nothing."""
