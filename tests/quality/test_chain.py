"""Proofs go on from one another: only new records are judged, proved ones are kept, and a broken chain is
reported."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txn_engine
from storage import decode_json, encode_json
from storage.memory import MemoryStore
from tests.quality.kills import besiege, kill_at_writes
from tests.quality.ledger import in_memory, write
from tests.suite.tiers import in_shard
from tests.support.internal import FEW_INTERNAL
from tests.support.kills import DyingStore, ProcessDiedError
from txn_engine import Engine, OffsetAndMetadata
from txn_engine.errors import CorruptObjectError, OutcomeUnknownError, TxnEngineError
from txn_engine.log.erasures import erasure_key
from txn_engine.log.objects import Objects
from txn_engine.maintain import MaintenancePolicy
from txn_engine.quality import (
    Amount,
    Declaration,
    LatestByKey,
    Output,
    QualityResult,
    SameRows,
    SameSet,
    Totals,
    chain,
    check_exactly_once,
    file_pass,
    proving,
)
from txn_engine.quality.digest import Digest
from txn_engine.quality.proof import Proof, ProofShelf, ProvedRange
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock

PAYMENTS = pa.schema([("id", pa.int64()), ("account", pa.string()), ("amount", pa.decimal128(10, 2))])
SUMS = pa.schema([("account", pa.string()), ("total", pa.decimal128(20, 2)), ("payments", pa.int64())])
CHECK = Declaration(
    topic="payments",
    record_id=("id",),
    outputs=(
        Output("sums", Totals({"account": "account"}, {"total": Amount("amount")}, "payments")),
        Output("copies", SameRows({"id": "id", "account": "account", "amount": "amount"})),
        Output("copies", SameSet({"account": "account"})),
        Output("copies", LatestByKey({"account": "account"}, {"id": "id"})),
    ),
)


def payments(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    amounts = [Decimal(number) / 100 for number in ids]
    return pa.table(
        [
            pa.array(ids, pa.int64()),
            pa.array([f"a{n % 3}" for n in ids]),
            pa.array(amounts, pa.decimal128(10, 2)),
        ],
        schema=PAYMENTS,
    )


def nameless(row: int) -> pa.Table:
    """One payment without an id."""
    return payments(row, 1).set_column(0, PAYMENTS.field("id"), pa.nulls(1, pa.int64()))


def sums(table: pa.Table) -> pa.Table:
    found: dict[str, list[Decimal]] = {}
    for row in table.to_pylist():
        found.setdefault(row["account"], []).append(row["amount"])
    columns = [list(found), [sum(amounts) for amounts in found.values()], [len(a) for a in found.values()]]
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, SUMS, strict=True)], schema=SUMS
    )


def set_up(engine: Engine, **of_payments: Any) -> None:
    engine.admin.create_topic("payments", partitions=2, schema=PAYMENTS, key="account", **of_payments)
    engine.admin.create_topic("copies", partitions=2, schema=PAYMENTS, key="account")
    engine.admin.create_topic("sums", partitions=2, schema=SUMS, key="account")


def load(engine: Engine, first: int, count: int) -> None:
    """Load payments, and write a consumer's results for them in one transaction."""
    write(engine, "payments", payments(first, count))
    with engine.producer(transactional_id="job") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce("copies", payments(first, count))
            producer.produce("sums", sums(payments(first, count)))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    yield from in_memory(tmp_path.name, set_up, lambda engine: load(engine, 0, 40))


def prove(engine: Engine, folder: Path, check: Declaration = CHECK, **arguments: Any) -> QualityResult:
    return check_exactly_once(engine, check, report_folder=folder / "report", record=True, **arguments)


def shelf_of(engine: Engine) -> ProofShelf:
    return ProofShelf(Objects(engine.store), "payments", 0)


def failed(result: QualityResult) -> set[str]:
    assert result.errored == ()
    return {check.name for check in result.failed}


def turned_over(engine: Engine, victim: str, *, at: int) -> None:
    """Change a byte of an object on the store, which keeps its size."""
    data = bytearray(engine.store.get(victim))
    data[at] ^= 0xFF
    engine.store.put(victim, bytes(data))


