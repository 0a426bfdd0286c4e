"""`Engine.tables`: a topic's committed records as tables that other engines open (docs/TABLES.md)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa

from txn_engine.arguments import checks_arguments
from txn_engine.clock import Clock, Waiting
from txn_engine.errors import (
    ConcurrentTransactionsError,
    CorruptObjectError,
    InconsistentClusterIdError,
    InvalidRequestError,
    StoreUnavailableError,
    TxnEngineError,
)
from txn_engine.log.cut_format import Cut
from txn_engine.log.cuts import CutStore
from txn_engine.log.logs import Logs
from txn_engine.log.missing_files import wrong_files
from txn_engine.log.pins import PinStore
from txn_engine.log.topic_cut import TopicCut, topic_cut
from txn_engine.log.topics import Topic
from txn_engine.maintain.outcomes import Outcomes
from txn_engine.maintain.reports import MaintenanceReport
from txn_engine.reasons import Reason
from txn_engine.tables.changes import Visible
from txn_engine.tables.delta import DeltaView
from txn_engine.tables.delta.schema import delta_schema
from txn_engine.tables.iceberg import IcebergView
from txn_engine.tables.iceberg.schema import iceberg_schemas
from txn_engine.tables.publishing import Publisher
from txn_engine.tables.views import View
from txn_engine.unreadable import DAMAGE, WHOLE_TOPIC, Listing, Unreadable, one_place

KEEP_CUT_MS: Final = 7 * 86_400_000
"""How long a cut is kept that was made to be published at. What tables need of it their pins keep."""
_TRIES: Final = 5
_PAUSE_MS: Final = 200
_VIEWS: Final[dict[str, type[DeltaView | IcebergView]]] = {"delta": DeltaView, "iceberg": IcebergView}
_SCHEMAS: Final[dict[str, Callable[[Topic], object]]] = {"delta": delta_schema, "iceberg": iceberg_schemas}
FORMATS: Final = tuple(_VIEWS)


@dataclass(frozen=True, slots=True)
class TablePublished:
    """What publishing did to a table: the versions and the cuts that it showed before and shows now, -1 for none."""

    topic: str
    format: str
    version_before: int
    version: int
    cut_before: int
    cut: int


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One table of one topic.

    version: the newest. cut: which it shows, -1 once it was unpublished. published_ms: when. is_complete: False where
    its publisher stopped before the last step. behind: offsets that are stable and not in it yet. pins: how many
    versions' files are kept. schema_version: of the topic's, whose columns it has. elsewhere: the address by which it
    names its files, where that is not the store's: the store was moved or copied, and readers read the original's.
    """

    topic: str
    incarnation: int
    format: str
    uri: str
    version: int
    cut: int
    published_ms: int
    is_complete: bool
    behind: int
    pins: int
    schema_version: int = 0
    elsewhere: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


