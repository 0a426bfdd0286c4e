"""The Spark consume job as a task: committed records in, output and offsets out in one transaction."""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txn_engine_airflow.assets import topic_asset
from txn_engine_airflow.connection import StoreConnection
from txn_engine_airflow.deployment import deployment_spark_conf
from txn_engine_airflow.errors import TaskError, TaskReason
from txn_engine_airflow.hook import open_engine
from txn_engine_airflow.spark_tasks import kind_of_failure_alone, task_spark, vote_told

if TYPE_CHECKING:
    from airflow.sdk import Asset
    from pyspark.sql import DataFrame

    from txn_engine import Engine, TopicPartition
    from txn_engine.spark import ConsumeResult

    Transform = Callable[[DataFrame], DataFrame | Mapping[str, DataFrame]]
    Emit = Callable[[Asset, dict[str, Any]], object]

log = logging.getLogger(__name__)

_APP = "txn_spark_consume"


def consume_with_spark(
    params: Mapping[str, Any], *, run_id: str, emit: Emit, report_folder: Path | None = None
) -> dict[str, Any]:
    """Run the job that the params name, and say what was read and written.

    The transaction carries `run_id`: a try whose reply was lost is known for committed by the next one. `emit(asset,
    extra)` is called once for each output topic of a run that committed output, also by the try that only learns of it.
    The report of the params' `checks`, where they name any, goes to `report_folder`.
    """
    output_topic = params["output_topic"]
    transform = load_transform(params["transform"], output_topic)
    settings = deployment_spark_conf() | dict(params.get("spark_settings") or {})
    with open_engine(params["conn_id"]) as engine:
        from txn_engine.spark import run_consume_job

        with task_spark(engine.url, settings, app_name=_APP) as spark, kind_of_failure_alone():
            result = run_consume_job(
                spark,
                engine,
                topic=params["topic"],
                group_id=params["group_id"],
                output_topic=output_topic if isinstance(output_topic, str) else None,
                transactional_id=params["transactional_id"],
                transform=transform,
                run_id=run_id,
                checks=params.get("checks"),
                report_folder=report_folder if params.get("checks") is not None else None,
                dead_letter_topic=params.get("dead_letter_topic"),
                max_dead_letters=params.get("max_dead_letters"),
            )
        committed_before = result.skipped and _has_committed(engine, params["transactional_id"], run_id)
        done = described(result, params, committed_before)
        for topic, write in result.writes.items():
            if write.dead_letters:
                log.info("%d dead letters of %s: %s", write.dead_letters, topic, write.told_reasons)
        log.info("%s", _sentence(done))
        if committed_before or not result.skipped:
            shared = {name: done[name] for name in ("committed_before", "input")} | {"run_id": run_id}
            for output in done.get("outputs") or [done]:
                topic = output["topic"]
                extra = {**output, **shared, "end_offsets": _end_offsets(engine, topic)}
                emit(topic_asset(topic, StoreConnection.load(params["conn_id"])), extra)
    return done


def load_transform(name: str | Transform, output_topic: str | Sequence[str]) -> Transform:
    """The function that `module:function` names, or the function, made to fail once where it is no transform.

    Raises `AirflowFailException` where there is none, or it does not take one argument. Nothing of Spark is started.
    What it gives is held against `output_topic`: a DataFrame, or one for each of several topics and for no other.
    """
    transform = _imported(name) if isinstance(name, str) else name
    if not _takes_a_frame(transform):
        raise TaskError(
            f"transform {_name_of(transform)}: it does not take one argument; expected a function of a DataFrame",
            reason=TaskReason.BAD_TRANSFORM,
            subject=_name_of(transform),
        )
    return _failing_once(transform, output_topic)


def _imported(name: str) -> Transform:
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise TaskError(
            f"transform {name!r}: {error}; expected module:function, importable where tasks run",
            reason=TaskReason.BAD_TRANSFORM,
            subject=name,
        ) from None
    if not callable(found):
        raise TaskError(
            f"transform {name!r}: not callable; expected a function of a DataFrame",
            reason=TaskReason.BAD_TRANSFORM,
            subject=name,
        )
    transform: Transform = found
    return transform


def _takes_a_frame(transform: Transform) -> bool:
    try:
        inspect.signature(transform).bind(None)
    except TypeError:
        return False
    except ValueError:
        return True  # written in C, and says nothing of its arguments
    return True


