"""These tests pin the exit codes, signals, pipes, JSON errors and start-up of the process.

A process takes most of a second to start. So `make test` starts one of each kind, and calls the function that
the console script calls for the others. The shard `machine` starts them all.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.cli.conftest import COMMAND, SCHEMA, Answer, Run, on_a_terminal, process
from tests.suite.tiers import in_shard
from tests.support.servers import REPOSITORY
from tests.support.waiting import wait_for
from txn_engine import connect
from txn_engine.cli.interrupts import Interrupted, held_back, install
from txn_engine.cli.main import main


@pytest.fixture
def ledger(run: Run, tmp_path: Path) -> str:
    """A ledger on disk with an empty topic `payments`."""
    store = f"file://{tmp_path}/ledger"
    made = run("topics", "create", "payments", "--schema", SCHEMA, store=store)
    assert made.code == 0, made.stderr
    return store


@contextlib.contextmanager
def started(*arguments: str, **options: object) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*COMMAND, *arguments],
        encoding="utf-8",
        cwd=REPOSITORY,
        **({"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options),  # type: ignore[call-overload]
    ) as running:
        try:
            yield running
        finally:
            running.kill()


# --- exit codes and errors --------------------------------------------------------------------------------


CALLS = (
    (0, ["topics", "list", "--url", "{}"]),
    (1, ["topics", "describe", "nope", "--url", "{}"]),
    (2, ["topics", "lst", "--url", "{}"]),
    (2, ["topic"]),
    (2, ["topics", "list"]),
    (2, ["topics", "list", "--url", "{}", "--nope"]),
    (2, ["--url", "{}", "topics", "list"]),
    (1, ["topics", "list", "--url", "ftp://x"]),
)


@pytest.mark.parametrize("call", in_shard("machine", ["main", "process"], keep=["main"]))
def test_exit_codes(ledger: str, call: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A command exits with 0 if it is done, with 1 if not, and with 2 after a wrong call. Each failure is one
    line on stderr and nothing on stdout."""

    def called(*arguments: str) -> Answer:
        if call == "process":
            return process(*arguments)
        with kept_handlers():
            code = main(arguments)
        return Answer(code, *capsys.readouterr())

    for code, arguments in CALLS:
        answer = called(*(ledger if each == "{}" else each for each in arguments))
        assert answer.code == code, arguments
        if code:
            assert answer.stdout == ""
            assert answer.error.startswith("error: ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["topcs"], "did you mean 'topics'?"),
        (["topics", "lst"], "did you mean 'list'?"),
        (["groups", "xyz"], "there are list, describe, reset-offsets"),
        (["topics", "list"], "give --url, or set TXN_ENGINE_URL"),
        (["--url", "x", "topics", "list"], "options go after the command"),
    ],
)
def test_a_mistyped_call_is_helped(run: Run, arguments: list[str], words: str) -> None:
    """The error suggests what may have been meant."""
    answer = run(*arguments, store="")
    assert answer.code == 2
    assert words in answer.error


def test_errors_as_json(run: Run, payments: str) -> None:
    """An error or a wrong call writes one object to stderr and nothing to stdout. The reason may be null."""
    for arguments, code, name, reason in (
        (["topics", "describe", "nope", "--json"], 1, "UNKNOWN_TOPIC_OR_PARTITION", None),
        (["topics", "describe", "--json"], 2, "USAGE", None),
        (["topics", "lst", "--json"], 2, "USAGE", None),
        (["coordinator", "snapshot", "--partition", "1", "--json"], 2, "USAGE", "partition_without_topic"),
        (["consume", "nope", "--json"], 1, "UNKNOWN_TOPIC_OR_PARTITION", None),
        (["cuts", "describe", "7", "--json"], 1, "INVALID_REQUEST", "cut_not_found"),
    ):
        answer = run(*arguments)
        assert (answer.code, answer.stdout) == (code, "")
        document = json.loads(answer.error)
        assert set(document) == {"error"}
        assert list(document["error"]) == ["code", "reason", "message"]
        assert (document["error"]["code"], document["error"]["reason"]) == (name, reason)


