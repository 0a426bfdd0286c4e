"""A schedule as lines that people can follow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from storage import LogKeys
from tests.simulator.explore.contents import kind_of
from tests.simulator.explore.operations import Answer, Operation
from txn_engine.errors import TxnEngineError
from txn_engine.log.entry_format import decode_entry
from txn_engine.protocol.batches import BatchDescriptor
from txn_engine.protocol.transaction_rows import TransactionRow


@dataclass(frozen=True, slots=True)
class Step:
    """One move of a schedule. `answer` is a truthful store's."""

    who: str
    operation: Operation | None
    fault: str
    answer: Answer


def readable(steps: Iterable[Step]) -> Iterator[str]:
    """Number, process, operation, object, result and fault."""
    for number, step in enumerate(steps, 1):
        yield f"{number:4}  {step.who:10}  {_words(step)}"


def _words(step: Step) -> str:
    operation = step.operation
    if operation is None:
        return f"*** {step.fault} ***"
    place = operation.key.removeprefix("topics/").replace("/0000", "/").replace(".parquet", "")
    place = "/".join(part.lstrip("0") or "0" for part in place.split("/"))
    if operation.kind == "put":
        came = "stored" if step.answer else "taken"
        text = f"put {place}: {came}: {_object(operation)}"
    elif operation.kind == "list":
        text = f"list {place}: {len(step.answer) if isinstance(step.answer, tuple) else 0} found"
    else:
        text = f"get {place}: {'there' if isinstance(step.answer, bytes) else 'absent'}"
    return f"{text}  *** {step.fault} ***" if step.fault else text


def _object(operation: Operation) -> str:
    prefix, is_entry, _ = operation.key.partition("/log/")
    if not is_entry:
        return f"{len(operation.data)} bytes"
    base = LogKeys(prefix).parse_entry(operation.key)
    try:
        batches = decode_entry(kind_of(prefix), operation.data, key=operation.key, base_offset=base).batches
    except TxnEngineError as error:
        return str(error)
    return "; ".join(map(_batch, batches))


def _batch(batch: BatchDescriptor) -> str:
    row = batch.row
    if isinstance(row, TransactionRow):
        partitions = ",".join(str(part.partition) for part in row.partitions)
        return f"{row.state.value} pid {row.producer_id} epoch {row.producer_epoch} partitions [{partitions}]"
    what = "records" if batch.control.value == "none" else f"{batch.control.value} marker"
    offsets = f"offsets {batch.base_offset}-{batch.last_offset}"
    return f"{what} pid {batch.producer_id} epoch {batch.producer_epoch} {offsets}"
