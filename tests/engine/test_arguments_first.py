"""Calls that erase, fence, abort or load look at all their arguments before they change anything.

Each call has one bad argument, and would otherwise do something: somebody else has a transaction open under the id that
the load would fence, the condition chooses records, the transaction hangs.
"""

from __future__ import annotations

import inspect
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txn_engine
from tests.support.odd_arguments import cases, changes_nothing, odd
from txn_engine import DropColumn, Engine, TopicPartition
from txn_engine.backup import prune
from txn_engine.errors import TxnEngineError
from txn_engine.loading import LOADED_FILES, load_files, replay
from txn_engine.loading.dead_letters import DEAD_LETTERS
from txn_engine.sqlite import load_query

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
RECORDS = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})
_NAMES = count()
HELD = ("load-files/payments", "load-query/payments/0", "replay/letters", "open")
"""Ids with an open transaction, which a call that fences would abort."""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with txn_engine.connect(f"memory://arguments-first-{next(_NAMES)}") as made:
        made.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="id")
        made.admin.create_topic("plain", partitions=1, schema=SCHEMA)
        made.admin.create_topic("letters", partitions=1, schema=DEAD_LETTERS)
        made.admin.create_topic("others", partitions=1, schema=SCHEMA)
        made.admin.create_topic("files-of-others", partitions=1, schema=LOADED_FILES)
        with made.producer() as producer:
            producer.produce("payments", RECORDS).result()
        path = tmp_path_factory.mktemp("others") / "a.csv"
        path.write_text("id,v\n1,x\n")
        load_files(made, "others", path, run_id="r", manifest="files-of-others")
        held = [made.producer(transactional_id=name) for name in HELD]
        for producer in held:
            producer.init_transactions()
            producer.begin_transaction()
            producer.produce("payments", RECORDS).result()
        hanging = made.partition("plain", 0)
        hanging.append(RECORDS, producer_id=999, producer_epoch=0, base_sequence=0, is_transactional=True)
        yield made
        for producer in held:
            with suppress(TxnEngineError):  # the last test fences some
                producer.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files") / "a.csv"
    path.write_text("id,v\n1,x\n")
    return path


@pytest.mark.parametrize(
    ("name", "value"),
    cases(
        topic=(),
        where=(),
        execute=(bool,),
        everything=(bool,),
        backups=(None,),
        progress=(None,),
    ),
)
def test_erase(engine: Engine, name: str, value: object) -> None:
    given: dict[str, Any] = {"topic": "payments", "where": "id = 1", "execute": True, name: value}
    changes_nothing(engine, lambda: engine.erase(given.pop("topic"), given.pop("where"), **given))


@pytest.mark.parametrize(("name", "value"), cases(topic=(), partition=(), start_offset=()))
def test_abort_transaction(engine: Engine, name: str, value: object) -> None:
    given: dict[str, Any] = {"topic": "plain", "partition": 0, "start_offset": 0, name: value}
    changes_nothing(engine, lambda: engine.admin.abort_transaction(**given))


@pytest.mark.parametrize("value", [*odd(), 1], ids=repr)
def test_fence_producers(engine: Engine, value: Any) -> None:
    """If one of several ids is not valid, none is fenced. A text is not taken for a list of its letters."""
    changes_nothing(engine, lambda: engine.admin.fence_producers(["open", value]))
    if value != ["a"]:
        changes_nothing(engine, lambda: engine.admin.fence_producers(value))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *cases(
            topic=(),
            run_id=(),
            transactional_id=(None,),
            partition=(None,),
            dead_letter_topic=(None,),
            manifest=(None,),
            again=(bool,),
            forgotten_runs=(),
            transaction_timeout_ms=(int, None),
            format=(None,),
            compression=(None,),
            encoding=(),
            delimiter=(None, str),
            quote=(str,),
            header=(bool, list, dict),
            null_values=(list, dict),
            skip_footer=(int,),
            columns=(None,),
            missing_columns=(),
            unknown_columns=(),
            date_format=(None, str),
            decimal=(),
            thousands=(None,),
            binary=(),
        ),
        ("again", True),
        ("manifest", "nowhere"),
        ("manifest", "plain"),
        ("dead_letter_topic", "plain"),
        ("dead_letter_topic", "payments"),
        ("max_dead_letters", 5),
        ("partition", 2),
        ("transaction_timeout_ms", 0),
        ("transaction_timeout_ms", 10**9),
        ("manifest", "files-of-others"),
        ("columns", {"id": "v"}),
        ("delimiter", "too long"),
        ("quote", "''"),
        ("header", ["id", "id"]),
        ("header", ["id", "nope"]),
        ("header", ["id"]),
    ],
)
def test_load_files(engine: Engine, file: Path, name: str, value: object) -> None:
    given: dict[str, Any] = {"topic": "payments", "run_id": "r", name: value}
    changes_nothing(engine, lambda: load_files(engine, given.pop("topic"), file, **given))


