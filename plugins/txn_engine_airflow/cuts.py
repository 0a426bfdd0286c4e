"""Cuts as tasks: one of all topics every so often, for whoever reads everything as of one moment; and what is told of
one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, TypedDict

from airflow.sdk.exceptions import AirflowSkipException

from txn_engine_airflow.assets import CUTS, topic_asset
from txn_engine_airflow.connection import StoreConnection
from txn_engine_airflow.deployment import cut_every_ms, cut_keep_ms
from txn_engine_airflow.hook import open_engine_of_run
from txn_engine_airflow.tables import Cell, Table, show

if TYPE_CHECKING:
    from airflow.sdk import Asset

    from txn_engine import Cut, Engine

    Emit = Callable[[Asset, dict[str, Any]], object]

log = logging.getLogger(__name__)

TRIED_AGAIN_MS = 600_000
"""For so long after one run began a cut no other does: a store that lets none be made is not asked each minute."""
_LOOKED_AT = 100
OFFSET_COLUMNS = ["topic", "partition", "offset"]


class CutTold(TypedDict):
    """A cut, for XCom: records below `offsets` are inside. `expires_ms` -1: it is kept until it is deleted.

    The table is cut to a thousand rows, as all are; `txn-engine cuts describe` has them all.
    """

    cut: int
    created_ms: int
    expires_ms: int
    topics: int
    partitions: int
    offsets: Table


def make_due_cut(conn_id: str, *, try_number: int, dry_run: bool, emit: Emit) -> CutTold:
    """Make a cut of all topics, if none is there that is younger than the deployment wants and kept for as long.

    A later try takes the one that stands: so a retry makes at most one cut more, where the try before it died and made
    none. `emit(asset, extra)` tells of the cut. Raises `AirflowSkipException` where nothing is due.
    """
    every_ms, keep_ms = cut_every_ms(), cut_keep_ms()
    if not every_ms:
        raise AirflowSkipException("the deployment wants no cuts: TXN_ENGINE_CUT_MINUTES is 0")
    with open_engine_of_run(conn_id) as engine:
        standing, is_tried = _standing(engine, every_ms, keep_ms)
        if try_number <= 1:
            if standing is not None:
                raise AirflowSkipException(
                    f"cut {standing.number} is younger than {every_ms // 60_000} minutes"
                )
            if is_tried:
                raise AirflowSkipException(
                    f"another cut was begun in the last {_pause_ms(every_ms) // 60_000} minutes, and is not there"
                )
        if dry_run:
            raise AirflowSkipException("a dry run: a cut would be made now; nothing was written")
        told = cut_told(standing or engine.cut(keep_ms=keep_ms))
    announce_cut(conn_id, told, emit)
    return told


def announce_cut(conn_id: str, told: CutTold, emit: Emit) -> None:
    """Send the event of a cut: that it stands, and for how long."""
    extra = {name: told[name] for name in ("cut", "created_ms", "expires_ms")}
    emit(topic_asset(CUTS, StoreConnection.load(conn_id)), extra)


def cut_told(cut: Cut) -> CutTold:
    """What a task returns of a cut; the offsets go to its log too."""
    rows: list[list[Cell]] = [[at.topic, at.partition, offset] for at, offset in cut.offsets.items()]
    log.info("cut %d of %d topics, %d partitions", cut.number, len(cut.topics), len(rows))
    return CutTold(
        cut=cut.number,
        created_ms=cut.created_ms,
        expires_ms=cut.expires_ms,
        topics=len(cut.topics),
        partitions=len(rows),
        offsets=show("offsets of the cut", OFFSET_COLUMNS, rows),
    )


def _standing(engine: Engine, every_ms: int, keep_ms: int) -> tuple[Cut | None, bool]:
    """The newest cut that is young enough, of all topics and kept for as long; whether one was begun a moment ago.

    A time that is as far ahead is a wrong clock's, and holds nobody back.
    """
    now_ms, is_tried = engine.clock(), False
    for found in islice(engine.newest_cuts(), _LOOKED_AT):
        if now_ms - found.claimed_ms >= every_ms:
            break
        is_tried |= abs(now_ms - found.claimed_ms) < _pause_ms(every_ms)
        cut = found.cut
        if cut is not None and abs(now_ms - cut.created_ms) < every_ms and _serves(cut, keep_ms):
            return cut, is_tried
    return None, is_tried


def _serves(cut: Cut, keep_ms: int) -> bool:
    is_kept = cut.expires_ms < 0 or cut.expires_ms - cut.created_ms >= keep_ms
    return cut.every_topic and is_kept


def _pause_ms(every_ms: int) -> int:
    return min(every_ms, TRIED_AGAIN_MS)
