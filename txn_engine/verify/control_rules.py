"""Rewrite, trim, expire and floor rows: what they may do (protocol, sections 1 and 6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from txn_engine.verify.descriptors import Batch
from txn_engine.verify.partition_state import PartitionState, control_value
from txn_engine.verify.scene import Scene


class ControlRule:
    """A control row only moves what was settled: nothing undecided, nothing backwards."""

    def judge(self, state: PartitionState, batch: Batch, scene: Scene) -> None:
        """Note what the row must not have done in this state."""
        if not scene.sound or batch.control == "none" or batch.is_marker:
            return
        value = control_value(batch)
        if value is None:
            return
        if batch.control == "rewrite":
            _judge_rewrite(state, value, batch, scene)
        elif batch.control == "trim":
            _judge_trim(state, value, batch, scene)
        elif batch.control == "expire":
            for producer_id in value["producer_ids"]:
                if producer_id in state.open:
                    seen = f"producer {producer_id} forgotten with a transaction open since {state.open[producer_id]}"
                    scene.note("expire-illegal", batch, seen, "its marker first")
        else:
            _judge_floor(state, value["floor"], batch, scene)


def _judge_rewrite(state: PartitionState, value: Mapping[str, Any], batch: Batch, scene: Scene) -> None:
    for path in value["inputs"]:
        file = state.files.get(path)
        if file is None or file.status != "live":
            seen = f"input {path}, {'never named' if file is None else file.status}"
            scene.note("rewrite-illegal", batch, seen, "live files only")
        elif file.last_offset >= state.last_stable_offset:
            seen = f"input {path} up to offset {file.last_offset}"
            scene.note(
                "rewrite-illegal",
                batch,
                seen,
                f"files below the last stable offset {state.last_stable_offset}",
            )
    for output in value["outputs"]:
        if output["data_path"] in state.files:
            scene.note(
                "data-file-named-twice", batch, f"output {output['data_path']}, named before", "a new file"
            )


def _judge_trim(state: PartitionState, value: Mapping[str, Any], batch: Batch, scene: Scene) -> None:
    start, entries_start = value["log_start_offset"], value["entries_start"]
    if start < state.log_start_offset or entries_start < state.entries_start:
        expected = f"at least {state.log_start_offset} and {state.entries_start}: neither moves back"
        scene.note("trim-illegal", batch, f"log start {start}, entries start {entries_start}", expected)
    if start > state.last_stable_offset:
        expected = f"at most the last stable offset {state.last_stable_offset}"
        scene.note("trim-illegal", batch, f"log start {start}", expected)
    cut = next((file for file in state.files.values() if file.base_offset < start <= file.last_offset), None)
    if cut is not None and cut.status == "live":
        expected = f"a file's boundary: {cut.data_path} covers {cut.base_offset} to {cut.last_offset}"
        scene.note("trim-illegal", batch, f"log start {start}", expected)


def _judge_floor(state: PartitionState, floor: int, batch: Batch, scene: Scene) -> None:
    if floor < state.floor:
        scene.note("floor-illegal", batch, f"floor {floor}", f"at least {state.floor}: it never falls")
    if floor > batch.base_offset:
        scene.note("floor-illegal", batch, f"floor {floor}", f"at most its own offset {batch.base_offset}")
