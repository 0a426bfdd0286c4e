"""A transaction of a task: its commit asked for until it is answered, its earlier tries, and what Airflow is told."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import AssetAlias
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from txn_engine_airflow.assets import COORDINATOR_TOPIC, TopicUpdate, topic_alias, topic_asset
from txn_engine_airflow.connection import StoreConnection
from txn_engine_airflow.progress import by_name, stable_end

if TYPE_CHECKING:
    import pyarrow as pa
    from airflow.sdk import Context
    from pydantic import JsonValue

    from txn_engine import Engine, RecordMetadata
    from txn_engine.producer import Producer

log = logging.getLogger(__name__)

COMMIT_TRIES, COMMIT_PAUSE_MS = 5, 1_000
_MEMORY = "txn_engine_before_first_try"


@contextmanager
def transaction(producer: Producer, run_id: str | None = None) -> Iterator[None]:
    """Begin; commit when the block ends, abort when it raises.

    A commit without an answer is asked for again, and then answered from the log. One that stays without one leaves the
    next try to learn what became of it.
    """
    from txn_engine.errors import TxnEngineError

    producer.begin_transaction(run_id)
    try:
        yield
        _commit(producer)
    except BaseException:
        with suppress(TxnEngineError):  # then the time-out sweep, or the next try, ends it
            producer.abort_transaction()
        raise


def _commit(producer: Producer) -> None:
    from txn_engine.clock import pause_ms
    from txn_engine.errors import OutcomeUnknownError, RequestTimedOutError, StoreUnavailableError

    for left in reversed(range(COMMIT_TRIES)):
        try:
            producer.commit_transaction()
        except (OutcomeUnknownError, StoreUnavailableError, RequestTimedOutError) as error:
            if not left:
                raise
            log.warning("the commit has no answer yet, it is asked for again: %s", error)
            pause_ms(COMMIT_PAUSE_MS)
        else:
            return


@contextmanager
def fenced_means_retry() -> Iterator[None]:
    """Let a fenced try be retried: who fenced it may be another run of the task, which does not load for this one.

    Where it was the next try of the same one, this try does not count any more, whatever it says.
    """
    from txn_engine.errors import ProducerFencedError

    try:
        yield
    except ProducerFencedError as error:
        who = f"{error.actor}: " if error.actor else ""
        raise AirflowException(
            f"{who}another try or run of this task has taken over its transactional id, so this one was not committed;"
            " the retry does what is missing; for runs side by side set max_active_tis_per_dag=1 or ids of their own"
            f" [{error.code}]"
        ) from None


def has_committed_before(producer: Producer, run_id: str, context: Context) -> bool:
    """Whether an earlier try of this task has committed this run; for a producer that was initialised.

    The coordinator's log knows the last 100 runs of an id. For an older one the task's own memory in Airflow
    (`task_state_store`) helps: before its first transaction a task notes the newest run of its id; as long as the log
    still has that one, it would have anything that came later. Raises `AirflowFailException` where neither can tell.
    """
    from airflow.sdk.execution_time.context import NEVER_EXPIRE

    known = producer.has_committed(run_id)
    if known:
        return True
    memory = context["task_state_store"]
    noted = memory.get(_MEMORY)
    if not isinstance(noted, dict) or noted.get("transactional_id") != producer.transactional_id:
        newest = producer.last_committed_run_id or ""
        note: dict[str, JsonValue] = {
            "transactional_id": producer.transactional_id,
            "newest_run_id": newest,
        }
        memory.set(_MEMORY, note, retention=NEVER_EXPIRE)
        return False  # no earlier try has come so far as to begin a transaction
    newest = str(noted["newest_run_id"])
    if known is None and not producer.has_committed(newest):
        raise AirflowFailException(
            f"transactional id {producer.transactional_id!r}, run {run_id!r}: an earlier try may have committed it, and"
            " more than 100 runs have followed, so nobody can tell; expected a run that is not so old; look whether"
            " its records are there, then mark the task as success, or load them under a transactional_id of their own"
        )
    return False


def parts_of(records: Any, *, task: str) -> Iterable[pa.Table | pa.RecordBatch | pa.RecordBatchReader]:
    """What a callable gave, in what `produce` takes. Raises `AirflowFailException` for anything else."""
    import pyarrow as pa

    if records is None:
        return ()
    if isinstance(records, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return (records,)
    if isinstance(records, Iterable) and not isinstance(records, str | bytes | Mapping):
        return records
    raise AirflowFailException(
        f"{task}: the callable gave {type(records).__name__}; expected a pyarrow Table, RecordBatch or"
        " RecordBatchReader, an iterable of them, or None"
    )


def landed(sent: Sequence[Future[list[RecordMetadata]]]) -> tuple[int, dict[str, list[int]]]:
    """How many records, and the first and last offset by partition, of batches that are committed."""
    records = 0
    offsets: dict[int, list[int]] = {}
    for future in sent:
        for batch in future.result():
            records += batch.last_offset - batch.base_offset + 1
            first, last = offsets.get(batch.partition, (batch.base_offset, batch.last_offset))
            offsets[batch.partition] = [min(first, batch.base_offset), max(last, batch.last_offset)]
    return records, {str(partition): offsets[partition] for partition in sorted(offsets)}


def with_outlets(
    given: Iterable[Any] | None, topic: str | None, conn_id: str, *, is_deferred: bool = False
) -> list[Any]:
    """A task's outlets, and the aliases that its events go to: the topic's, and for deferred markers the coordinator's.

    A topic or connection that is a template only the run knows: such a task is given its outlets.
    """
    outlets = list(given or ())
    if topic is not None and "{{" not in topic + conn_id:
        topics = [topic, COORDINATOR_TOPIC] if is_deferred else [topic]
        outlets += [alias for name in topics if (alias := topic_alias(name, conn_id)) not in outlets]
    return outlets


def emit(context: Context, conn_id: str, update: TopicUpdate) -> None:
    """Tell of a topic's new records through every alias among the task's outlets but the coordinator's."""
    store = StoreConnection.load(conn_id)
    coordinator = topic_alias(COORDINATOR_TOPIC, conn_id)
    for outlet in context["outlets"]:
        if outlet == coordinator:
            context["outlet_events"][outlet].add(topic_asset(COORDINATOR_TOPIC, store), {})
        elif isinstance(outlet, AssetAlias):
            extra = cast("dict[str, JsonValue]", update)
            context["outlet_events"][outlet].add(topic_asset(update["topic"], store), extra)


def end_offsets(engine: Engine, topic: str) -> dict[str, int]:
    """Up to where read_committed readers may go now."""
    return by_name(stable_end(engine, topic).offsets or {})
