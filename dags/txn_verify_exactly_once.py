"""
### Proves that records and sums came out exactly once

**What it does.** Runs a Great Expectations suite over a topic and what its consumer made of it: no record
twice, none missing (against `input_file`, where one is given), each account's sum and count right, nothing
aborted or undecided visible, offsets in order, and a replay of the whole store that breaks no rule.
What was proved is kept on the store below `proofs/`; the next run goes on from there and looks at what is new. With
`whole` it looks at everything again and holds it against the proofs before.
The report is an HTML page that opens without a network; its path is in the log and in the XCom `report`, and the
task's button "Report" opens it. By default it lies below `$AIRFLOW_HOME/txn_engine_reports/`.

Each time `txn_spark_consume` has committed output, this proves what its group has consumed (`scope: consumed`), while
loads and other runs go on: all checks are about one cut, which the run makes for itself and names. With `scope:
everything` it also demands that the group is at the cut, and that every transaction that was open then has ended by
the end of the run. `input_file` needs it. With `cut` what is inside that cut is judged, as it was then: nothing has to
be at rest, and the verdict stays the same as long as the cut is kept.

**Downstream is held.** Only a run in which every check passed sends an event, of the alias `txn_verify_exactly_once`
and the asset `txn-engine://<bucket or path>/<topic>/verified`. Schedule on these what must not see unproved data:

    from txn_engine_airflow.assets import VERIFIED_ALIAS
    with DAG("report_to_the_bank", schedule=[VERIFIED_ALIAS], ...):

A run by hand whose params say another topic, column, output, group or cut checks what it says and sends nothing: it
proves less, or something else. What is to be proved as a rule stands in a DAG of your own, as its params' defaults.

**When to worry.** A run is red when a check *failed* (the data is wrong) or *errored* (the check could not be
made; that says nothing about the data). The last line of the log names them, and the report. A check that is
*not applicable* makes nothing red: retention or compaction by key may have taken away what it compares.

- *`lso_at_log_end`, `no_open_transaction`, `transactions_final`, `nothing_pending`:* something is still under
  way, or died and was not swept yet. Run `txn_coordinator_sweep` and `txn_write_markers`, then this again.
- *`group_at_lso`:* the consumer has not read everything. Run `txn_spark_consume`, then this again.
- *`record_ids_unique`, `no_input_row_missing`, `totals_in_balances`:* data is wrong. Hold what comes downstream; the
  report shows the rows, with partition and offset, and what to do.
- *`digest_as_proved`:* records that were proved have changed since. `txn-engine quality history TOPIC` shows from
  which proof on; stop the consumers and find out who writes to the bucket.
- *`nothing_aborted_visible`, `visible_records_counted`, `audit_clean`:* damage. Stop the consumers;
  `txn-engine verify` names the objects.

**What to do.**

    txn-engine quality history TOPIC                    the proofs so far; `show TOPIC N` one of them
    txn-engine verify                                   the replay alone, with object keys
    txn-engine transactions list                        who is still open
    txn-engine groups describe GROUP                    how far the consumer is
    txn-engine consume TOPIC --partition N              the records; `_offset` as the report shows it

Each command takes `--url`, or `TXN_ENGINE_URL` from the environment. A failed check is not retried by itself;
a store that does not answer is.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import Param, dag, get_current_context, task

from txn_engine_airflow.alerts import on_run_failure
from txn_engine_airflow.assets import CONSUMED_ALIAS, VERIFIED_ALIAS
from txn_engine_airflow.dag_defaults import (
    START,
    conn_id_param,
    job_tasks,
    optional_text_param,
    optional_topic_param,
    text_param,
    topic_param,
)
from txn_engine_airflow.links import ReportLink
from txn_engine_airflow.verification import CONSUMED, EVERYTHING

PARAMS = {
    "scope": Param(
        CONSUMED,
        type="string",
        enum=[CONSUMED, EVERYTHING],
        description="consumed: what group_id has read, while others go on writing; everything: and nothing may be "
        "under way",
    ),
    "topic": topic_param("payments", "The topic to check"),
    "record_id": text_param("trans_id", "Column that tells one record from another"),
    "account": optional_text_param("account_id", "Column that the consumer groups by"),
    "amount": optional_text_param("amount", "Column that the consumer sums"),
    "direction": optional_text_param(
        "type", "Column that says whether an amount counts up or down; empty: all count up"
    ),
    "credit_values": Param(
        ["PRIJEM"],
        type="array",
        items={"type": "string"},
        maxItems=100,
        description="Values of that column that count up",
    ),
    "output_topic": optional_topic_param("balances", "The consumer's output; empty: sums are not checked"),
    "output_account": text_param("account_id", "Account column of the output"),
    "output_total": text_param("turnover", "Sum column of the output"),
    "output_count": optional_text_param(
        "payments", "Count column of the output; empty: counts are not checked"
    ),
    "group_id": optional_text_param(
        "balances", "The consumer's group; empty (with scope everything): its position is not checked"
    ),
    "input_file": optional_text_param(
        None,
        "The file the topic was loaded from, as the worker sees it, below a folder that "
        "TXN_ENGINE_INPUT_ROOTS names; empty: not compared",
    ),
    "input_delimiter": text_param(";", "Delimiter of that file", length=1),
    "input_date_format": text_param("%y%m%d", "Its dates, as strptime reads them"),
    "declaration": optional_text_param(
        None,
        "A YAML file that says what ties outputs to the topic (docs/QUALITY.md), one that "
        "TXN_ENGINE_DECLARATIONS names; the columns above count only without one",
    ),
    "cut": Param(
        None,
        type=["null", "integer"],
        minimum=0,
        maximum=10**15,
        description="Judge what is inside this cut, as it was then (txn-engine cuts list); empty: the store as it is",
    ),
    "whole": Param(
        False,
        type="boolean",
        description="Look at every record again, and hold it against the proofs before; else at what is new",
    ),
    "engine": Param(
        "auto",
        type="string",
        enum=["auto", "local", "spark"],
        description="Who reduces records to what is judged: the task's own process, Spark, or Spark for topics of more "
        "than spark_above records together; it is started when it is needed",
    ),
    "spark_above": Param(
        1_000_000_000,
        type="integer",
        minimum=0,
        maximum=10**15,
        description="engine auto: so many records are the task's own, more are Spark's",
    ),
    "report_folder": optional_text_param(
        None,
        "Where the report goes, below a folder that TXN_ENGINE_REPORT_ROOTS names; empty: "
        "AIRFLOW_HOME/txn_engine_reports",
    ),
    "conn_id": conn_id_param(),
}
OWN_CHECK = {name: param.value for name, param in PARAMS.items()}
"""What this file checks: the proof that those wait for who are scheduled on it. Another check is not announced."""


@dag(
    dag_id="txn_verify_exactly_once",
    description="Great Expectations suite: exactly-once outcomes of a topic and its consumer's output",
    doc_md=__doc__,
    schedule=[CONSUMED_ALIAS],
    start_date=START,
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=4),
    on_failure_callback=on_run_failure,
    default_args=job_tasks(minutes=60, retries=2, retry_delay_s=30),
    params=PARAMS,
    tags=["txn-engine", "quality"],
)
def txn_verify_exactly_once() -> None:
    """One task."""

    @task(multiple_outputs=False, outlets=[VERIFIED_ALIAS])
    def verify(params: dict | None = None):
        from txn_engine_airflow.verification import check_is_of_this_job, verify_exactly_once

        context = get_current_context()
        events = context["triggering_asset_events"]
        check_is_of_this_job(params, [event.extra for each in events.values() for event in each])
        return verify_exactly_once(
            params,
            dag_id=context["dag_run"].dag_id,
            run_id=context["dag_run"].run_id,
            own_check=OWN_CHECK,
            announce=context["ti"].xcom_push,
            emit=context["outlet_events"][VERIFIED_ALIAS].add,
        )

    verify().operator.operator_extra_links = (ReportLink(),)


txn_verify_exactly_once()
