"""One running Airflow for the tests that do no harm to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.live.stack import Stack, running_stack
from tests.numbers import Run
from tests.support.servers import MinioServer


@pytest.fixture(scope="session")
def stack(minio_server: MinioServer) -> Iterator[Stack]:
    """Airflow on SQLite, with empty topics."""
    run = Run("scheduler", [])
    with running_stack(minio_server) as stack:
        stack.traffic.make_topics()
        yield stack
        stack.print_overhead(run, "on SQLite")
