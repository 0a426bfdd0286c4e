"""Proofs of topics whose columns change: each digest has a version of the columns, and no verdict is wrong
because of a change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import txn_engine
from storage import decode_parquet
from tests.quality.ledger import in_memory, write
from tests.quality.test_chain import began, failed, looked_at, prove, shelf_of
from tests.suite.tiers import in_shard
from tests.support.internal import FEW_INTERNAL
from txn_engine import (
    AddColumn,
    DropColumn,
    Engine,
    InvalidRequestError,
    MakeNullable,
    RenameColumn,
    ReorderColumns,
    WidenColumn,
)
from txn_engine.log.objects import decode_json, encode_json
from txn_engine.maintain import MaintenancePolicy, merging
from txn_engine.quality import Amount, Declaration, LatestByKey, Output, QualityResult, SameRows, Totals
from txn_engine.quality.proof import Proof
from txn_engine.reasons import Reason
from txn_engine.schemas.changes import Change

EAGER = MaintenancePolicy(min_files=2, min_dirty_ratio=0.0)
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        ("account", pa.string()),
        ("amount", pa.decimal128(10, 2)),
        pa.field("note", pa.string(), nullable=False),
        ("size", pa.int32()),
        ("weight", pa.float32()),
    ]
)
CHECK = Declaration(
    topic="payments",
    record_id=("id",),
    outputs=(
        Output("sums", Totals({"account": "account"}, {"total": Amount("amount")}, "payments")),
        Output("copies", SameRows({"id": "id", "account": "account", "amount": "amount"})),
        Output("copies", LatestByKey({"account": "account"}, {"id": "id"})),
    ),
)
CHANGES: dict[str, list[Change]] = {
    "added": [
        AddColumn(pa.field("kind", pa.string())),
        AddColumn(pa.field("rank", pa.int16(), nullable=False), default=7),
    ],
    "dropped": [DropColumn("size")],
    "wider": [
        WidenColumn("id", pa.int64()),
        WidenColumn("amount", pa.decimal128(20, 2)),
        WidenColumn("weight", pa.float64()),
    ],
    "renamed, may be null, in another order": [
        ReorderColumns(SCHEMA.names[::-1]),
        RenameColumn("note", "text"),
        MakeNullable("text"),
    ],
}


def payments(engine: Engine, topic: str, first: int, count: int) -> pa.Table:
    """Payments in the present columns of the topic."""
    made = [
        {
            "id": number,
            "account": f"a{number % 3}",
            "amount": Decimal(number) / 100,
            "note": f"n{number}",
            "text": f"n{number}",
            "size": number,
            "weight": number / 4,
            "kind": "k",
            "rank": 1,
            "value": Decimal(number) / 100,
        }
        for number in range(first, first + count)
    ]
    schema = engine.logs.topics.look_up(topic).schema
    return pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in made], schema=schema)


def load(engine: Engine, first: int, count: int) -> None:
    """Load payments, and write a consumer's results for them."""
    write(engine, "payments", payments(engine, "payments", first, count))
    found = payments(engine, "copies", first, count)
    write(engine, "copies", found)
    sums = found.group_by("account").aggregate([("amount", "sum"), ("amount", "count")])
    schema = engine.admin.describe_topic("sums").schema
    columns = [
        sums["account"],
        sums["amount_sum"].cast(pa.decimal128(20, 2)),
        sums["amount_count"].cast(pa.int64()),
    ]
    write(engine, "sums", pa.table(columns, schema=schema))


def set_up(engine: Engine) -> None:
    engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account")
    engine.admin.create_topic("copies", partitions=2, schema=SCHEMA, key="account")
    totals = pa.schema([("account", pa.string()), ("total", pa.decimal128(20, 2)), ("payments", pa.int64())])
    engine.admin.create_topic("sums", partitions=2, schema=totals, key="account")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    yield from in_memory(tmp_path.name, set_up, lambda engine: load(engine, 0, 40))


def attempt(engine: Engine, folder: Path, check: Declaration = CHECK, **arguments: Any) -> QualityResult:
    return prove(engine, folder, check, **arguments)


def proved(engine: Engine, folder: Path, check: Declaration = CHECK, **arguments: Any) -> Proof:
    result = attempt(engine, folder, check, **arguments)
    assert result.success, [check for check in result.checks if check.status in ("failed", "errored")]
    assert result.proof is not None
    return result.proof


