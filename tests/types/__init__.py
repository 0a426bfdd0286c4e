"""Every Arrow type, at top level and nested, against every feature: each pair works exactly, or is refused."""
