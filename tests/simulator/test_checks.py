"""The checkers find each kind of wrong history, made by hand."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from storage import encode_parquet
from tests.simulator.checks import Final, check_history
from tests.simulator.history import History, Position, Read
from tests.simulator.knobs import Knobs
from tests.simulator.log_rules import check_landed
from tests.simulator.world import World

HERE, THERE = ("t", 0), ("t", 1)


@pytest.fixture
def history() -> History:
    """Two transactions of one client: the first committed in two partitions, the second aborted."""
    history = World(1, Knobs()).history
    first = history.begin("one", "client")
    first.records = {HERE: [("one", 0), ("one", 1)], THERE: [("one", 2)]}
    first.placed = {("one", 0): 0, ("one", 1): 1, ("one", 2): 0}
    history.end(first, "ok")
    second = history.begin("two", "client")
    second.records = {HERE: [("two", 0)]}
    history.end(second, "failed")
    return history


def _good() -> Final:
    return {HERE: [(0, ("one", 0)), (1, ("one", 1))], THERE: [(0, ("one", 2))]}


def _only(found: list[str]) -> str:
    assert len(found) == 1, found
    return found[0]


def test_a_sound_history_is_sound(history: History) -> None:
    """A sound history has no findings."""
    history.reads.append(Read("r", 0, 1, HERE, 0, 2, tuple(_good()[HERE])))
    assert check_history(history, _good(), {}) == []


@pytest.mark.parametrize(
    ("final", "kind"),
    [
        ({HERE: [(0, ("one", 0)), (1, ("one", 1))], THERE: []}, "lost"),
        ({**_good(), THERE: [(0, ("one", 2)), (5, ("one", 2))]}, "duplicate"),
        ({HERE: [(0, ("one", 0)), (1, ("one", 1)), (3, ("two", 0))], THERE: _good()[THERE]}, "not committed"),
        ({**_good(), THERE: [(0, ("one", 2)), (4, ("who", 0))]}, "unknown record"),
        ({**_good(), THERE: [(7, ("one", 2))]}, "wrong offset"),
    ],
)
def test_wrong_contents(history: History, final: Final, kind: str) -> None:
    """Lost, doubled, aborted, foreign and misplaced records are different findings."""
    assert _only(check_history(history, final, {})).startswith(kind)


def test_a_torn_transaction(history: History) -> None:
    """If the answer to a commit is unknown, all of its records are there, or none."""
    history.writings["one"].outcome = "committing"
    assert check_history(history, _good(), {}) == []
    assert check_history(history, {HERE: [], THERE: []}, {}) == []
    assert _only(check_history(history, {HERE: _good()[HERE], THERE: []}, {})).startswith("torn")


def test_what_retention_took_is_not_lost(history: History) -> None:
    """A record below the log's start may be missing. A record above it has to be there."""
    final: Final = {HERE: [(1, ("one", 1))], THERE: _good()[THERE]}
    assert check_history(history, final, {HERE: 1}) == []
    assert _only(check_history(history, final, {THERE: 5})).startswith("lost")


def test_what_was_acknowledged_without_an_offset_is_missed_as_well(history: History) -> None:
    """A commit that did not wait for its writes is missed as well, although nobody knows the offsets of its records."""
    history.writings["one"].placed = {}
    assert _only(check_history(history, {HERE: [], THERE: []}, {})).startswith("lost:")


def test_records_out_of_order(history: History) -> None:
    """Records in the wrong order are found, inside a transaction and between two transactions of one
    client."""
    history.writings["one"].placed.clear()
    swapped: Final = {HERE: [(0, ("one", 1)), (1, ("one", 0))], THERE: _good()[THERE]}
    assert any(line.startswith("reordered") for line in check_history(history, swapped, {}))
    history.writings["two"].outcome = "ok"
    before: Final = {HERE: [(0, ("two", 0)), (1, ("one", 0)), (2, ("one", 1))], THERE: _good()[THERE]}
    assert _only(check_history(history, before, {})).startswith("reordered")


def test_records_out_of_real_time(history: History) -> None:
    """Records that another client began to write after an acknowledgement come after the acknowledged ones."""
    history._kernel.now += 5
    later = history.begin("later", "another client")
    later.records = {THERE: [("later", 0)]}
    history.end(later, "ok")
    final = {**_good(), THERE: [(0, ("later", 0)), (4, ("one", 2))]}
    history.writings["one"].placed.pop(("one", 2))
    assert "reordered: one" in _only(check_history(history, final, {}))


def test_what_came_behind_what_is_left_was_not_trimmed(history: History) -> None:
    """A record without a known offset was removed by retention only if it can have been below the log's start."""
    last = history.begin("last", "client")
    last.records = {HERE: [("last", 0)], THERE: [("last", 1)]}
    history.end(last, "committing")
    final = {HERE: [*_good()[HERE], (6, ("last", 0))], THERE: [(9, ("one", 2))]}
    history.writings["one"].placed[("one", 2)] = 9
    assert "torn" in _only(check_history(history, final, {THERE: 8}))
    assert check_history(history, {HERE: final[HERE], THERE: []}, {THERE: 12}) == []


