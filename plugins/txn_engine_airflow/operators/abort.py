"""`TxnAbortOperator`: a task that aborts a transaction which somebody left open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, Context

from txn_engine_airflow.connection import DEFAULT_CONN_ID
from txn_engine_airflow.errors import TaskError, TaskReason
from txn_engine_airflow.hook import open_engine
from txn_engine_airflow.operators.identity import checked_transactional_id
from txn_engine_airflow.operators.rendered import given_in, or_none, take_rendered, text
from txn_engine_airflow.progress import open_transaction

if TYPE_CHECKING:
    from txn_engine import Engine


class TxnAbortOperator(BaseOperator):
    """Aborts what `transactional_id` has open, whatever its age, and fences its producer; or the hanging transaction
    that is open in `topic`, `partition` from `start_offset`, which no coordinator row knows.

    A producer that is alive and at work is fenced as well: its next call fails. Running it again is harmless: where
    nothing is open, nothing is done. A transaction that was decided to commit is not aborted, and the task fails; one
    that has an owner is not taken for a hanging one. Returns whether something was aborted (KIP-664).
    """

    template_fields: Sequence[str] = ("transactional_id", "topic", "partition", "start_offset", "conn_id")
    ui_color = "#f6e5e2"

    def __init__(
        self,
        *,
        transactional_id: str | None = None,
        topic: str | None = None,
        partition: int | str | None = None,
        start_offset: int | str | None = None,
        conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        place = (topic, partition, start_offset)
        is_hanging = all(part is not None for part in place)
        if (transactional_id is None) != is_hanging or not (is_hanging or place == (None, None, None)):
            raise ValueError(
                f"task {self.task_id!r}: expected either transactional_id, or topic, partition and start_offset"
            )
        self.transactional_id = transactional_id
        self.topic = topic
        self.partition = partition
        self.start_offset = start_offset
        self.conn_id = conn_id
        self.given = given_in(self)

    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002 -- Airflow's signature
        """Abort it, if it is open."""
        take_rendered(
            self, transactional_id=or_none(checked_transactional_id), topic=or_none(text), conn_id=text
        )
        with open_engine(self.conn_id) as engine:
            if self.transactional_id is not None:
                name = self.transactional_id
                what = f"transactional id {name!r}"
                aborted = self._abort(engine, name)
            else:
                topic = str(self.topic)
                partition = _number("partition", self.partition)
                start = _number("start_offset", self.start_offset)
                what = f"{topic}-{partition} from offset {start}"
                aborted = self._abort_hanging(engine, topic, partition, start)
        self.log.info("%s: %s", what, "aborted" if aborted else "nothing was open, nothing done")
        return {"what": what, "aborted": aborted}

    def _abort(self, engine: Engine, transactional_id: str) -> bool:
        found = open_transaction(engine, transactional_id)
        if found is None:
            return False
        if found.state != "PrepareCommit":
            engine.admin.fence_producers([transactional_id])
        identity = (found.producer_id, found.producer_epoch)
        if engine.coordinator.was_committed(transactional_id, *identity):
            raise TaskError(
                f"{transactional_id!r}: its transaction was decided to commit and cannot be aborted; "
                "expected one that is Ongoing; `txn_write_markers` completes it",
                reason=TaskReason.DECIDED_TO_COMMIT,
                subject=transactional_id,
            )
        return True

    def _abort_hanging(self, engine: Engine, topic: str, partition: int, start: int) -> bool:
        producers = engine.admin.describe_producers(topic, partition)
        if start not in {producer.current_transaction_start_offset for producer in producers}:
            return False
        engine.admin.abort_transaction(topic, partition, start)
        return True


def _number(field: str, value: object) -> int:
    """A partition or an offset, as it was rendered: never a guess, for what stands there is aborted."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdecimal():
        return int(value)
    raise TaskError(
        f"{field}: {value!r}; expected a whole number, 0 or more; nothing was aborted",
        reason=TaskReason.BAD_ARGUMENT,
        subject=field,
    )
