"""Short YAML that stands for more values than memory holds."""

from __future__ import annotations


def yaml_bomb(repeated: str, *, levels: int) -> str:
    """A document with this number of levels. In `repeated`, `{0}` is the name of the level below."""
    lines = ["level0: &level0 {x: 1}"]
    lines += [f"level{n}: &level{n}{repeated.format(f'level{n - 1}')}" for n in range(1, levels)]
    return "\n".join(lines)
