"""Jobs between topics and a real Postgres, killed at operations in turn, others each day.

`python -m tests.postgres.kills` does all.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.live.postgres import PostgresServer
from tests.postgres.kills import JOBS, Bench, Job, every_operation

pytestmark = pytest.mark.slow
_STEP = 17


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_each_row_is_there_once(postgres_server: PostgresServer, dsn: str, tmp_path: Path, job: Job) -> None:
    """Killed before and after some of the operations, at least one of them in the middle."""
    first = 1 + datetime.now(UTC).toordinal() % _STEP
    bench = Bench(postgres_server, dsn, tmp_path)
    assert len([*every_operation(bench, job, step=_STEP, first=first)]) >= 2
    assert bench.one(job, 20, after=False, victim="connections")
