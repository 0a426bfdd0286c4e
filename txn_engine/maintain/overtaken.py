"""Two runs of maintenance on one partition: what the slower one meets."""

from __future__ import annotations


class OvertakenError(Exception):
    """Another run changed what this one was looking at: what is left to do is planned again, from the store."""
