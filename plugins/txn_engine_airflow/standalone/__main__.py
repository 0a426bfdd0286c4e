"""Start everything, say where and how to log in, keep it running, and stop it: see `python -m ... --help`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import txn_engine_airflow
from storage import PERSON_PATIENCE
from txn_engine.clock import monotonic_ms, pause_ms
from txn_engine.demo.airflow_home import airflow_folder
from txn_engine.engine import connect
from txn_engine.errors import IllegalStateError, StoreNotFoundError, TxnEngineError
from txn_engine.reasons import Reason
from txn_engine_airflow.connection import DEFAULT_CONN_ID, StoreConnection
from txn_engine_airflow.deployment import INPUT_ROOTS_VARIABLE, STORE_MUST_EXIST_VARIABLE
from txn_engine_airflow.hook import check_begun
from txn_engine_airflow.standalone.airflow import Airflow
from txn_engine_airflow.standalone.command_line import environment_file, ready_line, store_connection
from txn_engine_airflow.standalone.home import USER, Home, write_private
from txn_engine_airflow.standalone.minio import OwnMinio, minio_binary
from txn_engine_airflow.standalone.processes import Guard, Service, end_all

_HEALTHY_S, _END_S = 400, 10.0
_LIVES_MAX, _LIVES_WINDOW_MS = 5, 120_000
_FIRST_PORT = 8080
BUNDLES = "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST"
REFRESH = "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL"
_REFRESH_S = 5
"""How often the DAG processor looks for new files. Airflow's own default is 300 s."""


class Stopped(BaseException):
    """A signal asked for the end."""


class Standalone:
    """Airflow, a store and payments."""

    def __init__(self, home: Home, guard: Guard, *, port: int) -> None:
        project = airflow_folder()
        self._home = home
        self._services: list[Service] = []
        self._ends_ms: list[int] = []
        self._is_new = home.is_new
        self._minio: OwnMinio | None = None
        self._misses_store = False
        self._store = self._start_store(project, guard)
        self._place = store_connection(self._store)
        write_private(home.cli_environment, environment_file(self._store))
        self.airflow = Airflow(
            home,
            guard,
            project=project,
            port=port,
            store={f"AIRFLOW_CONN_{DEFAULT_CONN_ID.upper()}": json.dumps(self._store)},
            settings={
                BUNDLES: json.dumps(_bundles()),
                INPUT_ROOTS_VARIABLE: str(home.input),
                STORE_MUST_EXIST_VARIABLE: "true",
                REFRESH: str(_REFRESH_S),
            },
        )
        self._payments = Service(
            "payments",
            (
                sys.executable,
                "-m",
                "txn_engine_airflow.standalone.payments",
                "--sample",
                str(home.path / "payments.csv"),
            ),
            environment=self.airflow.environment,
            folder=home.logs,
            guard=guard,
        )

    def start(self) -> None:
        """Everything, and wait until it is healthy."""
        self._begin_store()
        _say("the database of Airflow")
        self.airflow.migrate()
        _say("payments, api-server, scheduler, triggerer, DAG processor")
        self._services += [self._payments, *self.airflow.services.values()]
        self._payments.start()
        self.airflow.start(_HEALTHY_S)

    def keep_running(self) -> None:
        """Start what ends again. Raises `IllegalStateError` when that happens too often."""
        while True:
            self.look_once()
            pause_ms(500)

    def look_once(self) -> None:
        """Start what has ended, but no payments into a store that is gone."""
        for service in self._services:
            if service.exit_code is not None and (service is not self._payments or self._has_store()):
                self._start_again(service)

    def stop(self) -> None:
        """Ask all to end; the payments before the store."""
        stores = [service for service in self._services if service.name == "minio"]
        end_all([service for service in self._services if service not in stores], patience_s=_END_S)
        end_all(stores, patience_s=_END_S)
        if stores:  # a folder can be read without us
            self._home.cli_environment.unlink(missing_ok=True)

    def welcome(self) -> str:
        """What a person needs to know; the password at the home's first start alone, for logs are kept."""
        url, kept = self.airflow.url, self._home.passwords
        password = f"{self.airflow.secrets.password}\n                 not shown again; kept in {kept}"
        return "\n".join(
            (
                "",
                f"  Airflow        {url}",
                f"  the engine     {url}/txn-engine/",
                f"  log in as      {USER}",
                f"  password       {password if self._is_new else f'in {kept}'}",
                f"  logs           {self._home.logs}",
                f"  command line   {ready_line(self._home.cli_environment)}",
                f"  input files    {self._home.input}",
                "",
                "  Payments flow, and now and then a producer dies; the DAGs clean up. Ctrl-C stops everything.",
                "",
            )
        )

    def _start_store(self, project: Path, guard: Guard) -> Mapping[str, Any]:
        binary = minio_binary(project)
        if binary is None:
            _say(f"the store is a folder, {self._home.ledger_url} (`make minio` builds a server)")
            return {"conn_type": "txn_engine", "extra": {"url": self._home.ledger_url}}
        minio = OwnMinio(
            binary, guard, objects=self._home.objects, logs=self._home.logs, port=free_port(9000)
        )
        self._minio = minio
        self._services.append(minio.service)
        minio.start()
        _say(f"the store is a MinIO of its own, data in {self._home.objects}")
        return minio.connection

    def _begin_store(self) -> None:
        """Begin the store, if there is none. Nothing else does: a store that is gone later is not begun again."""
        if not _is_begun(self._place):
            if not self._is_new:
                _say(f"{self._place.url} has no store: a new, empty one is begun")
            connect(self._place.url, **self._place.access).close()

    def _has_store(self) -> bool:
        """Whether the store is there. That it is gone is said once."""
        found = _is_begun(self._place)
        if not found and not self._misses_store:
            _say(
                f"the store {self._place.url} is gone, and the payments wait for it: put it back, or press Ctrl-C and "
                "start again with a new, empty store"
            )
        self._misses_store = not found
        return found

    def _start_again(self, service: Service) -> None:
        now_ms = monotonic_ms()
        self._ends_ms = [at for at in self._ends_ms if now_ms - at < _LIVES_WINDOW_MS] + [now_ms]
        if len(self._ends_ms) > _LIVES_MAX:
            raise IllegalStateError(
                f"ended again (exit code {service.exit_code}):\n{service.last_lines()}",
                actor=service.name,
                place=str(service.log),
                expected=f"at most {_LIVES_MAX} ends in {_LIVES_WINDOW_MS // 1_000} s",
                reason=Reason.SERVICE_ENDED,
            )
        _say(f"{service.name} ended (exit code {service.exit_code}); it is started again")
        if self._minio is not None and service is self._minio.service:
            self._minio.start()  # and see that nobody else has taken its port meanwhile
        else:
            service.start()


