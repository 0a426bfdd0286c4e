"""
### Proves that records and sums came out exactly once

**What it does.** Runs a Great Expectations suite over a topic and what its consumer made of it: no record
twice, none missing (against `input_file`, where one is given), each account's sum and count right, nothing
aborted or undecided visible, offsets in order, the group at the last stable offset, every transaction ended,
and a replay of the whole store that breaks no rule. It only reads. The report is an HTML page that opens
without a network; its path is in the log and in the XCom `report`. By default it lies below
`$AIRFLOW_HOME/txn_engine_reports/`.

Start it when loads and consumers are done: a transaction that is open while the suite looks is reported as
such.

**When to worry.** A run is red when a check *failed* (the data is wrong) or *errored* (the check could not be
made; that says nothing about the data). The last line of the log names them, and the report.

- *`lso_at_log_end`, `no_open_transaction`, `transactions_final`, `nothing_pending`:* something is still under
  way, or died and was not swept yet. Run `txn_coordinator_sweep` and `txn_write_markers`, then this again.
- *`group_at_lso`:* the consumer has not read everything. Run `txn_spark_consume`, then this again.
- *`record_ids_unique`, `no_input_row_missing`, `turnover_per_account`, `payments_per_account`:* data is
  wrong. Hold what comes downstream; the report shows the rows, with partition and offset, and what to do.
- *`nothing_aborted_visible`, `audit_clean`:* damage. Stop the consumers; `txn-engine verify` names the
  objects.

**What to do.**

    txn-engine verify                                   the replay alone, with object keys
    txn-engine transactions list                        who is still open
    txn-engine groups describe GROUP                    how far the consumer is
    txn-engine consume TOPIC --partition N              the records; `_offset` as the report shows it

Each command takes `--url`, or `TXN_ENGINE_URL` from the environment. A failed check is not retried by itself;
a store that does not answer is.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import Param, dag, get_current_context, task


def text(default: str | None, description: str) -> Param:
    """A field of the trigger form that may be left empty."""
    return Param(default, type=["null", "string"], description=description)


@dag(
    dag_id="txn_verify_exactly_once",
    description="Great Expectations suite: exactly-once outcomes of a topic and its consumer's output",
    doc_md=__doc__,
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=3),
    default_args={
        "owner": "txn-engine",
        "retries": 2,
        "retry_delay": timedelta(seconds=30),
        "execution_timeout": timedelta(hours=1),
    },
    params={
        "topic": Param("payments", type="string", description="The topic to check"),
        "record_id": Param(
            "trans_id", type="string", description="Column that tells one record from another"
        ),
        "account": text("account_id", "Column that the consumer groups by"),
        "amount": text("amount", "Column that the consumer sums"),
        "direction": text(
            "type", "Column that says whether an amount counts up or down; empty: all count up"
        ),
        "credit_values": Param(["PRIJEM"], type="array", description="Values of that column that count up"),
        "output_topic": text("balances", "The consumer's output; empty: sums are not checked"),
        "output_account": Param("account_id", type="string", description="Account column of the output"),
        "output_total": Param("turnover", type="string", description="Sum column of the output"),
        "output_count": text("payments", "Count column of the output; empty: counts are not checked"),
        "group_id": text("balances", "The consumer's group; empty: its position is not checked"),
        "input_file": text(
            None, "The file the topic was loaded from, as the worker sees it; empty: not compared"
        ),
        "input_delimiter": Param(
            ";", type="string", minLength=1, maxLength=1, description="Delimiter of that file"
        ),
        "input_date_format": Param("%y%m%d", type="string", description="Its dates, as strptime reads them"),
        "report_folder": text(None, "Where reports go; empty: below AIRFLOW_HOME/txn_engine_reports"),
        "conn_id": Param("txn_engine_default", type="string", description="Airflow connection of the store"),
    },
    tags=["txn-engine", "quality"],
)
def txn_verify_exactly_once() -> None:
    """One task."""

    @task(multiple_outputs=False)
    def verify(params: dict | None = None):
        from txn_engine_airflow.verification import verify_exactly_once

        context = get_current_context()
        return verify_exactly_once(
            params,
            dag_id=context["dag_run"].dag_id,
            run_id=context["dag_run"].run_id,
            announce=context["ti"].xcom_push,
        )

    verify()


txn_verify_exactly_once()
