"""The pure core against naive models, by random histories (Hypothesis state machines).

The models share nothing with the core but its errors' codes: a log is a list of dicts, a transactional id is one
dict, and whatever is asked of them is found by looking through the whole of it each time.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from txn_engine.errors import TxnEngineError
from txn_engine.log.snapshot_format import decode_snapshot, encode_snapshot
from txn_engine.protocol import transactions as tx
from txn_engine.protocol.appends import plan_entry
from txn_engine.protocol.batches import BatchDescriptor, FileRef
from txn_engine.protocol.offset_commits import OffsetCommit, OffsetKey
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.proposals import (
    Appended,
    DataProposal,
    ExpireProposal,
    MarkerProposal,
    OffsetCommitProposal,
    Proposal,
    Refused,
    TransactionProposal,
    Verdict,
)
from txn_engine.protocol.replay import apply
from txn_engine.protocol.transaction_rows import TransactionPartition, TransactionRow, TransactionState
from txn_engine.types import ProducerIdAndEpoch

TOP, MAX_EPOCH = 2**31 - 1, 2**15 - 1
EPOCH, SEQUENCE, STATE = "INVALID_PRODUCER_EPOCH", "OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_TXN_STATE"
FENCED, COORDINATOR = "PRODUCER_FENCED", "TRANSACTION_COORDINATOR_FENCED"
CONCURRENT, UNMAPPED = "CONCURRENT_TRANSACTIONS", "INVALID_PRODUCER_ID_MAPPING"
DAY_MS = 86_400_000
GROUP_KEYS = [OffsetKey("g", "t", 0, number) for number in range(2)]


def seen(verdict: Verdict) -> Any:
    """A verdict as the models say it: ("written", base, last), ("duplicate", base), or an error's code."""
    if isinstance(verdict, Refused):
        return verdict.error.code
    if isinstance(verdict, Appended):
        return "written", verdict.base_offset, verdict.last_offset
    return "duplicate", verdict.base_offset


# --- a partition ------------------------------------------------------------------------------------------


