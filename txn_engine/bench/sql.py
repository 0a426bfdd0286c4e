"""Queries by `engine.sql`, beside DuckDB over the same files bare: from the text to the table, in turn."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Self

import duckdb
import fsspec.implementations.arrow as fsspec_arrow
import pyarrow as pa

from storage import BucketStore
from txn_engine.bench.measure import Measured, paired, ratio_of
from txn_engine.bench.payments import SCHEMA
from txn_engine.bench.progress import Progress
from txn_engine.bench.scans import filesystem
from txn_engine.bench.spark_reads import load_files_of
from txn_engine.engine import Engine
from txn_engine.errors import TxnEngineError
from txn_engine.sql.store_files import PositionedFile

_AIM: Final = 1.1
_ACCOUNT: Final = 7


@dataclass(frozen=True, slots=True)
class SqlSizes:
    """Rows, in how many files, and how often they are asked."""

    rows: int
    files: int
    rounds: int


QUICK, USUAL, FULL = SqlSizes(500_000, 20, 3), SqlSizes(5_000_000, 40, 7), SqlSizes(50_000_000, 100, 7)


@dataclass(frozen=True, slots=True)
class _Query:
    """What is asked of both, `{}` being the table; what bare DuckDB is asked where it has no such column."""

    name: str
    ours: str
    bare: str
    is_same: bool = True


_COLUMNS: Final = ", ".join(SCHEMA.names)
_QUERIES: Final = (
    _Query("count", "SELECT count(*) AS n FROM {}", "SELECT count(*) AS n FROM {}"),
    _Query(
        "group-by of all",
        "SELECT account_id, sum(amount) AS amount FROM {} GROUP BY account_id ORDER BY account_id",
        "SELECT account_id, sum(amount) AS amount FROM {} GROUP BY account_id ORDER BY account_id",
    ),
    _Query(
        "point filter, all columns",
        f"SELECT * EXCLUDE (_topic, _partition) FROM {{}} WHERE account_id = {_ACCOUNT}",
        f"SELECT * FROM {{}} WHERE account_id = {_ACCOUNT}",
        is_same=False,
    ),
    _Query(
        "max(_offset)",
        "SELECT max(_offset) FROM {}",
        "SELECT max(_offset_delta) FROM {}",
        is_same=False,
    ),
    _Query(
        "ORDER BY _offset LIMIT 10",
        f"SELECT {_COLUMNS}, _offset FROM {{}} ORDER BY _offset LIMIT 10",
        f"SELECT {_COLUMNS}, _offset_delta FROM {{}} ORDER BY _offset_delta LIMIT 10",
        is_same=False,
    ),
)


def sql_numbers(engine: Engine, prefix: str, *, sizes: SqlSizes, progress: Progress) -> Iterator[Measured]:
    """Each query as of now, its cut made within, and the count as of a cut that is kept."""
    topic = f"{prefix}-sql"
    load_files_of(engine, topic, rows=sizes.rows, files=sizes.files, progress=progress)
    cut = engine.cut([topic], keep_ms=86_400_000)
    with _Bare(engine, topic) as bare:
        what = f"{sizes.rows / 1e6:g} M rows in {sizes.files:,} files; bare: {bare.name}"
        for query in _QUERIES:
            progress(query.name, 0, sizes.rounds)
            text = query.ours.format(f'"{topic}"')
            yield _compared(
                query.name,
                lambda text=text: engine.sql(text),  # type: ignore[misc]
                lambda query=query: bare.ask(query.bare),  # type: ignore[misc]
                sizes.rounds,
                what,
                is_same=query.is_same,
            )
        count = _QUERIES[0]
        text = count.ours.format(f'"{topic}"')
        yield _compared(
            "count, as of a kept cut",
            lambda: engine.sql(text, cut=cut),
            lambda: bare.ask(count.bare),
            sizes.rounds,
            what,
            is_same=True,
        )


def _compared(
    name: str,
    ours: Callable[[], pa.Table],
    bare: Callable[[], pa.Table],
    rounds: int,
    what: str,
    *,
    is_same: bool,
) -> Measured:
    seen, expected = ours(), bare()
    if seen.num_rows != expected.num_rows or (is_same and not seen.equals(expected)):
        raise TxnEngineError(
            f"{name}: {seen.num_rows} rows", actor="bench", expected=f"the {expected.num_rows} of bare DuckDB"
        )
    mine, theirs = paired(ours, bare, rounds, warm_up=1)
    ratio = ratio_of(mine, theirs)
    return Measured(
        name, "ms", statistics.median(mine) * 1e3, statistics.median(theirs) * 1e3, ratio,
        f"time at most {_AIM}", ratio <= _AIM, rounds, what,
    )  # fmt: skip


class _Bare:
    """DuckDB as anybody would use it, over the files of a topic."""

    def __init__(self, engine: Engine, topic: str) -> None:
        uris = [file.uri for file in engine.scan(topic).files()]
        self._connection = duckdb.connect()
        self.name = "DuckDB, read_parquet of the list"
        if isinstance(engine.store, BucketStore):
            uris = self._reach(engine.store, uris)
        names = ", ".join(f"'{uri}'" for uri in uris)
        self._table = f"read_parquet([{names}])"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(self, query: str) -> pa.Table:
        found: pa.Table = self._connection.sql(query.format(self._table)).to_arrow_table()
        return found

    def _reach(self, store: BucketStore, uris: list[str]) -> list[str]:
        """By its own client where that extension is installed; else by PyArrow's. What the files are then called."""
        extension, secret = store.duckdb_secret()
        try:
            self._connection.execute(f"LOAD {extension}")
        except duckdb.Error:
            self._connection.register_filesystem(_BucketFiles(filesystem(store)))
            self.name += f", by PyArrow's {store.backend.name} client (DuckDB's {extension} is not installed)"
            return [f"{_BucketFiles.protocol}://{uri.removeprefix(store.uri(''))}" for uri in uris]
        told = ", ".join(f"{name} '{value}'" for name, value in secret.items() if name != "TYPE")
        self._connection.execute(f"CREATE SECRET (TYPE {secret['TYPE']}, {told})")
        self.name += f", by its {extension}"
        return uris


class _BucketFile(PositionedFile):
    """By PyArrow's client; DuckDB's threads share it."""

    def __init__(self, file: Any) -> None:
        super().__init__(file.size())
        self._file = file

    def read_at(self, start: int, length: int) -> bytes:
        """Just these bytes."""
        return bytes(self._file.read_at(length, start))


class _BucketFiles(fsspec_arrow.ArrowFSWrapper):  # type: ignore[misc]
    """PyArrow's files of a store, by their keys."""

    protocol = "bucket"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix(f"{cls.protocol}://")

    def _open(self, path: str, **_: object) -> _BucketFile:
        return _BucketFile(self.fs.open_input_file(self._strip_protocol(path)))
