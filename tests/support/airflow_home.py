"""An Airflow of the tests' own: a temporary home, and this checkout's DAGs and plugins.

Airflow reads its settings when it is imported, so this module sets the environment when *it* is imported. So
a conftest that needs Airflow imports this module before it.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from tests.support.airflow_database import copy_migrated_database

REPO = Path(__file__).resolve().parents[2]
DAGS, PLUGINS = REPO / "dags", REPO / "plugins"

# A run of the tests leaves nothing behind in the home that `make setup` prepared, and touches nobody's database: these
# two are the tests' own in any case. The rest stays as it is where it is set.
HOME = Path(tempfile.mkdtemp(prefix="txn-engine-airflow-"))
OWNER_PID = os.getpid()
os.environ["AIRFLOW_HOME"] = str(HOME)
os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = f"sqlite:///{HOME}/airflow.db"
for name, value in {
    "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
    "AIRFLOW__CORE__PLUGINS_FOLDER": str(PLUGINS),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
    "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    "GX_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "SCARF_ANALYTICS": "false",
}.items():
    os.environ.setdefault(name, value)


@atexit.register
def _remove_home() -> None:
    if os.getpid() == OWNER_PID:  # not in a forked child
        shutil.rmtree(HOME, ignore_errors=True)


def forget_runs() -> None:
    """Remove every DAG and every run from Airflow's database, and every report of a run, so that earlier
    tests leave nothing."""
    make_database()
    from airflow.models import DagModel, DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    with create_session() as session:
        session.execute(delete(DagRun))
        session.execute(delete(DagModel))
    shutil.rmtree(HOME / "txn_engine_reports", ignore_errors=True)


@cache
def make_database() -> None:
    """Make Airflow's database once in a process: a copy of the one that set-up migrated, else a new one (8
    seconds)."""
    if copy_migrated_database(HOME / "airflow.db"):
        return
    airflow = Path(sys.executable).parent / "airflow"
    subprocess.run([airflow, "db", "migrate"], check=True, capture_output=True, timeout=120)
