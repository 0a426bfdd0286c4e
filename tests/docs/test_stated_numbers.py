"""The pages state the same numbers as the code. Measured numbers are written by the command that measures.

A number that changes in the code fails here until the page has it too.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pytest
import yaml
from hypothesis import settings

from storage import MemoryStore
from storage.envelope import JSON_BYTES_MAX
from storage.parquet_footer import SCHEMA_ELEMENTS_MAX
from storage.parquet_limits import DATA_LIMITS
from storage.row_groups import ROW_BYTES_MAX, ROW_GROUP_BYTES, ROW_GROUP_NULLS, ROW_NULLS_MAX
from storage.thrift import NESTING_MAX
from tests.differential.programs import KINDS, SHARES
from tests.differential.report import MOST_CUT
from tests.simulator.explore.page import STATES_MAX
from tests.simulator.faults import LONGEST_JUMP
from tests.simulator.kernel import DAY, HOUR
from tests.simulator.knobs import Knobs
from tests.support.faults import FaultyStore
from tests.support.power import ALL_SUBSETS_MAX
from tests.support.servers import REPOSITORY
from tests.support.waiting import LIMIT_S
from txn_engine import Engine
from txn_engine.clock import Waiting
from txn_engine.configs.client import ProducerSettings
from txn_engine.coordinator.producer_ids import BLOCK_SIZE
from txn_engine.demo.sample import ROWS
from txn_engine.log.entry_format import ENTRY_LIMITS
from txn_engine.log.row_checks import MAX_OFFSET
from txn_engine.log.snapshot_format import SNAPSHOT_LIMITS
from txn_engine.log.snapshot_rows import ROW_CHARS_MAX
from txn_engine.log.store_config import (
    CONSUMER_OFFSETS_TOPIC,
    MAX_PARTITIONS,
    TRANSACTION_STATE_TOPIC,
    StoreConfig,
    StoreLimits,
)
from txn_engine.maintain import MaintenancePolicy
from txn_engine.protocol.controls import CONTROL_CHARS_MAX, GRACE_MS
from txn_engine.protocol.producers import BATCHES_TO_RETAIN, MAX_EPOCH
from txn_engine.protocol.sequences import MAX_SEQUENCE
from txn_engine.protocol.transaction_rows import MAX_RUN_IDS
from txn_engine.verify.findings import LISTED_MAX

_WORDS = {5: "five", 6: "six", 7: "seven"}
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_INTERNAL = StoreConfig("", 0, {}).internal_partitions


@dataclass(frozen=True)
class Stated:
    """A sentence that a page has to contain, made from the code's numbers. Line breaks do not matter."""

    page: str
    text: str


def _mib(size: int) -> str:
    return f"{size >> 20} MiB" if size < 1 << 30 else f"{size >> 30} GiB"


def _power(number: int) -> str:
    return (
        f"2^{number.bit_length() - 1}"
        if number & (number - 1) == 0
        else f"2^{number.bit_length()} - {(1 << number.bit_length()) - number}"
    )