def test_reads_that_do_not_repeat(history: History) -> None:
    """What a read_committed read showed, or left out, has to be what is there for good."""
    history.reads.append(Read("r", 0, 1, HERE, 0, 2, ((0, ("one", 0)), (1, ("two", 0)))))
    assert _only(check_history(history, _good(), {})).startswith("unrepeatable read")


def test_an_end_or_a_position_that_falls(history: History) -> None:
    """A log end or a position that falls is a finding only if one look was over before the other began."""
    rows = tuple(_good()[HERE])
    history.reads += [Read("a", 0, 10, HERE, 0, 2, rows), Read("b", 5, 20, HERE, 0, 0, ())]
    assert check_history(history, _good(), {}) == []
    history.reads.append(Read("c", 11, 20, HERE, 0, 0, ()))
    assert "fell" in _only(check_history(history, _good(), {}))
    history.reads.clear()
    history.positions += [Position(0, 1, ("g", "t", 0), 5), Position(2, 3, ("g", "t", 0), 4)]
    assert "moved back" in _only(check_history(history, _good(), {}))


def _entry(base: int, last: int, kind: str = "entry", **more: Any) -> bytes:
    table = pa.table({"base_offset": [base], "last_offset": [last]})
    return encode_parquet(table, kind=kind, metadata={"write_id": f"{base:032x}", **more})


def test_what_landed_in_a_log() -> None:
    """Entries land in their order, once, and only seals replace them."""
    log = "topics/t/0/0/log"

    def at(base: int) -> str:
        return f"{log}/{base:020d}.parquet"

    sound = [(1, at(0), _entry(0, 3), "put_if_absent"), (2, at(4), _entry(4, 4), "put_if_absent")]
    sealed = [(3, at(0), _entry(0, 3, "seal"), "put")]
    assert check_landed([*sound, *sealed]) == []
    assert "ended at 5" in _only(check_landed([*sound, (3, at(9), _entry(9, 9), "put_if_absent")]))
    assert "overwritten" in _only(check_landed([*sound, (3, at(4), _entry(4, 6), "put")]))
    assert "deleted" in _only(check_landed([*sound, (3, at(4), b"", "delete")]))
    assert "no entry was" in _only(check_landed([*sound, (3, at(5), _entry(5, 5, "seal"), "put")]))


def test_what_landed_in_a_topic_that_was_deleted() -> None:
    """After the topic's tombstone its entries and snapshots may be removed. Before the tombstone they may not, and
    neither may those of a topic that was created again.
    """

    def at(incarnation: int, part: str) -> str:
        return f"topics/t/{incarnation}/0/{part}/{0:020d}.parquet"

    def topic(incarnation: int, *, deleted: bool) -> tuple[int, str, bytes, str]:
        data = json.dumps({"deleted": deleted}).encode()
        return 0, f"topics/t/{incarnation}.json", data, "put_if_absent"

    entries = [(1, at(life, "log"), _entry(0, 3), "put_if_absent") for life in (0, 2)]
    made = [topic(0, deleted=False), *entries, (2, at(0, "snapshots"), b"", "put_if_absent")]
    gone = [(3, at(0, part), b"", "delete") for part in ("log", "snapshots")]
    anew = [topic(1, deleted=True), topic(2, deleted=False)]
    assert check_landed([*made, *anew, *gone]) == []
    assert len(check_landed([*made, *gone, *anew])) == 2
    assert "deleted" in _only(check_landed([*made, *anew, (4, at(2, "log"), b"", "delete")]))


def test_a_producer_id_is_taken_once() -> None:
    """A producer id stays with the first transactional id and life that used it."""

    def row(base: int, name: str, producer_id: int) -> tuple[int, str, bytes, str]:
        table = pa.table(
            {
                "base_offset": [base],
                "last_offset": [base],
                "transaction": [{"transactional_id": name, "producer_id": producer_id}],
            }
        )
        data = encode_parquet(table, kind="entry", metadata={"write_id": f"{base:032x}"})
        return base, f"topics/__transaction_state/0/0/log/{base:020d}.parquet", data, "put_if_absent"

    sound = [row(0, "a", 1), row(1, "a", 1), row(2, "a", -1), row(3, "b", 2)]
    assert check_landed([*sound, row(4, "a", 3)]) == []
    assert "which a has used" in _only(check_landed([*sound, row(4, "a", 1)]))
    assert "which b has used" in _only(check_landed([*sound, row(4, "a", 2)]))


def test_a_snapshot_goes_where_two_newer_ones_are() -> None:
    """A snapshot may be deleted only if two newer ones are there, because sealed entries are only in
    snapshots."""

    def at(end: int) -> str:
        return f"topics/t/0/0/snapshots/{end:020d}.parquet"

    written = [(end, at(end), b"", "put_if_absent") for end in (1, 5, 9)]
    assert check_landed([*written, (10, at(1), b"", "delete")]) == []
    assert "[9] alone" in _only(check_landed([*written, (10, at(5), b"", "delete")]))
    assert "[] alone" in _only(check_landed([*written, (10, at(9), b"", "delete")]))
    gone = [(10, at(1), b"", "delete"), (11, at(5), b"", "delete")]
    assert "[9] alone" in _only(check_landed([*written, *gone]))