def _failing_once(transform: Transform, output_topic: str | Sequence[str]) -> Transform:
    """The transform; what it is wrong in itself is not tried again: a DataFrame that it cannot plan with, another type.

    The line names the error's kind and where it was raised: its text may quote a record.
    """

    @functools.wraps(transform, updated=())
    def plan(records: DataFrame) -> DataFrame | Mapping[str, DataFrame]:
        from pyspark.errors import AnalysisException

        try:
            output = transform(records)
        except (AnalysisException, AttributeError, LookupError, NameError, TypeError) as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            raise TaskError(
                f"transform {_name_of(transform)}: {type(error).__name__} in {at.name}, line {at.lineno} of "
                f"{at.filename}; expected a function of a DataFrame; mend it: a retry would fail the same",
                reason=TaskReason.TRANSFORM_FAILED,
                subject=_name_of(transform),
            ) from None
        wrong = _not_expected(output, output_topic)
        if wrong:
            raise TaskError(
                f"transform {_name_of(transform)}: it gave {wrong}",
                reason=TaskReason.BAD_OUTPUT,
                subject=_name_of(transform),
            )
        return output

    return plan


def _not_expected(output: object, output_topic: str | Sequence[str]) -> str | None:
    """What a transform gave, and should have given; None where that is the same."""
    from pyspark.sql import DataFrame

    if isinstance(output_topic, str):
        return None if isinstance(output, DataFrame) else f"{type(output).__name__}; expected a DataFrame"
    expected = f"expected a DataFrame for each of the topics {', '.join(sorted(output_topic))}"
    if not isinstance(output, Mapping):
        return f"{type(output).__name__}; {expected}"
    if set(output) != set(output_topic):
        return f"those of the topics {', '.join(sorted(map(str, output))) or 'none'}; {expected}"
    others = [name for name, frame in output.items() if not isinstance(frame, DataFrame)]
    return f"{type(output[others[0]]).__name__} for topic {others[0]}; {expected}" if others else None


def _name_of(transform: Transform) -> str:
    module, name = getattr(transform, "__module__", "?"), getattr(transform, "__qualname__", repr(transform))
    return f"{module}:{name}"


def _has_committed(engine: Engine, transactional_id: str, run_id: str) -> bool:
    stored = engine.coordinator.current(transactional_id)
    return stored is not None and bool(stored.row.has_committed(run_id))


def _end_offsets(engine: Engine, topic: str) -> dict[str, int]:
    """Up to where read_committed readers may go now."""
    return _by_partition(
        {at: offsets.last_stable_offset for at, offsets in engine.admin.list_offsets(topic).items()}
    )


def _by_partition(offsets: Mapping[TopicPartition, int]) -> dict[str, int]:
    return {str(at.partition): offset for at, offset in sorted(offsets.items())}


def described(result: ConsumeResult, params: Mapping[str, Any], committed_before: bool) -> dict[str, Any]:
    """For XCom and event. `offsets`: first and last by partition; an earlier try's ranges are not known any more.

    Of several output topics `outputs` says that of each.
    """
    read = None if committed_before else result.read_offsets
    shared: dict[str, Any] = {
        "committed_before": committed_before,
        "input": {
            "topic": params["topic"],
            "group_id": params["group_id"],
            "records": result.records_in if read else 0,
            "start": _by_partition(read.start if read else {}),
            "end": _by_partition(read.end if read else {}),
        },
    }
    if params.get("dead_letter_topic") is not None:
        shared["dead_letters"] = result.dead_letters
    if vote := next((write.checks for write in result.writes.values()), None):
        shared["checks"] = vote_told(vote)
    if isinstance(params["output_topic"], str):
        return _written(result, params["output_topic"]) | shared
    outputs = [_written(result, topic) for topic in params["output_topic"]]
    return {"records": result.records_out, "outputs": outputs} | shared


def _written(result: ConsumeResult, topic: str) -> dict[str, Any]:
    write = result.writes.get(topic)
    offsets: dict[str, list[int]] = {}
    for batch in write.batches if write else ():
        known = offsets.setdefault(str(batch.partition), [batch.base_offset, batch.last_offset])
        offsets[str(batch.partition)] = [min(known[0], batch.base_offset), max(known[1], batch.last_offset)]
    return {"topic": topic, "records": write.records if write else 0, "offsets": offsets}


def _sentence(done: Mapping[str, Any]) -> str:
    source = f"{done['input']['topic']} (group {done['input']['group_id']!r})"
    if done["committed_before"]:
        return f"an earlier try of this run committed its part of {source}; nothing was written now"
    if not done["input"]["records"]:
        return f"nothing new in {source}; nothing was written"
    became = ", ".join(
        f"{output['records']:,} of {output['topic']}" for output in done.get("outputs") or [done]
    )
    return (
        f"{done['input']['records']:,} records of {source} became {became}, "
        "committed with the group's new position"
    )
