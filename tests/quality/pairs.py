"""Random declarations over random stores, sound and damaged: each damage has to be found, and nothing else.

    python -m tests.quality.pairs                      200 damaged, 200 sound, in this process and on Spark; fresh seeds
    python -m tests.quality.pairs --pairs 20 --seed 7  those of a seed again
    python -m tests.quality.pairs --engine local       in this process alone

What is right is decided here, in plain Python over the rows that were written. A damage of an output is taken only
where that says that it is one: a row twice in a set is none. Exit code 1 where a verdict is another one, or the engines
do not name the same checks.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.progress import track

import txn_engine
from txn_engine.engine import Engine
from txn_engine.quality import (
    Amount,
    Declaration,
    LatestByKey,
    Output,
    Relation,
    SameRows,
    SameSet,
    SqlReduction,
    Totals,
    check_exactly_once,
)
from txn_engine.quality.declaration import RECORDS
from txn_engine.quality.in_process import InProcess
from txn_engine.quality.reducer import Reducer

Row = dict[str, Any]
Reduce = Callable[[Engine], contextlib.AbstractContextManager[Reducer]]

_TOLD_EVERY = 20  # pairs, where no terminal shows a bar
_NAMES = ("a", "b", "it's", 'qu"ote', "`tick`", "ü\\", "", None)
_SUMS = pa.schema(
    [("account", pa.string()), ("total", pa.decimal128(24, 2)), ("payments", pa.int64()), ("n", pa.int32())]
)
_TOPS = pa.schema([("account", pa.string()), ("top", pa.decimal128(18, 2))])


def payments_schema(draw: Random) -> pa.Schema:
    """The payments' schema. Some of its columns have names that SQL has to quote."""
    return pa.schema(
        [
            ("id", pa.int64()),
            ("part of", draw.choice((pa.int32(), pa.int64()))),
            ("account", pa.string()),
            ("amount", pa.decimal128(18, 2)),
            ("way", pa.string()),
            ("at", draw.choice((pa.timestamp("ms", tz="UTC"), pa.timestamp("us"), pa.date32()))),
        ]
    )


def payment(draw: Random, number: int, kind: pa.DataType) -> Row:
    """A random payment, with nulls where they are allowed."""
    moment = dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=draw.randrange(10**9))
    at: Any = moment.date() if pa.types.is_date(kind) else moment
    if pa.types.is_timestamp(kind) and not kind.tz:
        at = moment.replace(tzinfo=None)
    return {
        "id": number,
        "part of": draw.randrange(3),
        "account": draw.choice(_NAMES),
        "amount": Decimal(draw.randrange(-(10**9), 10**9)) / 100,
        "way": draw.choice(("in", "out")),
        "at": draw.choice((at, None)),
    }


# --- relations, and what is right by them ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kind:
    """A relation, its output's columns, the correct rows, and a test whether rows are correct."""

    relation: Relation
    schema: pa.Schema
    rows: Callable[[Sequence[Row]], list[Row]]
    agrees: Callable[[Sequence[Row], Sequence[Row]], bool]


