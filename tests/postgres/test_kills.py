"""Jobs between topics and a real Postgres are killed at one operation, and in the shard at many, with others
each day.

`python -m tests.postgres.kills` kills at all of them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.postgres.kills import JOBS, Bench, Job, every_operation
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.slow
_STEP = 17
_IN_THE_MIDDLE = 20


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_killed_job_is_finished_by_the_next(
    postgres_server: PostgresServer, dsn: str, tmp_path: Path, job: Job
) -> None:
    """The process is killed in the middle of a job. The next run leaves each row there once."""
    assert Bench(postgres_server, dsn, tmp_path).one(job, _IN_THE_MIDDLE, after=True)


@pytest.mark.shard("kills")
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_each_row_is_there_once(postgres_server: PostgresServer, dsn: str, tmp_path: Path, job: Job) -> None:
    """The job is killed before and after some of its operations, and once its connections are."""
    first = 1 + datetime.now(UTC).toordinal() % _STEP
    bench = Bench(postgres_server, dsn, tmp_path)
    assert len([*every_operation(bench, job, step=_STEP, first=first)]) >= 2
    assert bench.one(job, _IN_THE_MIDDLE, after=False, victim="connections")
