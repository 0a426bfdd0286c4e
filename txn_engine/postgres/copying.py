"""Records in and out by COPY: Arrow writes and reads the text, so that no value is a Python object on its way."""

from __future__ import annotations

import io
from codecs import BOM_UTF8
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv as pa_csv
from psycopg import Connection, Error, sql
from psycopg.abc import PQGen
from psycopg.errors import error_from_result
from psycopg.generators import fetch_many, send
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGconn
from psycopg.waiting import Wait

from txn_engine.databases.writing import in_utc
from txn_engine.postgres.kinds import is_bytes

_ROWS: Final = 64 * 1024
PART_BYTES: Final = 1 << 20
"""Of text that is read at once, while the next is under way: little is left to do once the server has sent all."""
_CANCEL_AGAIN_S: Final = 1.0
_WRITTEN: Final = pa_csv.WriteOptions(include_header=False, quoting_style="all_valid")
_PARSED: Final = pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)


def copy_in(connection: Connection[Any], table: sql.Composable, records: pa.Table) -> int:
    """Put the records into the table's columns of the same names, in the transaction that is open; how many rows the
    server says that it took: a trigger may have kept some out.
    """
    columns = sql.SQL(", ").join(map(sql.Identifier, records.column_names))
    command = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv, ENCODING 'UTF8')").format(table, columns)
    with connection.cursor() as cursor:
        with cursor.copy(command) as copy:
            for part in records.to_batches(max_chunksize=_ROWS):
                text = io.BytesIO()
                pa_csv.write_csv(_as_text(part), text, _WRITTEN)
                copy.write(text.getbuffer())
        return cursor.rowcount


def copy_out(connection: Connection[Any], query: sql.Composable, encoding: str = "UTF8") -> Generator[bytes]:
    """What the query gives, as the server's text, in parts of whole rows, in the transaction that is open."""
    command = sql.SQL("COPY ({}) TO STDOUT (FORMAT csv, ENCODING {})").format(query, encoding)
    with _ended(connection), connection.cursor() as cursor, cursor.copy(command):
        has_more = True
        while has_more:
            part = io.BytesIO()
            has_more = connection.wait(_take_rows(connection.pgconn, part))
            if part.tell():
                yield part.getvalue()


@contextmanager
def _ended(connection: Connection[Any]) -> Iterator[None]:
    """So that nothing is under way when an error leaves. As a copy begins, what a signal raises leaves it so with
    psycopg, and the connection takes no other command.
    """
    try:
        yield
    except BaseException:
        if connection.info.transaction_status is TransactionStatus.ACTIVE:
            with suppress(Error):  # that it was cancelled
                connection.wait(_cancelled(connection), interval=_CANCEL_AGAIN_S)
        raise


def _cancelled(connection: Connection[Any]) -> PQGen[None]:
    """Cancel what was sent, and read until nothing of it is left.

    A server that has not begun the command ignores a cancel request, so the request is repeated until it answers.
    """
    server = connection.pgconn
    connection.cancel_safe()
    yield from send(server)
    while server.is_busy():
        if (yield Wait.R):
            server.consume_input()
        else:
            connection.cancel_safe()
    results = yield from fetch_many(server)
    if any(
        result.status == ExecStatus.COPY_OUT for result in results
    ):  # it had begun, and rows may still come
        while (yield from _take_rows(server, io.BytesIO())):
            pass


def _take_rows(server: PGconn, part: io.BytesIO) -> PQGen[bool]:
    """Rows, each whole, until the part is full; whether there may be more. As psycopg's own `generators.copy_from`, but
    for a call a part: a call a row costs as much as all that is done with the rows.
    """
    while part.tell() < PART_BYTES:
        size, row = server.get_copy_data(1)
        if size > 0:
            part.write(row)
        elif size == 0:  # none is there
            while not (yield Wait.R):
                pass
            server.consume_input()
        else:
            (result,) = yield from fetch_many(server)
            if result.status != ExecStatus.COMMAND_OK:
                raise error_from_result(result)
            return False
    return True


def parsed(text: bytes, names: Sequence[str], kinds: Mapping[str, pa.DataType]) -> pa.Table:
    """The rows of a part, columns in these types where one is named, else as the server's text.

    ValueError where a value does not fit; it does not say which.
    """
    if text.startswith(BOM_UTF8):
        text = BOM_UTF8 + text  # Arrow takes one away, and this one is a value's
    convert = pa_csv.ConvertOptions(
        column_types={name: kinds.get(name, pa.string()) for name in names},
        null_values=[""],
        true_values=["t"],
        false_values=["f"],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    read = pa_csv.ReadOptions(column_names=list(names), block_size=len(text))
    return pa_csv.read_csv(io.BytesIO(text), read, _PARSED, convert)


def _as_text(part: pa.RecordBatch) -> pa.RecordBatch:
    """The same, with bytes in the form that the server reads, and times in UTC."""
    columns = [_column_as_text(part.column(number)) for number in range(part.num_columns)]
    return pa.RecordBatch.from_arrays(columns, names=part.schema.names)


def _column_as_text(column: Any) -> Any:
    if pa.types.is_float16(column.type):
        return column.cast(pa.float32())
    if pa.types.is_date64(column.type):
        return column.cast(pa.date32())
    if is_bytes(column.type):
        return pa.array(
            [None if value is None else f"\\x{value.hex()}" for value in column.to_pylist()], pa.string()
        )
    return in_utc(column)