@pytest.mark.parametrize("manifest", [None, "files-of-payments"])
def test_load_files_that_cannot_be_opened(engine: Engine, file: Path, manifest: str | None) -> None:
    """Each file is opened before the load fences anybody: a name that was mistyped aborts no transaction."""
    if manifest is not None and manifest not in engine.admin.list_topics():
        engine.admin.create_topic(manifest, partitions=1, schema=LOADED_FILES)
    empty, nowhere = file.with_name("empty.csv"), file.with_name("nowhere.csv")
    empty.touch()
    link = file.with_name("link.csv")
    link.unlink(missing_ok=True)
    link.symlink_to(nowhere)
    for paths in ([], nowhere, [file, nowhere], [nowhere, file], empty, [file, empty], link):
        changes_nothing(
            engine, lambda paths=paths: load_files(engine, "payments", paths, run_id="r", manifest=manifest)
        )


@pytest.mark.parametrize("name", ["progress", "rejected", "sizes", "fill", "nope"])
def test_load_files_takes_no_other_argument(engine: Engine, file: Path, name: str) -> None:
    before = {info.key: info.size for info in engine.store.list("")}
    with pytest.raises(TypeError):
        load_files(engine, "payments", file, run_id="r", **{name: 5})
    assert {info.key: info.size for info in engine.store.list("")} == before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *cases(
            topic=(),
            query=("a\nb",),
            connection=(),
            run_id=(),
            key_range=(None,),
            parameters=(None, list, dict, bytes),
            transactional_id=(None, ""),
            timeout_ms=(None, int),
            forgotten_runs=(),
            dead_letter_topic=(None,),
            progress=(None,),
        ),
        ("timeout_ms", 0),
        ("dead_letter_topic", "plain"),
        ("max_dead_letters", 5),
    ],
)
def test_load_query(engine: Engine, name: str, value: object) -> None:
    with sqlite3.connect(":memory:") as connection:
        given: dict[str, Any] = {
            "connection": connection,
            "query": "SELECT 1 AS id, 'a' AS v",
            "topic": "payments",
            "run_id": "r",
            name: value,
        }
        changes_nothing(
            engine,
            lambda: load_query(
                engine, given.pop("connection"), given.pop("query"), given.pop("topic"), **given
            ),
        )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *cases(dead_letter_topic=(), repaired=(None,), without_checks=(bool,), dry_run=(bool,)),
        ("dead_letter_topic", "plain"),
        ("repaired", {(0, 0): 1}),
        ("repaired", {(0, 0): "{}"}),
        ("repaired", {(7, 0): "{}"}),
    ],
)
def test_replay(engine: Engine, name: str, value: object) -> None:
    given: dict[str, Any] = {"dead_letter_topic": "letters", name: value}
    changes_nothing(engine, lambda: replay(engine, given.pop("dead_letter_topic"), **given))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *cases(transaction_timeout_ms=(int,), markers=(), config=(None,), resume=(None,)),
        ("transaction_timeout_ms", 0),
        ("transactional_id", ""),
        ("nope", 1),
    ],
)
def test_producer(engine: Engine, name: str, value: object) -> None:
    def fence() -> None:
        with engine.producer(**{"transactional_id": "open", name: value}) as producer:
            producer.init_transactions()

    changes_nothing(engine, fence)


@pytest.mark.parametrize(
    ("topics", "keep_ms"),
    [(["payments", "nope"], None), ("nope", None), ([5], None), ([], None), (5, None), (["payments"], -1)],
    ids=repr,
)
def test_cut(engine: Engine, topics: Any, keep_ms: int | None) -> None:
    """A cut that cannot be made takes no number."""
    changes_nothing(engine, lambda: engine.cut(topics, keep_ms=keep_ms))


ADMIN_FLAGS: dict[str, Callable[[Engine, dict[str, Any]], object]] = {
    "add_partitions_to_topic": lambda engine, flag: engine.admin.add_partitions_to_topic(
        "payments", 3, **flag
    ),
    "alter_topic": lambda engine, flag: engine.admin.alter_topic("payments", DropColumn("v"), **flag),
    "alter_configs": lambda engine, flag: engine.admin.alter_configs(
        {"retention.ms": 1}, topic="payments", **flag
    ),
    "abort_transaction": lambda engine, flag: engine.admin.abort_transaction("plain", 0, 0, **flag),
    "delete_group": lambda engine, flag: engine.admin.delete_group("group", **flag),
    "expire_group_offsets": lambda engine, flag: engine.admin.expire_group_offsets(retention_ms=0, **flag),
    "reset_offsets": lambda engine, flag: engine.admin.reset_offsets("group", {FIRST: 1}, **flag),
}
"""The calls of `Engine.admin` that a flag makes write, or not write."""
FIRST = TopicPartition("payments", 0)


