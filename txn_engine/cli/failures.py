"""What goes wrong: one readable line on stderr (a JSON object with --json) and an exit code; never a traceback."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import IO, Any, NoReturn

import click

from txn_engine.names import json_printable, printable
from txn_engine.reasons import Reason

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NOT_TOLD = 3
EXIT_BROKEN_PIPE = 128 + 13


class CommandFailed(click.ClickException):
    """The command did not do what was asked.

    code: Kafka's name of the error where it has one, else ours. reason: which of the faults that the code covers it
    was (`txn_engine/reasons.py`), or None.
    """

    exit_code = EXIT_FAILED

    def __init__(self, code: str, message: str, *, reason: str | None = None, as_json: bool = False) -> None:
        super().__init__(one_line(message))
        self.code = code
        self.reason = reason
        self.as_json = as_json

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the line."""
        tell_error(self.code, self.message, reason=self.reason, as_json=self.as_json, file=file)


class Misuse(click.UsageError):
    """A wrong command line, with a reason by which programs and tests know the fault."""

    def __init__(self, message: str, *, reason: Reason) -> None:
        super().__init__(message)
        self.reason = reason


class UsageFailed(CommandFailed):
    """The command line itself is wrong."""

    exit_code = EXIT_USAGE


class ReportNotWritten(CommandFailed):
    """What was asked for was done, and stdout did not take the report of it."""

    exit_code = EXIT_NOT_TOLD

    def __init__(self, reason: str, *, as_json: bool = False) -> None:
        code = "REPORT_NOT_WRITTEN"
        told = f"what was asked for was done, only its report could not be written: stdout: {reason} [{code}]"
        super().__init__(code, told, as_json=as_json)


class OutputClosed(BaseException):
    """Whoever read our output has gone (`| head`): stop, quietly."""


def one_line(text: str) -> str:
    """The text on one line, without secrets in any URL and without what a terminal would act on."""
    return printable(" ".join(without_secrets(text).split()))


def without_secrets(text: str) -> str:
    """The text without secrets in any URL."""
    if "://" not in text:  # nor is the storage package loaded to say that a call is wrong
        return text
    from storage.errors import redact

    return redact(text)


def tell_error(
    code: str, message: str, *, reason: str | None = None, as_json: bool, file: IO[Any] | None = None
) -> None:
    """Write an error to stderr, as a line or as JSON. Where that takes nothing, the exit code is left to tell."""
    stream = file or sys.stderr
    with contextlib.suppress(OSError):
        if as_json:
            error = {"error": {"code": code, "reason": reason, "message": message}}
            stream.write(json_printable(json.dumps(error, ensure_ascii=False)) + "\n")
            return
        colour = stream.isatty() and "NO_COLOR" not in os.environ
        stream.write(f"{click.style('error:', fg='red', bold=True) if colour else 'error:'} {message}\n")


@contextlib.contextmanager
def errors_as_lines(*, as_json: bool, debug: bool) -> Iterator[None]:
    """Turn whatever is raised inside into an exit code and a line. With `debug` the traceback comes first."""
    try:
        yield
    except (CommandFailed, click.exceptions.Exit, click.Abort):
        raise
    except click.UsageError as error:
        raise _usage(error, as_json) from error
    except click.ClickException as error:
        raise CommandFailed("CLI_ERROR", error.format_message(), as_json=as_json) from error
    except BrokenPipeError as error:
        raise OutputClosed from error
    except Exception as error:  # noqa: BLE001 -- the last place where an error can be turned into a line
        if debug:
            import traceback

            lines = without_secrets(traceback.format_exc()).split("\n")
            sys.stderr.write("\n".join(map(printable, lines)))
        _raise_failed(error, as_json)


@contextlib.contextmanager
def values_shown(is_asked: bool, *, as_json: bool) -> Iterator[None]:
    """Let the line of an error have the value that does not fit, if somebody asks for it or a terminal shows it."""
    from txn_engine.errors import TxnEngineError

    try:
        yield
    except TxnEngineError as error:
        if error.value is None or not (is_asked or sys.stderr.isatty()):
            raise
        told = one_line(error.with_value())
        raise CommandFailed(error.code, told, reason=reason_of(error), as_json=as_json) from error


def code_and_message(error: BaseException) -> tuple[str, str]:
    """An exception as code and one line."""
    from storage import StorageError
    from txn_engine.errors import TxnEngineError

    if isinstance(error, ModuleNotFoundError) and error.name:
        from txn_engine.extras import missing_package

        error = missing_package(error.name)
    if isinstance(error, StorageError):
        from txn_engine.log.objects import translated

        error = translated(error)
    if isinstance(error, TxnEngineError):
        return error.code, one_line(str(error))
    if isinstance(error, OSError) and (said := error.strerror or str(error)):
        where = f"{error.filename}: " if error.filename else ""
        return _coded("IO_ERROR", f"{where}{said}")
    said = ": ".join(filter(None, (type(error).__name__, _without_java_stack(str(error)))))
    told = f"an error inside txn-engine: {said}; run it again with --debug and report what that shows"
    return _coded("INTERNAL_ERROR", told)


def reason_of(error: BaseException) -> str | None:
    """The stable reason of an error of the engine, of a store or of a command, if it has one."""
    reason = getattr(error, "reason", None)  # errors of other libraries may have one too, which is a sentence
    return (
        str(reason) if isinstance(reason, StrEnum) or (isinstance(error, CommandFailed) and reason) else None
    )


def _without_java_stack(text: str) -> str:
    """What Java says of an error, without the hundred calls behind it that Py4J hands over in the same text."""
    return text.partition("\n\tat ")[0]


def _coded(code: str, text: str) -> tuple[str, str]:
    return code, f"{one_line(text)} [{code}]"


def _raise_failed(error: Exception, as_json: bool) -> NoReturn:
    code, message = code_and_message(error)
    raise CommandFailed(code, message, reason=reason_of(error), as_json=as_json) from error


def _usage(error: click.UsageError, as_json: bool) -> UsageFailed:
    context = error.ctx
    path = context.command_path if context is not None else "txn-engine"
    text = f"{path}: {error.format_message().rstrip('.')}"
    return UsageFailed(
        "USAGE",
        f"{text}; `{path} --help` shows how it is called",
        reason=error.reason if isinstance(error, Misuse) else None,
        as_json=as_json,
    )