def test_an_unexpected_error_is_one_line(run: Run, payments: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The traceback comes only with --debug."""
    from txn_engine.log.topics import TopicRegistry

    def broken(_: TopicRegistry) -> object:
        raise KeyError("a bug\nof two lines")

    monkeypatch.setattr(TopicRegistry, "survey", broken)
    answer = run("topics", "list")
    assert answer.code == 1
    assert "KeyError" in answer.error
    assert "--debug" in answer.error
    assert "Traceback" in run("topics", "list", "--debug").stderr


def test_a_missing_package_says_how_to_install_it(
    run: Run, payments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the extra."""
    from txn_engine.log.topics import TopicRegistry

    def broken(_: TopicRegistry) -> object:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark.sql")

    monkeypatch.setattr(TopicRegistry, "survey", broken)
    assert "pip install 'txn-engine[spark]'" in run("topics", "list").error


def test_no_secret_is_printed(run: Run) -> None:
    """Every message leaves out the user and the password of a URL. A secret key may hold slashes, plus and at
    signs."""
    for url in (
        "s3://AKIA:hunter2@bucket/x",
        "http://AKIA:hunter2@host/x",
        "s3://AKIA:s3cr/+hunter2@bucket/x",
        "https://AKIA:s3cr/@hunter2@host/x",
        "s3://AKIA:s3cr/hunter2..@b",
        "s3://bucket/x?AWS_ACCESS_KEY_ID=AKIA&AWS_SECRET_ACCESS_KEY=s3cr/hunter2",
        "http://host/?key=AKIA&secret=s3cr/hunter2",
    ):
        for answer in (
            run("topics", "list", store=url),
            run("topics", "list", "--debug", store=url),
            run("topics", "list", store="", env={"TXN_ENGINE_URL": url}),
            run("topics", "list", "--endpoint", url, store="s3://bucket/x"),
            run("topics", "list", "--endpoint", url, "--debug", store="s3://bucket/x"),
            run("topics", "list", "--debug", store="s3://bucket/x", env={"TXN_ENGINE_S3_ENDPOINT": url}),
            run("doctor", store=url),
            run("doctor", "--json", store=url),
            run("topics", "list", "more", store=url),
            run("topics", "list", url, store=""),
        ):
            assert answer.code in (1, 2)
            for secret in ("hunter2", "s3cr", "AKIA"):
                assert secret not in answer.stdout + answer.stderr, (url, secret)


@pytest.mark.shard("machine")
def test_a_store_that_never_answers() -> None:
    """If a server accepts connections and never answers, the command says that it waits, and fails with one line after
    some ten seconds."""
    with socket.socket() as hole:
        hole.bind(("127.0.0.1", 0))
        hole.listen(16)
        env = {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "TXN_ENGINE_S3_ENDPOINT": f"http://127.0.0.1:{hole.getsockname()[1]}",
        }
        answer = process("topics", "list", "--json", "--url", "s3://bucket/x", env=env)
    waiting, told = answer.stderr.splitlines()
    error = json.loads(told)["error"]
    assert (answer.code, error["code"], error["reason"]) == (1, "NETWORK_EXCEPTION", "no_answer")
    assert "waiting to try again" in waiting


# --- help and start-up ------------------------------------------------------------------------------------


def commands() -> Iterator[list[str]]:
    from txn_engine.cli.main import cli

    for name, command in cli.commands.items():
        yield [name]
        for inner in getattr(command, "commands", {}):
            yield [name, inner]


def test_the_bare_command_shows_its_help(run: Run) -> None:
    """The command without arguments prints its help, and does not fail."""
    assert run(store="").stdout == run("--help").stdout


_WITHOUT_A_STORE = (["topics", "infer"],)


@pytest.mark.parametrize("path", list(commands()), ids=" ".join)
def test_help_teaches(run: Run, path: list[str]) -> None:
    """Every command says what it does, takes --url unless its argument is one or it needs no store, --json and --debug,
    and shows an example of itself.
    """
    text = run(*path, "--help").stdout
    assert max(len(line) for line in text.splitlines()) <= 110
    if "COMMAND [ARGS]" in text:
        assert run(*path, store="").stdout == text
        return
    is_for_a_store = "[OPTIONS] URL" not in text and path not in _WITHOUT_A_STORE
    store = ("--url", "TXN_ENGINE_URL") if is_for_a_store else ()
    for option in (*store, "--json", "--debug"):
        assert option in text
    assert "Examples:" in text
    assert f"txn-engine {' '.join(path)}" in text.partition("Examples:")[2]


def test_start_up_imports_nothing_heavy() -> None:
    """`--help` and a wrong call load neither pyarrow nor Spark, Airflow, Great Expectations or pandas."""
    code = (
        "import sys; from txn_engine.cli.main import main; main(['--help']); main(['topics', 'lst']);"
        "heavy = {'pyarrow', 'numpy', 'pyspark', 'airflow', 'great_expectations', 'pandas', 'obstore', 'rich'};"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, encoding="utf-8", cwd=REPOSITORY
    )
    assert done.returncode == 0, done.stderr


def test_a_command_loads_no_spark(ledger: str) -> None:
    """Listing topics imports neither Spark nor Airflow, Great Expectations, pandas, obstore or minio."""
    code = (
        f"import sys; from txn_engine.cli.main import main; main(['topics', 'list', '--url', {ledger!r}]);"
        "heavy = {'pyspark', 'airflow', 'great_expectations', 'pandas', 'obstore', 'minio'};"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, encoding="utf-8", cwd=REPOSITORY
    )
    assert done.returncode == 0, done.stderr


def test_module_and_version(run: Run) -> None:
    """`python -m txn_engine` is the same command, and `--version` names the program."""
    done = subprocess.run(
        [sys.executable, "-m", "txn_engine", "--version"],
        check=False,
        capture_output=True,
        encoding="utf-8",
        cwd=REPOSITORY,
    )
    assert done.returncode == 0
    assert done.stdout.startswith("txn-engine ")


# --- terminals --------------------------------------------------------------------------------------------


def test_tables_fit_the_terminal(run: Run, ledger: str, good: Path) -> None:
    """At 80 columns titles are folded or rows become blocks, and at 120 they are whole. Titles are bold on a
    terminal and plain in a pipe."""
    for name in ("a", "b"):
        load = ("produce", "payments", str(good), "--transactional-id", name)
        assert run(*load, store=ledger).code == 0
    producers = ["transactions", "describe-producers", "--topic", "payments", "--partition", "0"]
    transaction = ["transactions", "describe", "a"]
    bare = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
    for width in (80, 120):
        calls = [[*each, "--url", ledger] for each in (producers, transaction)]
        lines, block = (shown.splitlines() for shown in on_a_terminal(calls, width=width))
        assert any("\x1b[1m" in line for line in lines)
        plain = [bare.sub("", line) for line in lines]
        assert max(map(len, plain)) <= width
        assert ("CurrentTransactionStartOffset" in "".join(plain)) == (width == 120)
        assert "TransactionTimeoutMs           300000" in [bare.sub("", line).rstrip() for line in block]
    piped = run(*producers, store=ledger)
    assert "\x1b" not in piped.stdout
    assert "CurrentTransactionStartOffset" in piped.stdout


# --- pipes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("output_format", in_shard("machine", ["jsonl", "csv", "table"], keep=1))
def test_a_reader_that_leaves_is_no_error(run: Run, ledger: str, tmp_path: Path, output_format: str) -> None:
    """`| head` ends quietly, and the group does not move past records that nobody took."""
    rows = "".join(f"{i},1,2026-01-01,1.00,{'x' * 200}\n" for i in range(30_000))
    (tmp_path / "f.csv").write_text(f"id,account_id,day,amount,note\n{rows}")
    assert run("produce", "payments", str(tmp_path / "f.csv"), store=ledger).code == 0
    options = ["--group", "g", "--format", output_format, "--url", ledger]
    with started("consume", "payments", *options) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        assert running.wait(60) == 141
        assert running.stderr.read() == ""
    assert run("groups", "list", "--json", store=ledger).json == {"groups": []}


REDIRECTED = {"full": ">/dev/full", "closed": ">&-"}
needs_dev_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")


def process_without_stdout(how: str, *arguments: str) -> Answer:
    """Run a command as a process whose stdout takes nothing, because the disk is full or the caller closed
    it."""
    done = subprocess.run(
        ["/bin/sh", "-c", f'"$@" {REDIRECTED[how]}', "sh", *COMMAND, *arguments],
        check=False,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        encoding="utf-8",
        timeout=60,
        cwd=REPOSITORY,
    )
    return Answer(done.returncode, "", done.stderr)


@pytest.fixture(
    params=in_shard("machine", ["full", "closed", "full-process", "closed-process"], keep=["full", "closed"])
)
def lost(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., Answer]]:
    """Run a command whose stdout takes nothing, by the function that the console script calls or as a
    process."""
    how, _, process = request.param.partition("-")

    def call(*arguments: str) -> Answer:
        if process:
            return process_without_stdout(how, *arguments)
        with monkeypatch.context() as redirected, contextlib.ExitStack() as stack:
            taken = stack.enter_context(open("/dev/full", "w")) if how == "full" else None
            redirected.setattr(sys, "stdout", taken)
            code = main(arguments)
        return Answer(code, "", capsys.readouterr().err)

    with kept_handlers():
        yield call


