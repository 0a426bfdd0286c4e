"""Judge finished states: the sweeps run to their end, and then clients, readers and the auditor check the
store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.simulator.checks import check_history
from tests.simulator.explore.automaton import Told
from tests.simulator.explore.configurations import TOPIC
from tests.simulator.explore.contents import Contents, Library
from tests.simulator.history import Writing
from tests.simulator.kernel import HOUR
from tests.simulator.knobs import Knobs
from tests.simulator.log_rules import check_landed
from tests.simulator.runner import finish_everything, is_wrong
from tests.simulator.workloads.common import read_topic
from tests.simulator.world import World
from txn_engine.protocol.batches import BatchDescriptor
from txn_engine.protocol.file_names import parse_data_path
from txn_engine.verify import verify_store


class Judge:
    """Says what is wrong with a finished state. States that differ only in write ids are judged once."""

    def __init__(self, library: Library, base: Mapping[str, bytes], told: tuple[Told, ...]) -> None:
        self.judged = 0
        self._library = library
        self._base = base
        self._told = told
        self._verdicts: dict[Any, list[str]] = {}
        self._shapes: dict[int, Any] = {}
        self._records: dict[bytes, tuple[Any, ...]] = {}

    def judge(self, contents: Contents, told: tuple[Told, ...]) -> list[str]:
        """What is wrong if every process stops here for ever and the sweeps finish the rest."""
        shape = self._shapes.get(contents.number)
        if shape is None:
            shape = self._shapes[contents.number] = self._shape(contents)
        verdict = self._verdicts.get((shape, told))
        if verdict is None:
            self.judged += 1
            verdict = self._verdicts[shape, told] = self._look(contents, told)
        return verdict

    # --- what makes two contents equal ----------------------------------------------------------------------

    def _shape(self, contents: Contents) -> Any:
        """Every log's rows, with a data file's records in place of its write id, and the files that nobody
        has named."""
        named: set[str] = set()
        logs = []
        for prefix, view in sorted(contents.logs.items()):
            logs.append(
                (prefix, tuple(self._canonical(prefix, batch, contents, named) for batch in view.batches))
            )
        orphans = sorted(
            (key.partition("/data/")[0], self._records_of(data))
            for key, data in contents.objects.items()
            if "/data/" in key and key not in named
        )
        return tuple(logs), tuple(orphans)

    def _canonical(self, prefix: str, batch: BatchDescriptor, contents: Contents, named: set[str]) -> Any:
        if batch.file is None:
            return batch
        key = f"{prefix}/{batch.file.data_path}"
        named.add(key)
        name = parse_data_path(batch.file.data_path)
        records = self._records_of(contents.objects[key])
        return replace(batch, file=None), name.log_end, name.producer_id, name.producer_epoch, records

    def _records_of(self, data: bytes) -> tuple[Any, ...]:
        found = self._records.get(data)
        if found is None:
            table = pq.read_table(pa.BufferReader(data), columns=["txn", "n"], use_threads=False)
            found = self._records[data] = tuple(zip(*(c.to_pylist() for c in table.columns), strict=True))
        return found

    # --- the judgement --------------------------------------------------------------------------------------

    def _look(self, contents: Contents, told: tuple[Told, ...]) -> list[str]:
        world = World(0, Knobs(intensity=0.0, skewed_clocks=False))
        world.plan.enabled = False
        for key in sorted(contents.objects):
            world.shelf.put_if_absent(key, contents.objects[key])
        for each in (*self._told, *told):
            # All at one time: no clock is shared here, so that none can say who was acknowledged before whom began.
            writing = Writing(
                each.name, each.name, 0, outcome=each.outcome, ended=0, placed=dict(each.placed)
            )
            writing.records = {place: list(ids) for place, ids in each.records}
            world.history.writings[each.name] = writing
        world.let_time_pass(2 * HOUR)
        try:
            found: list[str] = world.run_alone("healer", lambda _, engine: finish_everything(engine))
            read = world.run_alone("reader", lambda _, engine: read_topic(engine, TOPIC))
        except Exception as error:  # noqa: BLE001 - whatever the code under test lets through is a finding
            return [f"what is left cannot be finished and read: {type(error).__name__}: {error}"]
        finally:
            world.bury()
        found += check_history(world.history, {place: rows for place, (_, rows) in read.items()}, {})
        found += check_landed(world.shelf.landed)
        report = verify_store(world.shelf, now_ms=world.kernel.now_ms, workers=0)
        found += [f"audit: {finding}" for finding in report.findings if is_wrong(finding)]
        return found
