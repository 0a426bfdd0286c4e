"""A process that loads one file, and prints the most memory that it held, in bytes."""

from __future__ import annotations

import sys

from txn_engine.bench.memory import most_resident_bytes
from txn_engine.engine import connect
from txn_engine.loading import load_files


def main(url: str, topic: str, dead_letter_topic: str, path: str) -> int:
    """Load it, and say so."""
    with connect(url) as engine:
        load_files(engine, topic, path, run_id="large", dead_letter_topic=dead_letter_topic)
    print(most_resident_bytes())
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