@contextlib.contextmanager
def kept_handlers() -> Iterator[None]:
    """Put the earlier signal handlers back after `main` has installed its own."""
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


@needs_dev_full
@pytest.mark.parametrize("how", in_shard("machine", REDIRECTED, keep=1))
def test_a_process_whose_stdout_takes_nothing(ledger: str, how: str) -> None:
    """A command whose work is done has exit code 3, and one whose answer is lost has 1. The tests below have
    every command."""
    for arguments, code, error_code in (
        (["topics", "create", "made", "--url", ledger], 3, "REPORT_NOT_WRITTEN"),
        (["--help"], 1, "IO_ERROR"),
    ):
        answer = process_without_stdout(how, *arguments)
        assert (answer.code, answer.error_code) == (code, error_code)


@needs_dev_full
def test_a_report_that_cannot_be_written(lost: Callable[..., Answer], ledger: str, good: Path) -> None:
    """It has an exit code of its own, because a caller that tries again would load twice."""
    for arguments in (
        ["topics", "create", "made"],
        ["topics", "alter", "made", "--partitions", "2", "--json"],
        ["produce", "payments", str(good)],
        ["produce", "payments", str(good), "--transactional-id", "load", "--run-id", "r"],
        ["produce", "payments", str(good), "--transactional-id", "load", "--run-id", "r"],
        ["groups", "reset-offsets", "sums", "--topic", "payments", "--to-latest", "--execute"],
        ["coordinator", "sweep"],
        ["maintain", "clean"],
        ["topics", "delete", "made", "--execute"],
    ):
        answer = lost(*arguments, "--url", ledger)
        assert (answer.code, answer.error_code) == (3, "REPORT_NOT_WRITTEN"), answer.stderr
    with connect(ledger) as engine:
        assert engine.scan("payments").to_table().num_rows == 6
        assert engine.admin.list_groups() == ["sums"]


