"""Looking for the records in the backups of a store: nothing there is ever overwritten, so what holds some is named."""

from __future__ import annotations

from typing import Final

from storage import ObjectStore
from txn_engine.backup.place import BackupPlace
from txn_engine.erasing.matching import Matcher
from txn_engine.erasing.report import StillHeld
from txn_engine.errors import InvalidRequestError
from txn_engine.log.data_files import read_data_file
from txn_engine.log.objects import Objects
from txn_engine.log.topics import Topic
from txn_engine.schemas.layout import OFFSET

_UNTIL: Final = "it is removed; a store that is restored of it needs this erasure again"


def held_by_backups(
    objects: Objects, store: ObjectStore, store_id: str, topic: Topic, matcher: Matcher
) -> list[StillHeld]:
    """The backups in this place that hold some of the records, and how many. Raises `InvalidRequestError` where another
    store's backups are.
    """
    place = BackupPlace.open(objects.beside(store))
    if place.store_id != store_id:
        raise InvalidRequestError(
            f"backups of store {place.store_id}",
            actor="erase",
            place=place.url,
            expected=f"those of this store, {store_id}",
            action="name the place of its own backups",
        )
    known: dict[str, int] = {}
    held = []
    columns = list(dict.fromkeys([*matcher.columns, OFFSET]))
    for number in place.numbers():
        count = 0
        for log in place.manifest(number).logs:
            if (log.topic, log.incarnation) != (topic.name, topic.incarnation):
                continue
            for file in place.state(log).live.values():
                key = f"{log.prefix}/{file.file.data_path}"
                if key not in known:
                    tables = read_data_file(
                        place.objects,
                        log.prefix,
                        file,
                        topic.schemas,
                        log.partition,
                        columns,
                        topic=topic.name,
                    )
                    known[key] = sum(
                        int(matcher.matches(table.select(list(matcher.columns) or [OFFSET])).sum())
                        for table in tables
                    )
                count += known[key]
        if count:
            held.append(StillHeld(f"backup {number} in {place.url}", count, _UNTIL))
    return held
