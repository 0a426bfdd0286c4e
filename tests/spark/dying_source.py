"""The data source, with a sink that is killed at one step of a micro-batch, once.

`DYING` in the environment names a folder: `at` holds the step and whom to kill there ("upload jvm"), `jvm` and
`driver` the ids of those processes. The first process that reaches the step removes `at` and kills the victim.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from tests.support.kills import kill_myself
from txn_engine.engine import Engine
from txn_engine.producer import Producer
from txn_engine.spark.source import TxnEngineSource
from txn_engine.spark.source.options import sink_options
from txn_engine.spark.source.sink import StreamWriter, Uploaded

STEPS = ("planned", "writing", "uploaded", "resumed", "undecided", "decided", "committed")


def die_at(step: str, folder: Path | None = None) -> None:
    """Kill the victim that the file `at` names, if this is the step that it names.

    folder: the folder of `at`, or None for the one that `DYING` names. The Python worker of
    a task has `DYING` from the session's `sparkContext.environment`; a worker that plans has the JVM's own
    environment, so the sink names the folder.
    """
    if folder is None:
        if "DYING" not in os.environ:
            return
        folder = Path(os.environ["DYING"])
    at, gone = folder / "at", folder / f"gone-{os.getpid()}-{step}"
    if not at.exists() or at.read_text().split()[0] != step:
        return
    try:
        at.rename(gone)
    except FileNotFoundError:
        return  # another worker was there first
    victim = gone.read_text().split()[1]
    if victim == "worker":
        kill_myself()
    os.kill(int((folder / victim).read_text()), signal.SIGKILL)
    time.sleep(2)  # it does not get past this step


class DyingWriter(StreamWriter):
    """Dies around the steps of the sink. Its checkpoint is in the folder that holds `at`."""

    def _die_at(self, step: str) -> None:
        assert self._options.checkpoint is not None
        die_at(step, Path(self._options.checkpoint).parent)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        self._die_at("planned")
        return state

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Uploaded:  # type: ignore[override]
        def rows() -> Iterator[pa.RecordBatch]:
            for batch in iterator:
                self._die_at("writing")
                yield batch

        uploaded = super().write(rows())
        self._die_at("uploaded")
        return uploaded

    def _commit(
        self, engine: Engine, producer: Producer, uploaded: Sequence[Uploaded], run_id: str | None
    ) -> None:
        self._die_at("resumed")
        commit = producer.commit_transaction

        def dying_commit(*, max_block_ms: int) -> None:
            self._die_at("undecided")
            commit(max_block_ms=max_block_ms)
            self._die_at("decided")

        producer.commit_transaction = dying_commit  # type: ignore[method-assign]
        super()._commit(engine, producer, uploaded, run_id)

    def commit(self, messages: Any, batchId: int) -> None:
        super().commit(messages, batchId)
        self._die_at("committed")


class DyingSource(TxnEngineSource):
    """`format("dying")`."""

    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DyingWriter:
        return DyingWriter(sink_options(self.options, streaming=True), schema)
