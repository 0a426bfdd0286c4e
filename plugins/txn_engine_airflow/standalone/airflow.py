"""Airflow's four services over one home: the commands and settings that a deployment uses too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from pathlib import Path

from txn_engine.clock import monotonic_ms, pause_ms
from txn_engine.errors import IllegalStateError
from txn_engine.reasons import Reason
from txn_engine_airflow.kinds import kinds
from txn_engine_airflow.standalone.home import USER, Home, Secrets
from txn_engine_airflow.standalone.processes import Guard, Service, end_all

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "api-server": ("airflow", "api-server"),
    "scheduler": ("airflow", "scheduler", "--skip-serve-logs"),
    "triggerer": ("airflow", "triggerer", "--skip-serve-logs"),
    "dag-processor": ("airflow", "dag-processor"),
}
"""What is run, in the order of starting. Log servers would listen on all interfaces; the api-server reads the files."""
MIGRATE = ("airflow", "db", "migrate")

SETTINGS: Mapping[str, str] = {
    "AIRFLOW__CORE__AUTH_MANAGER": "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager",
    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
    "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
    "AIRFLOW__CORE__PARALLELISM": "4",
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
    "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.3",
    "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    "GX_ANALYTICS_ENABLED": "false",
}
"""The same natively and in containers."""

SECRETS: Mapping[str, str] = {
    "AIRFLOW__API_AUTH__JWT_SECRET": "jwt_secret",
    "AIRFLOW__API__SECRET_KEY": "session_key",
    "AIRFLOW__CORE__FERNET_KEY": "fernet_key",
}
"""What everybody has a value of their own for, by the field of `Secrets`."""

_FIRST = "api-server"
_HEALTH_PARTS = ("metadatabase", "scheduler", "triggerer", "dag_processor")
_RUN_S, _END_S, _ASK_S = 300, 20.0, 5


class Airflow:
    """The services. `with` starts nothing; leaving it ends all that was started."""

    def __init__(
        self,
        home: Home,
        guard: Guard,
        *,
        project: Path,
        port: int,
        store: Mapping[str, str],
        database_url: str | None = None,
        settings: Mapping[str, str] | None = None,
        commands: Mapping[str, tuple[str, ...]] = COMMANDS,
    ) -> None:
        """`project` holds `dags` and `plugins`; `store` is the environment that names the store; `commands` start the
        services, and a relative program is the one of this Python's environment.
        """
        self.home = home
        self._port = port
        self.url = f"http://127.0.0.1:{port}"
        self.secrets = home.make()
        self.environment = {
            **_inherited(),
            **SETTINGS,
            **places(home, project, database_url),
            **addresses(self.url, port),
            **_secret_settings(self.secrets),
            **store,
            **(settings or {}),
        }
        self.services = {
            name: Service(name, _found(command), environment=self.environment, folder=home.logs, guard=guard)
            for name, command in commands.items()
        }

    def migrate(self) -> None:
        """Make the database, or bring it up to this Airflow's version."""
        done = self.run(MIGRATE)
        self.home.logs.mkdir(parents=True, exist_ok=True)
        log = self.home.logs / "migrate.log"
        log.write_text(done.stdout, encoding="utf-8")
        if done.returncode:
            raise IllegalStateError(
                f"`airflow db migrate` ended with exit code {done.returncode}",
                actor="airflow",
                place=str(log),
                action="the log says why",
            )

    def run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command in the environment of the services, to its end; its output is in `stdout`."""
        return subprocess.run(
            _found(command),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_RUN_S,
            check=False,
        )

    def start(self, patience_s: float) -> None:
        """Start all four, and wait until Airflow says of all its parts that they are healthy.

        The api-server first, alone: a task that starts before it answers fails. Raises `IllegalStateError` with what is
        not healthy when the patience is over, or with the end of the log of what ended.
        """
        deadline_ms = monotonic_ms() + int(patience_s * 1_000)
        self._start_api_server(deadline_ms)
        for name, service in self.services.items():
            if name != _FIRST:
                service.start()
        self._wait_for(_HEALTH_PARTS, deadline_ms)

    def start_api_server(self, patience_s: float) -> None:
        """Start the api-server alone, and wait until it answers: the pages need no more. Raises as `start` does."""
        self._start_api_server(monotonic_ms() + int(patience_s * 1_000))

    def _start_api_server(self, deadline_ms: int) -> None:
        self.services[_FIRST].start()
        self._wait_for(("metadatabase",), deadline_ms)

    def _wait_for(self, parts: Sequence[str], deadline_ms: int) -> None:
        while sick := self._sick(parts):
            for service in self.services.values():
                if service.exit_code is not None:
                    raise IllegalStateError(
                        f"ended with exit code {service.exit_code}:\n{service.last_lines()}",
                        actor=service.name,
                        place=str(service.log),
                        reason=Reason.SERVICE_ENDED,
                    )
            if monotonic_ms() > deadline_ms:
                raise IllegalStateError(
                    f"not healthy in time: {', '.join(sick)}",
                    actor="airflow",
                    place=str(self.home.logs),
                    action="the logs there say why",
                )
            pause_ms(250)

    def stop(self) -> None:
        """Ask all to end and wait for it; what does not is left to the guard."""
        end_all(list(self.services.values()), patience_s=_END_S)

    def _sick(self, wanted: Sequence[str]) -> list[str]:
        """Those of the parts that are not healthy; empty when all are. Asked of our own server, and of nobody else."""
        if not self.services[_FIRST].listens_on(self._port):
            return [_FIRST]
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{self.url}/api/v2/monitor/health", timeout=_ASK_S) as answer:
                parts = json.load(answer)
        except (OSError, HTTPException, ValueError):
            return [_FIRST]
        return [name for name in wanted if (parts.get(name) or {}).get("status") != "healthy"]


def _found(command: Sequence[str]) -> tuple[str, ...]:
    """The command of this very Python's environment, whatever PATH says."""
    return (str(Path(sys.executable).parent / command[0]), *command[1:])


def _inherited() -> dict[str, str]:
    """Our environment without another Airflow's settings, or another store's; with the connections that it names."""
    others = ("AIRFLOW_", "TXN_ENGINE_URL", *(name for kind in kinds() for name in kind.environment))
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith("AIRFLOW_CONN_") or not name.startswith(others)
    }


def places(home: Home, project: Path, database_url: str | None) -> dict[str, str]:
    """The settings that name a folder, a file or the database."""
    return {
        "AIRFLOW_HOME": str(home.path),
        "AIRFLOW_CONFIG": str(home.path / "airflow.cfg"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(project / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(project / "plugins"),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home.passwords),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database_url or f"sqlite:///{home.path}/airflow.db",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home.path / "logs"),
    }


def addresses(url: str, port: int) -> dict[str, str]:
    """The settings that say where the api-server listens, and where it is found."""
    return {
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
    }


def _secret_settings(secrets: Secrets) -> dict[str, str]:
    return {name: getattr(secrets, field) for name, field in SECRETS.items()}
