"""A topic of payments, its dead-letter topic, and files with good rows and bad ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support.faults import no_pause
from tests.support.internal import FEW_INTERNAL
from tests.support.kills import DyingStore, ProcessDiedError
from txn_engine import Engine, connect
from txn_engine.loading import DEAD_LETTERS, LoadResult, load_files

TOPIC, DEAD = "payments", "payments-dead"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("amount", pa.decimal128(18, 2), nullable=False),
        pa.field("day", pa.date32()),
        pa.field("paid", pa.bool_()),
    ]
)
HEADER = "id,amount,day,paid\n"
MIXED = HEADER + "1,1.00,2026-01-31,true\n2,bad,,\n3,3.00,,false\n4,4\n5,5.005,,true\n"
"""Two good rows and three bad ones: a value, a number of fields, digits that are too many."""

_NAMES = count()


def new_url() -> str:
    return f"memory://loading-{next(_NAMES)}"


def set_up(engine: Engine) -> None:
    """Create both topics."""
    engine.admin.create_topic(TOPIC, partitions=2, schema=SCHEMA, key="id")
    engine.admin.create_topic(DEAD, partitions=1, schema=DEAD_LETTERS)


def ids(engine: Engine) -> list[int]:
    """The ids of the payments that a reader sees."""
    return sorted(engine.scan(TOPIC).to_table().column("id").to_pylist())


def dead(engine: Engine) -> list[dict[str, Any]]:
    """The dead letters that a reader sees, in their order."""
    return engine.scan(DEAD).to_table().to_pylist()


def load(engine: Engine, path: Any, run_id: str = "monday", **options: Any) -> LoadResult:
    """Load files into the payments, with dead letters."""
    return load_files(engine, TOPIC, path, run_id=run_id, dead_letter_topic=DEAD, **options)


def dying_at_every_put(
    prepare: Callable[[Engine], object], work: Callable[[Engine], object], *, after: bool
) -> Iterator[str]:
    """The URL of a store for each put of the work, at which the work died before or after it took effect. The
    last one is a store on which the work ended."""
    for at in count():
        url = new_url()
        with connect(url, configs=FEW_INTERNAL) as engine:
            prepare(engine)
        dying = DyingStore(url, at, after=after)
        with suppress(ProcessDiedError), Engine(dying, pause=no_pause) as engine:
            work(engine)
        yield url
        if dying.puts <= at:
            return


def lines(path: Path) -> Iterator[int]:
    """The numbers of the lines that have a row, without the header's."""
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if number > 1 and line:
            yield number
