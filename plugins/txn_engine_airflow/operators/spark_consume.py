"""`TxnSparkConsumeOperator`: the Spark consume job as a task of any DAG."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow.sdk import AssetAlias, BaseOperator, Context

from txn_engine_airflow.assets import topic_alias
from txn_engine_airflow.connection import DEFAULT_CONN_ID
from txn_engine_airflow.deployment import named_checks
from txn_engine_airflow.operators.identity import checked_transactional_id, identity_of
from txn_engine_airflow.operators.killing import Killable, ended_by_a_kill
from txn_engine_airflow.operators.rendered import anything, given_in, or_none, take_rendered, text, texts
from txn_engine_airflow.operators.transactions import fenced_means_retry, report_folder_of, with_outlets


class TxnSparkConsumeOperator(Killable, BaseOperator):
    """Reads what is new for a group with Spark, transforms it, and writes the result with the group's new position.

    Output and position are one transaction of the id `<dag>/<task>[/<map index>]`, unless `transactional_id` says
    another, and of the run `<dag>/<task>[/<map index>]@<logical date in UTC>`: a try that was killed leaves nothing to
    be seen, one whose reply was lost is recognised by the next, and of two that read the same range one is refused.
    `transform` makes the output's DataFrame of the input's: a function, or "module:function", importable where tasks
    run. With several output topics it gives a DataFrame for each, by its name, and all are part of the transaction;
    what it reads twice is computed twice, unless it calls `cache()`. `spark_settings` are Spark's own, such as
    `spark.master`, stronger than the deployment's (`TXN_ENGINE_SPARK_CONF`). Both are code, as all arguments are: a DAG
    that takes them from its params lets whoever triggers it run what he likes, unless it asks
    `deployment.permitted_transform` and `permitted_spark_settings`.
    `checks` vote before the commit: a plain dict or the path of a suite, its name among `TXN_ENGINE_SUITES`, a
    function, or one of these for each topic as {topic: suite}. None of them imports Great Expectations when Airflow
    parses the DAG, which takes seconds for each file. Expectations as objects are taken as well.
    Where a critical one fails or cannot be made the task fails, nothing is visible and the group stays. The report goes
    to `report_folder`, else below `$AIRFLOW_HOME/txn_engine_reports/checks~/`, for the worker's user alone.
    With a `dead_letter_topic` rows of the output that do not fit their topic, or fail an expectation of `checks` whose
    meta says `on_failure: dead_letter`, go there, in the same transaction; above
    `max_dead_letters` (a count, or a share as "1%") the task fails, nothing is visible and the group stays.
    Returns, and sends as the event of each output topic's asset, what was read and written.
    """

    template_fields: Sequence[str] = (
        "topic",
        "group_id",
        "output_topic",
        "transactional_id",
        "dead_letter_topic",
        "max_dead_letters",
        "spark_settings",
        "conn_id",
    )
    template_fields_renderers = {"spark_settings": "json"}  # noqa: RUF012 -- Airflow's own form
    ui_color = "#f3eee4"

    def __init__(
        self,
        *,
        topic: str,
        group_id: str,
        output_topic: str | Sequence[str],
        transform: str | Callable[[Any], Any],
        transactional_id: str | None = None,
        spark_settings: Mapping[str, str] | None = None,
        checks: Any = None,
        report_folder: str | None = None,
        dead_letter_topic: str | None = None,
        max_dead_letters: int | str | None = None,
        conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        for name in [output_topic] if isinstance(output_topic, str) else output_topic:
            kwargs["outlets"] = with_outlets(kwargs.get("outlets"), name, conn_id)
        kwargs.setdefault("max_active_tis_per_dag", 1)
        super().__init__(**kwargs)
        if not output_topic:
            raise ValueError(f"task {self.task_id!r}: no output_topic; expected one topic or more")
        if dead_letter_topic is None and max_dead_letters is not None:
            raise ValueError(f"task {self.task_id!r}: max_dead_letters without a dead_letter_topic")
        self.topic = topic
        self.group_id = group_id
        self.output_topic = output_topic if isinstance(output_topic, str) else list(output_topic)
        self.transform = transform
        self.transactional_id = transactional_id
        self.spark_settings = dict(spark_settings or {})
        self.checks = checks
        self.report_folder = report_folder
        self.dead_letter_topic = dead_letter_topic
        self.max_dead_letters = max_dead_letters
        self.conn_id = conn_id
        self.given = given_in(self)

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the job."""
        take_rendered(
            self,
            topic=text,
            group_id=text,
            output_topic=texts,
            transactional_id=or_none(checked_transactional_id),
            dead_letter_topic=or_none(text),
            max_dead_letters=anything,
            conn_id=text,
        )
        from txn_engine_airflow.consume import consume_with_spark

        name = self.transactional_id or identity_of(context).transactional_id

        def emit(asset: Any, extra: dict[str, Any]) -> None:
            mine = topic_alias(extra["topic"], self.conn_id)
            for outlet in context["outlets"]:
                if isinstance(outlet, AssetAlias) and ("/" not in outlet.name or outlet == mine):
                    context["outlet_events"][outlet].add(asset, extra)

        params = {
            "topic": self.topic,
            "group_id": self.group_id,
            "output_topic": self.output_topic,
            "transactional_id": name,
            "transform": self.transform,
            "spark_settings": self.spark_settings,
            "checks": named_checks(self.checks),
            "dead_letter_topic": self.dead_letter_topic,
            "max_dead_letters": self.max_dead_letters,
            "conn_id": self.conn_id,
        }
        folder = report_folder_of(context, self.report_folder)
        with ended_by_a_kill(self.task_id), fenced_means_retry():
            return consume_with_spark(
                params, run_id=identity_of(context).run_id, emit=emit, report_folder=folder
            )
