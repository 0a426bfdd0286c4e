"""Numbers for Airflow's metrics interface (`[metrics]`: StatsD, Datadog or OpenTelemetry, with Airflow's own prefix).

    txn_engine.open_transactions                gauge     Ongoing transactions                    txn_coordinator_sweep
    txn_engine.oldest_open_transaction_s        gauge     age of the oldest one; 0 for none       txn_coordinator_sweep
    txn_engine.sweep_duration                   timing    ms that the time-out sweep took         txn_coordinator_sweep
    txn_engine.marker_backlog                   gauge     decided, not complete transactions      txn_write_markers
    txn_engine.lso_lag.<topic>.<partition>      gauge     offsets from the LSO to the log's end   txn_compute_lso
    txn_engine.dead_letters.<topic>             gauge     letters that a dead-letter topic got    txn_compute_lso
                                                          in the alert's window

A "." in a topic's name becomes "_", as in Kafka's metrics. Where Airflow sends no metrics, nothing happens.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from airflow.sdk.observability import stats

if TYPE_CHECKING:
    from txn_engine.protocol.transaction_rows import StoredRow

OPEN_TRANSACTIONS = "txn_engine.open_transactions"
OLDEST_OPEN_TRANSACTION_S = "txn_engine.oldest_open_transaction_s"
SWEEP_DURATION = "txn_engine.sweep_duration"
MARKER_BACKLOG = "txn_engine.marker_backlog"
LSO_LAG = "txn_engine.lso_lag"
DEAD_LETTERS = "txn_engine.dead_letters"


def tell_open_transactions(rows: Iterable[StoredRow], now_ms: int) -> None:
    """How many transactions are open, and since when the oldest is."""
    from txn_engine.protocol.measures import oldest_open_ms
    from txn_engine.protocol.transaction_rows import TransactionState

    ongoing = [stored for stored in rows if stored.row.state is TransactionState.ONGOING]
    stats.gauge(OPEN_TRANSACTIONS, len(ongoing))
    stats.gauge(OLDEST_OPEN_TRANSACTION_S, max(oldest_open_ms(ongoing, now_ms), 0) // 1_000)


def tell_sweep(duration_ms: int) -> None:
    """How long the time-out sweep took."""
    stats.timing(SWEEP_DURATION, duration_ms)


def tell_marker_backlog(transactions: int) -> None:
    """How many decided transactions wait for markers."""
    stats.gauge(MARKER_BACKLOG, transactions)


def tell_lso_lag(topic: str, partition: int, behind: int) -> None:
    """How far the last stable offset is behind the log's end."""
    stats.gauge(f"{LSO_LAG}.{topic.replace('.', '_')}.{partition}", behind)


def tell_dead_letters(dead_letter_topic: str, letters: int) -> None:
    """How many letters a dead-letter topic got of late."""
    stats.gauge(f"{DEAD_LETTERS}.{dead_letter_topic.replace('.', '_')}", letters)
