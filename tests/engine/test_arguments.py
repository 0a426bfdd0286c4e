"""Every public call looks at the types of its arguments before it does anything."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import txn_engine
from storage import MemoryStore
from txn_engine import Engine, TopicPartition
from txn_engine.admin import Admin
from txn_engine.arguments import type_test
from txn_engine.consumer import Consumer
from txn_engine.errors import InvalidRequestError, TxnEngineError
from txn_engine.log.topics import Topic
from txn_engine.maintain.maintenance import Maintenance
from txn_engine.producer import Producer
from txn_engine.reasons import Reason
from txn_engine.scan import Scan
from txn_engine.tables import Tables
from txn_engine.types import ConsumerGroupMetadata

SCHEMA = pa.schema([("id", pa.int64())])
P0 = TopicPartition("t", 0)
KINDS = (Engine, Admin, Producer, Consumer, Scan, Tables, Maintenance)

RIGHT: dict[str, object] = {
    "Change | Sequence[Change]": [],
    "Cut | int": 0,
    "ConsumerGroupMetadata": ConsumerGroupMetadata("g", ""),
    "Iterable[TopicPartition]": [P0],
    "Iterable[str]": ["t"],
    "Mapping[TopicPartition, OffsetAndMetadata | int]": {P0: 0},
    "Mapping[TopicPartition, ResetTarget]": {},
    "Mapping[TopicPartition, int]": {P0: 0},
    "Mapping[str, object]": {},
    "RecordsLike": pa.table({"id": [1]}),
    "Sequence[tuple[int, EncodedFile]]": [],
    "Topic": Topic("t", 0, 1, SCHEMA, None, -1, 0),
    "TopicPartition": P0,
    "int": 0,
    "str": "t",
    "str | Matcher": "id = 1",
    "str | ObjectStore": "memory://elsewhere",
    "str | Sequence[str]": "t",
}
"""Arguments that a call needs besides the one that is wrong."""
LOOK_THEMSELVES = {
    *("Producer.produce-table", "Producer.produce-timestamp_ms"),
    *("Engine.producer-config", "Engine.consumer-config", "Admin.alter_configs-settings"),
}
"""Records are of many types, which the call tells apart; settings have errors of their own."""


class Wrong:
    """An object that is no argument of any call."""


@pytest.fixture
def engine(tmp_path: Any) -> Iterator[Engine]:
    with txn_engine.connect(f"file://{tmp_path}/store") as made:
        made.admin.create_topic("t", schema=SCHEMA)
        with made.producer() as producer:
            producer.produce("t", pa.table({"id": [1]}), partition=0)
        made.cut()
        yield made


def calls() -> list[Any]:
    """Each public method with each of its parameters, but for `**settings`, which are checked as settings."""
    return [
        pytest.param(kind, name, parameter.name, id=f"{kind.__name__}.{name}-{parameter.name}")
        for kind in KINDS
        for name, method in vars(kind).items()
        if inspect.isfunction(method) and not name.startswith("_")
        for parameter in list(inspect.signature(method).parameters.values())[1:]
        if parameter.kind is not parameter.VAR_KEYWORD
    ]


def made(engine: Engine, kind: type) -> Any:
    match kind.__name__:
        case "Engine":
            return engine
        case "Producer":
            return engine.producer(transactional_id="x")
        case "Consumer":
            return engine.consumer(group_id="g")
        case "Scan":
            return engine.scan("t")
    return getattr(
        engine, {"Admin": "admin", "Tables": "tables", "Maintenance": "maintenance"}[kind.__name__]
    )


def contents(engine: Engine) -> dict[str, bytes]:
    return {info.key: engine.store.get(info.key) for info in engine.store.list("")}


def test_there_are_many() -> None:
    """The list of calls is found by looking, so it must not be empty by mistake."""
    assert len(calls()) > 150


def test_each_parameter_of_each_call(engine: Engine) -> None:
    """An object of a wrong type is refused as this argument, and nothing is changed on the store."""
    objects = {kind: made(engine, kind) for kind in KINDS}
    before = contents(engine)
    missed: dict[str, str] = {}
    for case in calls():
        kind, name, parameter = case.values
        method = getattr(objects[kind], name)
        required = {
            each.name: RIGHT.get(each.annotation)
            for each in inspect.signature(method).parameters.values()
            if each.default is each.empty and each.kind is not each.VAR_KEYWORD
        }
        given = required | {parameter: Wrong()}
        try:
            found = method(**given)
            if inspect.isgenerator(found) or hasattr(found, "__enter__"):
                found.__enter__() if hasattr(found, "__enter__") else next(found)
            missed[case.id] = f"returned {type(found).__name__}"
        except InvalidRequestError as error:
            is_named = error.reason is Reason.BAD_ARGUMENT and error.seen.startswith(f"{parameter} ")
            if not is_named and case.id not in LOOK_THEMSELVES:
                missed[case.id] = str(error)
        except TxnEngineError as error:
            if case.id not in LOOK_THEMSELVES:
                missed[case.id] = str(error)
        except BaseException as error:  # noqa: BLE001 -- any of them is a miss
            missed[case.id] = repr(error)
    assert not missed
    assert contents(engine) == before


@pytest.mark.parametrize(
    "call",
    [
        lambda engine: engine.producer().produce("t", pa.table({"id": [1]}), partition="0"),
        lambda engine: engine.producer().produce("t", Wrong()),
        lambda engine: engine.producer().produce("t", pa.table({"id": [1]}), timestamp_ms=Wrong()),
        lambda engine: engine.producer(transactional_id="y").send_offsets_to_transaction({P0: 1}, "g"),
        lambda engine: engine.producer(transactional_id="y").send_offsets_to_transaction({P0: "1"}, None),
        lambda engine: engine.scan(5),
        lambda engine: engine.scan("t", partitions=5),
        lambda engine: engine.scan("t", partitions=["0"]),
        lambda engine: engine.scan("t", start={"t": 1}),
        lambda engine: engine.backup(5),
        lambda engine: engine.consumer(group_id="g").commit("x"),
        lambda engine: engine.consumer().assign("t"),
        lambda engine: engine.consumer().poll("x"),
        lambda engine: engine.admin.reset_offsets("g", {"t": 0}),
        lambda engine: engine.admin.find_hanging_transactions("t", max_transaction_timeout_ms="x"),
        lambda engine: engine.admin.add_partitions_to_topic("t", True),
    ],
)
def test_wrong_types_inside_and_out(engine: Engine, call: Callable[[Engine], object]) -> None:
    """An argument of a wrong type, or with elements of one, is refused in one sentence; nothing is written."""
    before = contents(engine)
    with pytest.raises(TxnEngineError) as error:
        call(engine)
    assert isinstance(error.value, InvalidRequestError)
    assert "\n" not in str(error.value)
    assert contents(engine) == before


def test_a_value_that_may_be_a_record_is_not_shown(engine: Engine) -> None:
    """The error names the type of what was given."""
    with pytest.raises(InvalidRequestError) as error:
        engine.scan("t", partitions={"secret-7": 1})  # type: ignore[arg-type]
    assert "secret-7" not in str(error.value)


@pytest.mark.parametrize(
    ("value", "hint", "is_right"),
    [
        (1, int, True),
        (True, int, False),
        (pa.scalar(1), int, False),
        (None, int | None, True),
        (None, int, False),
        ("x", str | list[str], True),
        (iter("x"), int, False),
        (MemoryStore("arguments"), Any, True),
    ],
)
def test_what_fits(value: object, hint: Any, is_right: bool) -> None:
    """Whole numbers are no bools; None only where it is said."""
    assert type_test(hint)(value) is is_right
