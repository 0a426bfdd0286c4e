"""Parts of `make airflow` that need no Airflow: the rights of the home, the ports, the command line's keys."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.live.stack import memory_mb
from tests.support.waiting import wait_for
from txn_engine.errors import IllegalStateError
from txn_engine.reasons import Reason
from txn_engine_airflow.standalone import __main__ as standalone
from txn_engine_airflow.standalone.airflow import COMMANDS, Airflow
from txn_engine_airflow.standalone.command_line import environment_file, ready_line
from txn_engine_airflow.standalone.home import Home, write_private
from txn_engine_airflow.standalone.minio import OwnMinio
from txn_engine_airflow.standalone.processes import Guard, Service

pytestmark = pytest.mark.airflow

SERVER = (
    "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); time.sleep(600)"
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_home_that_others_could_read_is_closed_and_said(tmp_path: Path) -> None:
    """The folder and its files, above all the secrets, are closed to others. The second time nothing is reported."""
    home = Home(tmp_path / "home")
    home.make()
    assert (mode(home.path), mode(home.passwords)) == (0o700, 0o600)
    home.path.chmod(0o755)
    home.passwords.chmod(0o644)
    with home.taken() as closed:
        assert set(closed) == {"home", "passwords.json"}
    assert (mode(home.path), mode(home.passwords)) == (0o700, 0o600)
    with home.taken() as closed:
        assert list(closed) == []
    home.path.chmod(0o777)
    home.make()
    assert mode(home.path) == 0o700


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give a file away")
def test_a_home_of_another_user_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()
    os.chown(home.path / "secrets.json", 12_345, -1)
    with pytest.raises(IllegalStateError) as refused, home.taken():
        pass
    assert refused.value.reason is Reason.OWNED_BY_ANOTHER_USER
    assert "secrets.json" in refused.value.seen


@pytest.mark.parametrize("name", ["ledger", "secrets.json", "services"])
def test_a_link_that_leads_out_of_the_home_is_refused(tmp_path: Path, name: str) -> None:
    """A link that leads out of the home is refused, because another user may have planted it while the folder
    was open, and could then read and change the file that it leads to."""
    home = Home(tmp_path / "home")
    home.path.mkdir()
    home.path.chmod(0o777)
    (home.path / name).symlink_to(tmp_path / "evil")
    with pytest.raises(IllegalStateError) as refused, home.taken():
        pass
    with pytest.raises(IllegalStateError) as refused_again:
        home.make()
    for error in (refused.value, refused_again.value):
        assert error.reason is Reason.LINK_LEADS_OUT
        assert name in error.seen
    assert not (tmp_path / "evil").exists()


def test_a_link_within_the_home_may_stay(tmp_path: Path) -> None:
    """A link of the owner that stays inside the home is accepted, and so is a home that is a link."""
    (tmp_path / "disk").mkdir(mode=0o755)
    home = Home(tmp_path / "home")
    home.path.symlink_to(tmp_path / "disk")
    home.make()
    (home.path / "latest").symlink_to(home.path / "input")
    with home.taken():
        assert mode(tmp_path / "disk") == 0o700


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give a link away")
def test_a_link_of_another_user_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()
    (home.path / "ledger").symlink_to(home.path / "input")
    os.lchown(home.path / "ledger", 12_345, -1)
    with pytest.raises(IllegalStateError) as refused, home.taken():
        pass
    assert refused.value.reason is Reason.OWNED_BY_ANOTHER_USER
    assert "ledger" in refused.value.seen


def test_a_private_file_is_nobody_elses_at_any_moment(tmp_path: Path) -> None:
    """A private file is closed to other users at every moment, even if a file with wide rights, or a link, is
    in its place."""
    path, elsewhere = tmp_path / "cli.env", tmp_path / "elsewhere"
    elsewhere.write_text("kept")
    path.symlink_to(elsewhere)
    write_private(path, "new")
    assert (path.read_text(), mode(path), path.is_symlink()) == ("new", 0o600, False)
    assert elsewhere.read_text() == "kept"


def test_a_shell_takes_the_stores_keys_from_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each value in the file arrives whole, whatever characters it has, and another session's token is
    removed."""
    store = {
        "login": "key 'x'",
        "password": "$(touch pwned); s",
        "extra": {"url": "s3://ledger", "endpoint_url": "http://127.0.0.1:9", "region_name": "us-east-1"},
    }
    write_private(tmp_path / "cli.env", environment_file(store))
    monkeypatch.setenv("AWS_SESSION_TOKEN", "another's")
    names = [
        "TXN_ENGINE_URL",
        "TXN_ENGINE_S3_ENDPOINT",
        "AWS_REGION",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
    ]
    shown = " ".join(f'"${name}"' for name in names)
    script = f". ./cli.env && printf '%s\\n' {shown} ${{AWS_SESSION_TOKEN-gone}}"
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    extra = store["extra"]
    assert done.stdout.splitlines() == [*extra.values(), store["login"], store["password"], "gone"]  # type: ignore[attr-defined]
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("shell", ["sh", "bash", "zsh"])
def test_the_file_of_a_folder_is_read_without_a_complaint(tmp_path: Path, shell: str) -> None:
    """A folder has no keys, so there is nothing to unset. zsh refuses an `unset` without a name."""
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine")
    write_private(tmp_path / "cli.env", environment_file({"extra": {"url": "file:///srv/ledger"}}))
    assert "unset" not in (tmp_path / "cli.env").read_text()
    script = ". ./cli.env && echo $TXN_ENGINE_URL"
    done = subprocess.run([shell, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("file:///srv/ledger\n", "")


class _NeverStarted(Airflow):
    """An Airflow whose services are not started."""

    def migrate(self) -> None: ...

    def start(self, patience_s: float) -> None: ...


def test_a_store_that_is_gone_is_not_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While Airflow runs, somebody moves the store away. The payments end, wait, say so once, and go on when the store
    is back. No new store stands at the old place meanwhile."""
    monkeypatch.setattr(standalone, "Airflow", _NeverStarted)
    monkeypatch.setattr(standalone, "minio_binary", lambda _: None)
    home = Home(tmp_path / "home")
    home.make()
    ledger, away = home.path / "ledger", tmp_path / "away"
    with Guard() as guard:
        own = standalone.Standalone(home, guard, port=1)
        own.start()
        payments = own._payments
        committed = lambda: home.logs.joinpath("payments.log").read_text().count("committed")  # noqa: E731
        wait_for(lambda: committed() > 0, what="payments")
        ledger.rename(away)
        wait_for(lambda: payments.exit_code is not None, what="the payments to end", limit_s=120)
        for _ in range(3):
            own.look_once()
        assert payments.exit_code is not None
        assert not ledger.exists()
        payments.start()  # as a race would
        wait_for(lambda: payments.exit_code is not None, what="the payments to be refused")
        assert not ledger.exists()
        assert "STORE_NOT_FOUND" in payments.last_lines(1)
        said = capsys.readouterr().out
        assert said.count("is gone") == 1
        away.rename(ledger)
        before = committed()
        own.look_once()
        wait_for(lambda: committed() > before, what="payments again")
        own.stop()
    assert (home.path / "cli.env").exists()


def test_new_dags_are_looked_for_every_few_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's default is five minutes, which a newcomer takes for a fault."""
    monkeypatch.setattr(standalone, "minio_binary", lambda _: None)
    home = Home(tmp_path / "home")
    home.make()
    with Guard() as guard:
        own = standalone.Standalone(home, guard, port=1)
    assert int(own.airflow.environment["AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL"]) <= 10


def test_airflow_gets_the_connections_of_the_shell_and_no_other_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store's connection is its own. Settings of another Airflow, such as its database, are not inherited."""
    monkeypatch.setenv("AIRFLOW_CONN_POSTGRES_DEFAULT", "the database")
    monkeypatch.setenv("AIRFLOW_CONN_TXN_ENGINE_DEFAULT", "another store")
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
    monkeypatch.setenv("AIRFLOW_VAR_OTHER", "another's")
    store = {"AIRFLOW_CONN_TXN_ENGINE_DEFAULT": "own store"}
    found = Airflow(Home(tmp_path / "home"), Guard(), project=tmp_path, port=1, store=store).environment
    names = ("AIRFLOW_CONN_POSTGRES_DEFAULT", "AIRFLOW_CONN_TXN_ENGINE_DEFAULT", "AIRFLOW__CORE__EXECUTOR")
    assert [found[name] for name in names] == ["the database", "own store", "LocalExecutor"]
    assert "AIRFLOW_VAR_OTHER" not in found


def test_the_line_to_paste_is_short_where_the_home_is_near(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ready_line(tmp_path / "home" / "cli.env").startswith(". home/cli.env && ")
    assert ready_line(tmp_path / "cli.env").startswith(". ./cli.env && ")
    assert ready_line(Path("/a b/cli.env")).startswith(". '/a b/cli.env' && ")
    assert shlex.split(ready_line(tmp_path / "cli.env"))[-2:] == ["topics", "list"]


def test_a_service_is_told_from_whoever_else_has_its_port(tmp_path: Path) -> None:
    """A service is recognised by the process that listens, not by its answers."""
    with Guard() as guard, socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        free = standalone.free_port(0)
        service = Service(
            "server",
            (sys.executable, "-c", SERVER, str(free)),
            environment=os.environ,
            folder=tmp_path,
            guard=guard,
        )
        service.start()
        while not service.listens_on(free):
            assert service.exit_code is None, service.last_lines()
        assert not service.listens_on(taken)


class _SaysYes(BaseHTTPRequestHandler):
    """A server that answers every request with a healthy Airflow."""

    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        body = b'{"metadatabase": {"status": "healthy"}}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_PUT = do_GET

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def impostor() -> ThreadingHTTPServer:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _SaysYes)
    server.asked = []  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server  # type: ignore[misc]
    server.shutdown()
    server.server_close()


def test_an_impostor_at_minios_port_is_sent_nothing(
    impostor: ThreadingHTTPServer, tmp_path: Path, minio_program: Path
) -> None:
    """A server that answers every check gets neither keys nor payments."""
    with Guard() as guard:
        port = impostor.server_address[1]
        minio = OwnMinio(minio_program, guard, objects=tmp_path / "objects", logs=tmp_path, port=port)
        with pytest.raises(IllegalStateError) as refused:
            minio.start()
    assert (refused.value.actor, refused.value.reason) == ("minio", Reason.SERVICE_ENDED)
    assert impostor.asked == []  # type: ignore[attr-defined]


def test_an_impostor_at_airflows_port_is_not_taken_for_it(
    impostor: ThreadingHTTPServer, tmp_path: Path
) -> None:
    """Another Airflow at the port is healthy. Ours is not, so the error shows the end of its log."""
    ends = (sys.executable, "-c", "raise SystemExit('address already in use')")
    with Guard() as guard:
        airflow = Airflow(
            Home(tmp_path / "home"),
            guard,
            project=tmp_path,
            port=impostor.server_address[1],
            store={},
            commands=dict.fromkeys(COMMANDS, ends),
        )
        with pytest.raises(IllegalStateError) as refused:
            airflow.start(30)
    assert (refused.value.actor, refused.value.reason) == ("api-server", Reason.SERVICE_ENDED)
    assert "address already in use" in refused.value.seen
    assert impostor.asked == []  # type: ignore[attr-defined]


def test_a_port_that_was_asked_for_and_is_taken_is_refused(impostor: ThreadingHTTPServer) -> None:
    with pytest.raises(IllegalStateError) as refused:
        standalone.chosen_port(impostor.server_address[1])
    assert refused.value.reason is Reason.PORT_TAKEN
    assert standalone.chosen_port(None) > 0


def test_what_a_service_takes_counts_all_that_it_started() -> None:
    """What a service takes is recorded, as by `make shard NAME=airflow`, for the process and its children."""
    held = "held = bytearray(64 << 20)\nprint('there', flush=True)\ninput()"
    child = subprocess.Popen(
        [sys.executable, "-c", f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {held!r}])"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"there\n"
        assert memory_mb(child.pid) > 64
        child.communicate(b"\n")
