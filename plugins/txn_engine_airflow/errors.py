"""Why a task fails: an error with the reason as a stable code. Whether Airflow tries it again is in the class.

Programs and tests compare the class and the attributes, because the words of a message may be improved at any time. The
engine has reasons of its own (`txn_engine.reasons`), which a DAG file cannot import: parsing loads no engine.
"""

from __future__ import annotations

from enum import StrEnum

from airflow.sdk.exceptions import AirflowException, AirflowFailException


class TaskReason(StrEnum):
    """Which fault a `TaskError` reports."""

    # --- params that the deployment does not permit --------------------------------------------------------
    NOT_PERMITTED = "not_permitted"
    """The deployment does not permit a run to name this value. `variable` says what would permit it."""
    BAD_SETTING = "bad_setting"
    """A variable in the environment or a setting of Spark has a value that cannot be used."""
    UNREADABLE_FILE = "unreadable_file"
    """A permitted file cannot be read."""
    NOT_A_FILE = "not_a_file"
    """A permitted path leads to something that is not a regular file."""
    NOT_A_FOLDER = "not_a_folder"
    """A permitted path leads through something that is not a folder."""
    UNSAFE_FOLDER = "unsafe_folder"
    """A folder for reports contains a link or a device, so a report could be written elsewhere."""

    # --- connections ----------------------------------------------------------------------------------------
    NO_CONNECTION = "no_connection"
    """Airflow does not have a connection of this id."""
    UNREADABLE_CONNECTION = "unreadable_connection"
    """The connection in the environment, or its extra, cannot be read."""
    NO_STORE = "no_store"
    """The connection does not name a store."""
    PORT_WITHOUT_MEANING = "port_without_meaning"
    """The connection of a store has a port."""
    NOT_TEXT = "not_text"
    """A field of the connection is not a text."""
    URL_WITH_SECRETS = "url_with_secrets"
    """A URL or a DSN is given where credentials or options could be in it and be shown."""
    WRONG_CONNECTION_TYPE = "wrong_connection_type"
    """The connection has another type than the task needs."""
    UNKNOWN_FIELD = "unknown_field"
    """The connection's extra has a field that nothing takes."""

    # --- arguments of a task, once they are rendered --------------------------------------------------------
    BAD_ARGUMENT = "bad_argument"
    """An argument of the task has a value that cannot be used."""
    NO_DATA_INTERVAL = "no_data_interval"
    """The task loads the data interval of its run, but the run does not have one."""
    UNKNOWN_TRANSACTIONAL_ID = "unknown_transactional_id"
    """No producer has used this transactional id."""
    DECIDED_TO_COMMIT = "decided_to_commit"
    """The transaction was decided to commit, so it cannot be aborted."""
    FORGOTTEN_RUN = "forgotten_run"
    """The log no longer remembers whether this run was committed."""
    NEEDS_MANIFEST = "needs_manifest"
    """Runs that catch up would load the same files one after the other, and no manifest is named."""
    OTHER_ARGUMENTS = "other_arguments"
    """This run was committed before with other arguments."""
    BAD_TRANSFORM = "bad_transform"
    """The transform cannot be imported, or it is not a function of a DataFrame."""
    TRANSFORM_FAILED = "transform_failed"
    """The transform raised an error that a retry would meet again."""
    BAD_OUTPUT = "bad_output"
    """The task's callable or transform returned something else than records."""

    # --- what another run of the task did -------------------------------------------------------------------
    TAKEN_OVER = "taken_over"
    """Another try or run of the task has taken over its transactional id, so this try was not committed."""

    # --- what is left for the next run ----------------------------------------------------------------------
    SOME_UNFINISHED = "some_unfinished"
    """A sweep ended some of the transactions that it found, but not all of them."""
    STILL_PENDING = "still_pending"
    """Transactions that were found decided do not have all of their markers yet."""

    # --- what could not be read -----------------------------------------------------------------------------
    DAMAGED = "damaged"
    """The task did the rest of its work, but some partitions or groups are damaged and cannot be read."""


class _ReasonedError(AirflowException):
    """An error with a reason. Its text is one line.

    `subject` names the param, argument, field or connection that the fault is in. `variable` names the variable of the
    environment that decides it, if there is one.
    """

    def __init__(self, text: str, *, reason: TaskReason | str, subject: str = "", variable: str = "") -> None:
        super().__init__(text)
        self.reason = TaskReason(reason)
        self.subject = subject
        self.variable = variable

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), str(self), self.reason, self.subject, self.variable)

    def serialize(self) -> tuple[str, tuple[str, ...], dict[str, str]]:
        """How Airflow makes the error again in another process: class, arguments, keywords."""
        kind = type(self)
        given = {"reason": self.reason.value, "subject": self.subject, "variable": self.variable}
        return f"{kind.__module__}.{kind.__name__}", (str(self),), given


class TaskError(_ReasonedError, AirflowFailException):
    """A task that fails the same whenever it is tried."""


class RetriedTaskError(_ReasonedError):
    """A try that failed, although another try of the same task may succeed."""


def _rebuild(
    kind: type[_ReasonedError], text: str, reason: TaskReason, subject: str, variable: str
) -> _ReasonedError:
    return kind(text, reason=reason, subject=subject, variable=variable)
