"""The two ways to find what changed between two cuts agree, and no step shows a record twice."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Iterator

import pyarrow.parquet as pq
import pytest

from tests.suite.tiers import in_shard
from tests.support.refusals import damaged_at, refused
from tests.tables.ledgers import EAGER, SCHEMA, Ledger, engine_on, rows
from txn_engine import Engine
from txn_engine.errors import (
    ConcurrentTransactionsError,
    InvalidRequestError,
    OutcomeUnknownError,
)
from txn_engine.log.as_of import EarlierLog
from txn_engine.log.topic_cut import TopicCut, topic_cut
from txn_engine.reasons import Reason
from txn_engine.tables.changes import Changes, StepKind, Visible
from txn_engine.tables.files import TableFile
from txn_engine.testing import ManualClock

Record = tuple[int, int]
FOLDER = "topics/payments/0/"
PASSING = "passing"
"""Counted beside the kinds of steps: files that came and went between two cuts."""
KINDS: dict[int, set[str]] = {
    2: {StepKind.APPEND, StepKind.REPLACE, PASSING},
    5: {StepKind.APPEND, StepKind.DELETE, StepKind.OVERWRITE, PASSING},
}
"""The seeds that `make test` runs, and the kinds of steps that each of them leads to."""


class Records:
    """The records of each data file by partition and offset, which are read while the file exists."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._deltas: dict[str, list[int]] = {}

    def look(self) -> None:
        for info in self._engine.store.list(FOLDER):
            path = info.key.removeprefix(FOLDER)
            if "/data/" in path and path not in self._deltas:
                table = pq.read_table(io.BytesIO(self._engine.store.get(info.key)), columns=["_offset_delta"])
                self._deltas[path] = table.column(0).to_pylist()

    def of(self, files: Iterable[TableFile]) -> list[Record]:
        return [
            (file.partition, file.log_file.base_offset + delta)
            for file in files
            for delta in self._deltas[file.path]
        ]


def by_path(files: Iterable[TableFile]) -> dict[str, TableFile]:
    return {each.path: each for each in files}


def applied(changes: Changes, before: dict[str, TableFile], kept: Iterable[str] = ()) -> set[str]:
    """The paths of a table's files after the changes."""
    files = set(before)
    for step in changes.steps(set(kept)):
        added = set(by_path(step.added))
        assert not added & files
        assert files | added >= set(step.removed)
        files = (files | added) - set(step.removed)
    return files


def check_steps(
    changes: Changes, records: Records, before: dict[str, TableFile], earlier: TopicCut
) -> Counter[str]:
    """Check what each kind of step does to the records, and that a follower of the table gets every new
    record once.

    Returns how many steps of each kind there were.
    """
    seen: Counter[str] = Counter()
    every = {each.path: each for each in changes.passing}
    ends = [log.offset for log in earlier.partitions]
    table = dict(before)
    order = list(StepKind)
    steps = changes.steps(set(every))
    assert [order.index(step.kind) for step in steps] == sorted({order.index(step.kind) for step in steps})
    given: list[Record] = []
    seen[PASSING] += len(every)
    for step in steps:
        seen[step.kind] += 1
        had = records.of(table.values())
        table = {path: file for path, file in table.items() if path not in step.removed} | by_path(step.added)
        has = records.of(table.values())
        assert len(set(has)) == len(has)
        if step.kind is StepKind.APPEND:
            given = records.of(step.added)
            assert set(has) == set(had) | set(given)
            assert all(partition >= len(ends) or offset >= ends[partition] for partition, offset in given)
        elif step.kind is StepKind.REPLACE:
            assert set(has) == set(had)
        else:
            assert set(has) < set(had) or (step.kind is StepKind.OVERWRITE and set(has) <= set(had))
        if step.kind is StepKind.DELETE:
            assert not step.added
    new = [
        record
        for record in records.of(table.values())
        if record[0] >= len(ends) or record[1] >= ends[record[0]]
    ]
    assert set(new) <= set(given)
    return seen