class NaivePartition:
    """A log as a list of dicts, and Kafka's rules as Kafka documents them."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    @property
    def end(self) -> int:
        return self.rows[-1]["last"] + 1 if self.rows else 0

    def write(self, **row: Any) -> tuple[str, int, int]:
        base = self.end
        self.rows.append({"base": base, "last": base + row.pop("count", 1) - 1, **row})
        return "written", base, self.rows[-1]["last"]

    # --- looking --------------------------------------------------------------------------------------------

    def of(self, pid: int) -> list[dict[str, Any]]:
        """The producer's rows since it was last forgotten."""
        mine: list[dict[str, Any]] = []
        for row in self.rows:
            if row["kind"] == "expire" and pid in row["pids"]:
                mine = []
            elif row.get("pid") == pid:
                mine.append(row)
        return mine

    def epoch(self, pid: int) -> int | None:
        mine = self.of(pid)
        return mine[-1]["epoch"] if mine else None

    def open_since(self, pid: int) -> int | None:
        """Where the producer's open transaction begins."""
        first = None
        for row in self.of(pid):
            if row["kind"] in ("commit", "abort"):
                first = None
            elif row["txn"] and first is None:
                first = row["base"]
        return first

    def last_five(self, pid: int) -> list[dict[str, Any]]:
        now = self.epoch(pid)
        return [row for row in self.of(pid) if row["kind"] == "data" and row["epoch"] == now][-5:]

    def marker_epochs(self, pid: int) -> list[int]:
        return [row["coord"] for row in self.of(pid) if row["kind"] in ("commit", "abort")]

    def pids(self) -> set[int]:
        return {row["pid"] for row in self.rows if row.get("pid", -1) >= 0 and self.of(row["pid"])}

    def stable(self) -> int:
        return min((at for pid in self.pids() if (at := self.open_since(pid)) is not None), default=self.end)

    def fate(self, row: dict[str, Any]) -> str:
        """What became of a row of a transaction: the next marker of its producer decides."""
        if not row["txn"]:
            return "commit"
        later = (r for r in self.rows if r["base"] > row["base"] and r.get("pid") == row["pid"])
        return next((r["kind"] for r in later if r["kind"] in ("commit", "abort")), "open")

    def files(self, fate: str) -> set[int]:
        return {row["base"] for row in self.rows if row["kind"] == "data" and self.fate(row) == fate}

    def offsets(self) -> tuple[dict[OffsetKey, int], dict[int, dict[OffsetKey, int]]]:
        """The latest committed row of each key, and the pending rows by producer, found by going through the
        log."""
        done: dict[OffsetKey, int] = {}
        pending: dict[int, dict[OffsetKey, int]] = {}
        for row in self.rows:
            if row["kind"] == "offset" and row["txn"]:
                pending.setdefault(row["pid"], {})[row["key"]] = row["base"]
            elif row["kind"] == "offset":
                done[row["key"]] = row["base"]
            elif row["kind"] in ("commit", "abort"):
                mine = pending.pop(row["pid"], {})
                done |= mine if row["kind"] == "commit" else {}
        return done, pending

    # --- judging --------------------------------------------------------------------------------------------

    def data(self, pid: int, epoch: int, seq: int, number: int, txn: bool) -> Any:
        last = (seq + number - 1) % (TOP + 1)
        now, five = self.epoch(pid), self.last_five(pid)
        if pid < 0:
            return self.write(kind="data", pid=-1, epoch=-1, txn=False, seq=-1, end=-1, count=number)
        for row in five:
            if (row["seq"], row["end"], epoch) == (seq, last, now):
                return "duplicate", row["base"]
        refusal = self._stale(pid, epoch) or self._gap(pid, epoch, seq, txn) or self._misfit(pid, epoch, txn)
        return refusal or self.write(
            kind="data", pid=pid, epoch=epoch, txn=txn, seq=seq, end=last, count=number
        )

    def _stale(self, pid: int, epoch: int) -> str | None:
        now = self.epoch(pid)
        return EPOCH if now is not None and epoch < now else None

    def _gap(self, pid: int, epoch: int, seq: int, txn: bool) -> str | None:
        now, five = self.epoch(pid), self.last_five(pid)
        if txn and not five and seq != 0:
            return SEQUENCE
        if now is None:
            return None
        if epoch != now or not five:
            return SEQUENCE if seq != 0 else None
        return None if seq == (five[-1]["end"] + 1) % (TOP + 1) else SEQUENCE

    def _misfit(self, pid: int, epoch: int, txn: bool) -> str | None:
        if self.open_since(pid) is None:
            return None
        return STATE if not txn or epoch != self.epoch(pid) else None

    def offset(self, key: OffsetKey, fetched: int, fetched_end: int, pid: int, epoch: int) -> Any:
        """Commit a group's offset. Each commit has another value, so that none is a duplicate."""
        refusal = None if pid < 0 else self._stale(pid, epoch) or self._misfit(pid, epoch, txn=True)
        if refusal:
            return refusal
        done, pending = self.offsets()
        if any(key in keys for other, keys in pending.items() if other != pid):
            return "OFFSETS_PENDING"
        mine = pending.get(pid, {}).get(key) if pid >= 0 else None
        stands = done.get(key)
        unmoved = stands is None if fetched == -1 else stands == fetched
        if fetched != -2 and not unmoved and (mine is None or mine != fetched):
            return "OFFSETS_MOVED"
        return self.write(kind="offset", pid=pid, epoch=epoch, txn=pid >= 0, key=key)

    def marker(self, pid: int, epoch: int, committed: bool, coord: int) -> Any:
        now, is_open = self.epoch(pid), self.open_since(pid) is not None
        known = (self.marker_epochs(pid) or [-1])[-1]
        if now is not None:
            # 32767 has no epoch above it: a later decision ends what is open there.
            last_resort = is_open and epoch == now == MAX_EPOCH and coord > known
            if epoch < now or (epoch == now and is_open and not last_resort):
                return EPOCH
            if coord < known:
                return COORDINATOR
            if epoch == now and not last_resort:
                return "duplicate", -1
        return self.write(
            kind="commit" if committed else "abort", pid=pid, epoch=epoch, txn=False, coord=coord
        )

    def operator_abort(self, pid: int, epoch: int, coord: int, start: int) -> Any:
        if self.open_since(pid) != start:
            return STATE
        if epoch != self.epoch(pid):
            return EPOCH
        if coord < (self.marker_epochs(pid) or [-1])[-1]:
            return COORDINATOR
        return self.write(kind="abort", pid=pid, epoch=epoch, txn=False, coord=coord)

    def expire(self, pids: list[int]) -> Any:
        idle = [pid for pid in pids if self.of(pid) and self.open_since(pid) is None]
        return self.write(kind="expire", pids=idle) if idle else ("duplicate", -1)


