"""A Postgres for the tests on 127.0.0.1. `make postgres` starts one for people who want to try things."""

from __future__ import annotations

import argparse
import contextlib
import os
import pwd
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self, TextIO

import psycopg2
from psycopg import conninfo

from tests.support.database import VARIABLE, connection_text
from tests.support.servers import FOUND, free_port
from txn_engine.errors import IllegalStateError
from txn_engine_airflow.standalone.home import note_holder, only_process, write_private
from txn_engine_airflow.standalone.processes import Guard

_READY_S = 30.0
_PREFIX = "postgres-"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def postgres_binaries() -> Path | None:
    """The folder of `initdb` and `postgres` that set-up found or fetched, or None."""
    return FOUND if os.access(FOUND / "initdb", os.X_OK) else None


class PostgresServer:
    """A cluster with one database, which is removed with the block. Postgres refuses to run as root, so then
    it runs as another user."""

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries
        self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._password = secrets.token_hex(16)
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address in SQLAlchemy's form."""
        return f"postgresql+psycopg2://airflow:{self._password}@127.0.0.1:{self._port}/postgres"

    @property
    def dsn(self) -> str:
        """The address in libpq's form."""
        return self.url.replace("+psycopg2", "")

    @property
    def folder(self) -> Path:
        """Where the data, the log and the socket are."""
        return self._folder

    def __enter__(self) -> Self:
        try:
            self._make()
            self._start()
        except BaseException:  # a signal too: nobody calls __exit__ then
            self.__exit__()
            raise
        return self

    def _make(self) -> None:
        identity = self._identity()
        password_file = self._folder / "password"
        password_file.write_text(self._password)
        if identity:
            for path in (self._folder, password_file):
                os.chown(path, identity["user"], identity["group"])
        made = subprocess.run(
            [
                self._binaries / "initdb",
                *("--no-sync", "--auth=scram-sha-256", "--username=airflow", "--encoding=UTF8", "--locale=C"),
                *(f"--pwfile={password_file}", "-D", self._folder / "data"),
            ],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            **identity,
        )
        assert made.returncode == 0, f"initdb: {made.stdout}{made.stderr}"

    def _start(self) -> None:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self._port,
            "unix_socket_directories": self._folder,
            "fsync": "off",
        }
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (self._folder / "server.log").open("wb") as log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._folder / "data", *words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, cwd="/",
                **self._identity(),
            )  # fmt: skip
        self._wait_until_ready()

    @property
    def pid(self) -> int:
        """The id of the first process. SIGQUIT to it ends all of them at once, and only the log (WAL) is on
        the disk."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_down(self) -> bool:
        """Whether the server was killed."""
        return self._process is not None and self._process.poll() is not None

    def wait_until_down(self) -> None:
        """Wait until a server that is being killed has ended. It refuses connections a little earlier."""
        if self._process is not None:
            self._process.wait(60)

    def start_again(self) -> None:
        """Start again after the server was killed. It recovers from its log."""
        self._start()

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)  # "fast": clients are sent away
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _READY_S
        while True:
            try:
                psycopg2.connect(self.dsn).close()
                return
            except psycopg2.OperationalError as error:
                if time.monotonic() > deadline:
                    log = (self._folder / "server.log").read_text(errors="replace")[-2_000:]
                    raise RuntimeError(f"Postgres did not become ready: {error}{log}") from error
                time.sleep(0.1)

    @staticmethod
    def _identity() -> dict[str, Any]:
        """The user who runs the server: this user, unless that is root."""
        if os.geteuid() != 0:
            return {}
        known = {entry.pw_name: entry for entry in pwd.getpwall()}
        other = known.get("postgres") or known["nobody"]
        return {"user": other.pw_uid, "group": other.pw_gid, "extra_groups": []}


def environment_file(dsn: str) -> str:
    """A file for the shell with libpq's own variables, and Airflow's connection `postgres_default`."""
    words = conninfo.conninfo_to_dict(dsn)
    values = {
        "PGHOST": words["host"],
        "PGPORT": words["port"],
        "PGUSER": words["user"],
        "PGPASSWORD": words["password"],
        "PGDATABASE": words["dbname"],
        VARIABLE: connection_text(dsn),
    }
    lines = [f"export {name}={shlex.quote(str(value))}" for name, value in values.items()]
    return "\n".join(["# New at each start.", *lines, ""])


def _stop(*_: object) -> None:
    """End by the first signal. A closed terminal sends two, and the second must not interrupt the clean-up."""
    for signum in _SIGNALS:
        signal.signal(signum, signal.SIG_IGN)
    raise KeyboardInterrupt


def _remove_left_by_killed(lines: list[str]) -> None:
    """Remove the data of a server that was killed before it could, as its lock names it."""
    for line in lines[1:2]:
        folder = Path(line)
        if folder.parent == Path(tempfile.gettempdir()) and folder.name.startswith(_PREFIX):
            shutil.rmtree(folder, ignore_errors=True)


def _serve(binaries: Path, file: Path, lock: TextIO) -> int:
    """Run a server until it is down. The file for a shell is there exactly while the server runs."""
    _remove_left_by_killed(lock.read().splitlines())
    server = PostgresServer(binaries)
    try:
        note_holder(lock, str(server.folder))
        with Guard() as guard, server:
            guard.watch(server.pid)
            write_private(file, environment_file(server.dsn))
            print(
                f"postgres: runs; for a shell: . {file}\npostgres: Ctrl-C stops it, and removes its data",
                flush=True,
            )
            while not server.is_down:
                time.sleep(0.5)
    finally:
        file.unlink(missing_ok=True)
        shutil.rmtree(server.folder, ignore_errors=True)
    print("postgres: ended by itself")
    return 1


def main() -> int:
    """Run a server until a person or a signal ends it. Its data is removed with it."""
    parser = argparse.ArgumentParser(
        prog="postgres", description="A Postgres on 127.0.0.1, to try things with."
    )
    parser.add_argument("--environment", type=Path, required=True, help="the file for a shell to read")
    file: Path = parser.parse_args().environment
    binaries = postgres_binaries()
    if binaries is None:
        print("postgres: there is none; install Debian's `postgresql`, or run .ci/setup-debian")
        return 1
    try:
        with only_process(
            file.with_suffix(".lock"),
            actor="postgres",
            held="the Postgres of this checkout",
            action=f"use that one (. {file}), or stop it first",
        ) as lock:
            for signum in _SIGNALS:
                signal.signal(signum, _stop)
            return _serve(binaries, file, lock)
    except IllegalStateError as error:
        print(error)
        return 1
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