def test_old_files_are_read_again_in_turn(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte that changed in an old file, whose size is right, is found by one of the next proofs that go on from
    earlier ones. Each proof names what it read again and from which proof it took over the rest."""
    monkeypatch.setattr(chain, "SHARES", 3)
    check = Declaration(topic="payments", record_id=("id",))
    for number in range(1, 4):
        load(engine, 40 * number, 40)
    assert prove(engine, tmp_path, check).success
    keys = sorted(info.key for info in engine.store.list("topics/payments/0/0/data/"))
    turned_over(engine, keys[1], at=60)
    read: list[range] = []
    for _ in range(4):
        result = prove(engine, tmp_path, check)
        assert result.proof is not None
        read.append(result.proof.again["payments", 0])
        assert f"taken over from proof {result.proof.since}" in result.proof.scope
        if not result.success:
            break
    assert "audit_clean" in {each.name for each in result.failed}
    assert [offsets.start for offsets in read] == sorted({offsets.start for offsets in read})


def test_a_file_that_is_larger_than_a_share(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proof names the offsets of data files that it read, and no others: of a large file none before its turn comes,
    then all of them. A changed byte in it is found by the proof that names it."""
    monkeypatch.setattr(chain, "SHARES", 4)
    check = Declaration(topic="payments", record_id=("id",))
    load(engine, 40, 200)
    assert prove(engine, tmp_path, check).success
    turned = max(engine.store.list("topics/payments/0/0/data/"), key=lambda info: info.size).key
    turned_over(engine, turned, at=100)
    (file,) = (
        each
        for each in engine.partition("payments", 0).state.live.values()
        if turned.endswith(each.file.data_path)
    )
    for _ in range(4):
        result = prove(engine, tmp_path, check)
        assert result.proof is not None
        names_it = file.base_offset in result.proof.again["payments", 0]
        assert names_it == (file.last_offset in result.proof.again["payments", 0])
        assert names_it != result.success
        if names_it:
            break
    assert not result.success


def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of records that are looked at in each file."""
    counted: list[int] = []
    look = file_pass.facts_of

    def counting(*arguments: Any) -> file_pass.FileFacts:
        found = look(*arguments)
        counted.append(found.records)
        return found

    monkeypatch.setattr(file_pass, "facts_of", counting)
    return counted


def test_only_what_is_new_is_looked_at(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second proof goes on from the first, and knows as much as a proof of everything."""
    first = prove(engine, tmp_path).proof
    assert first is not None
    assert (first.number, first.is_whole, first.began, first.success) == (0, True, "no proof was there", True)
    load(engine, 40, 5)
    counted = looked_at(monkeypatch)
    second = prove(engine, tmp_path)
    assert second.success
    assert second.proof is not None
    assert (second.proof.number, second.proof.since, second.proof.first, second.proof.began) == (1, 0, 0, "")
    assert sum(counted) == 5 + 5 + 3
    whole = prove(engine, tmp_path, whole=True)
    assert whole.success
    assert "digest_as_proved" in {check.name for check in whole.checks}
    assert whole.proof is not None
    assert whole.proof.ranges == second.proof.ranges
    assert sum(each.digest.rows for each in whole.proof.ranges if each.topic == "payments") == 45


@pytest.mark.shard("damage")
def test_a_proof_of_nothing_new(engine: Engine, tmp_path: Path) -> None:
    """A proof without new records gets its own number and covers the same ranges as the one before."""
    proofs = [prove(engine, tmp_path).proof for _ in range(2)]
    assert proofs[1] is not None
    assert proofs[0] is not None
    assert proofs[1].ranges == proofs[0].ranges


def test_what_was_kept_comes_back(engine: Engine, tmp_path: Path) -> None:
    """A proof that is read from the store has all its fields."""
    check = replace(CHECK, group_id="nobody", outputs=())
    result = prove(engine, tmp_path, check)
    assert result.proof is not None
    found, _ = shelf_of(engine).read(0)
    assert replace(found, ranges_object="") == result.proof
    assert failed(result) == {"group_at_lso"}
    assert engine.admin.verify().findings == ()


BREAKS = {
    "an id of before again": (lambda engine: write(engine, "payments", payments(3, 1)), "record_ids_unique"),
    "an id twice": (
        lambda engine: write(engine, "payments", pa.concat_tables([payments(90, 1)] * 2)),
        "record_ids_unique",
    ),
    "a payment that no consumer took": (
        lambda engine: write(engine, "payments", payments(90, 1)),
        "totals_in_sums",
    ),
    "a sum too many": (lambda engine: write(engine, "sums", sums(payments(1, 1))), "totals_in_sums"),
    "a copy too many": (lambda engine: write(engine, "copies", payments(1, 1)), "identity_in_copies"),
    "an older copy at last": (lambda engine: write(engine, "copies", payments(1, 1)), "latest_in_copies"),
}


@pytest.mark.parametrize("broken", in_shard("damage", BREAKS, keep=1))
def test_what_breaks_behind_a_proof_is_found_as_from_the_start(
    engine: Engine, tmp_path: Path, broken: str
) -> None:
    """An incremental proof fails where a whole one does, and names the same faults."""
    assert prove(engine, tmp_path).success
    load(engine, 40, 5)
    breaks, name = BREAKS[broken]
    breaks(engine)
    some = prove(engine, tmp_path)
    every = check_exactly_once(engine, CHECK, report_folder=tmp_path / "whole")
    assert name in failed(some) == failed(every)
    wrong = {check.name: check.wrong for check in every.failed}
    assert {check.name: check.wrong for check in some.failed} == wrong
    again = prove(engine, tmp_path)
    assert again.proof is not None
    assert again.proof.since == 0
    assert failed(again) == failed(every)


@pytest.mark.shard("damage")
def test_an_id_that_is_null_before_a_proof_and_after(engine: Engine, tmp_path: Path) -> None:
    """Two records whose id is null count as the same id, even if one comes before a proof and one after it,
    although the files' statistics do not show that."""
    check = replace(CHECK, outputs=())
    write(engine, "payments", nameless(1))
    assert prove(engine, tmp_path, check).success
    write(engine, "payments", nameless(2))
    result = prove(engine, tmp_path, check)
    assert {found.name: found.wrong for found in result.failed} == {"record_ids_unique": 2}


@pytest.mark.shard("damage")
def test_what_comes_right_later(engine: Engine, tmp_path: Path) -> None:
    """If missing output arrives later, the next proof goes on from the last good one and succeeds."""
    assert prove(engine, tmp_path).success
    write(engine, "payments", payments(40, 5))
    assert not prove(engine, tmp_path).success
    write(engine, "copies", payments(40, 5))
    write(engine, "sums", sums(payments(40, 5)))
    result = prove(engine, tmp_path)
    assert result.success
    assert result.proof is not None
    assert (result.proof.number, result.proof.since) == (2, 0)


@pytest.mark.shard("damage")
def test_a_set_and_a_key_that_were_there_before(engine: Engine, tmp_path: Path) -> None:
    """If a new row's value was already in both sets before the proof, the sets still agree."""
    check = replace(CHECK, outputs=(Output("copies", SameSet({"account": "account"})),))
    assert prove(engine, tmp_path, check).success
    write(engine, "payments", payments(40, 1))
    assert prove(engine, tmp_path, check).success


@pytest.mark.shard("damage")
def test_merged_files_are_the_same_records(engine: Engine, tmp_path: Path) -> None:
    """A merge without dropped records keeps the digest, so the chain goes on."""
    load(engine, 40, 40)
    assert prove(engine, tmp_path).success
    assert engine.maintenance.compact("payments", policy=MaintenancePolicy(min_files=2)).partitions
    load(engine, 80, 5)
    assert prove(engine, tmp_path).success
    assert prove(engine, tmp_path, whole=True).success


def began(result: QualityResult) -> str:
    assert result.proof is not None
    assert result.proof.is_whole
    return result.proof.began


def test_what_begins_a_new_chain(tmp_path: Path) -> None:
    """A new chain begins, with the reason, after a change of the declaration, after retention has removed
    records, and after a topic was created again."""
    clock = ManualClock(1_700_000_000_000)
    with txn_engine.connect((tmp_path / "store").as_uri(), clock=clock, configs=FEW_INTERNAL) as engine:
        set_up(engine, retention_ms=3_600_000)
        load(engine, 0, 5)
        assert began(prove(engine, tmp_path)) == "no proof was there"
        other = replace(CHECK, outputs=())
        assert began(prove(engine, tmp_path, other)) == "no proof of this declaration was there"
        clock.advance(7_200_000)
        assert engine.maintenance.retain("payments").partitions
        load(engine, 5, 5)
        assert began(prove(engine, tmp_path, other)).startswith(
            "retention, or a delete, has removed records of payments"
        )
        assert began(prove(engine, tmp_path, replace(other, outputs=CHECK.outputs[:1]))).startswith(
            "no proof of this declaration"
        )
        assert [shelf_of(engine).read(number)[0].first for number in range(4)] == [0, 1, 2, 3]
        engine.admin.delete_topic("sums")
        engine.admin.create_topic("sums", partitions=2, schema=SUMS, key="account")
        result = prove(engine, tmp_path, replace(other, outputs=CHECK.outputs[:1]))
        assert began(result) == "sums was made anew"


def test_an_erasure_begins_a_new_chain(engine: Engine, tmp_path: Path) -> None:
    """A proof takes nothing over from before an erasure, of the topic or of an output, nor while one is under way:
    records that only one of them lacks are found. Afterwards proofs go on again."""
    rows = Declaration("payments", ("id",), (Output("copies", SameRows({"id": "id", "amount": "amount"})),))
    assert prove(engine, tmp_path, rows).success
    assert engine.erase("copies", "id = 2", execute=True).records == 1
    result = prove(engine, tmp_path, rows)
    assert began(result) == "records of copies were erased"
    assert failed(result) == {"identity_in_copies"}
    assert engine.erase("payments", "id = 2", execute=True).records == 1
    assert prove(engine, tmp_path, rows).success
    result = prove(engine, tmp_path, rows)
    assert result.success
    assert result.proof is not None
    assert not result.proof.is_whole
    engine.store.delete(erasure_key("copies", 0, 0, done=True))
    assert began(prove(engine, tmp_path, rows)) == "records of copies were erased"
    assert began(prove(engine, tmp_path, rows)) == "records of copies were erased"


@pytest.mark.shard("damage")
@pytest.mark.parametrize("turns", [2, 3])
def test_proofs_of_two_declarations_take_turns(engine: Engine, tmp_path: Path, turns: int) -> None:
    """Proofs of two declarations each go on from their own last proof, and all of them are links of one
    chain."""
    alone = replace(CHECK, outputs=())
    proofs = []
    for turn in range(turns):
        for check in (CHECK, alone):
            result = prove(engine, tmp_path, check)
            assert result.success
            assert result.proof is not None
            proofs.append(result.proof)
        load(engine, 100 + turn, 1)
    assert [proof.number for proof in proofs] == [0, 1, 2, 3, 4, 5][: 2 * turns]
    assert [proof.first for proof in proofs] == [0, 1, 0, 1, 0, 1][: 2 * turns]
    assert [proof.since for proof in proofs] == [0, 1, 0, 1, 2, 3][: 2 * turns]


@pytest.fixture(scope="module")
def chain_of_three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a chain of three proofs. No test changes it."""
    folder = tmp_path_factory.mktemp("chain")
    store = folder / "store"
    with txn_engine.connect(store.as_uri(), configs=FEW_INTERNAL) as engine:
        set_up(engine)
        for number in range(3):
            load(engine, number * 10, 10)
            assert prove(engine, folder).success
    return store


@pytest.fixture
def on_disk(chain_of_three: Path, tmp_path: Path) -> Path:
    """A copy of the store with a chain of three proofs."""
    return Path(shutil.copytree(chain_of_three, tmp_path / "store"))


def proof_file(store: Path, number: int) -> Path:
    return store / "proofs" / "payments" / "0" / f"{number:020d}.json"


@pytest.mark.parametrize(
    ("number", "why"),
    in_shard(
        "damage", [(1, "proof 1 of the chain is missing"), (0, "proof 0 of the chain is missing")], keep=1
    ),
)
def test_a_link_that_was_removed(on_disk: Path, tmp_path: Path, number: int, why: str) -> None:
    """If a link was removed, the next proof looks at everything and says why."""
    proof_file(on_disk, number).unlink()
    with txn_engine.connect(on_disk.as_uri()) as engine:
        assert began(prove(engine, tmp_path)) == why
        following = prove(engine, tmp_path).proof
    assert following is not None
    assert (following.number, following.since, following.first) == (4, 3, 3)


ODD: dict[str, tuple[Any, ...]] = {
    "positions": ([], None, {"0": 2**70}, {"0": -1}, {"x": 1}, {"0": "1"}, {"9" * 12: 1}),
    "checks": (
        None,
        {},
        [1],
        [{}],
        [{"name": "n", "status": "passed", "total": 2**70, "wrong": 0, "examples": []}],
    ),
    "again": ({}, [1], [["payments", 0, 1]], [["payments", 0, 2**70, 2]], [[[], 0, 1, 2]]),
    "schema_versions": ([], {"payments": 2**70}, {"payments": "1"}),
    "created_ms": (2**70, -1, 1.5, "1", None),
    "number": (2**70, True),
    "cut": (2**70, 1.5, True, None),
    "success": (1, None),
    "run_name": (7, None),
}
"""What no proof says, by its field."""


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in ODD.items() for value in values]
)
def test_a_proof_of_any_values(engine: Engine, tmp_path: Path, name: str, value: Any) -> None:
    """A sound object with values that no proof has is damage that names its place. The next proof starts again."""
    assert prove(engine, tmp_path).success
    (key,) = [info.key for info in engine.store.list("proofs") if info.key.endswith(".json")]
    held = {**decode_json(engine.store.get(key), key=key, kind="proof"), name: value}
    engine.store.put(key, encode_json(held, "proof"))
    with pytest.raises(CorruptObjectError, check=lambda error: error.place == key):
        shelf_of(engine).read(0)
    assert "proof 0 cannot be read" in began(prove(engine, tmp_path))


@pytest.mark.parametrize("number", in_shard("damage", [0, 1, 2], keep=[1]))
@pytest.mark.parametrize("part", ["json", "parquet"])
def test_a_link_that_was_changed(on_disk: Path, tmp_path: Path, number: int, part: str) -> None:
    """A changed link is never believed: if the next proof needs it, everything that depends on it is looked
    at again."""
    (path,) = (on_disk / "proofs" / "payments" / "0").glob(f"{number:020d}*.{part}")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)
    with txn_engine.connect(on_disk.as_uri()) as engine:
        result = prove(engine, tmp_path)
        assert result.success
        assert result.proof is not None
        needed = number == 2 or (number == 1 and part == "json")
        assert result.proof.is_whole == needed
        assert (f"proof {number} cannot be read" in result.proof.began) == needed


def test_records_that_changed_behind_their_proof(
    on_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If proved records have changed, a whole proof says from which link on it disagrees with the chain, and
    begins a new chain."""
    with txn_engine.connect(on_disk.as_uri()) as engine:
        load(engine, 30, 10)
        write(engine, "payments", payments(40, 1))
        honest = proving.ProvedDigests.digest

        def changed(self: Any, proved: ProvedRange, proof: Proof) -> Digest:
            found = honest(self, proved, proof)
            return found._replace(low=found.low ^ 1) if proved.end_offset > 14 else found

        monkeypatch.setattr(proving.ProvedDigests, "digest", changed)
        result = prove(engine, tmp_path, replace(CHECK, outputs=CHECK.outputs), whole=True)
        assert "digest_as_proved" in failed(result)
        (check,) = [each for each in result.failed if each.name == "digest_as_proved"]
        assert {example["proof"] for example in check.examples} <= {"1", "2"}
        assert result.proof is not None
        assert result.proof.first == result.proof.number


def test_two_provers_at_once(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If two provers race for a number, one gets it and the other goes on from there. Both proofs are in one
    chain."""
    prove(engine, tmp_path)
    put, others = ProofShelf.put, []

    def overtaken(self: ProofShelf, proof: Any) -> bool:
        if not others:
            others.append(1)
            load(engine, 40, 5)
            assert prove(engine, tmp_path / "other").proof is not None
        return put(self, proof)

    monkeypatch.setattr(ProofShelf, "put", overtaken)
    result = prove(engine, tmp_path)
    assert result.proof is not None
    assert (result.proof.number, result.proof.since) == (2, 1)
    assert shelf_of(engine).numbers() == [0, 1, 2]


@pytest.mark.shard("damage")
def test_a_prover_that_never_gets_a_number(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prover that loses every race for the next number gives up with an error."""
    monkeypatch.setattr(ProofShelf, "put", lambda *_: False)
    with pytest.raises(OutcomeUnknownError) as lost:
        prove(engine, tmp_path)
    assert lost.value.reason is Reason.NUMBER_TAKEN


@pytest.mark.parametrize(
    ("after", "writes"),
    in_shard(
        "damage",
        [
            pytest.param(True, [1], id="after the last"),
            pytest.param(False, range(4), id="before"),
            pytest.param(True, range(4), id="after"),
        ],
        keep=1,
    ),
)
def test_dying_at_any_write(tmp_path: Path, after: bool, writes: Sequence[int]) -> None:
    """If the prover dies before or after any put of a proof, the next run proves the same, and the chain
    holds."""
    begun = tmp_path / "begun"
    with txn_engine.connect(begun.as_uri(), configs=FEW_INTERNAL) as engine:
        set_up(engine)
        load(engine, 0, 10)
        assert prove(engine, tmp_path).success
        load(engine, 10, 10)
    died = 0
    for at in writes:
        copied = tmp_path / f"copy-{at}"
        shutil.copytree(begun, copied)
        store = DyingStore(copied.as_uri(), at, after=after)
        try:
            with Engine(store, pause=lambda _: None) as dying:
                prove(dying, tmp_path)
        except (ProcessDiedError, TxnEngineError):
            died += 1
        with txn_engine.connect(copied.as_uri()) as engine:
            result = prove(engine, tmp_path)
            assert result.success
            assert result.proof is not None
            assert result.proof.number in (1, 2)
            assert result.proof.since == result.proof.number - 1
            assert shelf_of(engine).numbers() == list(range(result.proof.number + 1))
            assert engine.admin.verify().ok
    assert died >= min(2, len(writes))


@pytest.mark.shard("kills")  # `make test` lets a prover die within its own process, which is much cheaper
@pytest.mark.parametrize(("rounds", "seed"), [(1, 8), pytest.param(4, time.time_ns(), id="fresh")])
def test_processes_that_are_killed_at_a_write(tmp_path: Path, rounds: int, seed: int) -> None:
    """Killing a load, a consumer and a prover at any write leaves one chain of proofs."""
    print(f"seed {seed}")
    assert kill_at_writes(tmp_path, rounds, seed)["proofs"] == rounds


@pytest.mark.shard("kills")
@pytest.mark.timeout(900)  # a busy machine is slow, and every wait has a limit of its own
@pytest.mark.parametrize(("rounds", "seed"), [(2, 8), pytest.param(5, time.time_ns(), id="fresh")])
def test_processes_that_are_killed(tmp_path: Path, rounds: int, seed: int) -> None:
    """Killing a load, a consumer and two provers leaves one chain of proofs; a removed link is reported."""
    print(f"seed {seed}")
    seen = besiege(tmp_path, rounds, seed)
    assert seen["of them incremental"]


def test_without_a_record_nothing_is_written() -> None:
    """Without `record`, a check writes nothing into the store."""
    store = MemoryStore()
    with Engine(store) as engine:
        set_up(engine)
        load(engine, 0, 3)
        before = sorted(info.key for info in store.list(""))
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            assert check_exactly_once(engine, CHECK, report_folder=Path(folder)).proof is None
        assert sorted(info.key for info in store.list("")) == before


def consume(engine: Engine, *, to: int | None = None) -> None:
    """Let the group read to the end and commit, or commit the position `to`."""
    with engine.producer(transactional_id="job") as producer, engine.consumer(group_id="job") as consumer:
        producer.init_transactions()
        consumer.subscribe(["payments"])
        while consumer.poll(max_records=100) is not None:
            pass
        places = sorted(engine.admin.list_offsets("payments"))
        positions = {
            place: OffsetAndMetadata(consumer.position(place) if to is None else to) for place in places
        }
        with producer.transaction():
            producer.send_offsets_to_transaction(positions, consumer.group_metadata())


@pytest.mark.shard("damage")
def test_a_group_that_goes_on_and_one_that_went_back(tmp_path: Path) -> None:
    """Below a group's position each proof goes on from the last one. If the group was set back, a new chain
    begins."""
    check = replace(CHECK, outputs=(), group_id="job", up_to_position=True)
    with txn_engine.connect(f"memory://{tmp_path.name}", configs=FEW_INTERNAL) as engine:
        set_up(engine)
        for number in range(3):
            write(engine, "payments", payments(number * 10, 10))
            consume(engine)
            write(engine, "payments", payments(100 + number, 1))
            proof = prove(engine, tmp_path, check).proof
            assert proof is not None
            assert (proof.success, proof.since) == (True, max(number - 1, 0))
            assert sum(each.digest.rows for each in proof.ranges) == 10 * (number + 1) + number
        consume(engine, to=1)
        assert began(prove(engine, tmp_path, check)) == "group job has moved back behind what was proved"
