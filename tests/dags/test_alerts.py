"""Alerts: which state of the store leads to one, what it says, who gets it and how often."""

from __future__ import annotations

import json
import shlex
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import pyarrow as pa
import pytest
import structlog

from tests.dags.mailbox import Mailbox
from tests.dags.payments import commit, leave_open, rows
from tests.suite.tiers import in_shard
from tests.support.airflow_home import forget_runs
from tests.support.finished_run import RunDag
from txn_engine import Engine, OffsetAndMetadata, TopicPartition, connect
from txn_engine.testing import ManualClock

pytestmark = pytest.mark.airflow

MINUTE_MS = 60_000
SMTP = {
    "notifier": "airflow.providers.smtp.notifications.smtp.SmtpNotifier",
    "arguments": {
        "to": "on-call@example.org",
        "from_email": "airflow@example.org",
        "subject": "{{ alert.title }}",
        "html_content": "<pre>{{ alert.text | e }}</pre>",
    },
}


@pytest.fixture
def mailbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mailbox]:
    """A mail server, Airflow's connection to it, and the Variable that sends alerts to it. No earlier test has sent
    an alert, because what was sent within the hour is not sent again."""
    forget_runs()
    with Mailbox().listening() as box:
        extra = {"disable_ssl": True, "disable_tls": True, "timeout": 10}
        connection = {"conn_type": "smtp", "host": "127.0.0.1", "port": box.port, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(connection))
        monkeypatch.setenv("AIRFLOW_VAR_TXN_ENGINE_ALERTS", json.dumps(SMTP))
        yield box


