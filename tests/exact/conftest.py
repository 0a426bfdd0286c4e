"""A profile of Hypothesis with more examples, for the shard `simulator`."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "many", deadline=None, max_examples=1_000, suppress_health_check=list(HealthCheck), derandomize=False
)
