"""Ids, groups, run ids and columns may not contain characters that a terminal acts on or that nobody sees."""

from __future__ import annotations

import pyarrow as pa
import pytest

import txn_engine
from tests.support.refusals import refused
from txn_engine import OffsetAndMetadata, TopicPartition
from txn_engine.errors import InvalidGroupIdError, InvalidRecordError, InvalidRequestError, TxnEngineError
from txn_engine.reasons import Reason
from txn_engine.testing import write_transaction_state
from txn_engine.types import ConsumerGroupMetadata

SCHEMA = pa.schema([("n", pa.int64())])
UNSEEN = [
    *("\x1b]0;x\x07", "\x00", "a\nb", "\x7f", "\x9b31m", "\u2028", "\u2029", "\u202e", "\u2066"),
    *("\u200b", "\u200d", "\u200e", "\u200f", "\u061c", "\ufeff", "\xad", "\ufff9", "\U000e0041"),
    *("\ue000", "\u0378", "\xa0x", "\u3000x", " ", "x "),
    *("a  b", "\ufffc", "\U0001d159", "\U00016fe4"),
    *("\u3164", "\u115f", "\u1160", "\uffa0", "\u034f", "\ufe0f", "\U000e0100", "\u2800", "\u17b4", "\u180b"),
]
TWO_WAYS = [
    "e\u0301",
    "\u212b",
    "\u1100\u1161",
    "i\u0307",
    "\u0131\u0307",
    "\u0237\u0307",
    "\u0131\u0323\u0307",
    "_\u0332",
    "-\u0335",
    "1\u0331",
    "x\u0336",
    "x\u0335\u0336",
    "o\u0338",
    "d\u0335",
    "x\u20dd",
    "x\u0488",
    "x\u0301\u0301",
    "\U0001bc9dx",
    *(
        f"a{stacker}b"
        for stacker in "\u1039\u17d2\u1a60\u1bab\uaaf6\U00010a3f\U00011133\U0001193e\U00011a47\U00011a99\U00011d97"
    ),
    "\u1780\u17d2",
    "\u1780\u17d2a",
    "a\u17d2\u1780",
    "\uff41",
    "\ufb01",
    "\xb5",
    "x\u2011y",
    "x\u2024y",
]
"""What Unicode's NFC or NFKC writes in another way, what looks like a plain i, and marks that nobody sees."""
SEEN = [
    "überweisung 1/2",
    "支付",
    "\u00e9",
    "x\u0301",
    "한국어",
    "ភាសា",
    "\u1781\u17d2\u1798\u17c2\u179a",
    "\u1021\u1004\u103a\u1039\u1002",
    "x; curl -d @/etc/passwd",
    "\U0001f4b6",
    "amount (€)",
    "Größe m²",
    "сумма_eur",
    "½ day…",
    "हिन्दी",
    "ภาษาไทย",
    "\u0645\u064f\u062d\u064e\u0645\u062f",
    "Nguy\u1ec5n",
    "\u05e9\u05dc\u05d5\u05b9\u05dd",
    "\u0ba4\u0bae\u0bbf\u0bb4\u0bcd",
]


@pytest.fixture
def engine(engine: txn_engine.Engine) -> txn_engine.Engine:
    engine.admin.create_topic("t", partitions=1, schema=SCHEMA)
    return engine


def unprintable(kind: type[TxnEngineError] = InvalidRequestError) -> pytest.RaisesExc[TxnEngineError]:
    """Expect an error of this class that refuses a name and shows it escaped."""
    return pytest.raises(
        kind, check=lambda error: error.reason is Reason.UNPRINTABLE_NAME and str(error).isprintable()
    )


def test_a_new_transactional_id_is_seen_whole(engine: txn_engine.Engine) -> None:
    """A transactional id with invisible characters is refused before it has a row, and the refusal shows it
    escaped."""
    for text in (*UNSEEN, *TWO_WAYS):
        with unprintable():
            engine.coordinator.init_producer_id(f"load{text}")
    assert engine.admin.list_transactions() == []


