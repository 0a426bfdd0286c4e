"""A deterministic simulator of the whole engine over a store that fails (docs/SIMULATOR.md)."""
