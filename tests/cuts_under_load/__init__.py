"""Cuts are made and read while real processes write and are killed, and maintenance deletes what it may."""
