"""Evidence put side by side: the tables (batches) that the expectations are judged on, by name.

A maker raises EvidenceMissingError where a part it needs could not be had. Columns hold no nulls except where an
expectation asks for them: Great Expectations leaves nulls out of most of its counts.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from txn_engine.quality.accounts import account_sums
from txn_engine.quality.evidence import Evidence, EvidenceMissingError
from txn_engine.quality.positions import audit, group, partitions, transactions
from txn_engine.quality.records import input_rows, matched, records
from txn_engine.quality.visibility import counted, hidden, visible


def build_frames(evidence: Evidence) -> dict[str, pa.Table | EvidenceMissingError]:
    """Every batch that this evidence has something to say about, or why it could not be made."""
    makers: dict[str, Callable[[Evidence], pa.Table]] = {"records": records}
    if evidence.input is not None:
        makers |= {"input": input_rows, "matched": matched}
    if evidence.check.output_topic is not None:
        makers["accounts"] = account_sums
    if evidence.check.group_id is not None:
        makers["group"] = group
    makers |= {
        "visible": visible,
        "hidden": hidden,
        "counted": counted,
        "partitions": partitions,
        "transactions": transactions,
        "audit": audit,
    }
    return {name: _made(make, evidence) for name, make in makers.items()}


def _made(make: Callable[[Evidence], pa.Table], evidence: Evidence) -> pa.Table | EvidenceMissingError:
    try:
        return make(evidence)
    except EvidenceMissingError as missing:
        return missing
