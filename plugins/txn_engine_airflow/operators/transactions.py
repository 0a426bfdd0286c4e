"""A transaction of a task: its commit asked for until it is answered, its earlier tries, and what Airflow is told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, get_args

from airflow.sdk import AssetAlias

from txn_engine_airflow.assets import COORDINATOR_TOPIC, RENDERED_ALIAS, TopicUpdate, topic_alias, topic_asset
from txn_engine_airflow.connection import StoreConnection
from txn_engine_airflow.errors import RetriedTaskError, TaskError, TaskReason
from txn_engine_airflow.operators.arguments import differences, is_template
from txn_engine_airflow.operators.identity import Identity, moment_of, place_of, without_incarnation
from txn_engine_airflow.progress import by_name, stable_end
from txn_engine_airflow.verification import vote_folder

if TYPE_CHECKING:
    import pyarrow as pa
    from airflow.sdk import Context
    from pydantic import JsonValue

    from txn_engine import Engine, RecordMetadata
    from txn_engine.producer import Producer, Uploads

    Sent = Sequence[Future[list[RecordMetadata]]]

log = logging.getLogger(__name__)

ForgottenRuns = Literal["refuse", "load"]

_MEMORY = "txn_engine_before_first_try"


def check_forgotten_runs(value: object) -> None:
    """Look at the argument `forgotten_runs` of a load, as it was rendered. Raises `TaskError`."""
    if value not in get_args(ForgottenRuns):
        raise TaskError(
            f"forgotten_runs: {value!r}; expected one of {get_args(ForgottenRuns)}",
            reason=TaskReason.BAD_ARGUMENT,
            subject="forgotten_runs",
        )


@contextmanager
def transaction(producer: Producer) -> Iterator[None]:
    """Begin; commit when the block ends, abort when it raises.

    A commit without an answer is asked for again, and then answered from the log. One that stays without one leaves the
    next try to learn what became of it.
    """
    from txn_engine.producer import MAX_BLOCK_MS

    with _aborted_on_error(producer):
        producer.begin_transaction()
        yield
        producer.commit_transaction(max_block_ms=MAX_BLOCK_MS)


def commit_run(producer: Producer, run_id: str, uploads: Uploads, send: Callable[[], object]) -> None:
    """Name what was uploaded (`send`), in a transaction of this run; committed as `transaction` commits.

    Where no records were uploaded nothing is committed, so the run can load later what has not come yet.
    """
    from txn_engine.producer import MAX_BLOCK_MS

    if not uploads.has_records:
        return
    with _aborted_on_error(producer):
        producer.begin_transaction(run_id)
        send()
        producer.commit_transaction(max_block_ms=MAX_BLOCK_MS)


def timeout_ms_of(engine: Engine, asked_s: int | None) -> int:
    """The time-out of a task's transaction: what its author asked for, which the store has to allow, or the default."""
    from txn_engine.producer.time_out import job_timeout_ms

    return job_timeout_ms(engine.limits, None if asked_s is None else asked_s * 1_000)


@contextmanager
def _aborted_on_error(producer: Producer) -> Iterator[None]:
    from txn_engine.errors import TxnEngineError

    try:
        yield
    except BaseException:
        with suppress(TxnEngineError):  # then the time-out sweep, or the next try, ends it
            producer.abort_transaction()
        raise


@contextmanager
def fenced_means_retry() -> Iterator[None]:
    """Let a fenced try be retried: who fenced it may be another run of the task, which does not load for this one.

    Where it was the next try of the same one, this try does not count any more, whatever it says.
    """
    from txn_engine.errors import InvalidProducerEpochError, ProducerFencedError, TxnEngineError

    try:
        yield
    except TxnEngineError as error:
        # Where a write learned of it before the commit did, the producer tells of a transaction that failed.
        if not any(
            isinstance(each, InvalidProducerEpochError | ProducerFencedError)
            for each in (error, error.__cause__)
        ):
            raise
        who = f"{error.actor}: " if error.actor else ""
        raise RetriedTaskError(
            f"{who}another try or run of this task has taken over its transactional id, so this one was not committed;"
            " the retry does what is missing; for runs side by side set max_active_tis_per_dag=1 or ids of their own"
            f" [{error.code}]",
            reason=TaskReason.TAKEN_OVER,
            subject="transactional_id",
        ) from None


