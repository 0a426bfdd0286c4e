"""`txn-engine demo`: one real set of payments through the whole platform, with real accidents on the way."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["run_demo"]


def run_demo(*, url: str | None, input_file: Path | None, json_output: bool, console: Console) -> int:
    """Load, sweep, sum and prove; 0 only when every check passed and the story went as it was to go, else 1.

    Without a URL it works on a store of its own in a fresh folder below `txn-engine-demo/`, without a file on a sample
    that it makes. `console` is told everything as it happens; with `json_output` the outcome goes to stdout as one JSON
    document, so the console should be on stderr. Raises `TxnEngineError`, before anything is written, for a wrong input
    file, a store that the demo ran on before, or where Java or a package is missing. Processes that it started have
    ended when it returns or raises.
    """
    from txn_engine.demo.story import Story

    return Story(console, json_output=json_output).tell(url, input_file)
