"""Who reduces the rows of a proof: this process as far as it goes, and Spark where there are more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from txn_engine.errors import OneProcessLimitError, TxnEngineError
from txn_engine.quality.declaration import ACTOR, Declaration
from txn_engine.quality.in_process import MEMORY_BYTES, InProcess
from txn_engine.quality.reducer import Reducer
from txn_engine.types import EngineChoice

if TYPE_CHECKING:
    from txn_engine.engine import Engine

Given = Callable[[], AbstractContextManager[Reducer]]
"""Begins Spark, or says why there is none: raises one of the engine's errors, or `ModuleNotFoundError`."""

SPARK_ABOVE_RECORDS: Final = 1_000_000_000
"""Of a declaration's topics together: one process and its disk take an hour for so many."""


@contextmanager
def chosen_reducer(
    choice: EngineChoice,
    engine: Engine,
    declaration: Declaration,
    *,
    spark: Given,
    spark_above: int = SPARK_ABOVE_RECORDS,
    memory_bytes: int = MEMORY_BYTES,
    tell: Callable[[str], None],
) -> Iterator[Reducer]:
    """The reducer of that choice, for the length of the block; `tell` is told which one it is, and why.

    `spark` is called where it is needed. Raises `OneProcessLimitError` where it is, and cannot be had; what `spark`
    raises where it was asked for by name.
    """
    if choice == "spark":
        tell("Spark reduces, as was asked for")
        with spark() as reducer:
            yield reducer
        return
    records = _records(engine, declaration)
    if choice == "auto" and records > spark_above:
        why = f"{records:,} records: more than {spark_above:,} for one process"
        with ExitStack() as stack:
            try:
                reducer = stack.enter_context(spark())
            except (TxnEngineError, ModuleNotFoundError) as error:
                raise OneProcessLimitError.without_spark(why, error, actor=ACTOR) from error
            tell(f"Spark reduces {why}")
            yield reducer
        return
    with InProcess(engine.store, memory_bytes=memory_bytes) as own:
        yield own


def _records(engine: Engine, declaration: Declaration) -> int:
    """What the topics hold at the most: their offsets, and not what compaction has left of them."""
    return sum(
        offsets.high_watermark - offsets.log_start_offset
        for topic in declaration.topics
        for offsets in engine.admin.list_offsets(topic).values()
    )