@checks_arguments
class Tables:
    """Publishes topics as tables over the very files of the log, without a copy, each version at a cut.

    Guarantee: every version shows whole transactions, none that was aborted, and never a record twice; of several
    publishers at once each version is one's. What a version names stays for seven days after the next, and the newest
    as long as it is published.
    """

    def __init__(
        self,
        logs: Logs,
        cuts: CutStore,
        pins: PinStore,
        clock: Clock,
        waiting: Waiting,
        *,
        make_cut: Callable[[], Cut],
        drive: Callable[[], object],
    ) -> None:
        self._logs = logs
        self._cuts = cuts
        self._pins = pins
        self._clock = clock
        self._waiting = waiting
        self._make_cut = make_cut
        self._drive = drive

    def publish(
        self, topic: str, formats: Sequence[str] = FORMATS, *, cut: Cut | int | None = None
    ) -> dict[str, str]:
        """Let the topic's tables show a cut; by format what their readers open. No cut: one of all topics is made.

        The version has the topic's present columns, also where they are all that is new. What is published already
        stays as it is. Raises `InvalidRequestError` for a cut that is older than what a table shows, and for a column
        of a type that a format has not, or of which its readers would give something else.
        """
        info = self._logs.topics.look_up(topic)
        views = [self._view(name, info) for name in _checked(formats)]
        for view in views:
            view.check()
            view.newest()
        if cut is not None:
            return self._publish(info, views, self._cuts.find(cut), is_asked=True)
        for tried in range(1, _TRIES):
            made = self._make_cut()
            try:
                return self._publish(info, views, made, is_asked=False)
            except ConcurrentTransactionsError:
                self._drive()
                self._waiting.pause_ms(_PAUSE_MS * tried)
        return self._publish(info, views, self._make_cut(), is_asked=False)

    def publish_due(
        self,
        topic: str | None = None,
        *,
        cut: Cut | int | None = None,
        dry_run: bool = False,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> MaintenanceReport[TablePublished]:
        """Publish the topics whose setting `tables.publish` says so, all at one cut, each by itself: one that fails is
        in the report's `failures`. Of one topic, or of all. In a dry run: those that are behind. At a cut that is given
        or not at all; at one that is made here, or at a newer one where the topic cannot be published at that.
        """
        given = None if cut is None else self._cuts.find(cut)
        topics, unreadable = self._due(topic)
        outcomes: Outcomes[TablePublished] = Outcomes()
        for each in unreadable:
            outcomes.note(each)
        at: Cut | None = None
        if topics and not dry_run:
            at = given or self._make_cut()
        for number, info in enumerate(topics, start=1):
            for name in info.tables_publish:
                outcomes.note(self._publish_one(info, name, at, is_asked=given is not None))
            if progress is not None:
                progress(info.name, number, len(topics))
        if outcomes.refusal is not None:
            raise outcomes.refusal
        return outcomes.report(dry_run=dry_run)

    def _due(self, topic: str | None) -> tuple[list[Topic], Sequence[Unreadable]]:
        if topic is not None and topic in self._logs.config.internal_partitions:
            return [], ()
        if topic is not None:
            info = self._logs.topics.look_up(topic)
            return ([info] if info.tables_publish else []), ()
        survey = self._logs.topics.survey_each()
        return [info for info in survey.topics if info.tables_publish], survey.unreadable

    def _publish_one(
        self, topic: Topic, name: str, cut: Cut | None, *, is_asked: bool
    ) -> TablePublished | Unreadable | None:
        """What became of one table, None where it was up to date. No cut: a dry run."""
        try:
            with one_place(topic.name):
                before = self._table(topic, name)
                if cut is None:
                    is_shown = before is not None and before.schema_version == topic.version
                    is_due = before is None or before.cut < 0 or before.behind or not is_shown
                    return _moved(topic, name, before, before) if is_due else None
                try:
                    self._publish(topic, [self._view(name, topic)], cut, is_asked=is_asked)
                except ConcurrentTransactionsError:  # that cut goes through one of its files
                    if is_asked:
                        raise
                    self.publish(topic.name, name)
                after = self._table(topic, name)
                return None if after == before else _moved(topic, name, before, after)
        except (StoreUnavailableError, InconsistentClusterIdError):
            raise
        except TxnEngineError as error:
            return Unreadable(topic.name, WHOLE_TOPIC, error)

    def unpublish(self, topic: str, formats: Sequence[str] = FORMATS, *, dry_run: bool = False) -> list[str]:
        """Withdraw the topic's tables: readers are refused from then on, and files that only the tables needed may go.

        Returns the formats of the tables that existed. If the topic is published again, the same table continues.
        `dry_run` returns the same, and writes nothing.
        """
        names = _checked(formats)
        info = self._logs.topics.look_up(topic)
        views = [self._view(name, info) for name in names]
        if dry_run:
            return [view.table_format for view in views if view.newest() is not None]
        publisher = self._publisher(info)
        return [view.table_format for view in views if publisher.unpublish(view) is not None]

    def status(self, topic: str | None = None) -> Listing[TableStatus]:
        """The tables that there are, of one topic or of all; in `unreadable` those that cannot be read, and those whose
        newest version lacks something. That is found by listing: no data file is read.
        """
        if topic is not None:
            info = self._logs.topics.look_up(topic)
            shown = self._all_of(info)
            return Listing(shown, self._broken(info, shown))
        survey = self._logs.topics.survey()
        found: list[TableStatus] = []
        unreadable = list(survey.unreadable)
        for info in survey.topics:
            try:
                with one_place(info.name):
                    shown = self._all_of(info)
            except DAMAGE as error:
                unreadable.append(Unreadable(info.name, WHOLE_TOPIC, error))
                continue
            found += shown
            unreadable += self._broken(info, shown)
        return Listing(found, unreadable)

    def _broken(self, topic: Topic, tables: Sequence[TableStatus]) -> list[Unreadable]:
        """The tables of which something is missing, each with the first object that is."""
        broken = []
        for table in tables:
            try:
                with one_place(topic.name):
                    key = self._missing(topic, table.format)
            except DAMAGE as error:
                broken.append(Unreadable(topic.name, WHOLE_TOPIC, error))
            else:
                if key is not None:
                    broken.append(Unreadable(topic.name, WHOLE_TOPIC, _broken_table(table, key)))
        return broken

    def _missing(self, topic: Topic, name: str) -> str | None:
        """What the newest version of a table needs and is not there; None: all is, or a newer one came meanwhile."""
        view = self._view(name, topic)
        newest = view.newest()
        if newest is None or newest.at is None:
            return None
        key = view.missing(newest)
        if key is None and newest.done is None:
            key = self._missing_file(topic, newest.at)
        return key if key is not None and self._view(name, topic).newest() == newest else None

    def _missing_file(self, topic: Topic, at: TopicCut) -> str | None:
        sizes: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for file in Visible(self._logs, topic).at(at):
            key = f"topics/{topic.name}/{topic.incarnation}/{file.path}"
            sizes[f"{key.rpartition('/')[0]}/"][key] = file.log_file.file.data_bytes
        objects = self._logs.tools.objects
        wrong = (key for folder, held in sizes.items() for key in wrong_files(objects, folder, held))
        return next(wrong, None)

    def unsayable(self, topic: str) -> dict[str, str]:
        """The topic's tables that cannot be published as its columns are now: by format, why."""
        info = self._logs.topics.look_up(topic)
        found = {each.format: refusal(info, each.format) for each in self._all_of(info) if each.cut >= 0}
        return {name: why for name, why in found.items() if why is not None}

    def shows_erased(self, topic: str, table_format: str) -> bool:
        """Whether the newest version of the table shows a file of which records were erased."""
        info = self._logs.topics.look_up(topic)
        newest = self._view(table_format, info).newest()
        if newest is None or newest.at is None:
            return False
        visible = Visible(self._logs, info)
        shown = (newest.at,) if newest.done is None or newest.earlier is None else (newest.at, newest.earlier)
        return any(visible.erased_at(cut) is not None for cut in shown)

    def _publish(self, topic: Topic, views: Sequence[View], cut: Cut, *, is_asked: bool) -> dict[str, str]:
        now = self._logs.topics.look_up(topic.name)  # behind the cut: it has no file of a later version
        if now.layouts:
            topic, views = now, [self._view(view.table_format, now) for view in views]
        for view in views:
            view.check()
        at = topic_cut(cut, topic.name, topic.incarnation)
        publisher = self._publisher(topic)
        picky_first = sorted(views, key=lambda view: not view.looks_into_files)
        shown = {
            view.table_format: publisher.publish(view, at, or_newer=not is_asked) for view in picky_first
        }
        return {view.table_format: view.uri(shown[view.table_format]) for view in views}

    def _all_of(self, topic: Topic) -> list[TableStatus]:
        found = (self._table(topic, name) for name in FORMATS)
        return [each for each in found if each is not None]

    def _table(self, topic: Topic, name: str) -> TableStatus | None:
        view = self._view(name, topic)
        newest = view.newest()
        if newest is None:
            return None
        return TableStatus(
            topic.name,
            topic.incarnation,
            name,
            view.uri(newest),
            newest.version,
            -1 if newest.at is None else newest.at.number,
            newest.created_ms,
            newest.done is None,
            0 if newest.at is None else self._behind(topic, newest.at),
            len(self._pins.names(topic.name, topic.incarnation, name)),
            newest.schema_version,
            view.elsewhere(),
        )

    def _behind(self, topic: Topic, at: TopicCut) -> int:
        logs = [self._logs.get(topic.name, topic.incarnation, number) for number in range(topic.partitions)]
        shown = [*(log.offset for log in at.partitions), *[0] * topic.partitions]
        states = self._logs.refresh_all(logs)
        return sum(max(0, state.last_stable_offset - end) for state, end in zip(states, shown, strict=False))

    def _publisher(self, topic: Topic) -> Publisher:
        return Publisher(self._logs, topic, self._cuts, self._pins, self._clock)

    def _view(self, name: str, topic: Topic) -> View:
        tools = self._logs.tools
        return _VIEWS[name](tools.objects, topic, self._logs.config, self._clock, tools.new_id)


def check_schema(topic: str, schema: pa.Schema, formats: Sequence[str]) -> None:
    """Raise `InvalidRequestError` where a column is of a type that one of the formats has not."""
    made = Topic(topic, 0, 1, schema, None, -1, 0)
    for name in formats and _checked(formats):
        _SCHEMAS[name](made)


def check_publishable(topic: Topic, formats: Sequence[str]) -> None:
    """Raise `InvalidRequestError` where the topic, with all that its columns have become, is not published in one of
    these formats.
    """
    for name in formats:
        _SCHEMAS[name](topic)


def refusal(topic: Topic, table_format: str) -> str | None:
    """Why the topic, with these columns, is not published in the format; None where it can be."""
    try:
        _SCHEMAS[table_format](topic)
    except InvalidRequestError as error:
        return error.seen
    return None


def published_formats(logs: Logs, topic: Topic, clock: Clock) -> list[str]:
    """The formats in which somebody reads the topic as a table: by its setting `tables.publish`, or since it was
    published by hand. One that is damaged counts: somebody may.
    """
    tools = logs.tools
    found = []
    for name, view in _VIEWS.items():
        try:
            newest = view(tools.objects, topic, logs.config, clock, tools.new_id).newest()
            is_shown = newest is not None and newest.at is not None
        except DAMAGE:
            is_shown = True
        if is_shown or name in topic.tables_publish:
            found.append(name)
    return found


def _broken_table(table: TableStatus, key: str) -> CorruptObjectError:
    return CorruptObjectError(
        "no such object, or one of another size",
        place=key,
        expected=f"what version {table.version} of the {table.format} table of {table.topic!r} reads",
        action="restore it from a copy, or unpublish the table and publish it again",
        reason=Reason.TABLE_BROKEN,
    )


def _moved(topic: Topic, name: str, before: TableStatus | None, after: TableStatus | None) -> TablePublished:
    versions = [-1 if each is None else each.version for each in (before, after)]
    cuts = [-1 if each is None else each.cut for each in (before, after)]
    return TablePublished(topic.name, name, *versions, *cuts)


def _checked(formats: Sequence[str]) -> list[str]:
    given: object = [formats] if isinstance(formats, str) else formats
    if not isinstance(given, Collection) or not given or any(name not in FORMATS for name in given):
        raise InvalidRequestError(
            f"table formats {given!r:.80}",
            expected=f"some of {', '.join(FORMATS)}",
            reason=Reason.BAD_ARGUMENT,
        )
    return list(dict.fromkeys(given))
