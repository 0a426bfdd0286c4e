"""Looking for the records in a store's backups: each is kept or removed as a whole, so what holds some is named."""

from __future__ import annotations

from typing import Final

from storage import ObjectStore
from txn_engine.backup.copying import data_files
from txn_engine.backup.manifest import LogRef, in_generation
from txn_engine.backup.place import BackupPlace
from txn_engine.erasing.matching import Matcher
from txn_engine.erasing.report import StillHeld
from txn_engine.errors import InvalidRequestError
from txn_engine.log.data_files import read_data_file
from txn_engine.log.objects import Objects
from txn_engine.log.topics import Topic
from txn_engine.protocol.partition import LogFile
from txn_engine.schemas.layout import OFFSET
from txn_engine.suggested import command

_UNTIL: Final = "a newer one is made, and this one removed: "
_PRUNE: Final = "backup prune --keep 1 --execute"


def held_by_backups(
    objects: Objects, store: ObjectStore, store_id: str, topic: Topic, matcher: Matcher
) -> list[StillHeld]:
    """The backups in this place that hold some of the records, and how many; and files there that no backup names: of
    one that was cut off or is under way. Raises `InvalidRequestError` where another store's backups are, and
    `CorruptObjectError` where one cannot be read.
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
    counts: dict[str, int] = {}  # by the file's key in the place
    counted = _Counting(place, topic, matcher, counts)
    until = _UNTIL + command(_PRUNE, place.url)
    found = place.look()
    if found.damaged:
        raise next(iter(found.damaged.values()))
    held = []
    for number, manifest in sorted(found.backups.items()):
        logs = [
            log for log in manifest.logs if (log.topic, log.incarnation) == (topic.name, topic.incarnation)
        ]
        count = sum(map(counted.records, logs))
        if count:
            held.append(StillHeld(f"backup {number} in {place.url}", count, until))
    loose = [
        info
        for info, _, key in place.copies(topic.name, topic.incarnation)
        if "/data/" in key and info.key not in counts
    ]
    if loose:
        held.append(
            StillHeld(
                f"{len(loose)} data files in {place.url} that no backup names, may hold some", -1, until
            )
        )
    return held


class _Counting:
    def __init__(self, place: BackupPlace, topic: Topic, matcher: Matcher, counts: dict[str, int]) -> None:
        self._place = place
        self._topic = topic
        self._matcher = matcher
        self._looked_at = list(matcher.columns) or [OFFSET]
        self._columns = list(dict.fromkeys([*matcher.columns, OFFSET]))
        self._counts = counts

    def records(self, log: LogRef) -> int:
        """How many of the log's records in the backup are meant."""
        state = self._place.state(log)
        files = zip(data_files(log, state), sorted(state.live.items()), strict=True)
        return sum(self._of_file(log, ref.place_key, ref.generation, file) for ref, (_, file) in files)

    def _of_file(self, log: LogRef, key: str, generation: int, file: LogFile) -> int:
        if key not in self._counts:
            tables = read_data_file(
                self._place.objects,
                in_generation(generation, log.prefix),
                file,
                self._topic.schemas,
                log.partition,
                self._columns,
                topic=self._topic.name,
            )
            self._counts[key] = sum(
                int(self._matcher.matches(table.select(self._looked_at)).sum()) for table in tables
            )
        return self._counts[key]
