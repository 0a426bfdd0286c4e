"""A copy of a store, file by file, gets an id of its own (docs/operations.md, "Two copies of one store").

As long as two copies have one id, nothing tells them apart: not the place of their backups, nor what remembers a
position in one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from txn_engine.clock import Waiting
from txn_engine.errors import ConcurrentTransactionsError
from txn_engine.ids import IdSource
from txn_engine.log.objects import Objects
from txn_engine.log.store_config import StoreConfig, read_store_config, replace_store_config
from txn_engine.protocol.transaction_rows import TransactionPartition
from txn_engine.reasons import Reason

WATCHED_MS: Final = 6_000
"""How long the logs are watched for a writer. A process that lives on looks at store.json every five seconds."""
Ends = Mapping[TransactionPartition, int]


@dataclass(frozen=True, slots=True)
class NewStoreId:
    """The ids of a copy, before and after. executed: whether it has the new one."""

    url: str
    former_id: str
    store_id: str
    executed: bool


def refuse_if_written_to(ends: Callable[[], Ends], waiting: Waiting, watch_ms: int, url: str) -> None:
    """Raise `ConcurrentTransactionsError` where a log grows while it is watched: somebody writes to this copy.

    ends: where each log ends now.
    """
    before = ends()
    waiting.pause_ms(watch_ms)
    for partition, end in ends().items():
        if before.get(partition, 0) != end:
            raise ConcurrentTransactionsError(
                f"somebody writes to it: {partition.topic}-{partition.partition} has grown to offset {end}",
                actor="new-store-id",
                place=url,
                expected="a copy that nobody uses yet",
                action="check --url: is this the copy? Stop whoever writes there, then run it again",
                reason=Reason.STORE_IN_USE,
            )


def give_new_id(objects: Objects, config: StoreConfig, new_id: IdSource) -> NewStoreId:
    """Give the store a new id. objects: those of the store; config: what its place says.

    Guarantee: `store.json` has the old id or the new one, whatever happens. Run again it gives another new id, which
    does as well.
    """
    url = objects.place.url
    ids = (*config.former_ids, config.store_id)
    wanted = replace(config, store_id=new_id(), former_ids=ids)
    if config.root:  # what is in the folder first: those who open the store go by what is in the place
        inside = Objects(objects.store)
        held = read_store_config(inside) or replace(config, root="")
        replace_store_config(inside, replace(held, store_id=wanted.store_id, former_ids=ids))
    replace_store_config(Objects(objects.place), wanted)
    return NewStoreId(url, config.store_id, wanted.store_id, executed=True)