def has_committed_before(
    engine: Engine,
    producer: Producer,
    run_id: str,
    context: Context,
    arguments: Mapping[str, str],
    *,
    forgotten: ForgottenRuns = "refuse",
) -> bool:
    """Whether an earlier try of this task has committed this run; for a producer that was initialised.

    The coordinator's log knows the last 100 runs of an id. For an older one the task's own memory in Airflow
    (`task_state_store`) helps: before its first transaction a task notes the newest run of its id; as long as the log
    still has that one, it would have anything that came later. Without a note (the first try; or the DAG run was
    deleted, or `[state_store] clear_on_success` is set) `_is_new` tells.

    The note also holds what the try was asked for. Raises `AirflowFailException` where the task has committed other
    `arguments` in this run, under whatever name: what is asked for now would be left out, or be loaded beside them;
    where the note is gone nothing can be compared. Raises it too where neither log nor note can tell, unless
    `forgotten` is "load": then it counts as not committed.
    """
    from airflow.sdk.execution_time.context import NEVER_EXPIRE

    from txn_engine.errors import InvalidRequestError

    known = producer.has_committed(run_id)
    memory = context["task_state_store"]
    found = memory.get(_MEMORY)
    noted = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    mine = Identity(str(producer.transactional_id), run_id)
    earlier = Identity(noted.get("transactional_id", ""), noted.get("run_id", ""))
    if known:
        _check_arguments(mine, noted if earlier == mine else {}, arguments)
        return True
    if noted and earlier != mine and _has_committed(engine, producer, earlier):
        _check_arguments(earlier, noted, arguments)
        if without_incarnation(earlier.run_id) != without_incarnation(run_id):
            raise _other_arguments(earlier, f"the run's name was {earlier.run_id!r} and is {run_id!r}")
        if earlier.run_id == run_id:
            return True  # and not where the topic was made again since
    newest = noted["newest_run_id"] if earlier == mine else None
    is_certain = known is False or bool(
        _is_new(producer, run_id, context) if newest is None else producer.has_committed(newest)
    )
    if not is_certain:
        try:
            producer.committed_before(run_id, forgotten_runs=forgotten)
        except InvalidRequestError:
            raise TaskError(
                f"transactional id {producer.transactional_id!r}, run {run_id!r}: an earlier try may have committed it,"
                " and more than 100 runs have followed, so nobody can tell; expected a run that is not so old, of a"
                " transactional id that few tasks share; look whether its records are there: if so mark the task as"
                " success, if not run it with forgotten_runs='load', which may be the template of an Airflow Variable",
                reason=TaskReason.FORGOTTEN_RUN,
                subject=run_id,
            ) from None
    note: dict[str, JsonValue] = {
        "transactional_id": mine.transactional_id,
        "run_id": run_id,
        "newest_run_id": producer.last_committed_run_id or "" if newest is None else newest,
        "arguments": dict(arguments),
    }
    memory.set(_MEMORY, note, retention=NEVER_EXPIRE)
    return False


def _has_committed(engine: Engine, producer: Producer, earlier: Identity) -> bool:
    """Whether what an earlier try of this task began under another name was committed. It ends here, also where that
    try is still alive.
    """
    if earlier.transactional_id == producer.transactional_id:
        return producer.has_committed(earlier.run_id) is not False
    with engine.producer(transactional_id=earlier.transactional_id) as its:
        its.init_transactions()
        return its.has_committed(earlier.run_id) is not False


