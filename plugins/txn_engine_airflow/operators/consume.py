"""`TxnConsumeOperator`: a task that hands a group's new records to a function, and commits what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.bases.decorator import determine_kwargs

from txn_engine_airflow.assets import TopicUpdate
from txn_engine_airflow.connection import DEFAULT_CONN_ID
from txn_engine_airflow.hook import open_engine
from txn_engine_airflow.operators.identity import checked_transactional_id, identity_of
from txn_engine_airflow.operators.killing import Killable, ended_by_a_kill
from txn_engine_airflow.operators.rendered import given_in, or_none, take_rendered, text, texts
from txn_engine_airflow.operators.transactions import (
    answered,
    emit,
    end_offsets,
    fenced_means_retry,
    landed,
    may_have_loaded_before,
    parts_of,
    timeout_ms_of,
    transaction,
    with_outlets,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from txn_engine import Engine, OffsetAndMetadata, RecordMetadata, TopicPartition
    from txn_engine.consumer import Consumer
    from txn_engine.producer import Producer

    Positions = Mapping[TopicPartition, OffsetAndMetadata]


class TxnConsumeOperator(Killable, BaseOperator):
    """Hands a group's new committed records, at most `max_records` at a time, to `python_callable(table, **op_kwargs)`.

    The run reads up to the last stable offsets as they are when it starts. The table has the topic's columns and
    `_partition`, `_offset`, `_timestamp` (and `_topic` for several topics); the function may ask for entries of the
    context by their names.

    With `output_topic` exactly once: what the function returns (as `TxnProduceOperator`'s may) and the group's new
    position are one transaction for each batch, of the id `<dag>/<task>[/<map index>]` unless `transactional_id` says
    another. A try that dies in between leaves nothing to be seen, and the next goes on from the last whole batch; of
    two that overlap one is refused. Without `output_topic` at least once: the position is committed after the function
    has returned, so a try that dies in between has it called again with the same records.

    Returns how many records came and went, and from where to where; new output sends an event of its topic's asset. So
    does a retry, whatever it found: the try before may have died before it could.
    """

    template_fields: Sequence[str] = (
        "topics",
        "group_id",
        "output_topic",
        "op_kwargs",
        "transactional_id",
        "conn_id",
    )
    template_fields_renderers = {"op_kwargs": "py"}  # noqa: RUF012 -- Airflow's own form
    ui_color = "#e4ecf3"

    def __init__(
        self,
        *,
        topics: str | Sequence[str],
        group_id: str,
        python_callable: Callable[..., Any],
        op_kwargs: Mapping[str, Any] | None = None,
        output_topic: str | None = None,
        max_records: int = 100_000,
        transactional_id: str | None = None,
        transaction_timeout_s: int | None = None,
        conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        kwargs["outlets"] = with_outlets(kwargs.get("outlets"), output_topic, conn_id)
        kwargs.setdefault("max_active_tis_per_dag", 1)
        super().__init__(**kwargs)
        if max_records < 1:
            raise ValueError(f"task {self.task_id!r}: max_records={max_records}; expected 1 or more")
        if transaction_timeout_s is not None and transaction_timeout_s < 1:
            raise ValueError(
                f"task {self.task_id!r}: transaction_timeout_s={transaction_timeout_s}; expected 1 or more"
            )
        self.topics = topics
        self.group_id = group_id
        self.python_callable = python_callable
        self.op_kwargs = dict(op_kwargs or {})
        self.output_topic = output_topic
        self.max_records = max_records
        self.transactional_id = transactional_id
        self.transaction_timeout_s = transaction_timeout_s
        self.conn_id = conn_id
        self.given = given_in(self)

    def execute(self, context: Context) -> dict[str, Any]:
        """Read what is new, batch by batch."""
        take_rendered(
            self,
            topics=texts,
            group_id=text,
            output_topic=or_none(text),
            transactional_id=or_none(checked_transactional_id),
            conn_id=text,
        )
        with (
            ended_by_a_kill(self.task_id),
            open_engine(self.conn_id) as engine,
            fenced_means_retry(),
            ExitStack() as stack,
        ):
            consumer = stack.enter_context(engine.consumer(group_id=self.group_id))
            consumer.subscribe([self.topics] if isinstance(self.topics, str) else list(self.topics))
            producer = None
            if self.output_topic is not None:
                engine.logs.topics.look_up(self.output_topic)  # a wrong name fences nobody
                producer = stack.enter_context(self._producer(engine, context))
                producer.init_transactions()  # ends what an earlier try left pending, before the position is asked for
            start = consumer.positions()
            records, sent = self._consume(consumer, producer, context)
            return self._returned(engine, context, start, consumer.positions(), records, sent)

    def _producer(self, engine: Engine, context: Context) -> Producer:
        name = self.transactional_id or identity_of(context).transactional_id
        timeout_ms = timeout_ms_of(engine, self.transaction_timeout_s)
        return engine.producer(transactional_id=name, transaction_timeout_ms=timeout_ms)

    def _consume(
        self, consumer: Consumer, producer: Producer | None, context: Context
    ) -> tuple[int, list[Future[list[RecordMetadata]]]]:
        ends = consumer.end_offsets(consumer.assignment())
        committed = consumer.positions()
        records, sent = 0, []
        while any(at.offset < ends.get(tp, 0) for tp, at in consumer.positions().items()):
            table = consumer.poll(self.max_records)
            if table is None:
                break  # markers and aborted transactions only: the position is past them now
            records += table.num_rows
            sent += self._process(table, consumer, producer, context)
            committed = consumer.positions()
        if consumer.positions() != committed:
            _move_group(consumer, producer)
        return records, sent

    def _process(
        self, table: pa.Table, consumer: Consumer, producer: Producer | None, context: Context
    ) -> list[Future[list[RecordMetadata]]]:
        function = self.python_callable
        output = function(table, **determine_kwargs(function, (table,), {**context, **self.op_kwargs}))
        if producer is None or self.output_topic is None:
            consumer.commit()
            return []
        uploads = producer.upload()
        for part in parts_of(output, task=self.task_id):
            uploads.produce(self.output_topic, part)
        uploads.wait()
        with transaction(producer):
            producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
            return list(uploads.send().values())

    def _returned(
        self,
        engine: Engine,
        context: Context,
        start: Positions,
        end: Positions,
        records: int,
        sent: Sequence[Future[list[RecordMetadata]]],
    ) -> dict[str, Any]:
        written, offsets = landed(answered(sent))
        self.log.info(
            "%d records of %s for group %r, %d written", records, self.topics, self.group_id, written
        )
        told: dict[str, Any] = {
            "group_id": self.group_id,
            "records": records,
            "start": _by_partition(start),
            "end": _by_partition(end),
        }
        if self.output_topic is None:
            return told
        update = TopicUpdate(
            topic=self.output_topic,
            records=written,
            offsets=offsets,
            end_offsets=end_offsets(engine, self.output_topic),
            run_id=identity_of(context).run_id,
        )
        if written or may_have_loaded_before(context):
            emit(context, self.conn_id, update)
        return told | {"output": dict(update)}


def _move_group(consumer: Consumer, producer: Producer | None) -> None:
    """Commit the position behind what is no record."""
    if producer is None:
        consumer.commit()
        return
    with transaction(producer):
        producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())


def _by_partition(positions: Positions) -> dict[str, int]:
    return {str(tp): at.offset for tp, at in sorted(positions.items())}
