"""A real Airflow over a real MinIO, with the project's DAGs and pages: `make airflow` without its payments."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import psutil

from tests.conftest import S3Bucket, fresh_bucket
from tests.live import shop
from tests.live.rest import Rest, overhead_s
from tests.live.traffic import Traffic
from tests.numbers import Run
from tests.support.airflow_database import copy_migrated_database
from tests.support.internal import FEW_INTERNAL
from tests.support.servers import REPOSITORY, S3Server, free_port
from tests.support.waiting import wait_for
from txn_engine import Engine, connect
from txn_engine_airflow.standalone.airflow import Airflow
from txn_engine_airflow.standalone.home import USER, Home
from txn_engine_airflow.standalone.processes import Guard, Service

START_S = 400.0
SETTINGS = {"AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "15"}
"""Where nothing is said, what a dead scheduler left is looked for every 5 minutes; dead it is after 30 s, here too."""
BUNDLES = "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST"
LOCAL_BUNDLE = "airflow.dag_processing.bundles.local.LocalDagBundle"
_Found = TypeVar("_Found")


class Stack:
    """Airflow, the store, and the producers that write to it."""

    def __init__(
        self, airflow: Airflow, rest: Rest, engine: Engine, open_store: Callable[..., Engine], *, whole: bool
    ) -> None:
        self.airflow = airflow
        self.whole = whole
        self.engine = engine
        self.rest = rest
        self.open_store = open_store
        self.traffic = Traffic(engine, open_store)

    @property
    def reports(self) -> Path:
        """The folder whose reports the page Quality lists."""
        return self.airflow.home.path / "txn_engine_reports"

    @property
    def shop(self) -> Path:
        """The folder of the pipeline whose workers die."""
        return self.airflow.home.path / "shop"

    def audit_log(self, event: str) -> list[tuple[str, str]]:
        """The user and the details of each entry of Airflow's audit log. Airflow's API lists only entries of DAGs
        that it knows. An api-server alone knows none, so its database is read.
        """
        if self.whole:
            entries = self.rest.get("/eventLogs", event=event)["event_logs"]
            return [(entry["owner"], str(entry["extra"])) for entry in entries]
        with contextlib.closing(sqlite3.connect(self.airflow.home.path / "airflow.db")) as database:
            return database.execute("SELECT owner, extra FROM log WHERE event = ?", (event,)).fetchall()

    def service(self, name: str) -> Service:
        return self.airflow.services[name]

    def children(self, service: Service) -> list[psutil.Process]:
        """The processes that a service has started, and their children."""
        return psutil.Process(service.pid).children(recursive=True)

    def wait_for(
        self, what: str, look: Callable[[], _Found], *, patience_s: float, pause_s: float = 1.0
    ) -> _Found:
        """Wait for the first true answer. Every service must stay alive meanwhile."""

        def all_run() -> None:
            for service in self.airflow.services.values():
                assert service.exit_code is None, f"{service.name} ended:\n{service.last_lines(30)}"

        return wait_for(
            look, what=what, limit_s=patience_s, every_s=pause_s, meanwhile=all_run, seen=self.told
        )

    def told(self) -> str:
        """Open transactions and tasks that are not green, for a message."""
        tasks = [
            f"{task['dag_id']}.{task['task_id']} {task['state']}"
            for task in self.rest.tasks()
            if task["state"] not in ("success", "skipped")
        ]
        return f"transactions {self.traffic.states()}, tasks not green: {tasks[-20:]}"

    def print_overhead(self, run: Run, database: str) -> None:
        """Print and record how long tasks wait for the scheduler, and how much memory each service takes."""
        memory = {name: memory_mb(service.pid) for name, service in self.airflow.services.items()}
        print(f"\nmemory in MB: {', '.join(f'{name} {size}' for name, size in memory.items())}")
        overheads = sorted(cost for task in self.rest.tasks() if (cost := overhead_s(task)) is not None)
        if overheads:
            middle, most = overheads[len(overheads) // 2], overheads[-1]
            print(f"scheduler overhead of {len(overheads)} tasks: p50 {middle:.2f} s, most {most:.2f} s")
            figures = {"tasks": len(overheads), "p50 s": middle, "most s": most, "memory MB": memory}
            run.record(figures, of=database)


def memory_mb(pid: int) -> int:
    """The memory of a process and its children in MB. Shared memory counts once (the proportional set size), if the
    kernel reports it.
    """
    found = 0
    for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            told = process.memory_full_info()
            found += getattr(told, "pss", told.uss)
    return found >> 20


@contextlib.contextmanager
def running_stack(
    server: S3Server, *, database_url: str | None = None, whole: bool = True, dags: Path | None = None
) -> Iterator[Stack]:
    """A healthy Airflow. Every process of it is gone afterwards, and its logs are kept in .cache/live.

    whole: with scheduler, triggerer and dag-processor. Without them the api-server shows the pages and runs
    no DAG. dags: the folder of its only DAGs, where files may change while it runs. Without it, it has the project's
    and the shop's.
    """
    bucket = fresh_bucket(server)
    folder = Path(tempfile.mkdtemp(prefix="live-airflow-"))
    kept = REPOSITORY / ".cache" / "live"
    with contextlib.ExitStack() as opened:
        opened.callback(shutil.rmtree, folder, ignore_errors=True)
        opened.callback(_keep_logs, folder, kept)
        shop.make_bundle(folder / "shop")
        airflow = Airflow(
            Home(folder),
            opened.enter_context(Guard()),
            project=REPOSITORY,
            port=free_port(),
            store={"AIRFLOW_CONN_TXN_ENGINE_DEFAULT": json.dumps(_connection(bucket))},
            database_url=database_url,
            settings=SETTINGS
            | {
                BUNDLES: json.dumps(
                    _bundles(folder / "shop") if dags is None else [_bundle("dags", dags, refresh_interval=2)]
                )
            },
        )
        opened.callback(airflow.stop)
        open_store = partial(
            connect,
            bucket.url,
            endpoint=bucket.endpoint,
            access_key=bucket.access_key,
            secret_key=bucket.secret_key,
            region="us-east-1",
        )
        engine = opened.enter_context(open_store(configs=None if whole else FEW_INTERNAL))
        is_migrated = database_url is None and copy_migrated_database(folder / "airflow.db")
        began = time.monotonic()
        if whole or not is_migrated:
            airflow.migrate()
        (airflow.start if whole else airflow.start_api_server)(START_S)
        print(f"\nAirflow healthy after {time.monotonic() - began:.0f} s")
        rest = Rest(airflow.url, USER, airflow.secrets.password)
        opened.callback(rest.close)
        yield Stack(airflow, rest, engine, open_store, whole=whole)


def _bundles(shop_folder: Path) -> list[dict[str, object]]:
    """Airflow's own folder, and the shop's."""
    own = {"name": "dags-folder", "kwargs": {}, "classpath": LOCAL_BUNDLE}
    return [own, _bundle("shop", shop_folder)]


def _bundle(name: str, folder: Path, **settings: object) -> dict[str, object]:
    """A folder of DAGs. refresh_interval: how often it is looked at for new files, in seconds."""
    return {"name": name, "kwargs": {"path": str(folder), **settings}, "classpath": LOCAL_BUNDLE}


def _connection(bucket: S3Bucket) -> dict[str, object]:
    extra = {"url": bucket.url, "endpoint_url": bucket.endpoint, "region_name": "us-east-1"}
    return {
        "conn_type": "txn_engine",
        "login": bucket.access_key,
        "password": bucket.secret_key,
        "extra": extra,
    }


def _keep_logs(folder: Path, kept: Path) -> None:
    """Keep the logs of the last stack for reading after a failure."""
    shutil.rmtree(kept, ignore_errors=True)
    for name in ("services", "logs"):
        if (folder / name).exists():
            shutil.copytree(folder / name, kept / name)