def versions(proof: Proof, topic: str = "payments") -> list[tuple[int, int]]:
    """For each range in the order of partitions: the version of its columns, and how many records its digest
    covers."""
    return [(each.schema_version, each.digest.rows) for each in proof.ranges if each.topic == topic]


@pytest.mark.parametrize("kind", in_shard("damage", CHANGES, keep=1))
def test_a_proof_goes_on_in_the_new_columns(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A proof after a change looks at new records only, by the new columns. A whole proof agrees with the
    digests of both versions."""
    first = proved(engine, tmp_path)
    assert (first.schema_versions, versions(first)) == (
        {"payments": 0, "copies": 0, "sums": 0},
        [(0, 14), (0, 26)],
    )
    engine.admin.alter_topic("payments", CHANGES[kind])
    load(engine, 40, 6)
    counted = looked_at(monkeypatch)
    second = proved(engine, tmp_path)
    assert (second.since, second.first, sum(counted)) == (0, 0, 6 + 6 + 3)
    assert second.schema_versions["payments"] == 1
    assert versions(second) == [(0, 14), (1, 2), (0, 26), (1, 4)]
    assert versions(second, "copies") == [(0, 16), (0, 30)]
    assert second.scope.startswith("what is new since proof 0, by version 1 of the columns of payments; ")
    third = proved(engine, tmp_path, whole=True)
    assert third.first == 0
    assert versions(third) == [(1, 16), (1, 30)]
    assert shelf_of(engine).read(1)[0].ranges == second.ranges
    assert engine.admin.verify().findings == ()


@pytest.mark.shard("damage")
@pytest.mark.parametrize("kind", ["dropped", "wider"])
def test_what_breaks_after_a_change_is_found(engine: Engine, tmp_path: Path, kind: str) -> None:
    """After a change of columns, a repeated id and a payment that no consumer took are found."""
    proved(engine, tmp_path)
    engine.admin.alter_topic("payments", CHANGES[kind])
    write(engine, "payments", payments(engine, "payments", 3, 1))
    result = attempt(engine, tmp_path)
    assert failed(result) >= {"record_ids_unique", "totals_in_sums", "identity_in_copies"}
    (check,) = [each for each in result.failed if each.name == "record_ids_unique"]
    assert check.wrong == 2


SPOILT: dict[str, tuple[Change, str, Callable[[pa.Array[Any]], pa.Array[Any]]]] = {
    "renamed": (RenameColumn("note", "text"), "text", pc.utf8_upper),
    "wider than it could be": (
        WidenColumn("size", pa.int64()),
        "size",
        lambda column: pc.add(column, 1 << 32),
    ),
    "may be null": (
        MakeNullable("note"),
        "note",
        lambda column: pa.nulls(len(column), pa.string()),
    ),
}


def spoil(monkeypatch: pytest.MonkeyPatch, name: str, change: Callable[[Any], Any]) -> None:
    """Let a merge write other values than it read. The log is sound all the same."""
    read = merging.read_data_file

    def other(*arguments: Any, **keywords: Any) -> Iterator[pa.Table]:
        for table in read(*arguments, **keywords):
            at = table.schema.get_field_index(name)
            yield table if at < 0 else table.set_column(at, table.schema.field(at), change(table.column(at)))

    monkeypatch.setattr(merging, "read_data_file", other)


@pytest.mark.shard("damage")
@pytest.mark.parametrize("kind", SPOILT)
def test_damage_to_records_that_were_proved_by_other_columns_is_found(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A whole proof computes digests by the version that they were made with, and names the partition with
    the damage."""
    change, name, spoiling = SPOILT[kind]
    load(engine, 40, 40)
    proved(engine, tmp_path)
    engine.admin.alter_topic("payments", change)
    spoil(monkeypatch, name, spoiling)
    assert engine.maintenance.compact("payments", 1, policy=EAGER).failures == ()
    monkeypatch.undo()
    result = attempt(engine, tmp_path, whole=True)
    assert failed(result) == {"digest_as_proved"}
    (check,) = result.failed
    assert [(each["topic"], each["partition"], each["proof"]) for each in check.examples] == [
        ("payments", "1", "0")
    ]
    assert began(result) == "what was proved before is not what is there"


@pytest.mark.shard("damage")
def test_files_that_are_merged_after_a_change_are_the_same_records(engine: Engine, tmp_path: Path) -> None:
    """Files that are merged after a change of columns count as the same records, because the columns are
    found under their new names and types. The chain goes on."""
    load(engine, 40, 40)
    proved(engine, tmp_path)
    changes = [
        RenameColumn("note", "text"),
        WidenColumn("size", pa.int64()),
        WidenColumn("weight", pa.float64()),
    ]
    engine.admin.alter_topic("payments", changes)
    load(engine, 80, 5)
    proved(engine, tmp_path)
    assert engine.maintenance.compact("payments", policy=EAGER).failures == ()
    assert {file.schema_version for file in engine.scan("payments").files()} == {1}
    whole = proved(engine, tmp_path, whole=True)
    assert (whole.first, versions(whole)) == (0, [(1, 29), (1, 56)])


@pytest.mark.shard("damage")
def test_a_digest_by_a_column_that_is_gone_is_not_judged(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A digest with a column that was dropped is neither right nor wrong if a merge has written the file
    since: a new chain begins and says why. The digests of the other partition are judged."""
    load(engine, 40, 40)
    proved(engine, tmp_path)
    engine.admin.alter_topic("payments", DropColumn("size"))
    load(engine, 80, 5)
    goes_on = proved(engine, tmp_path)
    assert engine.maintenance.compact("payments", 0, policy=EAGER).failures == ()
    load(engine, 85, 5)
    assert proved(engine, tmp_path).since == goes_on.number  # nothing that was proved is looked at
    result = attempt(engine, tmp_path, whole=True)
    assert failed(result) == set()
    (check,) = [each for each in result.checks if each.name == "digest_as_proved"]
    assert (check.status, check.total) == ("passed", 5)
    assert result.proof is not None
    assert result.proof.first == result.proof.number
    assert began(result) == (
        "of payments-0 what was proved cannot be judged: column 'size' of version 0, which was dropped in version 1: "
        "a file that was written since has none of it"
    )
    assert "cannot be judged" in result.report.read_text()
    spoil(monkeypatch, "account", pc.utf8_upper)
    assert engine.maintenance.compact("copies", 1, policy=EAGER).failures == ()
    monkeypatch.undo()
    assert "digest_as_proved" in failed(attempt(engine, tmp_path, whole=True))


@pytest.mark.shard("damage")
def test_damage_beside_a_digest_that_cannot_be_judged(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage in another topic is found, although one digest cannot be judged."""
    load(engine, 40, 40)
    proved(engine, tmp_path)
    engine.admin.alter_topic("payments", DropColumn("size"))
    assert engine.maintenance.compact("payments", policy=EAGER).failures == ()
    spoil(monkeypatch, "weight", lambda column: pc.add(column, pa.scalar(0.25, pa.float32())))
    assert engine.maintenance.compact("copies", 1, policy=EAGER).failures == ()
    monkeypatch.undo()
    result = attempt(engine, tmp_path, whole=True)
    assert failed(result) == {"digest_as_proved"}
    assert began(result) == "what was proved before is not what is there"


def test_all_that_was_proved_went_by_a_column_that_is_gone(engine: Engine, tmp_path: Path) -> None:
    """If every digest has a column that is gone, the check of digests is not made."""
    load(engine, 40, 42)
    check = replace(CHECK, outputs=())
    proved(engine, tmp_path, check)
    engine.admin.alter_topic("payments", DropColumn("size"))
    assert engine.maintenance.compact("payments", policy=EAGER).failures == ()
    result = attempt(engine, tmp_path, check, whole=True)
    assert result.success
    assert "digest_as_proved" not in {each.name for each in result.checks}
    assert "what was proved cannot be judged: column 'size' of version 0" in began(result)


@pytest.mark.shard("damage")
def test_a_partition_that_had_no_record_before_a_change(tmp_path: Path) -> None:
    """A partition without records before a change has one range, of the version with which its first records
    were judged."""
    with txn_engine.connect(f"memory://{tmp_path.name}", configs=FEW_INTERNAL) as engine:
        set_up(engine)
        proved(engine, tmp_path)
        engine.admin.alter_topic("payments", AddColumn(pa.field("kind", pa.string())))
        proved(engine, tmp_path)
        load(engine, 0, 40)
        assert versions(proved(engine, tmp_path)) == [(1, 14), (1, 26)]
        assert proved(engine, tmp_path, whole=True).first == 0


@pytest.mark.shard("damage")
def test_a_proof_by_an_earlier_program_is_gone_on_from(tmp_path: Path) -> None:
    """A proof goes on from one by an older program that names no versions: it was made with the topic's first
    columns."""
    store = tmp_path / "store"
    with txn_engine.connect(store.as_uri(), configs=FEW_INTERNAL) as engine:
        set_up(engine)
        load(engine, 0, 40)
        proved(engine, tmp_path)
        path = store / f"proofs/payments/0/{0:020d}.json"
        held = dict(decode_json(path.read_bytes(), key="proof", kind="proof", needed=()))
        assert held.pop("schema_versions") == {"payments": 0, "copies": 0, "sums": 0}
        kept = {name: value for name, value in held.items() if name not in ("format", "kind", "checksum")}
        path.chmod(0o600)
        path.write_bytes(encode_json(kept, "proof"))
        (ranges,) = (store / "proofs/payments/0").glob("*.parquet")
        table, _ = decode_parquet(ranges.read_bytes(), key="ranges")
        assert "schema_version" not in table.schema.names
        engine.admin.alter_topic("payments", RenameColumn("note", "text"))
        load(engine, 40, 6)
        second = proved(engine, tmp_path)
        assert (second.since, versions(second)) == (0, [(0, 14), (1, 2), (0, 26), (1, 4)])
        assert proved(engine, tmp_path, whole=True).first == 0


@pytest.mark.shard("damage")
def test_a_range_of_a_version_that_the_topic_never_had(engine: Engine, tmp_path: Path) -> None:
    """A proof that names a version that the topic never had is not believed, and a new chain begins."""
    shelf = shelf_of(engine)
    held = proved(engine, tmp_path)
    odd = replace(
        held,
        number=1,
        parent=shelf.read(0)[1],
        ranges=tuple(replace(each, schema_version=9) for each in held.ranges),
    )
    assert shelf.put(odd)
    assert "had not when it was looked up" in began(attempt(engine, tmp_path))


def test_columns_that_change_while_files_are_listed(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If columns change while the files are listed, the files are listed again and judged by the new columns.
    If a declared column is gone, the check is refused."""
    from txn_engine.quality.standpoint import AtCut

    scan, changes = AtCut.scan, [RenameColumn("note", "text"), DropColumn("size")]

    def changing(self: AtCut, topic: str, **bounds: Any) -> Any:
        if changes and topic == "payments":
            engine.admin.alter_topic("payments", changes.pop())
            write(engine, "payments", payments(engine, "payments", 40 + len(changes), 1))
        return scan(self, topic, **bounds)

    monkeypatch.setattr(AtCut, "scan", changing)
    check = replace(CHECK, outputs=(Output("copies", SameRows({"id": "id"})),))
    result = attempt(engine, tmp_path, check)
    assert failed(result) == {"identity_in_copies"}
    assert result.proof is not None
    assert result.proof.schema_versions == {"payments": 2, "copies": 0}
    assert result.statistics["committed_records"] == 42
    changes.append(RenameColumn("amount", "value"))
    with pytest.raises(InvalidRequestError) as refused:
        attempt(engine, tmp_path)
    assert refused.value.reason is Reason.UNKNOWN_COLUMN


def test_a_declared_column_that_was_renamed(engine: Engine, tmp_path: Path) -> None:
    """A declaration with the old name of a renamed column is refused in one line. With the new name it is
    another declaration with a chain of its own."""
    proved(engine, tmp_path)
    engine.admin.alter_topic("payments", RenameColumn("amount", "value"))
    with pytest.raises(InvalidRequestError) as refused:
        attempt(engine, tmp_path)
    assert (refused.value.reason, refused.value.place) == (Reason.UNKNOWN_COLUMN, "topic payments")
    assert "\n" not in str(refused.value)
    totals = Totals({"account": "account"}, {"total": Amount("value")}, "payments")
    result = attempt(engine, tmp_path, replace(CHECK, outputs=(Output("sums", totals),)))
    assert result.success
    assert began(result) == "no proof of this declaration was there"


@pytest.mark.shard("damage")
def test_as_of_a_cut_columns_are_those_of_the_cut(engine: Engine, tmp_path: Path) -> None:
    """As of a cut, verdict and digests stay the same, whatever happens to the columns and files later."""
    load(engine, 40, 40)
    cut = engine.cut()
    before = proved(engine, tmp_path, cut=cut)
    engine.admin.alter_topic("payments", [DropColumn("size"), RenameColumn("amount", "value")])
    write(engine, "payments", payments(engine, "payments", 80, 5))
    assert engine.maintenance.compact("payments", policy=EAGER).failures == ()
    later = proved(engine, tmp_path, cut=cut, whole=True)
    assert later.ranges == before.ranges
    assert later.schema_versions == before.schema_versions
