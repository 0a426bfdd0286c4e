"""What can go wrong in Spark itself, in one line; the whole story stays in `__cause__`.

Of an error in one of Spark's Python processes only the text arrives in the caller's process, within a Java exception.
So the engine's errors carry their reason in the text there (`reasons_in_text`), and `fault_of` finds class, code and
reason again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from storage.reasons import StoreReason
from txn_engine import errors
from txn_engine.errors import TxnEngineError
from txn_engine.reasons import Reason

# What a failed Spark action raises: pyspark's translation, or py4j's own error where it has none.
SPARK_FAILURES = (PySparkException, Py4JJavaError)

_MAX_CHARS = 500
_PYTHON_ERROR = re.compile(r"^((?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)): (.+)$", re.MULTILINE)
_SPARK_CONDITION = re.compile(r"\[[A-Z][A-Z0-9_.]+\] [^\n]+(?:\nFile \S+ does not exist)?")
_SQLSTATE = re.compile(r" SQLSTATE: \w+")
_JAVA_ERROR = re.compile(r"^: (.+)$", re.MULTILINE)
_JAVA_CAUSE = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
_SIGN = r" \[([A-Z][A-Z0-9_]*)(?: ([a-z][a-z0-9_]*))?\]$"
_SIGN_AT_END = re.compile(_SIGN)
_FAULT = re.compile(rf"^(?:\w+\.)*(\w+): .+{_SIGN}", re.MULTILINE)
_REASONS: dict[str, StrEnum] = {each.value: each for each in (*StoreReason, *Reason)}


class SparkSessionError(TxnEngineError):
    """There is no Spark session, or not one that can do what was asked. Nothing was read or written."""

    code = "SPARK_SESSION"
    retry_helps = True


class SparkJobError(TxnEngineError):
    """A Spark job failed after Spark's own retries. Nothing of it is visible: its files are orphans."""

    code = "SPARK_JOB_FAILED"
    retry_helps = True
    default_action = "mend the job and run it again: nothing of this run is visible"


@dataclass(frozen=True, slots=True)
class Fault:
    """What is known of an error of the engine that arrived as text: its class by name, its code and its reason."""

    kind: str
    code: str
    reason: StrEnum | None


@contextmanager
def reasons_in_text() -> Iterator[None]:
    """Let the engine's errors that leave the block end with `[CODE reason]`. It goes around what Spark calls."""
    try:
        yield
    except TxnEngineError as error:
        error.end_with_reason()
        raise


def fault_of(error: BaseException) -> Fault | None:
    """The engine's error that a failure of Spark was raised for; None if it was raised for anything else."""
    found = _FAULT.findall(str(error))
    if not found:
        return None
    kind, code, known = found[-1]
    return Fault(kind, code, _REASONS.get(known))


def reason_of(error: BaseException) -> StrEnum | None:
    """The reason of the engine's error that a failure of Spark was raised for, if there is one."""
    fault = fault_of(error)
    return None if fault is None else fault.reason


def failure_of_tasks(error: BaseException, *, actor: str, action: str) -> TxnEngineError:
    """What the engine raised in a task, as itself and with its words; for all else `SparkJobError`, which quotes no
    record: what a library raises may.
    """
    told = reason(error)
    name, colon, words = told.partition(": ")
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, TxnEngineError):
        found = kind(_SIGN_AT_END.sub("", words), actor=actor, reason=reason_of(error))
        found.action = None  # its words have what to do
        return found
    is_python = colon and _PYTHON_ERROR.fullmatch(told)
    return SparkJobError(f"{name} in a task" if is_python else told, actor=actor, action=action)


def _first_cause(error: BaseException) -> str:
    """The class of the Java exception that a failure began with."""
    cause = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    name = ""
    while cause is not None:
        name, cause = str(cause.getClass().getName()), cause.getCause()
    return name


def reason(error: BaseException) -> str:
    """The line of a Spark failure that says why: the Python error of a worker, else Spark's own condition."""
    text = str(error)
    python = _PYTHON_ERROR.findall(text) if "Traceback (most recent call last)" in text else []
    if python:
        kind, message = python[-1]
        found = f"{kind.rpartition('.')[2]}: {message}"
    elif condition := _SPARK_CONDITION.search(text):
        found = _SQLSTATE.sub("", condition[0])
        if "FAILED_READ_FILE" in found and _first_cause(error) == "java.lang.ArithmeticException":
            found += " A time of it is more than 292,000 years from 1970: Spark counts microseconds"
    elif causes := _JAVA_CAUSE.findall(text):
        found = causes[-1]
    elif thrown := _JAVA_ERROR.search(text):
        found = thrown[1]
    else:
        found = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return " ".join(found.split())[:_MAX_CHARS]