def leave_hanging(store_url: str, engine: Engine, producer_id: int, partition: int, minutes: int) -> int:
    """Write data of this age that no coordinator row knows. Returns its first offset."""
    with connect(store_url, clock=ManualClock(engine.clock() - minutes * MINUTE_MS)) as earlier:
        log = earlier.partition("payments", partition)
        sent = {"producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
        return log.append(rows(), producer_id=producer_id, **sent).base_offset


def test_a_hanging_transaction_is_told_once_with_the_command_that_ends_it(
    store_url: str, engine: Engine, run_dag: RunDag, mailbox: Mailbox
) -> None:
    """A hanging transaction fails the run as long as it hangs, and is reported at once and only once. The
    command in the alert ends it."""
    start = leave_hanging(store_url, engine, 4_711, 1, minutes=20)
    run = run_dag("txn_compute_lso")
    assert run.state == "failed"
    assert run.tasks["alert_hanging_transaction"] == run.tasks["alert_lso_stalled"] == "failed"
    assert {run.tasks[name] for name in ("alert_lag_growing", "write_snapshots")} == {"success"}
    assert sorted(mailbox.subjects) == [
        "txn-engine: LSO stalled: payments-1 (held by producer 4711)",
        "txn-engine: hanging transaction: payments-1",
    ]
    told = mailbox.body(mailbox.subjects.index("txn-engine: hanging transaction: payments-1"))
    command = f"txn-engine transactions abort --topic payments --partition 1 --start-offset {start}"
    assert command in told
    assert run.dag_run.run_id in told
    assert "\n" not in next(line for line in run.errors if "hanging" in line or "abort" in line)

    leave_hanging(store_url, engine, 4_712, 0, minutes=30)
    assert run_dag("txn_compute_lso").state == "failed"
    assert len(mailbox.messages) == 4
    assert any("payments-0" in subject and "hanging" in subject for subject in mailbox.subjects[2:])

    from click.testing import CliRunner

    from txn_engine.cli.main import cli

    for partition, offset in ((1, start), (0, 0)):
        words = shlex.split(command.replace("--partition 1", f"--partition {partition}"))[1:-1]
        done = CliRunner().invoke(cli, [*words, str(offset), "--url", store_url])
        assert done.exit_code == 0, done.output
    assert run_dag("txn_compute_lso").state == "success"
    assert engine.admin.verify().ok  # these producer ids are nobody's, which is worth a warning


# `make test` has a stalled LSO in the test above, and each holder below
@pytest.mark.shard("airflow")
def test_a_stalled_lso_names_the_holder_and_what_ends_it(
    store_url: str, engine: Engine, run_dag: RunDag, mailbox: Mailbox
) -> None:
    """The alert about a stalled LSO names the transaction that has timed out, until the sweep ends it."""
    with connect(store_url, clock=ManualClock(engine.clock() - 20 * MINUTE_MS)) as earlier:
        leave_open(earlier, "load-7")
    run = run_dag("txn_compute_lso")
    assert run.tasks["alert_lso_stalled"] == "failed"
    assert run.tasks["alert_hanging_transaction"] == "success"
    (subject,) = mailbox.subjects
    assert subject.startswith(
        "txn-engine: LSO stalled: payments-0 (held by load-7), payments-1 (held by load-7)"
    )
    assert "its timeout of 60 s has passed; is txn_coordinator_sweep green?" in mailbox.body(0)
    assert run_dag("txn_coordinator_sweep").state == "success"
    assert run_dag("txn_compute_lso").state == "success"


# `make test` has a lag that shrinks without a DAG: test_a_lag_grows_where_each_of_the_last_runs_had_more
@pytest.mark.parametrize(
    ("growing_runs", "shrinks"), in_shard("airflow", [(1, False), (2, False), (2, True)], keep=1)
)
def test_a_lag_that_grows_from_run_to_run_is_told(
    engine: Engine,
    run_dag: RunDag,
    mailbox: Mailbox,
    monkeypatch: pytest.MonkeyPatch,
    growing_runs: int,
    shrinks: bool,
) -> None:
    """A lag that grew in each of the last runs is reported. A run with a smaller lag starts the count
    again."""
    settings = SMTP | {"lag_growing_runs": growing_runs, "lag_min": 20}
    monkeypatch.setenv("AIRFLOW_VAR_TXN_ENGINE_ALERTS", json.dumps(settings))
    reader = engine.consumer(group_id="slow")
    places = [TopicPartition("payments", number) for number in range(2)]
    reader.assign(places)
    reader.commit({at: OffsetAndMetadata(0) for at in places})
    states = []
    for number in range(growing_runs + 1):
        commit(engine, f"load-{number}")
        states.append(run_dag("txn_compute_lso").tasks["alert_lag_growing"])
    assert states == [*["success"] * growing_runs, "failed"]
    assert mailbox.subjects == ["txn-engine: lag growing: slow on payments"]
    lags = [14, 28, 42][: growing_runs + 1]  # twelve records and a marker in each partition
    assert f"slow on payments: {', '.join(map(str, lags))}" in mailbox.body(0)
    if not shrinks:
        return
    ends = engine.consumer(group_id="other").end_offsets(places)
    reader.commit({at: OffsetAndMetadata(end) for at, end in ends.items()})
    assert run_dag("txn_compute_lso").tasks["alert_lag_growing"] == "success"
    commit(engine, "load-3")
    assert run_dag("txn_compute_lso").tasks["alert_lag_growing"] == "success"


def put_letters(engine: Engine, count: int, *, tries: int = 1) -> None:
    """Write this many dead letters of `payments`."""
    from txn_engine.loading import DEAD_LETTERS

    row = {"topic": "payments", "columns": "hunter2", "reason": "r", "error_class": "E", "failed_at": 1}
    letter = dict.fromkeys(DEAD_LETTERS.names) | row | {"tries": tries}
    engine.partition("payments-dead", 0).append(pa.Table.from_pylist([letter] * count, schema=DEAD_LETTERS))


def test_too_many_dead_letters_are_told(
    store_url: str, engine: Engine, run_dag: RunDag, mailbox: Mailbox
) -> None:
    """Too many dead letters among the rows of the last hour are reported once within the hour."""
    from txn_engine.loading import DEAD_LETTERS

    engine.admin.create_topic("payments-dead", partitions=1, schema=DEAD_LETTERS)
    with connect(store_url, clock=ManualClock(engine.clock() - 61 * MINUTE_MS)) as earlier:
        commit(earlier, "load-0")
        put_letters(earlier, 100)
    commit(engine, "load-1")
    put_letters(engine, 12)
    put_letters(engine, 5, tries=2)
    run = run_dag("txn_compute_lso")
    assert {name for name, state in run.tasks.items() if state == "failed"} == {"alert_dead_letters"}
    assert run.xcom("dead_letters")["rows"] == [["payments", 12, 12, "payments-dead"]]
    assert mailbox.subjects == ["txn-engine: dead letters: payments"]
    told = "payments: 12 of 24 rows (50%), more than 1%: `txn-engine dead-letters list payments-dead`"
    assert told in mailbox.body(0)
    assert "hunter2" not in mailbox.body(0) + run.log
    run_dag("txn_compute_lso")
    assert len(mailbox.messages) == 1  # within the hour it is not sent again


@pytest.mark.parametrize(
    ("settings", "rows", "told"),
    [
        ({}, [(10, 990)], ""),
        ({}, [(10, 989)], "payments: 10 of 999 rows (1%), more than 1%"),
        ({}, [(9, 0)], ""),
        ({"dead_letters_min": 9}, [(9, 0)], "payments: 9 of 9 rows (100%), more than 1%"),
        ({}, [(6, 400), (5, 400)], "payments: 11 of 411 rows (2.68%), more than 1%"),
        ({}, [(1_000, -1)], ""),  # of how many rows nobody knows
        ({"dead_letters_max": "500"}, [(500, 0)], ""),
        (
            {"dead_letters_max": "500"},
            [(501, 1_000_000)],
            "payments: 501 of 1,000,501 rows (0.0501%), more than 500",
        ),
        ({"dead_letters_max": "500"}, [(501, -1)], "payments: 501, more than 500"),
        ({"dead_letters_max_of": {"payments": "2%"}}, [(15, 985)], ""),
        ({"dead_letters_max_of": {"payments": None}}, [(1_000, 0)], ""),
        (
            {"dead_letters_max_of": {"others": None}},
            [(1_000, 0)],
            "payments: 1,000 of 1,000 rows (100%), more than 1%",
        ),
    ],
)
def test_what_are_too_many_dead_letters(
    settings: Mapping[str, Any], rows: list[tuple[int, int]], told: str
) -> None:
    """A topic has too many dead letters if they are more than the share or the count and at least the
    minimum, in all its dead-letter topics together."""
    from txn_engine_airflow.alerts import AlertError, Settings, check_dead_letters

    found = [
        {"topic": "payments", "letters": letters, "records": records, "dead_letter_topic": f"dead-{number}"}
        for number, (letters, records) in enumerate(rows)
    ]
    if not told:
        check_dead_letters(found, Settings.of(settings))
        return
    with pytest.raises(AlertError) as raised:
        check_dead_letters(found, Settings.of(settings))
    assert f"; {told}: `txn-engine dead-letters list dead-0`" in str(raised.value)
    assert raised.value.subjects == ("payments",)


# `make test` reads what it means in test_coordinator_sweep.py
@pytest.mark.shard("airflow")
def test_a_sweep_that_cannot_reach_the_store_is_told_with_what_it_means(
    run_dag: RunDag, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep that cannot reach the store sends one mail for each task and hour, which says what that means
    and shows no credentials."""
    monkeypatch.setenv(
        "AIRFLOW_CONN_TXN_ENGINE_DEFAULT",
        "txn-engine://AKIAEXAMPLE:wJalrXUtnFEMI@ledger?endpoint_url=http%3A%2F%2F127.0.0.1%3A1",
    )
    run_dag("txn_coordinator_sweep")
    run = run_dag("txn_coordinator_sweep")
    assert run.engine_reasons == ["connection_refused"] * 2
    assert sorted(mailbox.subjects) == [
        "txn-engine: txn_coordinator_sweep.abort_timed_out_transactions failed",
        "txn-engine: txn_coordinator_sweep.expire_transactional_ids failed",
    ]
    for number in range(2):
        assert "Nothing is swept meanwhile" in mailbox.body(number)
        assert run.failures[number].__context__.seen in mailbox.body(number)
        assert "wJalrXUtnFEMI" not in mailbox.body(number)


class Supervisor:
    """The DAG processor's connection to its parent, which answers what that answers, and nothing else."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def send(self, msg: Any) -> Any:
        from airflow.dag_processing.processor import ToManager
        from airflow.sdk.execution_time.comms import XComResult

        known = [kind.__name__ for kind in get_args(get_args(ToManager)[0])]
        name = type(msg).__name__
        assert name in known, f"the parent cannot read {name}: it would never answer"
        self.asked.append(name)
        return XComResult(key=msg.key, value=None) if name == "GetXCom" else None


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    """Let callbacks run as in the DAG processor."""
    from airflow.sdk.execution_time import task_runner

    supervisor = Supervisor()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", supervisor, raising=False)
    return supervisor


def test_a_worker_that_died_is_told(
    dag_bag: Any, mailbox: Mailbox, supervisor: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    """If a worker died, the DAG processor reports it, as after a missed heartbeat. It knows neither the error
    nor when the task began, and may write no XCom. Each death is reported."""
    from airflow.api_fastapi.execution_api.datamodels.taskinstance import TaskInstance
    from airflow.callbacks.callback_requests import TaskCallbackRequest
    from airflow.dag_processing.processor import _execute_task_callbacks

    for number in (1, 2):
        instance = TaskInstance(
            id=uuid.uuid4(),
            task_id="compact",
            dag_id="txn_maintain",
            run_id=f"run-{number}",
            try_number=3,
            dag_version_id=uuid.uuid4(),
        )
        request = TaskCallbackRequest(
            filepath="txn_maintain.py",
            bundle_name="dags",
            bundle_version=None,
            ti=instance,
            msg="heartbeat timeout",
            task_callback_type="failed",
        )
        _execute_task_callbacks(dag_bag, request, structlog.get_logger())
    assert mailbox.subjects == ["txn-engine: txn_maintain.compact failed"] * 2
    assert "Run run-2 of txn_maintain.compact, try 3" in mailbox.body(1)
    assert "ended from outside" in mailbox.body(1)
    assert "GetXCom" in supervisor.asked
    assert "ALERT txn-engine: txn_maintain.compact failed" in caplog.text


def test_trouble_with_the_memory_of_what_was_sent_loses_no_alert(
    mailbox: Mailbox, caplog: pytest.LogCaptureFixture
) -> None:
    """If the record of sent alerts cannot be read or written, the alert is sent all the same, and the log
    says why."""
    from airflow.sdk.exceptions import AirflowFailException

    from txn_engine_airflow.alerts import on_failure

    class Instance:
        dag_id, task_id, run_id, try_number, map_index = "txn_maintain", "compact", "run-1", 1, -1

        def xcom_pull(self, **_: object) -> None:
            raise ConnectionError("no way to the API server")

        def xcom_push(self, *_: object) -> None:
            raise ConnectionError("no way to the API server")

    on_failure({"ti": Instance(), "exception": AirflowFailException("it broke")})
    assert mailbox.subjects == ["txn-engine: txn_maintain.compact failed"]
    assert "what was sent before cannot be read, so this is sent: no way to the API server" in caplog.text
    assert "what was sent cannot be noted, so it may be sent again: no way" in caplog.text


@pytest.mark.parametrize("dag_id", ["txn_coordinator_sweep", "txn_verify_exactly_once"])
@pytest.mark.usefixtures("supervisor")
def test_a_run_that_timed_out_is_told(
    store_url: str, dag_bag: Any, run_dag: RunDag, mailbox: Mailbox, dag_id: str
) -> None:
    """A run that timed out is reported by the run's own callback, because Airflow skips the rest of its tasks
    and calls none of their callbacks. The alert may name the last task that had not ended."""
    from airflow.dag_processing.processor import _execute_dag_callbacks
    from airflow.models import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import select

    run = run_dag(dag_id)
    mailbox.messages.clear()
    with create_session() as session:
        timed_out = session.scalar(select(DagRun).where(DagRun.run_id == run.dag_run.run_id))
        last = timed_out.get_task_instances(session=session)[0]
        for task in (last, None):
            request = timed_out.produce_dag_callback(
                dag=dag_bag.dags[dag_id], success=False, relevant_ti=task, reason="timed_out"
            )
            _execute_dag_callbacks(dag_bag, request, structlog.get_logger())
    assert mailbox.subjects == [f"txn-engine: {dag_id}: a run timed out"] * 2
    limit = dag_bag.dags[dag_id].dagrun_timeout
    for number in (0, 1):
        assert f"Run {run.dag_run.run_id} of {dag_id} timed out: it took longer than {limit};" in (
            mailbox.body(number)
        )


def test_a_run_whose_task_has_told_is_not_told_of_twice(
    dag_bag: Any, run_dag: RunDag, mailbox: Mailbox
) -> None:
    """If a task has reported a failure, the run's own callback does not report it again."""
    run = run_dag("txn_maintain", partition=1)
    assert run.state == "failed"
    assert mailbox.subjects == ["txn-engine: txn_maintain.check_params failed"]


# `make test` has a task that fails without a notifier in test_maintain.py
@pytest.mark.parametrize(
    ("variable", "says"),
    in_shard(
        "airflow",
        [
            ('{"notifyer": "airflow"}', "unknown field 'notifyer'; expected some of notifier, arguments"),
            ("", ""),
        ],
        keep=1,
    ),
)
def test_without_a_notifier_the_log_has_it(
    store_url: str,
    engine: Engine,
    run_dag: RunDag,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    says: str,
) -> None:
    """Without a notifier, or with a Variable that is not valid, the alert is in the log. The log also says
    what is wrong with the Variable."""
    leave_hanging(store_url, engine, 4_711, 1, minutes=20)
    monkeypatch.delenv("AIRFLOW_VAR_TXN_ENGINE_ALERTS", raising=False)
    if variable:
        monkeypatch.setenv("AIRFLOW_VAR_TXN_ENGINE_ALERTS", variable)
    log = run_dag("txn_compute_lso").log
    assert "ALERT txn-engine: hanging transaction: payments-1" in log
    assert says in log


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (["a list"], "expected a JSON object"),
        ({"notifyer": "x"}, "unknown field 'notifyer'"),
        ({"notifier": 7}, "field 'notifier' is 7; expected str"),
        ({"repeat_after_s": 0}, "field 'repeat_after_s' is 0; expected 1 or more"),
        ({"lag_min": True}, "field 'lag_min' is True; expected int"),
        ({"arguments": "to"}, "field 'arguments' is 'to'; expected dict"),
        (
            {"dead_letters_max": "many"},
            "dead letters of any topic: 'many'; expected a share, as '1%', or a count",
        ),
        ({"dead_letters_max_of": {"payments": "101%"}}, "dead letters of payments: '101%'; expected a share"),
    ],
)
def test_a_variable_that_cannot_be_meant_is_refused_in_one_line(found: object, says: str) -> None:
    """An invalid Variable is refused in one line that names the field."""
    from txn_engine_airflow.alerts import Settings

    with pytest.raises(ValueError, match=says):
        Settings.of(found)


def test_what_is_named_must_be_a_notifier(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Variable can name a notifier class only, and cannot call anything else."""
    from txn_engine_airflow.alerts import Alert, Settings, notify

    for name in ("os.system", "subprocess.Popen"):
        with pytest.raises(TypeError, match=f"{name} is no notifier; expected a class of BaseNotifier"):
            notify(Settings(notifier=name), Alert("title", "text", ()), {})


def _row(**changes: Any) -> Mapping[str, Any]:
    return {
        "topic": "payments",
        "partition": 0,
        "last_stable_offset": 118,
        "behind": 12,
        "held_by": "load-7",
        "held_for_s": 1_200,
        "holder_state": "Ongoing",
        "holder_timeout_s": 60,
    } | changes


@pytest.mark.parametrize(
    ("changes", "does"),
    [
        ({}, "its timeout of 60 s has passed; is txn_coordinator_sweep green?"),
        ({"holder_timeout_s": 3_600}, "`txn-engine transactions fence load-7` ends it now"),
        (
            {"holder_timeout_s": 3_600, "held_by": "x; curl elsewhere | sh"},
            "`txn-engine transactions fence 'x; curl elsewhere | sh'` ends it now",
        ),
        ({"holder_state": "PrepareCommit"}, "its markers are missing; is txn_write_markers green?"),
        ({"held_by": "producer 7", "holder_state": ""}, "`txn-engine transactions find-hanging` shows it"),
    ],
)
def test_each_holder_is_ended_in_its_own_way(changes: Mapping[str, Any], does: str) -> None:
    """The alert says how a holder of the LSO can be ended, which depends on the state of its transaction."""
    from txn_engine_airflow.alerts import AlertError, check_lso

    with pytest.raises(AlertError) as told:
        check_lso([_row(**changes)], 900)
    assert does in str(told.value)
    held_by = changes.get("held_by", "load-7")
    assert f"payments-0 at offset 118, 12 before the log's end, held by {held_by} for 1,200 s" in str(
        told.value
    )
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("changes", "does"),
    [
        (
            {},
            "whether its timeout of 60 s has passed is unknown; `txn-engine transactions fence load-7` ends it",
        ),
        ({"holder_state": "PrepareAbort"}, "its markers are missing"),
        ({"holder_state": "Unknown"}, "mend that first"),
        (
            {"held_by": "producer 7", "holder_state": "", "holder_timeout_s": -1},
            "`txn-engine transactions abort --topic payments --partition 0 --start-offset 118`",
        ),
    ],
)
def test_a_holder_of_unknown_age_is_an_alert(changes: Mapping[str, Any], does: str) -> None:
    """A holder of unknown age is an alert, because readers wait even if a wrong clock hides the age for
    years."""
    from txn_engine_airflow.alerts import AlertError, check_lso

    with pytest.raises(AlertError) as told:
        check_lso([_row(held_for_s=-1, **changes)], 900)
    assert "age unknown" in str(told.value)
    assert does in str(told.value)
    assert "-1 s" not in str(told.value)


def test_what_was_sent_by_a_clock_that_was_ahead_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the clock was set back, the last mail seems to be from tomorrow. The alert is sent again."""
    from txn_engine_airflow import alerts

    now_ms = 1_700_000_000_000
    monkeypatch.setattr("txn_engine.clock.system_clock", lambda: now_ms)
    monkeypatch.setattr(
        alerts.Settings, "load", classmethod(lambda cls: cls(notifier="a.b", repeat_after_s=3_600))
    )
    notified: list[str] = []
    monkeypatch.setattr(alerts, "notify", lambda settings, alert, context: notified.append(alert.title))

    class Instance:
        dag_id, task_id, run_id, try_number, map_index = "d", "t", "r", 1, None

        def __init__(self, sent_ms: int) -> None:
            self._sent_ms = sent_ms

        def xcom_pull(self, **_: object) -> dict[str, int]:
            return {"failed": self._sent_ms}

        def xcom_push(self, *_: object) -> None: ...

    for sent_ms, told in ((now_ms - 60_000, 0), (now_ms + 86_400_000, 1), (now_ms - 3_600_000, 1)):
        notified.clear()
        alerts.on_failure({"ti": Instance(sent_ms), "exception": ValueError("x")})
        assert len(notified) == told


def test_a_partition_that_cannot_be_read_does_not_end_a_lag_that_grows() -> None:
    """If a partition cannot be read, the history of its group's lag waits until the number is known. The
    history of a deleted topic is dropped."""
    from txn_engine_airflow.tables import LAG_COLUMNS, Table, lag_history

    def table(*lags: tuple[str, str, int, int], unreadable: tuple[str, ...] = ()) -> Table:
        rows: list[list[str | int]] = [[g, t, p, 0, 0, lag, 0, -1, -1] for g, t, p, lag in lags]
        damaged = [[place, "damaged"] for place in unreadable]
        return Table(columns=LAG_COLUMNS, rows=rows, rows_left_out=0, unreadable=damaged)

    before = {"g on t": [5, 6], "h on t": [1, 2]}
    one_part = table(("g", "t", 0, 3), ("g", "t", 1, -1), ("h", "t", 0, 3), unreadable=("t-1",))
    assert lag_history(one_part, before, 2) == {"g on t": [5, 6], "h on t": [1, 2, 3]}
    topic = table(("g", "t", 0, -1), ("g", "t", 1, -1), ("h", "t", 0, -1), unreadable=("t",))
    assert lag_history(topic, before, 2) == before
    group = table(("h", "t", 0, 3), unreadable=("__consumer_offsets-7",))
    assert lag_history(group, before, 2) == {"g on t": [5, 6], "h on t": [1, 2, 3]}
    deleted = table(("g", "t", 0, -1), ("h", "t", 0, 3))
    assert lag_history(deleted, before, 2) == {"h on t": [1, 2, 3]}
    assert lag_history(table(("g", "t", 0, 7)), before, 2) == {"g on t": [5, 6, 7]}


def test_an_alert_quotes_no_foreign_error_and_breaks_no_line() -> None:
    """An alert does not quote errors of libraries, because they may contain a record, and shows an id's line
    breaks and control characters escaped."""
    from txn_engine_airflow.alerts import Alert, AlertError

    class Instance:
        dag_id, task_id, run_id, try_number = "txn_spark_consume", "consume", "manual", 1

    foreign = Alert.of(
        {"ti": Instance(), "exception": ValueError("could not convert 'CARD 4111' to a number")}
    )
    assert "4111" not in foreign.title + foreign.text
    assert foreign.text.startswith("ValueError: what it says stands in the task's log.")
    mine = Alert.of(
        {"ti": Instance(), "exception": AlertError("held by a\nBcc: x\x1b[2J", "seen\x1b[2J", ["a"])}
    )
    assert mine.title == "txn-engine: held by a Bcc: x\\x1b[2J"
    assert "\x1b" not in mine.text


def test_readers_that_wait_for_less_than_the_limit_are_no_alert() -> None:
    """A transaction that holds readers back for less than the limit is not an alert, and neither is a
    partition without a holder."""
    from txn_engine_airflow.alerts import check_lso

    check_lso([_row(held_for_s=899), _row(behind=0, held_by="", held_for_s=-1)], 900)


@pytest.mark.parametrize(
    ("lags", "is_growing"),
    [
        ([1, 2, 3], True),
        ([1, 2], False),
        ([1, 3, 3], False),
        ([9, 1, 2], False),
        ([0, 1, 2], True),
    ],
)
def test_a_lag_grows_where_each_of_the_last_runs_had_more(lags: list[int], is_growing: bool) -> None:
    """A lag grows if each of the last two runs had more to read than the one before."""
    from txn_engine_airflow.alerts import AlertError, Settings, check_lag

    settings = Settings(lag_growing_runs=2, lag_min=2)
    if is_growing:
        with pytest.raises(AlertError, match="lag grew in each of the last 2 runs: 1;"):
            check_lag({"g on t": lags}, settings)
    else:
        check_lag({"g on t": lags}, settings)


def test_a_small_lag_is_no_alert_however_it_grows() -> None:
    """A lag below `lag_min` is never an alert, however it grows."""
    from txn_engine_airflow.alerts import Settings, check_lag

    check_lag({"g on t": [1, 2, 9_999]}, Settings(lag_growing_runs=2))
