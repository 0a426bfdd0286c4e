"""`TxnCutOperator`: a task that makes a cut, for the tasks behind it to read everything as of one moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseOperator, Context

from txn_engine_airflow.assets import CUTS, RENDERED_ALIAS, topic_alias
from txn_engine_airflow.connection import DEFAULT_CONN_ID
from txn_engine_airflow.cuts import announce_cut, cut_told
from txn_engine_airflow.deployment import DAYS_MAX
from txn_engine_airflow.errors import TaskError, TaskReason
from txn_engine_airflow.hook import open_engine
from txn_engine_airflow.operators.rendered import given_in, or_none, take_rendered, text, texts
from txn_engine_airflow.operators.transactions import with_outlets

_DAY_MS = 86_400_000


class TxnCutOperator(BaseOperator):
    """Makes a cut of `topics`, of all where that is None, and of all groups; returns its number.

    No committed transaction is half inside, and nobody's output without the input that was read for it. What the tasks
    before this one have committed, and marked, is inside. Tasks behind it read as of it, whatever goes on meanwhile:

        engine.scan("payments", cut=ti.xcom_pull(task_ids="make_cut"))
        read_topic(spark, url, "payments", cut=...)
        check_exactly_once(engine, declaration, report_folder=..., cut=...)
        bash_command="txn-engine quality run payments ... --cut {{ ti.xcom_pull(task_ids='make_cut') }}"

    `keep_days` (None: until somebody deletes it): after so long clean-up deletes the cut and what only it needs; until
    then that takes room. Each try makes a cut of its own, for what was written since the one before it is to be inside:
    a try whose answer was lost leaves one that nobody names, and that goes after `keep_days`.

    The XCom `cut` has the cut's time, and its offsets in a table. A cut of all topics sends the event of the alias
    `<connection>/__cuts`.
    """

    template_fields: Sequence[str] = ("topics", "keep_days", "conn_id")
    ui_color = "#ece6f2"

    def __init__(
        self,
        *,
        topics: str | Sequence[str] | None = None,
        keep_days: float | str | None = 7,
        conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        kwargs["outlets"] = with_outlets(kwargs.get("outlets"), CUTS if topics is None else None, conn_id)
        super().__init__(**kwargs)
        self.topics = topics
        self.keep_days = keep_days
        self.conn_id = conn_id
        self.given = given_in(self)

    def execute(self, context: Context) -> int:
        """Make it."""
        take_rendered(self, topics=or_none(texts), conn_id=text)
        keep_ms = _keep_ms(self.keep_days)
        with open_engine(self.conn_id) as engine:
            made = engine.cut(self.topics, keep_ms=keep_ms)
            told = cut_told(made)
        context["ti"].xcom_push("cut", dict(told))
        if made.every_topic:
            is_rendered = RENDERED_ALIAS in context["outlets"]
            alias = RENDERED_ALIAS if is_rendered else topic_alias(CUTS, self.conn_id)
            announce_cut(self.conn_id, told, context["outlet_events"][alias].add)
        return made.number


def _keep_ms(days: object) -> int | None:
    """What a template may have left of a number of days."""
    if days is None or days == "None":
        return None
    try:
        found = float(days) if isinstance(days, str | int | float) and not isinstance(days, bool) else 0.0
    except ValueError:
        found = 0.0
    if 0 < found <= DAYS_MAX:
        return max(1, int(found * _DAY_MS))
    raise TaskError(
        f"keep_days: {days!r:.80}; expected days, more than 0 and at most {DAYS_MAX}, or None; no cut was made",
        reason=TaskReason.BAD_ARGUMENT,
        subject="keep_days",
    )
