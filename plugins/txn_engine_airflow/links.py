"""Buttons on a task's page in Airflow that lead to the engine's own pages."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from airflow.sdk import BaseOperatorLink, conf

from txn_engine_airflow.verification import report_folder

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

PAGES = "/txn-engine"


class ReportLink(BaseOperatorLink):
    """The exactly-once report of a run of `txn_verify_exactly_once`, as the pages show it; of a failed one too."""

    @property
    def name(self) -> str:
        """The button's text."""
        return "Report"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002 -- Airflow's form
        """The report's page. It is there where reports lie in Airflow's home."""
        run = report_folder(None, dag_id=ti_key.dag_id, run_id=ti_key.run_id).name
        base = conf.get("api", "base_url", fallback="").rstrip("/")
        return f"{base}{PAGES}/report?{urlencode({'dag': ti_key.dag_id, 'run': run})}"
