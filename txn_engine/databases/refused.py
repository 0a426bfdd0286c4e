"""Records that a database refuses, each named: by a constraint, by a trigger, or as values that a type lacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from txn_engine.databases.errors import DatabaseError
from txn_engine.exact import first_bad
from txn_engine.reasons import Reason

_BATCH: Final = "txn_engine_records"
_PART: Final = "txn_engine_part"


@dataclass(frozen=True, slots=True)
class Driver:
    """What a database's driver raises, and how its statements are run.

    translated: an error as ours, with the actor and the place. blames_record: whether an error is of a kind that a
    record brings about, rather than the table or the statement.
    """

    error: type[Exception]
    execute: Callable[[Any, str], object]
    translated: Callable[[Any, str, str], DatabaseError]
    blames_record: Callable[[Any], bool]


def write_or_name(
    driver: Driver,
    connection: Any,
    write: Callable[[Any, pa.Table], object],
    rows: pa.Table,
    place_of: Callable[[int], str],
    actor: str,
) -> None:
    """Write the rows, in the transaction that is open.

    Raises `DatabaseError` with the place of the first record that the database refuses: they are written again, up to
    that one. The transaction has failed by it, as by any statement, so that nobody can go on behind it.
    """
    if _is_written(driver, connection, write, rows, _BATCH):
        return

    def write_part(part: pa.Table) -> None:
        if not _is_written(driver, connection, write, part, _PART):
            raise ValueError

    index = first_bad(rows, write_part)
    try:
        write(connection, rows.slice(index, 1))
    except driver.error as error:
        if not index and not driver.blames_record(error):
            raise
        found = driver.translated(error, actor, "")
        raise DatabaseError(
            f"the record at {place_of(index)} is refused: {found.seen}",
            actor=actor,
            action="nothing of this batch is there; fix the table, or leave out such records",
            reason=found.reason or Reason.RECORD_REFUSED,
        ) from error
    driver.execute(connection, f"ROLLBACK TO SAVEPOINT {_BATCH}")
    write(connection, rows)  # refused together, though each is taken by itself


def _is_written(
    driver: Driver, connection: Any, write: Callable[[Any, pa.Table], object], rows: pa.Table, name: str
) -> bool:
    """Whether the database took the rows. Nothing of them is there where it did not. What passes by itself is raised,
    and so is an error that ended the transaction.
    """
    driver.execute(connection, f"SAVEPOINT {name}")
    try:
        write(connection, rows)
    except driver.error as error:
        if driver.translated(error, "", "").retry_helps:
            raise
        try:
            driver.execute(connection, f"ROLLBACK TO SAVEPOINT {name}")
        except driver.error:
            raise error from None
        return False
    driver.execute(connection, f"RELEASE SAVEPOINT {name}")
    return True