def _is_begun(store: StoreConnection) -> bool:
    """Whether a store was begun there. One that does not answer counts as begun: nobody knows that it is gone."""
    try:
        check_begun(store, PERSON_PATIENCE)
    except StoreNotFoundError:
        return False
    except TxnEngineError:
        return True
    return True


def _bundles() -> list[dict[str, object]]:
    """Where Airflow takes DAGs from: its own folder, and the examples, which do nothing until somebody starts one."""
    local = "airflow.dag_processing.bundles.local.LocalDagBundle"
    examples = Path(txn_engine_airflow.__file__).parent / "example_dags"
    return [
        {"name": "dags-folder", "classpath": local, "kwargs": {}},
        {"name": "txn-engine-examples", "classpath": local, "kwargs": {"path": str(examples)}},
    ]


def free_port(preferred: int) -> int:
    """That port of 127.0.0.1 if it is free, else any."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise IllegalStateError("no free port on 127.0.0.1", actor="standalone")


def chosen_port(given: int | None) -> int:
    """The port that was asked for, which must be free: else who answers there is somebody else."""
    port = free_port(given or _FIRST_PORT)
    if given and port != given:
        raise IllegalStateError(
            f"port {given} of 127.0.0.1 is taken",
            actor="standalone",
            expected="a free one",
            reason=Reason.PORT_TAKEN,
        )
    return port


def _say(text: str) -> None:
    print(f"airflow: {text}", flush=True)


def _stop(signum: int, _frame: FrameType | None) -> None:
    signal.signal(signum, signal.SIG_IGN)  # once is enough: what follows ends by itself
    raise Stopped(signal.Signals(signum).name)


def _run(home: Home, guard: Guard, *, port: int) -> None:
    """Everything, until a person or a signal asks for the end; what was started has been told to end then."""
    standalone = None
    try:
        standalone = Standalone(home, guard, port=port)
        standalone.start()
        print(standalone.welcome(), flush=True)
        standalone.keep_running()
    except Stopped as why:
        _say(f"{why}: stopping")
    finally:
        if standalone is not None:
            standalone.stop()


def main() -> int:
    """The exit code: 0 where a person or a signal asked for the end."""
    parser = argparse.ArgumentParser(
        prog="airflow", description="A whole Airflow with the engine, on 127.0.0.1."
    )
    parser.add_argument(
        "--home",
        type=Path,
        default=Path("txn-engine-airflow"),
        help="what it keeps from one start to the next",
    )
    parser.add_argument("--port", type=int, help=f"of the web server; else {_FIRST_PORT}, or a free one")
    given = parser.parse_args()
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, _stop)
    os.umask(0o077)
    home = Home(given.home.resolve())
    try:
        with home.taken() as closed, Guard() as guard:
            if closed:
                _say(f"{home.path} was open to other users and is not any more: {', '.join(closed)}")
            _run(home, guard, port=chosen_port(given.port))
    except TxnEngineError as error:
        _say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
