"""These tests pin how a load ends after signals during commit and abort, with lost stores, and when it is
fenced."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.cli.conftest import Answer, Run
from txn_engine import connect
from txn_engine.cli.failures import code_and_message
from txn_engine.cli.interrupts import Interrupted, install
from txn_engine.cli.main import cli, main
from txn_engine.coordinator.coordinator import Coordinator
from txn_engine.errors import (
    OffsetsMovedError,
    OutcomeUnknownError,
    ProducerFencedError,
    StoreUnavailableError,
)
from txn_engine.loading import FileLoad
from txn_engine.producer import Producer


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Install the program's signal handlers for the test."""
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    install()
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


@pytest.fixture
def load(url: str, payments: str, good: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Load a file in a transaction, through the function that the console script calls."""

    def call(*options: str) -> Answer:
        capsys.readouterr()
        arguments = ["produce", payments, str(good), "--url", url, *options]
        code = main([*arguments, *([] if options else ["--transactional-id", "load"])])
        answer = capsys.readouterr()
        return Answer(code, answer.out, answer.err)

    return call


def count(url: str) -> int:
    with connect(url) as engine:
        return engine.scan("payments").to_table().num_rows


def signalled(step: Callable[..., Any], *signals: int, before: bool = True) -> Callable[..., Any]:
    """Return the step, with signals that arrive right before or right after it."""

    def run(*arguments: Any) -> Any:
        if before:
            for signum in signals:
                os.kill(os.getpid(), signum)
        answer = step(*arguments)
        if not before:
            for signum in signals:
                os.kill(os.getpid(), signum)
        return answer

    return run


def test_a_signal_during_the_commit_lets_it_finish(
    load: Callable[..., Answer], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code is the signal's, and the line says that the transaction is committed."""
    monkeypatch.setattr(
        Producer, "commit_transaction", signalled(Producer.commit_transaction, signal.SIGTERM)
    )
    answer = load()
    assert answer.code == 143
    assert "the transaction is committed all the same" in answer.error
    assert count(url) == 3


def test_a_second_signal_during_the_commit(
    load: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line says that the outcome is not known, and how to look it up."""
    monkeypatch.setattr(
        Producer, "commit_transaction", signalled(Producer.commit_transaction, signal.SIGINT, signal.SIGINT)
    )
    answer = load()
    assert answer.code == 130
    assert "is not known here" in answer.error
    assert "transactions describe load" in answer.error


def refused(*_: Any) -> None:
    raise OffsetsMovedError("another load has added to the manifest")


def test_signals_during_the_abort(
    load: Callable[..., Answer], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line names the open transactional id and the command that ends it."""
    monkeypatch.setattr(FileLoad, "send", refused)
    monkeypatch.setattr(
        Producer, "abort_transaction", signalled(Producer.abort_transaction, signal.SIGTERM, signal.SIGTERM)
    )
    answer = load()
    assert answer.code == 143
    assert "transactional id 'load' is left open" in answer.error
    assert "txn-engine coordinator sweep" in answer.error
    assert count(url) == 0


def test_an_abort_that_the_store_does_not_answer(
    load: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first error stays the message, and the open transactional id is named."""

    def down(_: Producer) -> None:
        raise StoreUnavailableError("no answer")

    monkeypatch.setattr(FileLoad, "send", refused)
    monkeypatch.setattr(Producer, "abort_transaction", down)
    answer = load()
    assert answer.code == 1
    assert answer.error_code == "OFFSETS_MOVED"
    assert "transactional id 'load' is left open" in answer.error


def test_a_lost_answer_to_the_commit(load: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    """The line claims neither that the records were loaded nor that they were not."""

    def lost(*_: Any, **__: Any) -> None:
        raise OutcomeUnknownError("no answer to the commit")

    monkeypatch.setattr(Coordinator, "decide_end", lost)
    answer = load()
    assert answer.code == 1
    assert "is not known here" in answer.error
    assert "nothing was loaded" not in answer.error
    assert answer.error_code == "OUTCOME_UNKNOWN"


@pytest.mark.parametrize("step", ["flush", "commit_transaction"])
def test_a_bug_before_the_decision_aborts(
    load: Callable[..., Answer], url: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unexpected error does not leave the transaction open."""

    def broken(_: Producer) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(Producer, step, broken)
    answer = load()
    assert answer.code == 1
    assert "the transaction was aborted, nothing was loaded" in answer.error
    assert answer.error_code == "INTERNAL_ERROR"
    with connect(url) as engine:
        assert engine.admin.describe_transaction("load").state == "CompleteAbort"


def test_a_bug_after_the_decision(load: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the coordinator was asked, the line says that the outcome is not known."""

    def broken(*_: Any, **__: Any) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(Coordinator, "decide_end", broken)
    answer = load()
    assert answer.code == 1
    assert "is not known here" in answer.error
    assert answer.error_code == "INTERNAL_ERROR"


def test_a_forgotten_decision(load: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    """A successor took over and the log does not remember the decision, so the outcome is not known."""

    def fenced(*_: Any, **__: Any) -> None:
        raise ProducerFencedError("a successor")

    monkeypatch.setattr(Coordinator, "decide_end", fenced)
    monkeypatch.setattr(Coordinator, "was_committed", lambda *_: None)
    answer = load()
    assert answer.code == 1
    assert "is not known here" in answer.error
    assert "nothing was loaded" not in answer.error


def test_a_load_that_was_fenced_loads_nothing(
    load: Callable[..., Answer], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a successor with the same id took over before the commit, the load loads nothing."""
    commit = Producer.commit_transaction

    def after_a_successor(self: Producer) -> None:
        monkeypatch.setattr(Producer, "commit_transaction", commit)
        self.flush()
        with connect(url) as engine:
            engine.producer(transactional_id="load").init_transactions()
        commit(self)

    monkeypatch.setattr(Producer, "commit_transaction", after_a_successor)
    answer = load()
    assert answer.code == 1
    assert "nothing was loaded" in answer.error
    assert answer.error_code == "PRODUCER_FENCED"
    assert count(url) == 0


def test_an_interrupted_load_without_a_transaction(
    load: Callable[..., Answer], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line counts the records that stay in the topic."""
    monkeypatch.setattr(Producer, "flush", signalled(Producer.flush, signal.SIGINT, before=False))
    answer = load("--partition", "0")
    assert answer.code == 130
    assert "3 records are in the topic and stay" in answer.error
    assert count(url) == 3


@pytest.mark.parametrize("command", ["demo", "bench"])
def test_demo_and_bench_get_their_options(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: Run
) -> None:
    """They print on stderr with --json, and their exit code is the exit code of the process."""
    import txn_engine.bench
    import txn_engine.demo

    seen: dict[str, Any] = {}

    def called(**options: Any) -> int:
        seen.update(options, endpoint=os.environ.get("TXN_ENGINE_S3_ENDPOINT"))
        return 1

    monkeypatch.setattr(txn_engine.demo, "run_demo", called)
    monkeypatch.setattr(txn_engine.bench, "run_bench", called)
    monkeypatch.setenv("TXN_ENGINE_S3_ENDPOINT", "http://other")
    options = ["--input", "trans.csv"] if command == "demo" else ["--quick"]
    answer = run(command, *options, "--json", "--endpoint", "http://h:1", store="s3://b/x")
    assert answer.code == 1
    assert (seen["url"], seen["json_output"], seen["endpoint"]) == ("s3://b/x", True, "http://h:1")
    assert seen["console"].stderr is True
    assert seen.get("input_file", Path("trans.csv")) == Path("trans.csv")
    assert seen.get("quick", True) is True
    run(command, store="")
    assert (seen["url"], seen["json_output"], seen["console"].stderr) == (None, False, False)


def test_an_interruption_passes_through_click() -> None:
    """An interruption is not an error of the command. `main` makes it an exit code."""

    @cli.command("wait-for-nothing")
    def wait() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    try:
        with pytest.raises(Interrupted):
            CliRunner().invoke(cli, ["wait-for-nothing"])
        assert main(["wait-for-nothing"]) == 143
    finally:
        del cli.commands["wait-for-nothing"]


def test_a_java_error_is_one_line() -> None:
    """The message leaves out the stack trace, which Py4J puts into the text of the error."""
    stack = "An error occurred while calling o1.load.\n: java.io.IOException: gone\n\tat a.B.c(B.java:1)\nCaused by: x"
    code, message = code_and_message(RuntimeError(stack))
    assert code == "INTERNAL_ERROR"
    assert "java.io.IOException: gone; run it again with --debug" in message
    assert "B.java" not in message


@pytest.mark.parametrize("error", [TimeoutError(), ConnectionResetError(), EOFError()])
def test_an_error_without_words_is_named(error: Exception) -> None:
    """Some errors of Python have no text. The message says which error it was, and what to do."""
    code, message = code_and_message(error)
    assert code == "INTERNAL_ERROR"
    assert f"{type(error).__name__}; run it again with --debug" in message