def _days(ms: int) -> str:
    return _WORDS[ms // _DAY_MS]


_ID_DAYS = _days(StoreLimits().transactional_id_expiration_ms)
_GRACE = f"{GRACE_MS // _HOUR_MS} hours"
_TIMEOUT = f"{StoreLimits().max_transaction_timeout_ms // 60_000} minutes"

_CLIENTS = sum(share for kind, share in zip(KINDS, SHARES, strict=True) if kind in ("client", "loop"))

_SERVICES = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
_MEMORY = {name: f"{service['mem_limit'][:-1]} GB" for name, service in _SERVICES.items()}

_DEFAULTS = dict(
    re.findall(r"\$\(or \$\((\w+)\),(\d+)\)", (REPOSITORY / "Makefile").read_text(encoding="utf-8"))
)

STATED = (
    Stated("PROTOCOL.md", f"topics/__transaction_state/0/<0..{_INTERNAL[TRANSACTION_STATE_TOPIC] - 1}>/log/"),
    Stated("PROTOCOL.md", f"topics/__consumer_offsets/0/<0..{_INTERNAL[CONSUMER_OFFSETS_TOPIC] - 1}>/log/"),
    Stated("PROTOCOL.md", f"`abs(java_hash(id)) % {_INTERNAL[TRANSACTION_STATE_TOPIC]}`"),
    Stated("PROTOCOL.md", f"producer ids in blocks of {BLOCK_SIZE:,}"),
    Stated("PROTOCOL.md", f"the last {_WORDS[BATCHES_TO_RETAIN]} batches"),
    Stated("PROTOCOL.md", f"sequences wrap at {_power(MAX_SEQUENCE).replace(' ', '')}"),
    Stated("PROTOCOL.md", f"the last {MAX_RUN_IDS} committed run ids"),
    Stated("PROTOCOL.md", f"An id that was idle for {_ID_DAYS} days gets a tombstone"),
    Stated("PROTOCOL.md", f"are deleted {_GRACE} after they died"),
    Stated("PROTOCOL.md", f"in practice it is the log end of {_days(MaintenancePolicy().orphan_age_ms)} days ago"),
    Stated("ARCHITECTURE.md", f"`partition = abs(java_hash(id)) % {_INTERNAL[TRANSACTION_STATE_TOPIC]}`"),
    Stated("ARCHITECTURE.md", f"files dead for {_GRACE}"),
    Stated("ARCHITECTURE.md", f"An id at rest for {_ID_DAYS} days expires"),
    Stated("ARCHITECTURE.md", f"The log knows an id's last {MAX_RUN_IDS} runs"),
    Stated("OPERATORS.md", f"The log remembers the last {MAX_RUN_IDS} runs of a transactional id"),
    Stated("AIRFLOW.md", f"before its task's last {MAX_RUN_IDS} runs"),
    Stated("GLOSSARY.md", f"{BLOCK_SIZE:,} producer ids that one process claimed at once"),
    Stated("GLOSSARY.md", f"trimmed or replaced; deleted {_GRACE} later"),
    Stated("KAFKA.md", f"the last {_WORDS[BATCHES_TO_RETAIN]} batches"),
    Stated("KAFKA.md", f"a transaction at epoch {MAX_EPOCH - 1} that is decided, or fenced"),
    Stated("KAFKA.md", f"the Prepare row keeps the old producer id at epoch {MAX_EPOCH} and names the next one"),
    Stated("KAFKA.md", f"the id was idle for {_ID_DAYS} days and expired"),
    Stated("KAFKA.md", f"above the store's limit ({_TIMEOUT})"),
    Stated("KAFKA.md", f"asks again, for up to {ProducerSettings().request_timeout_ms // 1_000} s"),
    Stated("KAFKA.md", f"retries took longer than {ProducerSettings().request_timeout_ms // 1_000} s"),
    Stated("KAFKA.md", f"a record of more than {_mib(ROW_BYTES_MAX)} uncompressed, or with more than"
        f" {ROW_NULLS_MAX:,} nulls"),
    Stated("FORMAT.md", f"ids block*{BLOCK_SIZE} .. block*{BLOCK_SIZE}+{BLOCK_SIZE - 1}"),
    Stated("FORMAT.md", f"(oldest first, at most {MAX_RUN_IDS})"),
    Stated("FORMAT.md", f"| entry, seal | {_mib(ENTRY_LIMITS.object_bytes)} | {ENTRY_LIMITS.footer_bytes >> 10} KiB"
        f" | {ENTRY_LIMITS.rows:,} rows, {ENTRY_LIMITS.values:,} values |"),
    Stated("FORMAT.md", f"| snapshot | {_mib(SNAPSHOT_LIMITS.object_bytes)} | {SNAPSHOT_LIMITS.footer_bytes >> 10} KiB"
        f" | {_power(SNAPSHOT_LIMITS.row_group_rows)} rows in a row group; {_power(ROW_CHARS_MAX)} characters in the"),
    Stated("FORMAT.md", f"| data file | as its entry says | {_mib(DATA_LIMITS.footer_bytes)}, or a sixteenth of"
        f" the file | {_power(DATA_LIMITS.row_group_rows)} rows in a row group"),
    Stated("FORMAT.md", f"pages take at most {_mib(DATA_LIMITS.row_group_bytes)} uncompressed"),
    Stated("FORMAT.md", f"a data file's take at most {DATA_LIMITS.row_group_memory >> 30} GiB"),
    Stated("FORMAT.md", f"no values nested deeper than {NESTING_MAX}; at most {SCHEMA_ELEMENTS_MAX:,} schema elements"),
    Stated("FORMAT.md", f"| JSON | {_mib(JSON_BYTES_MAX)} |"),
    Stated("FORMAT.md", f"a row group has at most {_mib(ROW_GROUP_BYTES)} uncompressed, and {ROW_GROUP_NULLS:,} nulls"),
    Stated("FORMAT.md", f"unless it is one row of at most {_mib(ROW_BYTES_MAX)} and {ROW_NULLS_MAX:,}"),
    Stated("FORMAT.md", f"An offset in a row is at most {_power(MAX_OFFSET)}"),
    Stated("FORMAT.md", f"`control_value` has at most {_mib(CONTROL_CHARS_MAX)}"),
    Stated("FORMAT.md", f"A topic and each internal topic have 1 to {MAX_PARTITIONS:,} partitions"),
    Stated("SCHEMAS.md", f"changes, in at most {_mib(JSON_BYTES_MAX)}; how many came before does not matter"),
    Stated("VERIFY.md", f"A dead file may be gone {_GRACE} after it died"),
    Stated("VERIFY.md", f"Of one kind in one partition {LISTED_MAX} are listed"),
    Stated("DIFFERENTIAL.md", f"make differential # {_DEFAULTS['PROGRAMS']} programs"),
    Stated("SIMULATOR.md", f"`make simulate SEEDS={_DEFAULTS['SEEDS']}` plays a thousand runs"),
    Stated("NUMBERS.md", f"The suite tries {settings.get_profile('default').max_examples} examples of each;"
        f" {settings.get_profile('nightly').max_examples:,} are"),
    Stated("DIFFERENTIAL.md", f"{_CLIENTS} of {sum(SHARES)} are `client` and `loop`"),
    Stated("DIFFERENTIAL.md", f"fails above {MOST_CUT:.0%}".replace("%", " %")),
    Stated("GUARANTEES.md", f"all choices of up to {_WORDS[ALL_SUBSETS_MAX]} unsynced changes"),
    Stated("SIMULATOR.md", f"forward or back, by up to {_WORDS[LONGEST_JUMP // HOUR]} hours"),
    Stated("SIMULATOR.md", f"no search beyond {STATES_MAX:,} states"),
    Stated("operations.md", f"{_MEMORY['scheduler']} for the scheduler with its tasks and their Spark,"
        f" {_MEMORY['minio']} for MinIO and each other part of Airflow, {_MEMORY['postgres']} for the rest"),
    Stated("../README.md", f"`make demo` loads {ROWS:,} payments"),
)  # fmt: skip


@pytest.mark.parametrize("page", sorted({stated.page for stated in STATED}))
def test_a_number_is_that_of_the_code(page: str) -> None:
    """A page states the numbers that the code has."""
    text = re.sub(r"\s+", " ", (REPOSITORY / "docs" / page).read_text(encoding="utf-8"))
    stated = [re.sub(r"\s+", " ", each.text) for each in STATED if each.page == page]
    assert [each for each in stated if each not in text] == []


def test_memory_limits_are_those_of_their_kind() -> None:
    """operations.md names one limit for each kind of service."""
    ours = {"minio", "api-server", "triggerer", "dag-processor", "airflow-migrate"}
    assert {_MEMORY[name] for name in ours} == {_MEMORY["minio"]}
    assert {_MEMORY[name] for name in _MEMORY.keys() - ours - {"scheduler"}} == {_MEMORY["postgres"]}


def test_seeds_have_the_shares_that_the_page_says() -> None:
    """SIMULATOR.md says that every fifth seed is on a local disk, every fifth has all kinds of faults, and
    every third has weeks."""
    text = (REPOSITORY / "docs" / "SIMULATOR.md").read_text(encoding="utf-8")
    for phrase in (
        "in every fifth seed, **the disk**",
        "every fifth seed all kinds are on",
        "weeks in every third seed",
    ):
        assert phrase in re.sub(r"\s+", " ", text)
    drawn = [Knobs.of(seed) for seed in range(3_000)]
    shares = (
        (sum(knobs.local_store for knobs in drawn), 5),
        (sum(knobs.every_kind for knobs in drawn), 5),
        (sum(knobs.longest_pause > 14 * DAY for knobs in drawn), 3),
    )
    for count, one_of in shares:
        assert count == pytest.approx(len(drawn) / one_of, rel=0.1)


@pytest.mark.parametrize("calls", [1, 4])
def test_a_transaction_over_four_partitions_is_fifteen_puts(calls: int) -> None:
    """ARCHITECTURE.md counts the puts of a transaction: three rows of the coordinator, and for each partition a file,
    an entry and a marker. The count is the same if each partition has its own call.
    """
    text = (REPOSITORY / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert "A transaction over four partitions is 15 puts in five rounds" in text
    store, all_sent = FaultyStore(MemoryStore()), threading.Event()

    def pause_ms(_: int) -> None:
        assert all_sent.wait(LIMIT_S)

    with Engine(store, waiting=Waiting(pause_ms=pause_ms)) as engine:
        engine.admin.create_topic("t", partitions=4, key="n", schema=pa.schema([("n", pa.int64())]))
        with engine.producer(transactional_id="one") as producer:
            producer.init_transactions()
            store.calls.clear()
            with producer.transaction():
                for number in range(calls):
                    partition = None if calls == 1 else number
                    producer.produce("t", pa.table({"n": range(100)}), partition=partition)
                all_sent.set()
            visible = sum(
                operation == "put_if_absent" and not key.startswith("begun/")
                for operation, key, _ in store.calls
            )
        # What says that the coordinator's log was begun is put once in the life of a store, perhaps just now.
        puts = [
            key
            for operation, key, _ in store.calls
            if operation == "put_if_absent" and not key.startswith("begun/")
        ]
    kinds = Counter("row" if TRANSACTION_STATE_TOPIC in key else key.split("/")[4] for key in puts)
    assert kinds == {"row": 3, "data": 4, "log": 8}
    assert visible >= 14
    rows = [number for number, key in enumerate(puts) if TRANSACTION_STATE_TOPIC in key]
    between = [Counter(key.split("/")[4] for key in puts[a + 1 : b]) for a, b in pairwise(rows)]
    assert [each["log"] for each in between] == [4, 4]