@pytest.mark.shard("machine")
def test_a_load_into_a_closed_pipe(ledger: str, good: Path) -> None:
    """With `| true`, stderr says that the load was done."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        command = [*COMMAND, "produce", "payments", str(good), "--url", ledger]
        done = subprocess.run(
            command, check=False, stdout=writing, stderr=subprocess.PIPE, encoding="utf-8", cwd=REPOSITORY
        )
    finally:
        os.close(writing)
    answer = Answer(done.returncode, "", done.stderr)
    assert (answer.code, answer.error_code) == (3, "REPORT_NOT_WRITTEN")
    assert "was done, only its report could not be written" in answer.error


@needs_dev_full
def test_an_answer_that_cannot_be_written_is_a_failure(
    run: Run, lost: Callable[..., Answer], ledger: str, good: Path
) -> None:
    """The command fails with one line, and the group does not move past records that were not written."""
    assert run("produce", "payments", str(good), store=ledger).code == 0
    for arguments in (
        ["--help"],
        ["topics", "list", "--url", ledger],
        ["topics", "list", "--url", ledger, "--json"],
        ["consume", "payments", "--url", ledger, "--group", "g"],
        ["consume", "payments", "--url", ledger, "--group", "g", "--format", "csv"],
        ["groups", "reset-offsets", "g", "--topic", "payments", "--to-latest", "--url", ledger],
        ["verify", "--url", ledger],
    ):
        answer = lost(*arguments)
        assert (answer.code, answer.error_code) == (1, "IO_ERROR"), answer.stderr
    with connect(ledger) as engine:
        assert engine.admin.list_groups() == []


def test_a_closed_stderr_changes_nothing(ledger: str, good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Notes are dropped, but the command and its exit code are the same."""
    load = ["produce", "payments", str(good), "--url", ledger]
    command = ["/bin/sh", "-c", '"$@" 2>&-', "sh", *COMMAND, *load]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, timeout=60, cwd=REPOSITORY)
    assert done.returncode == 0
    with monkeypatch.context() as closed, kept_handlers():
        closed.setattr(sys, "stderr", None)
        assert main(["produce", "nope", str(good), "--url", ledger]) == 1
    with connect(ledger) as engine:
        assert engine.scan("payments").to_table().num_rows == 3


# --- signals ----------------------------------------------------------------------------------------------