def copies(draw: Random, schema: pa.Schema) -> Kind:
    """Each row is copied once, or as a set."""
    names = [
        "id",
        "account",
        *draw.sample([name for name in schema.names[1:] if name != "account"], draw.randrange(4)),
    ]
    own = pa.schema([schema.field(name) for name in names])
    is_set = draw.random() < 0.4
    if is_set:
        names = names[1:]
        own = pa.schema([schema.field(name) for name in names])

    def taken(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
        return [tuple(row[name] for name in names) for row in rows]

    def agrees(ours: Sequence[Row], theirs: Sequence[Row]) -> bool:
        return (
            set(taken(ours)) == set(taken(theirs))
            if is_set
            else Counter(taken(ours)) == Counter(taken(theirs))
        )

    columns = {name: name for name in names}
    relation = SameSet(columns) if is_set else SameRows(columns)
    return Kind(relation, own, lambda rows: [{name: row[name] for name in names} for row in rows], agrees)


def totals(draw: Random, _: pa.Schema) -> Kind:
    """Sums and counts by account, in one output row or several."""
    signed = draw.random() < 0.5
    count = draw.choice(("n", RECORDS, None))

    def sums(rows: Sequence[Row]) -> dict[Any, tuple[Decimal, int]]:
        held: dict[Any, tuple[Decimal, int]] = defaultdict(lambda: (Decimal(0), 0))
        for row in rows:
            total, number = held[row["account"]]
            sign = 1 if not signed or row["way"] == "in" else -1
            held[row["account"]] = (total + sign * row["amount"], number + 1)
        return held

    def right(rows: Sequence[Row]) -> list[Row]:
        if count == RECORDS:
            return [
                {
                    "account": row["account"],
                    "total": row["amount"] if not signed or row["way"] == "in" else -row["amount"],
                    "n": 0,
                }
                for row in rows
            ]
        found = []
        for account, (total, number) in sums(rows).items():
            first = draw.randrange(number + 1)
            found += [
                {"account": account, "total": total - 1, "n": first},
                {"account": account, "total": Decimal(1), "n": number - first},
            ]
        return found

    def told(rows: Sequence[Row]) -> dict[Any, tuple[Any, ...]]:
        held: dict[Any, list[Any]] = defaultdict(lambda: [Decimal(0), 0])
        for row in rows:
            held[row["account"]][0] += row["total"]
            held[row["account"]][1] += 1 if count == RECORDS else row["n"] if count else 0
        return {account: tuple(both) for account, both in held.items() if any(both)}

    def agrees(ours: Sequence[Row], theirs: Sequence[Row]) -> bool:
        wanted = {
            account: (total, number if count else 0)
            for account, (total, number) in sums(ours).items()
            if total or (count and number)
        }
        return wanted == told(theirs)

    amount = Amount("amount", "way", ("in",)) if signed else Amount("amount")
    return Kind(Totals({"account": "account"}, {"total": amount}, count), _SUMS, right, agrees)


def latest(_: Random, schema: pa.Schema) -> Kind:
    """The last row of each account. The output may have older ones before it."""
    own = pa.schema([schema.field(name) for name in ("account", "id", "amount")])

    def last(rows: Sequence[Row]) -> dict[Any, tuple[Any, Any]]:
        return {row["account"]: (row["id"], row["amount"]) for row in rows}

    def right(rows: Sequence[Row]) -> list[Row]:
        return [{name: row[name] for name in own.names} for row in rows]

    relation = LatestByKey({"account": "account"}, {"id": "id", "amount": "amount"})
    return Kind(relation, own, right, lambda ours, theirs: last(ours) == last(theirs))


def query(_: Random, __: pa.Schema) -> Kind:
    """The largest amount by account, computed by SQL on both sides."""

    def tops(rows: Sequence[Row], name: str) -> dict[Any, Decimal]:
        held: dict[Any, Decimal] = {}
        for row in rows:
            held[row["account"]] = max(held.get(row["account"], row[name]), row[name])
        return held

    relation = SqlReduction(
        topic='SELECT account, max("amount") AS top FROM topic GROUP BY account',
        output="SELECT account, max(top) AS top FROM output GROUP BY account",
    )
    return Kind(
        relation,
        _TOPS,
        lambda rows: [{"account": row["account"], "top": row["amount"]} for row in rows],
        lambda ours, theirs: tops(ours, "amount") == tops(theirs, "top"),
    )


KINDS = (copies, copies, totals, totals, latest, query)


# --- damage ---------------------------------------------------------------------------------------------------


def damaged(draw: Random, rows: list[Row]) -> list[Row]:
    """The rows with one left out, doubled, changed, or made up."""
    found = [dict(row) for row in rows]
    at = draw.randrange(len(found))
    change = draw.choice(("out", "twice", "changed", "made up"))
    if change == "out":
        del found[at]
    elif change == "twice":
        found.insert(draw.randrange(len(found) + 1), dict(found[at]))
    else:
        row = dict(found[at])
        name = draw.choice([name for name in row if name not in ("at", "way")])
        row[name] = {
            int: lambda held: held + draw.choice((1, -1)),
            Decimal: lambda held: held + Decimal(draw.choice((1, -1))) / 100,
            str: lambda held: held + draw.choice((" ", "x")),
            type(None): lambda _: "",
        }[type(row[name])](row[name])
        if change == "changed":
            found[at] = row
        else:
            found.append(row)
    return found


def of_the_store(draw: Random, engine: Engine, folder: Path) -> str:
    """Damage the topic's own store: change a byte of a live data file, or remove a data file or an entry."""
    topic = folder / "topics" / "payments" / "0"
    logs = [sorted(log.iterdir()) for log in sorted(topic.glob("*/log"))]
    entries = [entry for log in logs for entry in log[:-1]]  # a last one may be gone without a trace
    kind = draw.choice(("byte", "file", "entry") if entries else ("byte", "file"))
    if kind == "entry":
        draw.choice(entries).unlink()
        return kind
    path = Path(draw.choice(sorted(file.uri for file in engine.scan("payments").files())))
    if kind == "file":
        path.unlink()
    else:
        data = bytearray(path.read_bytes())
        data[draw.randrange(4, len(data))] ^= 1 << draw.randrange(8)
        path.write_bytes(data)
    return kind


# --- a pair ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pair:
    """A store and its declaration. `damage` says what was done to the store, and is empty if nothing was."""

    engine: Engine
    declaration: Declaration
    damage: str


def _table(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(
        [{name: row.get(name) for name in schema.names} for row in rows], schema=schema
    )


def _load(
    engine: Engine, topic: str, rows: Sequence[Row], schema: pa.Schema, name: str, *, commit: bool
) -> None:
    with engine.producer(transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        if rows:
            producer.produce(topic, _table(rows, schema)).result()
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()


@contextlib.contextmanager
def pair(seed: int, folder: Path) -> Iterator[Pair]:
    """The store of a seed. An odd seed's store is damaged."""
    draw = Random(seed)
    with txn_engine.connect(folder.as_uri()) as engine:
        schema = payments_schema(draw)
        engine.admin.create_topic("payments", partitions=draw.randrange(1, 4), schema=schema, key="account")
        numbers = iter(range(draw.randrange(10**6), 10**9))
        for load in range(draw.randrange(2, 5)):
            rows = [
                payment(draw, next(numbers), schema.field("at").type) for _ in range(draw.randrange(2, 30))
            ]
            _load(engine, "payments", rows, schema, f"load-{load}", commit=load == 0 or draw.random() < 0.8)
        damage = draw.choice(("output", "output", "output", "id", "store")) if seed % 2 else ""
        if damage == "id":
            again = dict(draw.choice(_rows(engine, "payments")))
            again["amount"] += draw.choice((Decimal(0), Decimal("0.01")))
            _load(engine, "payments", [again], schema, "again", commit=True)
        committed = _rows(engine, "payments")
        outputs = []
        kinds = [draw.choice(KINDS)(draw, schema) for _ in range(draw.randrange(1, 3))]
        hurt = draw.randrange(len(kinds)) if damage == "output" else -1
        for number, kind in enumerate(kinds):
            rows = kind.rows(committed)
            while hurt == number and kind.agrees(committed, rows):
                rows = damaged(draw, rows)
            assert kind.agrees(committed, rows) == (hurt != number)
            engine.admin.create_topic(
                f"out{number}",
                partitions=1,
                schema=kind.schema,
                key="account" if "account" in kind.schema.names else None,
            )
            _load(engine, f"out{number}", rows, kind.schema, f"job-{number}", commit=True)
            outputs.append(Output(f"out{number}", kind.relation))
        if damage == "store":
            damage = of_the_store(draw, engine, folder)
        record_id = ("id",) if draw.random() < 0.5 else ("id", "account")
        yield Pair(engine, Declaration("payments", record_id, tuple(outputs)), damage)


def _rows(engine: Engine, topic: str) -> list[Row]:
    """The committed rows in the order of their partitions and offsets."""
    rows: list[Row] = (
        engine.scan(topic)
        .to_table()
        .sort_by([("_partition", "ascending"), ("_offset", "ascending")])
        .to_pylist()
    )
    return rows


def verdict(pair: Pair, reduce: Reduce, folder: Path) -> tuple[bool, frozenset[str]]:
    """Whether all checks passed, and the names of those that did not."""
    with reduce(pair.engine) as reducer:
        result = check_exactly_once(
            pair.engine, pair.declaration, report_folder=folder, reducer=reducer, run_name="pair"
        )
    return result.success, frozenset(
        check.name for check in result.checks if check.status in ("failed", "errored")
    )


def main() -> int:
    """Try the pairs and print the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=200, help="so many damaged, and so many sound ones")
    parser.add_argument("--seed", type=int, default=int(time.time()) * 1_000)
    parser.add_argument("--engine", choices=["both", "local", "spark"], default="both")
    given = parser.parse_args()
    console = Console()
    console.print(f"seeds from {given.seed} on", highlight=False)
    with contextlib.ExitStack() as stack:
        engines: dict[str, Reduce] = {}
        if given.engine != "spark":
            engines["local"] = lambda engine: InProcess(engine.store)
        if given.engine != "local":
            engines["spark"] = _on_spark(stack)
        wrong = _try_all(given.seed, given.pairs, engines, console)
    return 1 if wrong else 0


def _on_spark(stack: contextlib.ExitStack) -> Reduce:
    from txn_engine.spark import spark_session
    from txn_engine.spark.reducing import SparkReducer

    log = Path(stack.enter_context(tempfile.TemporaryDirectory()), "spark.log")
    settings = {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}
    session = spark_session("file:///", master="local[2]", extra=settings, log_path=log)
    stack.callback(session.stop)
    return lambda engine: SparkReducer(session, engine.store)


def _try_all(first: int, pairs: int, engines: dict[str, Reduce], console: Console) -> int:
    tried: Counter[str] = Counter()
    wrong = 0
    for seed in track(
        range(first, first + 2 * pairs), "pairs", console=console, disable=not console.is_terminal
    ):
        with (
            tempfile.TemporaryDirectory(prefix="txn-engine-pairs-") as name,
            pair(seed, Path(name, "store")) as each,
        ):
            tried[each.damage or "none"] += 1
            found = {engine: verdict(each, reduce, Path(name, engine)) for engine, reduce in engines.items()}
            is_right = all(success == (not each.damage) for success, _ in found.values())
            if not console.is_terminal and tried.total() % _TOLD_EVERY == 0:
                console.print(f"{tried.total()} pairs, {wrong} with another verdict", highlight=False)
            if not is_right or len({names for _, names in found.values()}) > 1:
                wrong += 1
                console.print(
                    f"seed {seed}, damage {each.damage or 'none'}: {found}", highlight=False, markup=False
                )
    told = ", ".join(f"{count} {damage}" for damage, count in sorted(tried.items()))
    console.print(
        f"{tried.total()} pairs ({told}) by {' and '.join(engines)}: {wrong} with another verdict",
        highlight=False,
    )
    return wrong


if __name__ == "__main__":
    sys.exit(main())
