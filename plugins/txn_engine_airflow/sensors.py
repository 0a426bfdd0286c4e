"""Sensors: tasks that wait for something in a store, deferred to the triggerer, so that no worker waits.

What is waited for is fixed when the sensor starts, by the offsets or the transaction that it finds there, and goes with
it to the triggerer: a wait ends however much is written meanwhile, and no restart forgets what it was for.
`poke_interval` is the pause between two looks, 1 to 3600 seconds; `timeout` (0: only look) is that of every sensor.
With `soft_fail` a wait that ran out of time is skipped; an error fails the task all the same.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from airflow.sdk import BaseOperator, BaseSensorOperator, Context
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    TaskDeferralTimeout,
)

from txn_engine_airflow.connection import DEFAULT_CONN_ID
from txn_engine_airflow.errors import TaskError, TaskReason
from txn_engine_airflow.hook import open_engine
from txn_engine_airflow.operators.identity import checked_transactional_id
from txn_engine_airflow.operators.rendered import (
    Kind,
    given_in,
    offsets,
    or_none,
    refused,
    take_rendered,
    text,
)
from txn_engine_airflow.progress import (
    Position,
    group_position,
    open_transaction,
    stable_end,
    transaction_state,
)
from txn_engine_airflow.triggers import (
    DEFAULT_POLL_INTERVAL_S,
    GroupCaughtUpTrigger,
    NewRecordsTrigger,
    StoreTrigger,
    TransactionFinalTrigger,
    checked_poll_interval,
)

if TYPE_CHECKING:
    from txn_engine import Engine


class NotGiven(Enum):
    """An argument that nobody gave. A template or a mapped list may well give None, which is another thing."""

    NOT_GIVEN = "not given"

    def __repr__(self) -> str:
        return self.value


class StoreSensor(BaseSensorOperator):
    """Looks once, and defers where it has to wait. Needs a triggerer."""

    def __init__(
        self,
        *,
        conn_id: str = DEFAULT_CONN_ID,
        poke_interval: timedelta | float = DEFAULT_POLL_INTERVAL_S,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        if self.never_fail:
            raise ValueError(
                f"task {self.task_id!r}: never_fail; expected soft_fail, or an error that is seen"
            )
        self._refuse_without_effect()
        self.mode, self.exponential_backoff, self.silent_fail = "poke", False, False
        checked_poll_interval(self.poke_interval)
        self.conn_id = conn_id

    def _refuse_without_effect(self) -> None:
        """Refuse what somebody asked of this sensor in vain. What a DAG or a group asks of all its tasks may stand."""
        asked = {
            "mode": self.mode != "poke",
            "exponential_backoff": bool(self.exponential_backoff),
            "silent_fail": bool(self.silent_fail),
        }
        groups = [group for group in (self.get_dag(), self.task_group) if group is not None]
        of_all = {name for group in groups for name in group.default_args}
        if given := [name for name, is_asked in asked.items() if is_asked and name not in of_all]:
            raise ValueError(
                f"task {self.task_id!r}: {given[0]} has no effect here; expected neither mode, exponential_backoff nor "
                "silent_fail: the sensor is deferred, and looks every poke_interval"
            )

    rendered: ClassVar[Mapping[str, Kind]]
    """The arguments that may be templates, besides `conn_id`."""

    @abstractmethod
    def wait_for(self, engine: Engine) -> StoreTrigger:
        """The trigger that waits for what is there now. Raises `AirflowFailException` for what will never be."""

    def execute(self, context: Context) -> Any:  # noqa: ARG002 -- Airflow's signature
        """The answer at once, or later by `execute_complete`."""
        take_rendered(self, conn_id=text, **self.rendered)
        with open_engine(self.conn_id) as engine:
            trigger = self.wait_for(engine)
            answer = trigger.look(engine)
        if answer is None:
            self._defer(trigger)
        self.log.info("found: %s", answer)
        return answer

    def _defer(self, trigger: StoreTrigger) -> NoReturn:
        if self.timeout <= 0:
            raise self._out_of_time(f"it is not there, and the run does not wait: {trigger.arguments()}")
        self.log.info("waiting, with a look every %g seconds: %s", self.poke_interval, trigger.arguments())
        self.defer(trigger=trigger, method_name="execute_complete", timeout=self._longest)

    @property
    def _longest(self) -> timedelta:
        """How long it waits: Airflow ends a deferred task by this alone, and not by its execution_timeout."""
        own = timedelta(seconds=self.timeout)
        return own if self.execution_timeout is None else min(own, self.execution_timeout)

    def _out_of_time(self, what: str) -> AirflowException:
        return AirflowSkipException(what) if self.soft_fail else AirflowSensorTimeout(what)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Go on after the wait. Airflow's own sensors skip whatever went wrong; here only time that ran out is that."""
        try:
            return BaseOperator.resume_execution(self, next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            if self._longest < timedelta(seconds=self.timeout):  # which no soft_fail makes a skip
                raise AirflowTaskTimeout(
                    f"execution_timeout: not there after {self.execution_timeout}"
                ) from None
            raise self._out_of_time(f"not there after {self.timeout:g} seconds") from None

    def execute_complete(
        self,
        context: Context,  # noqa: ARG002 -- Airflow's signature
        event: Mapping[str, Any],
    ) -> Any:
        """What the trigger found, or its error."""
        if "error" in event:
            kind = AirflowFailException if event["hopeless"] else AirflowException
            raise kind(event["error"])
        self.log.info("found: %s", event["done"])
        return event["done"]

    @property
    def _settings(self) -> dict[str, Any]:
        return {"conn_id": self.conn_id, "poll_interval_s": self.poke_interval}


def _of_partitions(end: Position, name: str, given: Any) -> Position:
    """A position of the topic whose end this is. Raises `TaskError` for a partition that it does not have."""
    partitions = end.offsets or {}
    if unknown := sorted(set(given) - set(partitions)):
        raise refused(name, given, f"partitions of 0 to {len(partitions) - 1}, and not {unknown[0]}")
    return Position(end.incarnation, given)


class NewRecordsSensor(StoreSensor):
    """Waits until a topic has committed records that are new, at least `records_min` of them.

    New is: behind the position of `group_id`; or behind `start_offsets`, by partition, such as an event's
    `end_offsets`; else behind the last stable offset as it is when the sensor starts (so a retry waits for what is new
    then). Returns a `TopicUpdate`: from where to where, and how many. Records of open and of aborted transactions never
    count.
    """

    template_fields: Sequence[str] = ("topic", "group_id", "start_offsets", "conn_id")
    rendered: ClassVar[Mapping[str, Kind]] = {
        "topic": text,
        "group_id": or_none(text),
        "start_offsets": or_none(offsets),
    }

    def __init__(
        self,
        *,
        topic: str,
        group_id: str | None = None,
        start_offsets: Mapping[str, int] | str | None = None,
        records_min: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if group_id is not None and start_offsets is not None:
            raise ValueError("group_id and start_offsets; expected one of them, or neither")
        if records_min < 1:
            raise ValueError(f"records_min={records_min}; expected 1 or more")
        self.topic = topic
        self.group_id = group_id
        self.start_offsets = start_offsets
        self.records_min = records_min
        self.given = given_in(self)

    def wait_for(self, engine: Engine) -> StoreTrigger:
        """For records behind where the group, the offsets or the log's end are."""
        if self.group_id is not None:
            since = group_position(engine, self.topic, self.group_id)
        elif self.start_offsets is not None:
            found = _of_partitions(stable_end(engine, self.topic), "start_offsets", self.start_offsets)
            since = Position(-1, found.offsets)
        else:
            since = stable_end(engine, self.topic)
        return NewRecordsTrigger(
            topic=self.topic, since=since.to_json(), records_min=self.records_min, **self._settings
        )


class GroupCaughtUpSensor(StoreSensor):
    """Waits until a group has committed past every record that is committed when the sensor starts.

    That is the last stable offset of then, or `end_offsets`, by partition, such as an event's. Offsets that are pending
    in a transaction do not count; the gaps that markers and aborted transactions leave need not be passed.
    """

    template_fields: Sequence[str] = ("topic", "group_id", "end_offsets", "conn_id")
    rendered: ClassVar[Mapping[str, Kind]] = {
        "topic": text,
        "group_id": text,
        "end_offsets": or_none(offsets),
    }

    def __init__(
        self, *, topic: str, group_id: str, end_offsets: Mapping[str, int] | str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.topic = topic
        self.group_id = group_id
        self.end_offsets = end_offsets
        self.given = given_in(self)

    def wait_for(self, engine: Engine) -> StoreTrigger:
        """For the group to be at the end as it is now."""
        end = stable_end(engine, self.topic)
        if self.end_offsets is not None:
            end = _of_partitions(end, "end_offsets", self.end_offsets)
        return GroupCaughtUpTrigger(
            topic=self.topic, group_id=self.group_id, until=end.to_json(), **self._settings
        )


class TransactionFinalSensor(StoreSensor):
    """Waits until the transaction that an id has open now, or decided, is complete: committed or aborted, its markers
    written, readers past it.

    With `run_id`, as `TxnProduceOperator` returns it (`ti.xcom_pull("load")["run_id"]`), until that run's transaction
    is committed and readers see it; one that has not begun is waited for, and one that was aborted until it is
    committed by a later try. "" is the run of a load of nothing: there is nothing to wait for. Returns the id and the
    state of its latest row. An id that nobody ever used fails at once, unless there is a `run_id`. A `run_id` of None
    fails too: the load that it comes from did not happen.
    """

    template_fields: Sequence[str] = ("transactional_id", "run_id", "conn_id")
    rendered: ClassVar[Mapping[str, Kind]] = {"transactional_id": checked_transactional_id}

    def __init__(
        self, *, transactional_id: str, run_id: str | NotGiven = NotGiven.NOT_GIVEN, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.transactional_id = transactional_id
        self._asks_for_run = not isinstance(run_id, NotGiven)
        self.run_id = None if isinstance(run_id, NotGiven) else run_id
        self.given = given_in(self)

    def wait_for(self, engine: Engine) -> StoreTrigger:
        """For the transaction that is under way now, or for the run's. Raises `AirflowFailException` where the run's
        template found none: the load before it did not happen.
        """
        if self._asks_for_run and (not isinstance(self.run_id, str) or self.run_id.strip() == "None"):
            raise TaskError(
                f"run_id {self.run_id!r:.80}; expected that of a load, as its task returned it: did it run?",
                reason=TaskReason.BAD_ARGUMENT,
                subject="run_id",
            )
        found = open_transaction(engine, self.transactional_id)
        if not self._asks_for_run and transaction_state(engine, self.transactional_id) is None:
            raise TaskError(
                f"transactional id {self.transactional_id!r} is not known at {engine.url}; expected one that was used: "
                "`txn-engine transactions list` shows them",
                reason=TaskReason.UNKNOWN_TRANSACTIONAL_ID,
                subject=self.transactional_id,
            )
        return TransactionFinalTrigger(
            transactional_id=self.transactional_id,
            producer_id=found.producer_id if found else -1,
            producer_epoch=found.producer_epoch if found else -1,
            run_id=self.run_id,
            **self._settings,
        )