@pytest.mark.parametrize("text", SEEN)
def test_other_letters_are_welcome(engine: txn_engine.Engine, text: str) -> None:
    """Letters of any script are allowed, and so are characters that a shell acts on but a terminal does
    not."""
    assert engine.coordinator.init_producer_id(text).producer_epoch == 0
    with engine.producer(transactional_id=text) as producer:
        producer.init_transactions()
        with producer.transaction(run_id=text):
            producer.produce("t", pa.table({"n": [1]}, schema=SCHEMA))
        assert producer.has_committed(text)


def test_an_id_from_before_the_rule_is_ended(engine: txn_engine.Engine) -> None:
    """An id that the log already has can be fenced and used despite the rule, because its transaction must
    not hold readers back for ever."""
    write_transaction_state(engine, "old\x1b[2J", state="Empty", producer_id=7, producer_epoch=0)
    assert engine.coordinator.init_producer_id("old\x1b[2J").producer_epoch == 1


def test_a_run_id_is_seen_whole(engine: txn_engine.Engine) -> None:
    """A run id with invisible characters is refused, and the producer goes on with a valid one."""
    with engine.producer(transactional_id="load") as producer:
        producer.init_transactions()
        for text in (*UNSEEN, *TWO_WAYS):
            with unprintable():
                producer.begin_transaction(run_id=f"2026{text}")
        with producer.transaction(run_id="2026"):
            producer.produce("t", pa.table({"n": [1]}, schema=SCHEMA))


def test_a_new_group_is_seen_whole(engine: txn_engine.Engine) -> None:
    """A group with invisible characters is refused, outside of a transaction and in one, and nothing is
    committed."""
    offsets = {TopicPartition("t", 0): OffsetAndMetadata(0)}
    with engine.producer(transactional_id="load") as producer:
        producer.init_transactions()
        for text in (*UNSEEN, *TWO_WAYS):
            with unprintable(InvalidGroupIdError):  # before anybody keeps positions by that name
                engine.consumer(group_id=f"g{text}")
            producer.begin_transaction()
            with unprintable(InvalidGroupIdError):
                producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata(f"g{text}", "member", {}))
            producer.abort_transaction()
    assert engine.admin.list_groups() == []


def test_a_group_from_before_the_rule_goes_on(
    engine: txn_engine.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that already has offsets can move on, because a rule about names must not stop a running
    pipeline."""
    offsets = {TopicPartition("t", 0): OffsetAndMetadata(0)}
    with monkeypatch.context() as before_the_rule:
        before_the_rule.setattr("txn_engine.coordinator.groups.is_new_name", lambda _text: True)
        engine.consumer(group_id="old\u200b").commit(offsets)
    engine.consumer(group_id="old\u200b").commit(offsets)


def test_a_column_is_seen_whole(engine: txn_engine.Engine) -> None:
    """A column with invisible characters in its name is refused, and so is a field inside a column."""
    for text in (*UNSEEN, *TWO_WAYS):
        for schema in (
            pa.schema([(f"n{text}", pa.int64())]),
            pa.schema([("s", pa.list_(pa.struct([(f"n{text}", pa.int64())])))]),
        ):
            with unprintable(InvalidRecordError):
                engine.admin.create_topic("u", partitions=1, schema=schema)
    assert "u" not in engine.admin.list_topics()


def test_a_column_is_named_in_utf8(engine: txn_engine.Engine) -> None:
    """A column whose name is not valid UTF-8 is refused. A schema that was read from a file can have such
    names."""
    for schema in (pa.schema([("NAME", pa.int64())]), pa.schema([("s", pa.struct([("NAME", pa.int64())]))])):
        damaged = pa.ipc.read_schema(
            pa.py_buffer(schema.serialize().to_pybytes().replace(b"NAME", b"NA\xff\xfe"))
        )
        with refused(InvalidRecordError, Reason.NOT_UTF8):
            engine.admin.create_topic("u", partitions=1, schema=damaged)
    assert "u" not in engine.admin.list_topics()
