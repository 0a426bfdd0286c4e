"""`TxnToPostgresOperator`: a task that writes a group's new records into a Postgres table, each once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from airflow.sdk import BaseOperator, Context
from airflow.sdk.bases.decorator import determine_kwargs

from txn_engine_airflow.connection import DEFAULT_CONN_ID
from txn_engine_airflow.errors import TaskError, TaskReason
from txn_engine_airflow.hook import open_engine
from txn_engine_airflow.operators.killing import Killable, ended_by_a_kill
from txn_engine_airflow.operators.rendered import given_in, or_none, take_rendered, text, texts
from txn_engine_airflow.postgres import POSTGRES_CONN_ID, open_postgres

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

    from txn_engine.postgres import Consumed, Write

WriteMode = Literal["insert", "upsert", "append"]


class TxnToPostgresOperator(Killable, BaseOperator):
    """Writes a group's new committed records into a Postgres table, up to the ends as they are when it starts.

    `mode`: "insert", each record a row more; "upsert", each in the place of the row with its `key` (with
    `delete_tombstones` one whose other columns are all null deletes it); "append", a history with `_partition`,
    `_offset` and `_timestamp`. The table's columns are compared with the topic's before the first row; `create` makes a
    table that is not there. Or `python_callable(connection, records, **op_kwargs)` writes what it likes, in the
    transaction that is open, and may neither commit nor roll back; it may ask for entries of the context by name.

    Exactly once: at most `max_records` at a time, the rows and how far they go are one transaction of the database, in
    its table `txn_engine_positions`. A run goes on from there, whatever tries before it came to, so a retry, a cleared
    task and a backfill repeat nothing; what is new is written by whichever run comes first. The group in the store only
    follows, for its lag. Of two at once one is refused and tries again: `max_active_tis_per_dag` is 1 unless told, and
    mapped tasks have topics or groups of their own.

    `postgres_conn_id`: a connection of type `postgres`. Returns how many records and batches, and the next offset by
    partition.
    """

    template_fields: Sequence[str] = (
        "topics",
        "group_id",
        "table",
        "mode",
        "key",
        "op_kwargs",
        "postgres_conn_id",
        "conn_id",
    )
    template_fields_renderers = {"op_kwargs": "py"}  # noqa: RUF012 -- Airflow's own form
    ui_color = "#e4ecf3"

    def __init__(
        self,
        *,
        topics: str | Sequence[str],
        group_id: str,
        table: str | None = None,
        mode: WriteMode = "insert",
        key: str | Sequence[str] | None = None,
        create: bool = False,
        delete_tombstones: bool = False,
        python_callable: Callable[..., Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        max_records: int = 100_000,
        postgres_conn_id: str = POSTGRES_CONN_ID,
        conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("max_active_tis_per_dag", 1)
        super().__init__(**kwargs)
        if (table is None) == (python_callable is None):
            raise ValueError(f"task {self.task_id!r}: expected either table or python_callable")
        if python_callable is not None and (key is not None or create or delete_tombstones):
            raise ValueError(f"task {self.task_id!r}: key, create and delete_tombstones are for a table")
        if max_records < 1:
            raise ValueError(f"task {self.task_id!r}: max_records={max_records}; expected 1 or more")
        self.topics = topics
        self.group_id = group_id
        self.table = table
        self.mode = mode
        self.key = key
        self.create = create
        self.delete_tombstones = delete_tombstones
        self.python_callable = python_callable
        self.op_kwargs = dict(op_kwargs or {})
        self.max_records = max_records
        self.postgres_conn_id = postgres_conn_id
        self.conn_id = conn_id
        self.given = given_in(self)

    def execute(self, context: Context) -> dict[str, Any]:
        """Write what is new, batch by batch."""
        take_rendered(
            self,
            topics=texts,
            group_id=text,
            table=or_none(text),
            mode=text,
            key=or_none(texts),
            postgres_conn_id=text,
            conn_id=text,
        )
        from txn_engine.postgres import consume_into

        write = self._write(context)
        with (
            ended_by_a_kill(self.task_id),
            open_engine(self.conn_id) as engine,
            open_postgres(self.postgres_conn_id) as connection,
            engine.consumer({"group.id": self.group_id, "auto.offset.reset": "earliest"}) as consumer,
        ):
            consumer.subscribe([self.topics] if isinstance(self.topics, str) else list(self.topics))
            done = consume_into(connection, consumer, write, max_records=self.max_records)
        return self._returned(done)

    def _write(self, context: Context) -> Write:
        from txn_engine.postgres import append_to, insert_into, upsert_into

        function = self.python_callable
        if function is not None:

            def write(connection: psycopg.Connection[Any], records: pa.Table) -> object:
                given = (connection, records)
                return function(*given, **determine_kwargs(function, given, {**context, **self.op_kwargs}))

            return write
        table = str(self.table)
        if self.mode not in get_args(WriteMode):
            raise TaskError(
                f"mode: {self.mode!r:.40}; expected one of {get_args(WriteMode)}",
                reason=TaskReason.BAD_ARGUMENT,
                subject="mode",
            )
        if (self.mode == "upsert") != (self.key is not None) or (
            self.delete_tombstones and self.mode != "upsert"
        ):
            raise TaskError(
                f"mode={self.mode!r}, key={self.key!r:.80}; expected a key for upsert, and only there;"
                " delete_tombstones is for upsert too",
                reason=TaskReason.BAD_ARGUMENT,
                subject="key",
            )
        if self.key is not None:
            key = [self.key] if isinstance(self.key, str) else list(self.key)
            return upsert_into(table, key, create=self.create, delete_tombstones=self.delete_tombstones)
        make = insert_into if self.mode == "insert" else append_to
        return make(table, create=self.create)

    def _returned(self, done: Consumed) -> dict[str, Any]:
        self.log.info(
            "%d records of %s for group %r written in %d transactions",
            done.records, self.topics, self.group_id, done.batches,
        )  # fmt: skip
        return {
            "group_id": self.group_id,
            "records": done.records,
            "batches": done.batches,
            "positions": {str(tp): offset for tp, offset in done.positions.items()},
        }
