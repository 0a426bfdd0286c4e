"""Cuts made and read while real processes write, are killed, and maintenance deletes what it may."""