class _Pipe:
    """A named pipe that a command reads as a file, so a test decides when the command can go on."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._stream: IO[str] | None = None

    def feed(self, text: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # the reader has gone: that is what the test is about
            if self._stream is None:
                self._stream = self.path.open("w")
            self._stream.write(text)
            self._stream.flush()

    def close(self) -> None:
        if self._stream is not None:
            with contextlib.suppress(BrokenPipeError):
                self._stream.close()


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[_Pipe]:
    """A named pipe."""
    made = _Pipe(tmp_path / "pipe.csv")
    yield made
    made.close()


@pytest.mark.parametrize(
    ("signum", "code"),
    in_shard("machine", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], keep=1),
)
def test_a_signal_in_the_middle_of_a_load(ledger: str, pipe: _Pipe, signum: int, code: int) -> None:
    """A signal after the first upload leaves one line and no visible record, and readers do not wait."""
    with started(
        "produce", "payments", str(pipe.path), "--transactional-id", "load", "--url", ledger
    ) as running:
        pipe.feed("id,account_id,day,amount,note\n")
        wide = "x" * 40_000
        threading.Thread(
            target=lambda: pipe.feed("".join(f"{i},1,2026-01-01,1.00,{wide}\n" for i in range(1_500))),
            daemon=True,
        ).start()
        with connect(ledger) as engine:
            data = Path(ledger.removeprefix("file://")) / "topics/payments/0/0/data"
            wait_for(lambda: data.is_dir() and any(data.iterdir()), what="the load's first upload")
            assert engine.admin.describe_transaction("load").state == "Empty"
            running.send_signal(signum)
            assert running.wait(60) == code
            assert running.stderr is not None
            (line,) = running.stderr.read().splitlines()
            assert signal.Signals(signum).name in line
            assert "nothing was loaded" in line
            assert engine.admin.describe_transaction("load").state == "Empty"
            (offsets,) = engine.admin.list_offsets("payments").values()
            assert offsets.last_stable_offset == offsets.high_watermark == 0
            assert engine.scan("payments").to_table().num_rows == 0


@pytest.mark.shard("machine")
def test_a_signal_before_anything_was_sent(ledger: str, pipe: _Pipe) -> None:
    """Nothing was loaded. The exit code is the same, and --json reports it as JSON."""
    arguments = [
        "produce",
        "payments",
        str(pipe.path),
        "--transactional-id",
        "load",
        "--json",
        "--url",
        ledger,
    ]
    with started(*arguments) as running:
        pipe.feed("id,account_id,day,amount,note\n")
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 143
        assert running.stderr is not None
        assert "nothing was loaded" in json.loads(running.stderr.read())["error"]["message"]


def test_a_pipe_without_a_transaction(run: Run, ledger: str, pipe: _Pipe) -> None:
    """A pipe, which can be read only once, is loaded without a transaction too."""

    def feed() -> None:
        pipe.feed("id,account_id,day,amount,note\n7,1,2026-01-01,1.00,\n")
        pipe.close()

    feeding = threading.Thread(target=feed)
    feeding.start()
    assert run("produce", "payments", str(pipe.path), store=ledger).code == 0
    feeding.join()
    with connect(ledger) as engine:
        assert engine.scan("payments").to_table()["id"].to_pylist() == [7]


def test_follow_ends_with_ctrl_c(run: Run, ledger: str, tmp_path: Path) -> None:
    """New records are printed as they come, and printed records are committed."""
    (tmp_path / "f.csv").write_text("id,account_id,day,amount,note\n7,1,2026-01-01,1.00,\n")
    arguments = ["consume", "payments", "--group", "g", "--follow", "--format", "jsonl", "--url", ledger]
    with started(*arguments) as running:
        assert run("produce", "payments", str(tmp_path / "f.csv"), store=ledger).code == 0
        assert running.stdout is not None
        assert json.loads(running.stdout.readline())["id"] == 7
        wait_for(
            lambda: '"lag": 0' in run("groups", "describe", "g", "--json", store=ledger).stdout,
            what="the commit of the record that was printed",
        )
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 130


def test_signals_during_a_short_step() -> None:
    """The first one is held back until the step is finished, the second one is raised at once."""
    steps: list[str] = []

    def step(*signals: int) -> None:
        with held_back():
            for signum in signals:
                os.kill(os.getpid(), signum)
            steps.append("finished")

    with kept_handlers():
        install()
        with pytest.raises(Interrupted) as caught:
            step(signal.SIGTERM)
        assert (caught.value.exit_code, steps) == (143, ["finished"])
        with pytest.raises(Interrupted) as caught:
            step(signal.SIGINT, signal.SIGINT)
        assert (caught.value.exit_code, steps) == (130, ["finished"])


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    """A signal that was ignored before, for example under nohup, stays ignored."""
    with kept_handlers():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        install()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_main_returns_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    """`main`, which the console script calls, returns the exit code."""
    with kept_handlers():
        assert main(["--help"]) == 0
        assert main(["nope"]) == 2
    assert "no such command 'nope'" in capsys.readouterr().err
