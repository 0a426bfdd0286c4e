"""A DAG's run after it ended, as a test looks at it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

_ERROR = re.compile(r"(?:[a-z_]+\.)+[A-Za-z]+(?:Error|Exception): ")


@dataclass(frozen=True)
class FinishedRun:
    """A DAG's run, after it ended."""

    dag_run: Any
    log: str
    failures: Sequence[Any] = ()
    """What each failed try of a task raised, in their order."""

    @property
    def state(self) -> str:
        return str(self.dag_run.state)

    @property
    def tasks(self) -> dict[str, str]:
        """State by task; a mapped task's instances as `task[0]`, `task[1]`."""
        return {
            instance.task_id if instance.map_index < 0 else f"{instance.task_id}[{instance.map_index}]": str(
                instance.state
            )
            for instance in self.dag_run.get_task_instances()
        }

    def started(self, task_id: str) -> Any:
        """When a task that is not mapped began."""
        return self.dag_run.get_task_instance(task_id).start_date

    @property
    def errors(self) -> list[str]:
        """The line that each failed task ended with, as its log shows it."""
        return [line for line in self.log.splitlines() if _ERROR.match(line)]

    @property
    def faults(self) -> list[tuple[str, str, str]]:
        """Reason, subject and variable of each `TaskError` that a try raised. This fails if a try raised
        anything else."""
        return [(str(error.reason), error.subject, error.variable) for error in self.failures]

    @property
    def are_final(self) -> bool:
        """Whether tries failed, and each of them failed with an error that Airflow does not retry."""
        from airflow.sdk.exceptions import AirflowFailException

        return bool(self.failures) and all(isinstance(error, AirflowFailException) for error in self.failures)

    @property
    def codes(self) -> list[str]:
        """The reason of each `TaskError` that a try raised, or the code of the engine's error that it reports."""
        return [
            str(error.reason) if hasattr(error, "reason") else str(error.__context__.code)
            for error in self.failures
        ]

    @property
    def engine_reasons(self) -> list[str]:
        """The reason of each error of the engine that a failed try reports."""
        return [str(error.__context__.reason) for error in self.failures]

    @property
    def events(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Name, URI and extra of the asset events that the run emitted."""
        from airflow.models.asset import AssetEvent
        from airflow.utils.session import create_session
        from sqlalchemy import select

        with create_session() as session:
            found = session.scalars(
                select(AssetEvent).where(
                    AssetEvent.source_run_id == self.dag_run.run_id,
                    AssetEvent.source_dag_id == self.dag_run.dag_id,
                )
            )
            return [(event.asset.name, event.asset.uri, event.extra) for event in found]

    @property
    def aliases(self) -> set[str]:
        """The asset aliases through which the run emitted its events."""
        from airflow.models.asset import AssetEvent
        from airflow.utils.session import create_session
        from sqlalchemy import select

        with create_session() as session:
            found = session.scalars(select(AssetEvent).where(AssetEvent.source_run_id == self.dag_run.run_id))
            return {alias.name for event in found for alias in event.source_aliases}

    def xcom(self, task_id: str, key: str = "return_value", map_index: int = -1) -> Any:
        """The value that a task returned or pushed, or None."""
        from airflow.models.xcom import XComModel
        from airflow.utils.session import create_session

        with create_session() as session:
            row = session.execute(
                XComModel.get_many(
                    run_id=self.dag_run.run_id,
                    dag_ids=self.dag_run.dag_id,
                    task_ids=task_id,
                    key=key,
                    map_indexes=map_index,
                )
            ).first()
            return None if row is None else XComModel.deserialize_value(row[0] if len(row) == 1 else row)


RunDag = Callable[..., FinishedRun]