def _is_new(producer: Producer, run_id: str, context: Context) -> bool:
    """Whether no try of a run that the log does not have, and nobody noted, can have committed.

    It is this DAG run's first try, and its date is later than the older half of what the log still has of this task:
    runs commit in the order of their dates, give or take some that go side by side. What is dated before those, as in a
    backfill of a task with more than 100 runs, is not known to be new. A DAG run's id that somebody made up without a
    time in it goes by the try alone. Whoever deletes a DAG run, and makes it again after more than 100 of other dates,
    has made Airflow and the log forget it both.
    """
    if context["ti"].try_number > 1:
        return False
    moment = moment_of(run_id)
    if moment is None:
        return True
    task = run_id.partition("@")[0]
    mine = [known for known in producer.committed_run_ids if known.partition("@")[0] == task]
    moments = [at for known in mine if (at := moment_of(known)) is not None]
    older_half = moments[: (len(moments) + 1) // 2]
    return bool(older_half) and moment > max(older_half)


def _check_arguments(identity: Identity, noted: Mapping[str, Any], arguments: Mapping[str, str]) -> None:
    changed = differences(noted["arguments"], arguments) if noted else ""
    if changed:
        raise _other_arguments(identity, changed)


def _other_arguments(identity: Identity, changed: str) -> TaskError:
    return TaskError(
        f"transactional id {identity.transactional_id!r}, run {identity.run_id!r}: this task has committed other"
        f" arguments in this run before: {changed}; expected the same whenever it runs, of a mapped task the same part"
        " at each map index; nothing was loaded now: look which records are there, then load what is missing in a DAG"
        " run of its own, and mark this task as success",
        reason=TaskReason.OTHER_ARGUMENTS,
        subject=changed,
    )


def report_folder_of(context: Context, given: str | None) -> Path:
    """Where the report of this task's checks goes: `given`, else a folder of the task's own in this run."""
    if given is not None:
        return Path(given)
    return vote_folder(
        dag_id=context["dag_run"].dag_id,
        run_id=context["dag_run"].run_id,
        task=place_of(context),
    )


def parts_of(records: Any, *, task: str) -> Iterable[pa.Table | pa.RecordBatch | pa.RecordBatchReader]:
    """What a callable gave, in what `produce` takes. Raises `AirflowFailException` for anything else."""
    import pyarrow as pa

    if records is None:
        return ()
    if isinstance(records, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return (records,)
    if isinstance(records, Iterable) and not isinstance(records, str | bytes | Mapping):
        return records
    raise TaskError(
        f"{task}: the callable gave {type(records).__name__}; expected a pyarrow Table, RecordBatch or"
        " RecordBatchReader, an iterable of them, or None",
        reason=TaskReason.BAD_OUTPUT,
        subject=task,
    )


def answered(sent: Sent) -> list[RecordMetadata]:
    """The batches of futures that are done."""
    return [batch for future in sent for batch in future.result()]


def landed(batches: Iterable[RecordMetadata]) -> tuple[int, dict[str, list[int]]]:
    """How many records, and the first and last offset by partition, of batches that are committed."""
    records = 0
    offsets: dict[int, list[int]] = {}
    for batch in batches:
        records += batch.last_offset - batch.base_offset + 1
        first, last = offsets.get(batch.partition, (batch.base_offset, batch.last_offset))
        offsets[batch.partition] = [min(first, batch.base_offset), max(last, batch.last_offset)]
    return records, {str(partition): offsets[partition] for partition in sorted(offsets)}


def with_outlets(
    given: Iterable[Any] | None, topic: str | None, conn_id: str, *, is_deferred: bool = False
) -> list[Any]:
    """A task's outlets, and the aliases that its events go to: the topic's, and for deferred markers the coordinator's.
    Where a template says the topic or the connection, that of events whose assets only the run knows.
    """
    outlets = list(given or ())
    if topic is None:
        return outlets
    for name in (topic, COORDINATOR_TOPIC) if is_deferred else (topic,):
        alias = RENDERED_ALIAS if is_template(name) or is_template(conn_id) else topic_alias(name, conn_id)
        if alias not in outlets:
            outlets.append(alias)
    return outlets


class Loader(Protocol):
    """An operator that loads a topic."""

    topic: str
    conn_id: str

    @property
    def log(self) -> Any:
        """The task's."""


def told_load(
    loader: Loader,
    context: Context,
    engine: Engine,
    batches: Iterable[RecordMetadata],
    *,
    transactional_id: str,
    run_id: str,
    committed_before: bool,
) -> dict[str, Any]:
    """What Airflow is told of a run that is committed, or that committed nothing (`run_id` ""): the task's own value,
    and through its outlets where there are new records. A run of dead letters alone is committed.
    """
    if committed_before:
        from txn_engine.producer import check_run_is_there

        topic = engine.logs.topics.look_up(loader.topic)
        check_run_is_there(engine.logs, transactional_id, run_id, topic)
    records, offsets = landed(batches)
    update = TopicUpdate(
        topic=loader.topic,
        records=records,
        offsets=offsets,
        end_offsets=end_offsets(engine, loader.topic),
        run_id=run_id,
        committed_before=committed_before,
    )
    if committed_before:
        loader.log.info(
            "run %s of %r was committed by an earlier try: nothing to load", run_id, transactional_id
        )
    else:
        loader.log.info(
            "%d records committed to %s by %r: %s", records, loader.topic, transactional_id, offsets
        )
    if records or committed_before:
        emit(context, loader.conn_id, update)
    return {**update, "transactional_id": transactional_id}


def may_have_loaded_before(context: Context) -> bool:
    """Whether an earlier try of this task may have committed, and died before it could tell of it."""
    return context["ti"].try_number > 1


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
