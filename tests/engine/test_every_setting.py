"""Every setting of docs/CONFIGS.md has a test that shows its effect: what becomes otherwise where it is another."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache

import pytest

from tests.support.servers import REPOSITORY
from txn_engine.configs import STORE, TOPIC, Setting
from txn_engine.configs.client import CONSUMER, PRODUCER

_CONFIGS = "engine/test_configs.py"
_CLIENTS = "engine/test_client_settings.py"
_TIMES = "kafka_rules/test_timestamps.py"
OF_A_TOPIC = {
    "cleanup.policy": "kafka_rules/test_cleaner.py::test_compact_and_delete",
    "retention.ms": f"{_CONFIGS}::test_retention_ms_keeps_what_is_young",
    "retention.bytes": f"{_CONFIGS}::test_retention_bytes_keeps_the_newest_files",
    "min.cleanable.dirty.ratio": f"{_CONFIGS}::test_the_dirty_ratio_is_the_topics",
    "delete.retention.ms": f"{_CONFIGS}::test_tombstones_are_not_judged_anew",
    "min.compaction.lag.ms": "kafka_rules/test_cleaner.py::test_min_compaction_lag",
    "max.message.bytes": f"{_CLIENTS}::test_a_batch_that_is_too_large_is_split",
    "message.timestamp.before.max.ms": f"{_TIMES}::test_a_bound_that_is_altered_counts_at_once",
    "message.timestamp.after.max.ms": f"{_TIMES}::test_a_bound_that_is_altered_counts_at_once",
    "tables.publish": "dags/test_maintain.py::test_topics_are_published_where_their_setting_says_so",
}
OF_THE_STORE = {
    "transaction.max.timeout.ms": f"{_CONFIGS}::test_a_stores_settings",
    "transactional.id.expiration.ms": f"{_CONFIGS}::test_an_id_lives_as_long_as_the_store_says",
    "producer.id.expiration.ms": f"{_CONFIGS}::test_a_producer_is_remembered_as_long_as_the_store_says",
    "offsets.retention.minutes": f"{_CONFIGS}::test_old_offsets_go_as_the_store_says",
    "transaction.state.log.num.partitions": f"{_CONFIGS}::test_a_fresh_store_begins_with_what_it_is_given",
    "offsets.topic.num.partitions": f"{_CONFIGS}::test_a_fresh_store_begins_with_what_it_is_given",
}
OF_A_PRODUCER = {
    "transactional.id": "incidents/test_short_timeouts.py::test_a_longer_expiry",
    "transaction.timeout.ms": "incidents/test_short_timeouts.py::test_a_sweep_as_frequent_as_short_time_outs_need",
    "delivery.timeout.ms": f"{_CLIENTS}::test_delivery_timeout",
    "request.timeout.ms": "kafka_rules/test_producer_machine.py"
    "::test_a_decision_that_cannot_be_finished_ends_the_patience",
    "max.block.ms": f"{_CLIENTS}::test_buffer_memory_and_max_block",
    "linger.ms": f"{_CLIENTS}::test_linger_puts_calls_into_one_file",
    "batch.size": f"{_CLIENTS}::test_batch_size_ends_lingering",
    "buffer.memory": f"{_CLIENTS}::test_buffer_memory_and_max_block",
    "max.in.flight.requests.per.connection": f"{_CLIENTS}::test_max_in_flight_is_how_many_an_entry_names",
    "max.request.size": f"{_CLIENTS}::test_a_record_that_is_too_large_is_refused",
    "acks": f"{_CLIENTS}::test_acks_is_all",
    "enable.idempotence": f"{_CLIENTS}::test_idempotence_is_always_there",
    "compression.type": f"{_CLIENTS}::test_files_are_compressed",
}
OF_A_CONSUMER = {
    "group.id": f"{_CLIENTS}::test_positions_are_a_groups_and_committed_by_its_reader_alone",
    "isolation.level": f"{_CLIENTS}::test_consumer_settings",
    "auto.offset.reset": f"{_CLIENTS}::test_consumer_settings",
    "max.poll.records": f"{_CLIENTS}::test_consumer_settings",
    "fetch.max.bytes": f"{_CLIENTS}::test_fetch_max_bytes_is_what_is_read_ahead",
    "enable.auto.commit": f"{_CLIENTS}::test_positions_are_a_groups_and_committed_by_its_reader_alone",
}


@cache
def _tests_of(path: str) -> Mapping[str, str]:
    """The source of each test of a module, by its name."""
    source = (REPOSITORY / "tests" / path).read_text(encoding="utf-8")
    return {
        node.name: ast.get_source_segment(source, node) or ""
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef)
    }


@pytest.mark.parametrize(
    ("settings", "tests"),
    [(TOPIC, OF_A_TOPIC), (STORE, OF_THE_STORE), (PRODUCER, OF_A_PRODUCER), (CONSUMER, OF_A_CONSUMER)],
    ids=["topic", "store", "producer", "consumer"],
)
def test_every_setting_has_a_test_of_its_effect(
    settings: Mapping[str, Setting], tests: Mapping[str, str]
) -> None:
    """The test is there, is run, and gives the setting a value."""
    assert list(settings) == list(tests)
    for name, test in tests.items():
        path, function = test.split("::")
        source = _tests_of(path)[function]
        field = settings[name].field
        assert f'"{name}"' in source or f"{name}=" in source or f"{field}=" in source, (name, test)
        assert "pytest.skip(" not in source
