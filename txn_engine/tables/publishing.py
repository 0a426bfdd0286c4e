"""Publishing a topic's tables at cuts: whoever does it, at once or one after the other, the same versions come of it.

read the newest version             its cut says where to go on from
what changed since                  from the log's rows (`changes`)
pin, then look at the cut again     so that what is about to be named stays
put the next version if absent      lost: begin again, from what the winner has published
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from txn_engine.clock import Clock
from txn_engine.errors import ConcurrentTransactionsError, InvalidRequestError
from txn_engine.log.cuts import CutStore
from txn_engine.log.erasures import was_erased_from
from txn_engine.log.logs import Logs
from txn_engine.log.pins import FILES_MAX, PinName, PinStore
from txn_engine.log.topic_cut import TopicCut
from txn_engine.log.topics import Topic
from txn_engine.protocol.controls import GRACE_MS
from txn_engine.reasons import Reason
from txn_engine.tables.changes import Changes, Step, StepKind, Visible
from txn_engine.tables.files import TableFile
from txn_engine.tables.times import coarse_times, time_beyond
from txn_engine.tables.views import Commit, Published, View

_ROUNDS: Final = 100
_ORDER: Final = tuple(StepKind)


class Publisher:
    """Publishes one topic's tables."""

    def __init__(self, logs: Logs, topic: Topic, cuts: CutStore, pins: PinStore, clock: Clock) -> None:
        self._objects = logs.tools.objects
        self._workers = logs.workers
        self._file_versions = logs.file_versions
        self._visible = Visible(logs, topic)
        self._topic = topic
        self._incarnation = (topic.name, topic.incarnation)
        self._folder = f"topics/{topic.name}/{topic.incarnation}"
        self._cuts = cuts
        self._pins = pins
        self._clock = clock

    def publish(self, view: View, cut: TopicCut, *, or_newer: bool = False) -> Published:
        """Let the table show this cut, by the topic's present columns; where it does, nothing happens. What another
        publisher left half done is finished first. Raises `InvalidRequestError` where the table shows a newer one,
        unless that will do; `ConcurrentTransactionsError` where it has columns that the topic had not yet.
        """
        for _ in range(_ROUNDS):
            newest = view.newest()
            if newest is None or newest.at is None:
                self._advance(view, newest, cut)
                continue
            if newest.schema_version > self._topic.version:
                raise self._has_later_columns(view, newest)
            is_shown = newest.at.partitions == cut.partitions or (newest.at.number > cut.number and or_newer)
            if newest.done is not None:
                self._finish(view, newest, newest.at)
            elif is_shown and newest.schema_version == self._topic.version:
                view.settle(newest, self._visible.at)
                return newest
            elif is_shown:
                self._advance(view, newest, newest.at if newest.at.number > cut.number else cut)
            elif newest.at.number > cut.number:
                raise InvalidRequestError(
                    f"cut {cut.number}, and the {view.table_format} table of {self._topic.name!r} shows cut"
                    f" {newest.at.number}",
                    place=view.uri(newest),
                    expected="a newer cut: a table does not go back",
                    action="read as of an older cut by the table's own time travel",
                    reason=Reason.TABLE_SHOWS_NEWER_CUT,
                )
            else:
                self._advance(view, newest, cut)
        raise self._too_busy(view)

    def unpublish(self, view: View) -> Published | None:
        """Let the table be none, and let go of what it held back; None where it never was one."""
        for _ in range(_ROUNDS):
            newest = view.newest()
            if newest is None:
                return None
            if newest.at is None:
                self._pins.let_go(*self._incarnation, view.table_format, newest.version)
                return newest
            if newest.done is not None:
                self._finish(view, newest, newest.at)
            else:
                view.withdraw(newest.version + 1, [file.path for file in self._visible.at(newest.at)])
        raise self._too_busy(view)

    def _has_later_columns(self, view: View, newest: Published) -> ConcurrentTransactionsError:
        return ConcurrentTransactionsError(
            f"a table with version {newest.schema_version} of the topic's columns",
            actor=f"publish {self._topic.name!r} as {view.table_format}",
            place=view.uri(newest),
            expected=f"at most {self._topic.version}, as the topic had when it was looked up",
            action="try again: somebody changed the columns meanwhile",
            reason=Reason.TABLE_HAS_NEWER_COLUMNS,
        )

    def _too_busy(self, view: View) -> ConcurrentTransactionsError:
        return ConcurrentTransactionsError(
            f"other publishers were quicker {_ROUNDS} times",
            actor=f"publish {self._topic.name!r} as {view.table_format}",
            action="try again later",
        )

    def _advance(self, view: View, newest: Published | None, cut: TopicCut) -> None:
        """Put the versions that lead to the cut, until one is another's."""
        version = 0 if newest is None else newest.version + 1
        changes = self._visible.changes(None if newest is None else newest.at, cut)
        lasting = self._readable(view, changes)
        if newest is None:
            self._remove_stray_pins(view)
        self._check_not_erased(cut)
        name = PinName(view.table_format, version, cut.number)
        pin = self._pins.put(*self._incarnation, name, changes.later, lasting)
        self._cuts.get(cut.number)  # nobody deletes what it needs once it is there behind the pin
        steps = changes.steps(set(pin.files))
        shown = None if newest is None or newest.at is None else newest.schema_version
        self._commit(view, version, changes, steps, shown, self._topic.version)

    def _check_not_erased(self, cut: TopicCut) -> None:
        """A cut from before an erasure lists files that are gone: no version may show these."""
        if not was_erased_from(self._objects, self._topic.name, self._topic.incarnation):
            return
        gone = self._visible.erased_at(cut)
        if gone:
            raise ConcurrentTransactionsError(
                f"cut {cut.number} is from before an erasure",
                place=gone,
                expected="a cut that shows what is left",
                action="publish at a newer cut",
                reason=Reason.CUT_BEFORE_ERASURE,
            )

    def _remove_stray_pins(self, view: View) -> None:
        """Those of a table whose folder somebody took away. A version behind the first is nobody's, where the first is
        not there after the pin was: without it nobody has gone on from it.
        """
        stray = [name for name in self._pins.names(*self._incarnation, view.table_format) if name.version > 0]
        if stray and view.newest() is None:
            self._pins.remove(*self._incarnation, stray)

    def _finish(self, view: View, newest: Published, at: TopicCut) -> None:
        """Put what is missing of the versions of a cut, with the columns that the first one has. Its pin stands since
        before that.
        """
        changes = self._visible.changes(newest.earlier, at)
        steps = self._steps_left(changes, newest, {file.path: file for file in self._visible.at(at)})
        has = newest.schema_version
        self._commit(view, newest.version + 1, changes, steps, has, has)

    def _steps_left(self, changes: Changes, newest: Published, wanted: Mapping[str, TableFile]) -> list[Step]:
        """The steps behind those that are shown, if they still lead to the files that are wanted: where the log has
        forgotten meanwhile what became of some, the difference.
        """
        before = [] if newest.earlier is None else self._visible.at(newest.earlier)
        shown = ({file.path for file in before} | newest.added) - newest.removed
        done = -1 if newest.done is None else _ORDER.index(newest.done)
        steps = [step for step in changes.steps(newest.added) if _ORDER.index(step.kind) > done]
        files = set(shown)
        for step in steps:
            files = (files - set(step.removed)) | {file.path for file in step.added}
        if files == wanted.keys() and all(file.path not in shown for step in steps for file in step.added):
            return steps
        missing = tuple(file for path, file in wanted.items() if path not in shown)
        return [Step(StepKind.OVERWRITE, missing, tuple(sorted(shown - wanted.keys())))]

    def _commit(
        self,
        view: View,
        version: int,
        changes: Changes,
        steps: Sequence[Step],
        schema_before: int | None,
        schema_version: int,
    ) -> None:
        """Put the versions of these steps, the first with the columns where there were others, or none."""
        batches = view.batches(steps) or [()]
        for at, batch in enumerate(batches):
            commit = Commit(
                version + at,
                changes.earlier,
                changes.later,
                batch,
                schema_version,
                is_new_schema=at == 0 and schema_before != schema_version,
                is_complete=at == len(batches) - 1,
            )
            if not view.commit(commit):
                return

    def _readable(self, view: View, changes: Changes) -> list[str]:
        """The files that passed and may be shown. Raises `InvalidRequestError` where one that has to be shown would be
        read as something else.
        """
        lasting = set(self._lasting(changes))
        passing = [file for file in changes.passing if file.path in lasting]
        added = changes.added
        self._check_times(view, [*added, *passing])
        misread = view.misread([*added, *passing], self._workers)
        wrong = [file.path for file in added if file.path in misread]
        if wrong:
            raise InvalidRequestError(
                f"{misread[wrong[0]]}" + (f", and {len(wrong) - 1} more such files" if wrong[1:] else ""),
                actor=f"publish {self._topic.name!r} as {view.table_format}",
                place=f"{self._folder}/{wrong[0]}",
                expected="files with the field ids of the topic's columns, or with none: readers go by them",
                action=f"write them anew by `txn-engine maintain compact --topic {self._topic.name} --min-files 2`, or"
                " publish another format, or copy the topic into a new one; nothing was published",
                reason=Reason.OTHER_FIELD_IDS,
            )
        return [file.path for file in passing if file.path not in misread]

    def _check_times(self, view: View, files: Sequence[TableFile]) -> None:
        """Raise `InvalidRequestError` for a record with a time that no reader of the table would reach."""
        if not any(map(coarse_times, self._topic.schemas.layouts)):
            return
        places = [(f"{self._folder}/{file.path}", file.log_file.file.data_bytes) for file in files]
        versions = self._file_versions.of(self._topic, places) if self._topic.layouts else [0] * len(places)
        found = self._workers.map(
            lambda place, version: time_beyond(self._objects, self._topic, version, *place), places, versions
        )
        for file, beyond in zip(files, found, strict=True):
            if beyond is not None:
                column, distance = beyond
                raise InvalidRequestError(
                    f"column {column!r} has a time that microseconds do not reach",
                    actor=f"publish {self._topic.name!r} as {view.table_format}",
                    place=f"{self._topic.name}-{file.partition} offset {file.log_file.base_offset + distance}",
                    expected="times of at most 292,000 years from 1970: the format counts microseconds",
                    action="erase the record, or drop the column; nothing was published",
                    reason=Reason.BAD_DATETIME,
                )

    def _lasting(self, changes: Changes) -> list[str]:
        """Those files that passed which will be there once they are pinned. Clean-up takes none that died less than 24
        hours ago; half of that is left for clocks that differ.
        """
        young_ms = self._clock() - GRACE_MS // 2
        found = [file.path for file in changes.passing if file.died_ms > young_ms]
        return [path for path in found[:FILES_MAX] if self._objects.exists(f"{self._folder}/{path}")]