@pytest.mark.parametrize("value", ["no", 1, 0, None], ids=repr)
@pytest.mark.parametrize("name", sorted(ADMIN_FLAGS))
def test_flags_of_admin(engine: Engine, name: str, value: object) -> None:
    """A flag is True or False. What is only true or false in Python's eyes, as "no" is, moves and removes nothing."""
    if "group" not in engine.admin.list_groups():
        engine.admin.reset_offsets("group", {FIRST: 0}, execute=True)
    (flag,) = _flags_of(engine.admin)[name]
    changes_nothing(engine, lambda: ADMIN_FLAGS[name](engine, {flag: value}))


def _flags_of(of: object) -> dict[str, list[str]]:
    """The flags of each public method."""
    methods = {
        name: inspect.signature(method).parameters.values()
        for name, method in inspect.getmembers(of, inspect.ismethod)
        if not name.startswith("_")
    }
    flags = {
        name: [each.name for each in given if each.annotation == "bool"] for name, given in methods.items()
    }
    return {name: found for name, found in flags.items() if found}


def test_every_flag_of_admin_is_tried(engine: Engine) -> None:
    assert sorted(_flags_of(engine.admin)) == sorted(ADMIN_FLAGS)


FLAGS: dict[str, Callable[[Engine, dict[str, Any]], object]] = {
    "Engine.erase": lambda engine, flag: engine.erase("payments", "id = 1", **flag),
    "Engine.missing_of_cuts": lambda engine, flag: engine.missing_of_cuts(engine.cuts(), **flag),
    "Engine.take_new_id": lambda engine, flag: engine.take_new_id(watch_ms=0, **flag),
    "Maintenance.clean": lambda engine, flag: engine.maintenance.clean(**flag),
    "Maintenance.compact": lambda engine, flag: engine.maintenance.compact(**flag),
    "Maintenance.expire_producers": lambda engine, flag: engine.maintenance.expire_producers(**flag),
    "Maintenance.remove_deleted_topics": lambda engine, flag: engine.maintenance.remove_deleted_topics(
        **flag
    ),
    "Maintenance.retain": lambda engine, flag: engine.maintenance.retain(**flag),
    "Maintenance.seal": lambda engine, flag: engine.maintenance.seal(**flag),
    "Tables.publish_due": lambda engine, flag: engine.tables.publish_due(**flag),
    "Tables.unpublish": lambda engine, flag: engine.tables.unpublish("payments", **flag),
}
"""The other calls of an engine that a flag makes write, or not write."""


@pytest.mark.parametrize("value", ["no", 1, 0, None], ids=repr)
@pytest.mark.parametrize("name", sorted(FLAGS))
def test_flags_of_an_engine(engine: Engine, name: str, value: object) -> None:
    of, method = name.split(".")
    by_class = {type(each).__name__: each for each in (engine, engine.maintenance, engine.tables)}
    for flag in _flags_of(by_class[of])[method]:
        changes_nothing(engine, lambda flag=flag: FLAGS[name](engine, {flag: value}))  # type: ignore[misc]


def test_every_flag_of_an_engine_is_tried(engine: Engine) -> None:
    found = [
        f"{type(each).__name__}.{method}"
        for each in (engine, engine.maintenance, engine.tables)
        for method in _flags_of(each)
    ]
    assert sorted(found) == sorted(FLAGS)


@pytest.mark.parametrize("value", ["no", 1, 0, None], ids=repr)
def test_flags_of_logs_and_backups(engine: Engine, value: Any) -> None:
    log = engine.partition("payments", 0)
    calls: list[Callable[[], object]] = [
        lambda: log.append(RECORDS, producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=value),
        lambda: log.append_marker(producer_id=5, producer_epoch=0, committed=value, coordinator_epoch=0),
        lambda: engine.coordinator.end_transaction("open", 0, 0, committed=value),
        lambda: prune(engine.store, keep=1, execute=value),
    ]
    for call in calls:
        changes_nothing(engine, call)


def test_what_is_right_does_change_something(engine: Engine, file: Path) -> None:
    """The calls that are refused above would do something: with right arguments they do."""
    for call in (
        lambda: engine.erase("payments", "id = 1", execute=True),
        lambda: engine.admin.abort_transaction("plain", 0, 0),
        lambda: engine.admin.fence_producers(["open"]),
        lambda: load_files(engine, "payments", file, run_id="r"),
    ):
        before = {info.key: info.size for info in engine.store.list("")}
        call()
        assert {info.key: info.size for info in engine.store.list("")} != before
