"""`PostgresToTxnOperator`: a task that loads a query of Postgres, or an outbox there, into a topic, each row once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, Context

from txn_engine_airflow.assets import TopicUpdate
from txn_engine_airflow.connection import DEFAULT_CONN_ID
from txn_engine_airflow.errors import TaskError, TaskReason
from txn_engine_airflow.hook import open_engine
from txn_engine_airflow.operators.arguments import hidden, shown
from txn_engine_airflow.operators.identity import checked_identity, checked_transactional_id, identity_of
from txn_engine_airflow.operators.killing import Killable, ended_by_a_kill
from txn_engine_airflow.operators.rendered import anything, given_in, or_none, take_rendered, text
from txn_engine_airflow.operators.transactions import (
    ForgottenRuns,
    answered,
    check_forgotten_runs,
    commit_run,
    emit,
    end_offsets,
    fenced_means_retry,
    has_committed_before,
    may_have_loaded_before,
    timeout_ms_of,
    told_load,
    with_outlets,
)
from txn_engine_airflow.postgres import POSTGRES_CONN_ID, open_postgres

if TYPE_CHECKING:
    import psycopg

    from txn_engine import Engine
    from txn_engine.databases.loading import KeyRange, RowLoad
    from txn_engine.log.topics import Topic
    from txn_engine.producer import Producer


class PostgresToTxnOperator(Killable, BaseOperator):
    """Loads rows of a Postgres database into a topic: those of a query, or of an outbox table; each once.

    `sql`: a query with the topic's columns by their names (a file, where it ends in `.sql`), in one transaction of the
    topic and one snapshot of the database. `parameters` are for its `%s` or `%(name)s`. With `interval_column`, one of
    the query's, a run takes the rows of its data interval, from its start, inclusive, to its end, exclusive: that needs
    a DAG whose runs have intervals (`CronDataIntervalTimetable`, `DeltaDataIntervalTimetable`). A range does not say
    that no other row of it commits later: where rows come late, use an outbox.

    Of the query a run is loaded once, as `TxnProduceOperator` loads: under the id `<dag>/<task>[/<part>]`, as the run
    `<dag>/<task>[/<part>]@<logical date>`, so that a retry, a cleared task and a backfill load nothing twice, and
    mapped tasks do not fence one another. With `interval_column` the run is `@<start>/<end>` of its interval, so a
    manual run in the interval of another one loads nothing. A part is known by those of topic, query, parameters,
    `interval_column`, dead letter topic and `postgres_conn_id` that the parts do not share. `identity`,
    `forgotten_runs`, and a run that was committed with another query, parameters or topic: as there. A query without
    rows commits nothing, so its run may be cleared to load what came.

    `outbox`: a table that applications insert into, `[schema.]table`, with the topic's columns, and a text column
    `run_column` for claims (`ALTER TABLE outbox ADD COLUMN txn_engine_run text`, with an index). A run loads what is
    there, `batch_rows` at a time, in the order of `order_by`; rows that are loaded are deleted, or get the time in
    `mark_column`. Its transactional id is `load-outbox/<database>/<schema>/<table>` unless told, whatever the task: who
    drains it takes over what a dead one has claimed. Batches of other ids are told in `claimed_by_others`.

    With a `dead_letter_topic` rows with a value that does not fit go there, in the same transaction: records and dead
    letters are all rows. Above `max_dead_letters` (a count, or a share as "1%", of a run, or of a batch of an outbox)
    the task fails, and nothing of the run, or the batch, is loaded. How many there were is in the XCom `dead_letters`.

    `postgres_conn_id`: a connection of type `postgres`. Rows are uploaded before the transaction begins, so a query may
    take as long as it needs. `transaction_timeout_s`: how long the transaction, which only names what was uploaded, may
    be open before the sweep aborts it; 5 minutes unless given, and at most the store's limit. Returns, and sends as the
    event of the topic's asset, where the records went: `TopicUpdate`; of an outbox a retry sends it without records
    too, for the try before may have loaded some and died.
    `max_active_tis_per_dag` is 1 unless told.
    """

    template_fields: Sequence[str] = (
        "topic",
        "sql",
        "outbox",
        "parameters",
        "interval_column",
        "dead_letter_topic",
        "max_dead_letters",
        "transactional_id",
        "forgotten_runs",
        "postgres_conn_id",
        "conn_id",
    )
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers = {"sql": "sql", "parameters": "json"}  # noqa: RUF012 -- Airflow's own form
    ui_color = "#e4f3ea"

    def __init__(
        self,
        *,
        topic: str,
        sql: str | None = None,
        outbox: str | None = None,
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
        interval_column: str | None = None,
        order_by: str = "id",
        run_column: str = "txn_engine_run",
        mark_column: str | None = None,
        batch_rows: int = 10_000,
        dead_letter_topic: str | None = None,
        max_dead_letters: int | str | None = None,
        transactional_id: str | None = None,
        identity: str | None = None,
        transaction_timeout_s: int | None = None,
        forgotten_runs: ForgottenRuns = "refuse",
        postgres_conn_id: str = POSTGRES_CONN_ID,
        conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        kwargs["outlets"] = with_outlets(kwargs.get("outlets"), topic, conn_id)
        kwargs.setdefault("max_active_tis_per_dag", 1)
        super().__init__(**kwargs)
        if (sql is None) == (outbox is None):
            raise ValueError(f"task {self.task_id!r}: expected either sql or outbox")
        if outbox is not None and (parameters is not None or interval_column is not None):
            raise ValueError(f"task {self.task_id!r}: parameters and interval_column are for sql")
        if sql is not None and mark_column is not None:
            raise ValueError(f"task {self.task_id!r}: mark_column is for an outbox")
        if dead_letter_topic is None and max_dead_letters is not None:
            raise ValueError(f"task {self.task_id!r}: max_dead_letters without a dead_letter_topic")
        if min(batch_rows, 1 if transaction_timeout_s is None else transaction_timeout_s) < 1:
            raise ValueError(
                f"task {self.task_id!r}: batch_rows={batch_rows}, transaction_timeout_s={transaction_timeout_s};"
                " expected 1 or more"
            )
        self.topic = topic
        self.sql = sql
        self.outbox = outbox
        self.parameters = parameters
        self.interval_column = interval_column
        self.order_by = order_by
        self.run_column = run_column
        self.mark_column = mark_column
        self.batch_rows = batch_rows
        self.dead_letter_topic = dead_letter_topic
        self.max_dead_letters = max_dead_letters
        self.transactional_id = transactional_id
        self.identity = checked_identity(identity)
        self.transaction_timeout_s = transaction_timeout_s
        self.forgotten_runs = forgotten_runs
        self.postgres_conn_id = postgres_conn_id
        self.conn_id = conn_id
        self.given = given_in(self)

    def execute(self, context: Context) -> dict[str, Any]:
        """Load what is not loaded yet."""
        take_rendered(
            self,
            topic=text,
            sql=or_none(text),
            outbox=or_none(text),
            interval_column=or_none(text),
            dead_letter_topic=or_none(text),
            max_dead_letters=anything,
            transactional_id=or_none(checked_transactional_id),
            postgres_conn_id=text,
            conn_id=text,
        )
        with (
            ended_by_a_kill(self.task_id),
            open_engine(self.conn_id) as engine,
            open_postgres(self.postgres_conn_id) as connection,
            fenced_means_retry(),
        ):
            if self.outbox is None:
                return self._load_query(engine, connection, context)
            return self._load_outbox(engine, connection, context)

    # --- a query --------------------------------------------------------------------------------------------

    def _load_query(
        self, engine: Engine, connection: psycopg.Connection[Any], context: Context
    ) -> dict[str, Any]:
        from txn_engine.producer import run_into

        key_range = self._key_range(context)
        interval = None if key_range is None else (key_range.start, key_range.end)
        identity = identity_of(context, self._own(), name=self.identity, interval=interval)
        name = self.transactional_id or identity.transactional_id
        check_forgotten_runs(self.forgotten_runs)
        topic = engine.logs.topics.look_up(self.topic)
        run_id = run_into(identity.run_id, topic)
        load = self._query(engine, connection, topic, run_id, key_range)
        with engine.producer(
            transactional_id=name, transaction_timeout_ms=timeout_ms_of(engine, self.transaction_timeout_s)
        ) as producer:
            producer.init_transactions()
            committed_before = has_committed_before(
                engine, producer, run_id, context, self._arguments(), forgotten=self.forgotten_runs
            )
            if not committed_before:
                self._commit(engine, producer, run_id, load, context)
            is_committed = producer.has_committed(run_id)
        return told_load(
            self,
            context,
            engine,
            answered(load.sent),
            transactional_id=name,
            run_id=run_id if is_committed else "",
            committed_before=committed_before,
        )

    def _query(
        self,
        engine: Engine,
        connection: psycopg.Connection[Any],
        topic: Topic,
        run_id: str,
        key_range: KeyRange | None,
    ) -> RowLoad:
        from txn_engine.databases.loading import RowLoad
        from txn_engine.loading.load import dead_letters_for
        from txn_engine.postgres.loading import source_of

        source = source_of(
            connection,
            str(self.sql),
            topic,
            parameters=self.parameters,
            key_range=key_range,
        )
        letters = dead_letters_for(
            engine,
            self.dead_letter_topic,
            self.max_dead_letters,
            topic=self.topic,
            run_id=run_id,
            is_dry=False,
        )
        return RowLoad(source, letters)

    def _commit(
        self, engine: Engine, producer: Producer, run_id: str, load: RowLoad, context: Context
    ) -> None:
        uploads = producer.upload()
        load.upload(uploads)

        def send() -> None:
            load.send(uploads)
            engine.logs.topics.check_current(load.source.topic)

        commit_run(producer, run_id, uploads, send)
        if load.dead_letters is not None:
            self._tell_dead(context, load.dead, load.dead_letters.told())

    def _key_range(self, context: Context) -> KeyRange | None:
        """The data interval."""
        from txn_engine.databases.loading import KeyRange

        if self.interval_column is None:
            return None
        start, end = (context.get(f"data_interval_{each}") for each in ("start", "end"))
        if not isinstance(start, datetime) or not isinstance(end, datetime) or not start < end:
            raise TaskError(
                f"interval_column {self.interval_column!r}: this run has no data interval; expected a timetable that"
                " gives one, as CronDataIntervalTimetable; nothing was loaded",
                reason=TaskReason.NO_DATA_INTERVAL,
                subject="interval_column",
            )
        return KeyRange(self.interval_column, start, end)

    def _own(self) -> dict[str, Any]:
        """What tells a part of a mapped task from the others."""
        return {
            "topic": self.topic,
            "sql": self.sql,
            "parameters": self.parameters,
            "interval_column": self.interval_column,
            "dead_letter_topic": self.dead_letter_topic,
            "postgres_conn_id": self.postgres_conn_id,
        }

    def _arguments(self) -> dict[str, str]:
        """What decides which rows this run loads, as it was rendered."""
        found = {"topic": shown(self.topic), "sql": hidden(self.sql)}
        given = {
            "parameters": None if self.parameters is None else hidden(self.parameters),
            "interval_column": None if self.interval_column is None else shown(self.interval_column),
            "dead_letter_topic": None if self.dead_letter_topic is None else shown(self.dead_letter_topic),
        }
        return found | {name: value for name, value in given.items() if value is not None}

    # --- an outbox ------------------------------------------------------------------------------------------

    def _load_outbox(
        self, engine: Engine, connection: psycopg.Connection[Any], context: Context
    ) -> dict[str, Any]:
        from txn_engine.postgres import load_outbox

        done = load_outbox(
            engine,
            connection,
            str(self.outbox),
            self.topic,
            order_by=self.order_by,
            run_column=self.run_column,
            mark_column=self.mark_column,
            batch_rows=self.batch_rows,
            transactional_id=self.transactional_id,
            timeout_ms=timeout_ms_of(engine, self.transaction_timeout_s),
            dead_letter_topic=self.dead_letter_topic,
            max_dead_letters=self.max_dead_letters,
        )
        self.log.info(
            "%d records of outbox %s committed to %s in %d batches; taken over: %d, of these committed before: %d",
            done.records, self.outbox, self.topic, done.batches, done.taken_over, done.finished,
        )  # fmt: skip
        if done.claimed_by_others:
            self.log.warning(
                "%d batches are claimed under other transactional ids: theirs to load", done.claimed_by_others
            )
        if self.dead_letter_topic is not None:
            self._tell_dead(context, done.dead_letters, "")
        update = TopicUpdate(
            topic=self.topic,
            records=done.records,
            offsets={str(partition): list(at) for partition, at in sorted(done.offsets.items())},
            end_offsets=end_offsets(engine, self.topic),
            committed_before=bool(done.finished),
        )
        if done.records or done.finished or may_have_loaded_before(context):
            emit(context, self.conn_id, update)
        return {**update, "batches": done.batches, "claimed_by_others": done.claimed_by_others}

    def _tell_dead(self, context: Context, count: int, told: str) -> None:
        context["ti"].xcom_push("dead_letters", count)
        self.log.info("%d dead letters to %s %s", count, self.dead_letter_topic, told)