class PartitionMachine(RuleBasedStateMachine):
    """Producers, zombies, markers, groups and expiry on one partition. Some entries hold several
    proposals."""

    def __init__(self) -> None:
        super().__init__()
        self.model = NaivePartition()
        self.state = PartitionState()
        self.batches: list[BatchDescriptor] = []
        self.aborted: list[tuple[int, int, int, int]] = []
        self.numbers = count()
        self.waiting: list[tuple[Proposal, Any]] = []

    # --- the proposals --------------------------------------------------------------------------------------

    def submit(self, proposal: Proposal, expected: Any, together: bool) -> None:
        """Append the proposal now, or in one entry with the next ones. The model has judged it already."""
        self.waiting.append((proposal, expected))
        if not together or len(self.waiting) == 4:
            self.append()

    def append(self) -> None:
        """Plan one entry of all proposals that wait. The core's answers have to be the model's."""
        proposals, answers = zip(*self.waiting, strict=True)
        self.waiting = []
        plan = plan_entry(self.state, proposals, 1_000)
        assert [seen(verdict) for verdict in plan.verdicts] == list(answers)
        self.batches += plan.batches
        self.state = plan.state

    def teardown(self) -> None:
        if self.waiting:
            self.append()
            self.the_same_state()

    def near(self, pid: int, step: int) -> int:
        """An epoch near the producer's own."""
        now = self.model.epoch(pid)
        return min(max((0 if now is None else now) + step, 0), MAX_EPOCH)

    @rule(
        pid=st.sampled_from([-1, 1, 2, 3]),
        step=st.sampled_from([0, 0, 0, 0, 1, -1]),
        shift=st.sampled_from([0, 0, 0, 0, 1, -1, -2, 5]),
        number=st.integers(1, 3),
        txn=st.booleans(),
        start=st.sampled_from([0, 0, 0, TOP - 2]),
        together=st.booleans(),
    )
    def data(
        self, pid: int, step: int, shift: int, number: int, txn: bool, start: int, together: bool
    ) -> None:
        """A batch that follows the producer's last one, or almost."""
        epoch, sequence = self.near(pid, step), -1
        five = self.model.last_five(pid)
        if pid < 0:
            epoch, txn = -1, False
        elif five and step == 0:
            sequence = (five[-1]["end"] + 1 + shift) % (TOP + 1)
        else:
            sequence = (start + max(shift, 0)) % (TOP + 1)
        self.propose_data(pid, epoch, sequence, number, txn, together)

    @rule(pid=st.sampled_from([1, 2, 3]), back=st.integers(1, 7), together=st.booleans())
    def data_again(self, pid: int, back: int, together: bool) -> None:
        """A batch that was sent before, at the epoch it had."""
        mine = [row for row in self.model.of(pid) if row["kind"] == "data"]
        if len(mine) >= back:
            row = mine[-back]
            number = row["last"] - row["base"] + 1
            self.propose_data(pid, row["epoch"], row["seq"], number, row["txn"], together)

    def propose_data(self, pid: int, epoch: int, seq: int, number: int, txn: bool, together: bool) -> None:
        path = f"data/{0:020d}-p{pid}-e{epoch}-{next(self.numbers):032x}.parquet"
        proposal = DataProposal(number, 1_000, 1_000, FileRef(path, 1, "c" * 32), pid, epoch, seq, txn)
        self.submit(proposal, self.model.data(pid, epoch, seq, number, txn), together)

    @rule(
        pid=st.sampled_from([1, 2, 3, 4]),
        step=st.sampled_from([1, 1, 1, 0, -1, 2]),
        committed=st.booleans(),
        coord=st.integers(0, 4),
        together=st.booleans(),
    )
    def marker(self, pid: int, step: int, committed: bool, coord: int, together: bool) -> None:
        """A marker, mostly the one that is due."""
        epoch = self.near(pid, step)
        self.end(
            pid, lambda: self.model.marker(pid, epoch, committed, coord), committed,
            MarkerProposal(pid, epoch, committed, coord), together,
        )  # fmt: skip

    @rule(pid=st.sampled_from([1, 2, 3]), right=st.booleans(), coord=st.integers(0, 4))
    def operator_abort(self, pid: int, right: bool, coord: int) -> None:
        """An operator's abort of the transaction that is open, or of one at another offset."""
        epoch, start = self.near(pid, 0), self.model.open_since(pid)
        start = start if right and start is not None else self.model.end
        self.end(
            pid, lambda: self.model.operator_abort(pid, epoch, coord, start), False,
            MarkerProposal(pid, epoch, False, coord, operator_start_offset=start), False,
        )  # fmt: skip

    def end(self, pid: int, judge: Any, committed: bool, proposal: Proposal, together: bool) -> None:
        first = self.model.open_since(pid)
        expected = judge()
        if expected[0] == "written" and first is not None and not committed:
            others = [at for other in self.model.pids() if (at := self.model.open_since(other)) is not None]
            self.aborted.append((pid, first, expected[1], min(others, default=expected[1] + 1)))
        self.submit(proposal, expected, together)

    @rule(
        key=st.sampled_from(GROUP_KEYS),
        pid=st.sampled_from([-1, 1, 2]),
        step=st.sampled_from([0, 0, 0, 1, -1]),
        fetched=st.sampled_from(["none", "nothing", "stands", "own", "older"]),
        together=st.booleans(),
    )
    def offset(self, key: OffsetKey, pid: int, step: int, fetched: str, together: bool) -> None:
        """A group's offset, in a transaction or plainly, from the row that stands or from another."""
        epoch = self.near(pid, step) if pid >= 0 else -1
        done, pending = self.model.offsets()
        row = {
            "none": -2,
            "nothing": -1,
            "stands": done.get(key, -1),
            "own": pending.get(pid, {}).get(key, -1),
            "older": max(done.get(key, 0) - 1, 0),
        }[fetched]
        end = self.model.end
        commit = OffsetCommit(key, next(self.numbers), -1, "", 1_000, "m", row, end)
        expected = self.model.offset(key, row, end, pid, epoch)
        self.submit(OffsetCommitProposal(commit, pid, epoch), expected, together)

    @rule(pids=st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=3, unique=True))
    def expire(self, pids: list[int]) -> None:
        """Forget idle producers, except those with an open transaction."""
        self.submit(ExpireProposal(tuple(pids), 1_000), self.model.expire(pids), together=False)

    # --- what must hold -------------------------------------------------------------------------------------

    @precondition(lambda self: not self.waiting)
    @invariant()
    def the_same_state(self) -> None:
        """The state says the same as the model, which goes through the log."""
        model, state = self.model, self.state
        assert (state.log_end_offset, state.last_stable_offset) == (model.end, model.stable())
        assert set(state.producers) == model.pids()
        for pid, entry in state.producers.items():
            five = model.last_five(pid)
            assert entry.producer_epoch == model.epoch(pid)
            assert entry.open_first_offset == (-1 if (at := model.open_since(pid)) is None else at)
            assert entry.coordinator_epoch == (model.marker_epochs(pid) or [-1])[-1]
            assert [batch.base_offset for batch in entry.batches] == [row["base"] for row in five]
            assert entry.last_sequence == (five[-1]["end"] if five else -1)
        assert set(state.live) == model.files("commit")
        assert set(state.undecided) == model.files("open")
        assert {dead.log_file.base_offset for dead in state.dead.values()} == model.files("abort")
        found = [
            (a.producer_id, a.first_offset, a.last_offset, a.last_stable_offset)
            for a in state.aborted.values()
        ]
        assert sorted(found, key=lambda each: each[2]) == self.aborted

    @precondition(lambda self: not self.waiting)
    @invariant()
    def the_same_group_offsets(self) -> None:
        done, pending = self.model.offsets()
        offsets = self.state.group_offsets
        assert {key: stored.offset for key, stored in offsets.committed.items()} == done
        assert {
            pid: {key: stored.offset for key, stored in keys.items()} for pid, keys in offsets.pending.items()
        } == pending

    @precondition(lambda self: not self.waiting)
    @rule()
    def replayed(self) -> None:
        """A replay of the log, and a snapshot that is written and read, give this very state."""
        state = PartitionState()
        for batch in self.batches:
            state = apply(state, batch)
        assert state == self.state
        assert decode_snapshot(encode_snapshot(state), key="snapshots/x.parquet") == state