@pytest.mark.parametrize("seed", in_shard("engines", [0, 1, 2, 5, 6, 9], keep=KINDS))
def test_both_ways_lead_from_one_cut_to_another(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps from a cut to each later one are the same by the log and by comparing files. The seeds of
    `make test` have all kinds of steps."""
    clock = ManualClock()
    seen: Counter[str] = Counter()
    with engine_on(clock=clock) as engine:
        ledger, records = Ledger(engine, clock, seed), Records(engine)
        topic = engine.logs.topics.look_up("payments")
        cuts: list[TopicCut] = []
        for _ in range(12):
            for _ in range(ledger.random.randint(1, 4)):
                ledger.step()
                records.look()
            try:
                cut = topic_cut(ledger.cut(), "payments", 0)
                Visible(engine.logs, topic).at(cut)
            except ConcurrentTransactionsError:
                continue
            cuts.append(cut)
        visible = Visible(engine.logs, topic)
        files = {cut.number: by_path(visible.at(cut)) for cut in cuts}
        for cut in cuts:
            scanned = engine.scan("payments", cut=cut.number).files()
            assert [f"{engine.store.uri(FOLDER + path)}" for path in files[cut.number]] == [
                each.uri for each in scanned
            ]
            assert all((each.first_row, each.end_row) == (0, each.record_count) for each in scanned)
        pairs = [(a, b) for at, a in enumerate(cuts) for b in cuts[at + 1 :]]
        for a, b in pairs[:: max(1, len(pairs) // 20)]:
            changes = visible.changes(a, b)
            assert applied(changes, files[a.number]) == set(files[b.number])
            assert applied(changes, files[a.number], by_path(changes.passing)) == set(files[b.number])
            seen += check_steps(changes, records, files[a.number], a)
            with monkeypatch.context() as patched:
                patched.setattr(EarlierLog, "slots", sealed)
                compared = visible.changes(a, b)
            assert applied(compared, files[a.number]) == set(files[b.number])
            assert applied(compared, files[a.number], by_path(compared.passing)) == set(files[b.number])
            seen += check_steps(compared, records, files[a.number], a)
        ledger.close()
    assert set(seen) >= KINDS.get(seed, {StepKind.APPEND})


def sealed(*_: object) -> None:
    raise OutcomeUnknownError("sealed")


def test_a_merge_of_old_files_with_new_ones_is_shown_in_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A merge of old and new files is shown in two steps, so a follower gets only the new records. If the new
    files are gone, it is an overwrite."""
    clock = ManualClock()
    with engine_on(clock=clock) as engine:
        engine.admin.create_topic("payments", partitions=1, schema=SCHEMA)
        append(engine, 1)
        first = cut_of(engine)
        append(engine, 2)
        append(engine, 3)
        engine.maintenance.compact(policy=EAGER)
        append(engine, 4)
        second = cut_of(engine)
        visible = Visible(engine.logs, engine.logs.topics.look_up("payments"))
        for is_sealed in (False, True):
            with monkeypatch.context() as patched:
                if is_sealed:
                    patched.setattr(EarlierLog, "slots", sealed)
                changes = visible.changes(first, second)
            passing = by_path(changes.passing)
            assert [each.log_file.base_offset for each in changes.passing] == [1, 2]
            assert {each.died_ms for each in changes.passing} == {clock()}
            append_step, replace_step = changes.steps(set(passing))
            assert (append_step.kind, replace_step.kind) == (StepKind.APPEND, StepKind.REPLACE)
            assert sorted(each.log_file.base_offset for each in append_step.added) == [1, 2, 4]
            assert set(replace_step.removed) == set(by_path(visible.at(first))) | set(passing)
            kinds = [step.kind for step in changes.steps(set(list(passing)[:1]))]
            assert kinds == [StepKind.OVERWRITE]  # or half of a transaction would be shown


def test_an_earlier_cut_is_refused(engine_pair: tuple[Engine, TopicCut, TopicCut]) -> None:
    engine, first, second = engine_pair
    visible = Visible(engine.logs, engine.logs.topics.look_up("payments"))
    with refused(InvalidRequestError, Reason.CUTS_OUT_OF_ORDER) as caught:
        visible.changes(second, first)
    assert caught.value.place == "payments-0"
    assert visible.changes(first, first).steps(()) == []


def test_a_missing_entry_is_named(engine_pair: tuple[Engine, TopicCut, TopicCut]) -> None:
    engine, first, second = engine_pair
    engine.store.delete(engine.logs.get("payments", 0, 0).keys.entry(1))
    visible = Visible(engine.logs, engine.logs.topics.look_up("payments"))
    with damaged_at("log/00000000000000000001.parquet"):
        visible.changes(first, second)


@pytest.fixture
def engine_pair() -> Iterator[tuple[Engine, TopicCut, TopicCut]]:
    """Two cuts, the second with one more record."""
    with engine_on() as engine:
        engine.admin.create_topic("payments", partitions=1, schema=SCHEMA)
        append(engine, 1)
        first = cut_of(engine)
        append(engine, 2)
        yield engine, first, cut_of(engine)


def append(engine: Engine, *accounts: int) -> None:
    engine.partition("payments", 0).append(rows(*accounts))


def cut_of(engine: Engine) -> TopicCut:
    return topic_cut(engine.cut(), "payments", 0)
