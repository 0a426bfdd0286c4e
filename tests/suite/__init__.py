"""The test suite as a whole: tiers and shards, durations and balance, coverage of all processes."""