class TestPartition(PartitionMachine.TestCase):  # type: ignore[name-defined,misc]
    """The partition's core against the naive log."""

    settings = settings(max_examples=20, stateful_step_count=40, deadline=None)


@pytest.mark.shard("simulator")
class TestPartitionAtLength(PartitionMachine.TestCase):  # type: ignore[name-defined,misc]
    """The same with more histories."""

    settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


# --- a transactional id -----------------------------------------------------------------------------------

PARTITIONS = [TransactionPartition("t", 0, number) for number in range(3)]
REST = ("Empty", "CompleteCommit", "CompleteAbort")
WEEK_MS = 7 * DAY_MS


class NaiveId:
    """One transactional id as one dict, and the tables of KAFKA.md as nested ifs."""

    def __init__(self) -> None:
        self.row: dict[str, Any] | None = None
        self.begun = self.touched = -1

    def put(self, now: int, **fields: Any) -> None:
        before = self.row
        previous = {"prev": before["pid"]} if before is not None and "pid" in before else {}
        self.row = {**(before or {}), **previous, **fields}
        self.touched = now
        if fields.get("state") in ("Ongoing", "PrepareAbort") and (
            before is None or before["state"] in (*REST, "Dead")
        ):
            self.begun = now

    @property
    def state(self) -> str:
        return self.row["state"] if self.row is not None else "unknown"

    def init(self, held: tuple[int, int] | None, fresh: int, now: int) -> Any:
        row = self.row
        if row is None or row["state"] == "Dead":
            self.put(now, state="Empty", pid=fresh, epoch=0, last=-1, prev=-1, next=-1, parts=set())
            return fresh, 0
        if row["state"] in ("PrepareCommit", "PrepareAbort"):
            return CONCURRENT
        if held is not None and held[0] != row["pid"] and not (held[0] == row["prev"] and held[1] >= 32_766):
            return FENCED
        if row["state"] == "Ongoing":
            self.fence(fresh, now)
            return CONCURRENT
        if row["epoch"] >= 32_766 and (held is None or held[1] == row["epoch"]):
            last = row["epoch"] if held else -1
            self.put(now, state="Empty", pid=fresh, epoch=0, last=last, prev=row["pid"], next=-1, parts=set())
            return fresh, 0
        if held is None or held[1] == row["epoch"]:
            last = row["epoch"] if held else -1
            self.put(now, state="Empty", epoch=row["epoch"] + 1, last=last, parts=set())
            return row["pid"], row["epoch"] + 1
        if held[1] != row["last"]:
            return FENCED
        self.put(now, state="Empty", parts=set())
        return row["pid"], row["epoch"]

    def fence(self, fresh: int, now: int) -> None:
        assert self.row is not None
        epoch = self.row["epoch"]
        following = fresh if epoch == 32_766 else -1
        self.put(now, state="PrepareAbort", epoch=epoch + 1, last=epoch, next=following)

    def add(self, pid: int, epoch: int, parts: set[int], now: int) -> Any:
        row = self.row
        if row is None or row["state"] == "Dead":
            return UNMAPPED
        if row["state"].startswith("Prepare"):
            return CONCURRENT
        if row["pid"] != pid:
            return UNMAPPED
        if row["epoch"] != epoch:
            return FENCED
        if row["state"] != "Ongoing" or not parts <= row["parts"]:
            kept = row["parts"] if row["state"] == "Ongoing" else set()
            self.put(now, state="Ongoing", parts=kept | parts)
        return None

    def end(self, pid: int, epoch: int, committed: bool, fresh: int, now: int) -> Any:
        row = self.row
        if row is None or row["state"] == "Dead":
            return UNMAPPED
        rotated = pid >= 0 and (row["prev"], 32_766, 0) == (pid, epoch, row["epoch"])
        if row["pid"] != pid and not rotated:
            return CONCURRENT if row["state"].startswith("Prepare") else UNMAPPED
        again = rotated or epoch == row["epoch"] - 1
        if not again and epoch != row["epoch"]:
            return FENCED
        return self._again(committed, fresh, now) if again else self._decide(committed, fresh, now)

    def _again(self, committed: bool, fresh: int, now: int) -> Any:
        assert self.row is not None
        state, same = self.row["state"], "Commit" if committed else "Abort"
        if state in ("Empty", "Ongoing"):
            return FENCED
        if not state.endswith(same):
            return STATE
        if state.startswith("Prepare"):
            return CONCURRENT
        return self.row["pid"], self.row["epoch"]

    def _decide(self, committed: bool, fresh: int, now: int) -> Any:
        assert self.row is not None
        row = self.row
        if row["state"].startswith("Prepare"):
            return FENCED
        if row["state"] != "Ongoing" and committed:
            return STATE
        return self._write(committed, fresh, now)

    def _write(self, committed: bool, fresh: int, now: int) -> Any:
        assert self.row is not None
        row = self.row
        exhausted = row["epoch"] >= 32_766
        self.put(
            now,
            state="PrepareCommit" if committed else "PrepareAbort",
            epoch=min(row["epoch"] + 1, MAX_EPOCH),
            last=row["epoch"],
            next=fresh if exhausted else -1,
            parts=row["parts"] if row["state"] == "Ongoing" else set(),
        )
        return (fresh, 0) if exhausted else (row["pid"], self.row["epoch"])

    def complete(self, now: int) -> bool:
        row = self.row
        if row is None or not row["state"].startswith("Prepare"):
            return False
        self.put(now, state=row["state"].replace("Prepare", "Complete"), parts=set())
        if row["next"] >= 0:
            self.put(now, pid=row["next"], epoch=0, prev=row["pid"], next=-1)
        return True

    def time_out(self, fresh: int, now: int, timeout: int) -> bool:
        due = self.state == "Ongoing" and self.begun + timeout < now
        if due:
            self.fence(fresh, now)
        return due

    def expire(self, now: int) -> bool:
        due = self.state in REST and now - self.touched >= WEEK_MS
        if due:
            self.row = {"state": "Dead"}
            self.touched = now
        return due


