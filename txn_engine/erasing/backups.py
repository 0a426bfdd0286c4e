"""Looking for the records in a store's backups: each is kept or removed as a whole, so what holds some is named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from storage import ObjectStore
from txn_engine.backup.copying import data_files
from txn_engine.backup.manifest import LogRef, Manifest, in_generation
from txn_engine.backup.place import BackupPlace
from txn_engine.erasing.former import CANNOT_TELL, MatcherOf, searchable
from txn_engine.erasing.matching import Matcher
from txn_engine.erasing.report import SOME, StillHeld
from txn_engine.errors import InvalidRequestError
from txn_engine.log.data_files import read_data_file
from txn_engine.log.logs import Logs
from txn_engine.log.topics import Topic
from txn_engine.protocol.partition import LogFile
from txn_engine.schemas.layout import OFFSET
from txn_engine.suggested import command

_UNTIL: Final = "a newer one is made, and this one removed: "
_PRUNE: Final = "backup prune --keep 1 --execute"


class BackupsSearch:
    """Looks at the backups of a place, as often as it is asked; each file there is read once. Raises
    `InvalidRequestError` where another store's backups are.
    """

    def __init__(self, logs: Logs, store: ObjectStore, topic: Topic, matcher_of: MatcherOf) -> None:
        place = BackupPlace.open(logs.tools.objects.beside(store))
        if place.store_id != logs.config.store_id:
            raise InvalidRequestError(
                f"backups of store {place.store_id}",
                actor="erase",
                place=place.url,
                expected=f"those of this store, {logs.config.store_id}",
                action="name the place of its own backups",
            )
        self._logs = logs
        self._place = place
        self._topic = topic
        self._matcher_of = matcher_of
        self._counting: dict[int, _Counting] = {}
        self._counts: dict[str, int] = {}

    def held(self) -> list[StillHeld]:
        """The backups that hold some of the records now, and how many, also of the topic from before it was deleted;
        and files there that no backup names: of one that was cut off or is under way. Raises `CorruptObjectError` where
        one cannot be read.
        """
        found = self._place.look()
        if found.damaged:
            raise next(iter(found.damaged.values()))
        return list(self._held(found.backups))

    def _held(self, backups: Mapping[int, Manifest]) -> Iterator[StillHeld]:
        name, place = self._topic.name, self._place
        until = _UNTIL + command(_PRUNE, place.url)
        for number, manifest in sorted(backups.items()):
            logs = sorted(
                (log for log in manifest.logs if log.topic == name), key=lambda log: log.incarnation
            )
            for incarnation, same in groupby(logs, key=lambda log: log.incarnation):
                records = self._records(incarnation, list(same))
                was = "" if incarnation == self._topic.incarnation else f" (incarnation {incarnation})"
                if records:
                    yield StillHeld(f"backup {number} in {place.url}{was}", records, until)
        loose = [
            info
            for incarnation in range(self._topic.incarnation + 1)
            for info, _, key in place.copies(name, incarnation)
            if "/data/" in key and info.key not in self._counts
        ]
        if loose:
            seen = f"{len(loose)} data files in {place.url} that no backup names, may hold some"
            yield StillHeld(seen, SOME, until)

    def _records(self, incarnation: int, logs: Sequence[LogRef]) -> int:
        """How many; -1: some perhaps, of a topic that was deleted and that cannot be searched any more."""
        try:
            return sum(map(self._counter(incarnation).records, logs))
        except CANNOT_TELL:
            if incarnation == self._topic.incarnation:
                raise
            return SOME if any(self._place.state(log).live for log in logs) else 0

    def _counter(self, incarnation: int) -> _Counting:
        found = self._counting.get(incarnation)
        if found is None:
            if incarnation == self._topic.incarnation:
                topic, matcher = self._topic, self._matcher_of(self._topic)
            else:
                topic, matcher = searchable(self._logs, self._topic.name, incarnation, self._matcher_of)
            found = self._counting[incarnation] = _Counting(self._place, topic, matcher, self._counts)
        return found


class _Counting:
    def __init__(self, place: BackupPlace, topic: Topic, matcher: Matcher, counts: dict[str, int]) -> None:
        self._place = place
        self._topic = topic.held
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
