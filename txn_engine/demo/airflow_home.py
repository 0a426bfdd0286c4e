"""An Airflow of the demo's own: a home in its folder, and the project's DAGs and plugins."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import txn_engine
from txn_engine.demo.child import ChildFailedError
from txn_engine.engine import connect

_PACKAGE = Path(txn_engine.__file__).parent
_CHECKOUT = _PACKAGE.parent
_SEED = _CHECKOUT / ".cache" / "airflow" / "airflow.db"
_MIGRATE_S = 180
STORE, WARM_UP = "txn_engine_default", "txn_engine_warm_up"
"""The connections to the demo's store, and to one with nothing in it."""


def airflow_environment(home: Path, url: str) -> Mapping[str, str]:
    """What Airflow reads when it is imported: where it lives, where its DAGs are, and the store as its connection."""
    folder = airflow_folder()
    return {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW_CONFIG": str(home / "airflow.cfg"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(folder / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "TXN_ENGINE_CONNECTIONS": f"{STORE},{WARM_UP}",
        f"AIRFLOW_CONN_{STORE.upper()}": _connection(url),
        f"AIRFLOW_CONN_{WARM_UP.upper()}": _connection(_warm_up_store(home).as_uri()),
    }


def _connection(url: str) -> str:
    return json.dumps({"conn_type": "txn_engine", "extra": {"url": url}})


def _warm_up_store(home: Path) -> Path:
    return home / "warm-up"


def make_home() -> None:
    """Make the home that the environment names, with an empty store to warm up on.

    Its database is a copy of the one that set-up made, else a new one (8 seconds).
    """
    home = Path(os.environ["AIRFLOW_HOME"])
    home.mkdir(parents=True, exist_ok=True)
    connect(_warm_up_store(home).as_uri()).close()
    database = home / "airflow.db"
    if _SEED.exists() and airflow_folder() == _CHECKOUT:
        with (
            closing(sqlite3.connect(f"file:{_SEED}?mode=ro", uri=True)) as seed,
            closing(sqlite3.connect(database)) as ours,
        ):
            seed.backup(ours)
        return
    migrate = [sys.executable, "-m", "airflow", "db", "migrate"]
    subprocess.run(migrate, check=True, stdout=sys.stderr, timeout=_MIGRATE_S)


def airflow_folder() -> Path:
    """Where `dags` and `plugins` are: inside an installed package, else at the root of the checkout."""
    for folder in (_PACKAGE / "_airflow", _CHECKOUT):
        if (folder / "dags" / "txn_coordinator_sweep.py").is_file():
            return folder
    raise ChildFailedError(
        "the DAGs are missing",
        actor="demo",
        place=str(_PACKAGE),
        expected="_airflow/dags in the installed package, or dags/ beside it",
        action="install txn-engine again",
    )