class CoordinatorMachine(RuleBasedStateMachine):
    """Producers, zombies, sweepers and a clock on one transactional id. Some ids are near the end of their
    epochs."""

    TIMEOUT = 60_000

    def __init__(self) -> None:
        super().__init__()
        self.model = NaiveId()
        self.log = PartitionState()
        self.now = 1_000_000
        self.fresh = count(100)

    def ask(self, decide: Any) -> Any:
        """Apply the decision at the log's end. Returns the answer, or the code of the refusal."""
        made: list[Any] = []

        def next_row(current: Any) -> TransactionRow | None:
            made.append(decide(current))
            return made[-1].row if isinstance(made[-1], tx.Decision) else made[-1]

        plan = plan_entry(self.log, [TransactionProposal("id", next_row)], self.now)
        self.log = plan.state
        (verdict,) = plan.verdicts
        if isinstance(verdict, Refused):
            return verdict.error.code
        if isinstance(made[-1], tx.Decision):
            return CONCURRENT if made[-1].concurrent else tuple(made[-1].reply)
        return isinstance(verdict, Appended)

    def identity(self, who: str) -> tuple[int, int]:
        """The stored producer id and epoch, or something near them."""
        row = self.model.row
        if row is None or "pid" not in row:
            return 100, 0
        return {
            "now": (row["pid"], row["epoch"]),
            "again": (row["pid"], row["epoch"] - 1),
            "older": (row["pid"], row["epoch"] - 2),
            "newer": (row["pid"], row["epoch"] + 1),
            "rotated": (row["prev"], 32_766),
            "stranger": (99, row["epoch"]),
        }[who]

    WHO = st.sampled_from(["now", "now", "now", "again", "older", "newer", "rotated", "stranger"])

    @initialize(epoch=st.sampled_from([0, 0, 32_764, 32_766]))
    def begin(self, epoch: int) -> None:
        """Some ids are near the end of their epochs."""
        if epoch:
            row = TransactionRow("id", TransactionState.COMPLETE_COMMIT, 100, epoch, update_ms=self.now)
            self.ask(lambda _: row)
            fields = {"state": "CompleteCommit", "pid": 100, "epoch": epoch}
            self.model.put(self.now, **fields, last=-1, prev=-1, next=-1, parts=set())
            next(self.fresh)

    @rule(who=st.one_of(st.none(), WHO))
    def init(self, who: str | None) -> None:
        """InitProducerId of a newcomer, or of a producer that already holds an identity."""
        held, fresh = None if who is None else self.identity(who), next(self.fresh)
        if held is not None and min(held) < 0:
            return
        expected = None if held is None else ProducerIdAndEpoch(*held)
        found = self.ask(
            lambda current: tx.init_producer_id(
                current,
                transactional_id="id",
                transaction_timeout_ms=self.TIMEOUT,
                expected=expected,
                new_producer_id=fresh,
                now_ms=self.now,
            )
        )
        assert found == self.model.init(held, fresh, self.now)

    @rule(who=WHO, parts=st.sets(st.integers(0, 2), min_size=1))
    def add(self, who: str, parts: set[int]) -> None:
        """AddPartitionsToTxn."""
        pid, epoch = self.identity(who)
        found = self.ask(
            lambda current: tx.add_partitions(
                current,
                producer_id=pid,
                producer_epoch=epoch,
                partitions=[PARTITIONS[number] for number in parts],
                now_ms=self.now,
            )
        )
        expected = self.model.add(pid, epoch, parts, self.now)
        assert (None if found in (True, False) else found) == expected

    @rule(who=WHO, committed=st.booleans())
    def end(self, who: str, committed: bool) -> None:
        """EndTxn."""
        (pid, epoch), fresh = self.identity(who), next(self.fresh)
        found = self.ask(
            lambda current: tx.end_transaction(
                current,
                producer_id=pid,
                producer_epoch=epoch,
                committed=committed,
                run_id=None,
                new_producer_id=fresh,
                now_ms=self.now,
            )
        )
        assert found == self.model.end(pid, epoch, committed, fresh, self.now)

    @rule(late=st.booleans())
    def complete(self, late: bool) -> None:
        """The Complete row of the latest decision, or of one that is over."""
        stored = self.log.transactions.get("id")
        decision = (stored.offset if stored else 0) - late
        found = self.ask(
            lambda current: tx.complete_transaction(current, decision_offset=decision, now_ms=self.now)
        )
        assert found == (not late and self.model.complete(self.now))

    @rule(age=st.sampled_from([0, TIMEOUT - 1, TIMEOUT, TIMEOUT + 1]))
    def sweep(self, age: int) -> None:
        """The time-out sweep, when the transaction has this age."""
        self.now = max(self.now, self.model.begun + age)
        stored = self.log.transactions.get("id")
        if stored is not None:
            (seen_pid, seen_epoch), fresh = (
                (stored.row.producer_id, stored.row.producer_epoch),
                next(self.fresh),
            )
            found = self.ask(
                lambda current: tx.time_out(
                    current, fresh, producer_id=seen_pid, producer_epoch=seen_epoch, now_ms=self.now
                )
            )
            assert (found == CONCURRENT) == self.model.time_out(fresh, self.now, self.TIMEOUT)

    @rule(age=st.sampled_from([0, WEEK_MS - 1, WEEK_MS]))
    def expire(self, age: int) -> None:
        """The sweep of idle ids, when the id has been idle for this long."""
        self.now = max(self.now, self.model.touched + age)
        found = self.ask(lambda current: tx.expire(current, now_ms=self.now, expiration_ms=WEEK_MS))
        assert found == self.model.expire(self.now)

    @rule(ms=st.sampled_from([1, 1_000, DAY_MS]))
    def wait(self, ms: int) -> None:
        """Time passes."""
        self.now += ms

    @invariant()
    def the_same_row(self) -> None:
        """The id's latest row is the model's dict."""
        stored, row = self.log.transactions.get("id"), self.model.row
        assert (stored is None) == (row is None)
        if stored is None or row is None:
            return
        assert stored.row.state.value == row["state"]
        if row["state"] == "Dead":
            assert (stored.row.producer_id, stored.row.producer_epoch) == (-1, -1)
            return
        found = stored.row
        assert (found.producer_id, found.producer_epoch) == (row["pid"], row["epoch"])
        assert (found.last_producer_epoch, found.previous_producer_id) == (row["last"], row["prev"])
        assert found.next_producer_id == row["next"]
        assert {part.partition for part in found.partitions} == row["parts"]

    @precondition(lambda self: self.model.state not in ("unknown", "Dead"))
    @rule(who=WHO, number=st.integers(0, 2))
    def verify(self, who: str, number: int) -> None:
        """Verify-only AddPartitions writes nothing and is right about one partition."""
        (pid, epoch), row = self.identity(who), self.model.row
        assert row is not None
        try:
            tx.verify_partition(
                self.log.transactions.get("id"),
                producer_id=pid,
                producer_epoch=epoch,
                partition=PARTITIONS[number],
            )
            found = None
        except TxnEngineError as error:
            found = error.code
        if pid != row["pid"]:
            expected: str | None = UNMAPPED
        elif epoch != row["epoch"]:
            expected = FENCED
        elif row["state"].startswith("Prepare"):
            expected = CONCURRENT
        else:
            is_in = row["state"] == "Ongoing" and number in row["parts"]
            expected = None if is_in else "TRANSACTION_ABORTABLE"
        assert found == expected


@pytest.mark.parametrize("then", ["end", "init"])
def test_a_fence_at_the_last_epoch(then: str) -> None:
    """The fence takes epoch 32767, which no client is given, and names the producer id that follows. The fenced
    producer goes on under that one, and gets the same answer if it asks again.
    """
    machine = CoordinatorMachine()
    machine.begin(epoch=32_766)
    machine.add(who="now", parts={0})
    machine.init(who=None)
    machine.complete(late=False)
    machine.the_same_row()
    for _ in range(2):
        if then == "end":
            machine.end(who="again", committed=False)
        else:
            machine.init(who="again")
        machine.the_same_row()
    machine.complete(late=False)
    machine.the_same_row()


class TestCoordinator(CoordinatorMachine.TestCase):  # type: ignore[name-defined,misc]
    """A transactional id's core against the naive dict."""

    settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
