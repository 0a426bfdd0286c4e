"""Committed tables for other engines: what changed between two cuts, pins, and who publishes (docs/TABLES.md)."""
