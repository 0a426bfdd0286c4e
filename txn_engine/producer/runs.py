"""Runs of loads: which of them were committed, into which topic, and what is done where the log no longer knows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from txn_engine.errors import CorruptObjectError, InvalidRequestError
from txn_engine.names import NEW_NAME, is_new_name, printable
from txn_engine.protocol.transaction_rows import TransactionRow, TransactionState
from txn_engine.reasons import Reason

if TYPE_CHECKING:
    from txn_engine.log.entry_log import EntryLog
    from txn_engine.log.logs import Logs
    from txn_engine.log.topics import Topic

ForgottenRuns = Literal["refuse", "load"]
"""What is done with a run that the log may have known once: none of the last 100 of an id that had more."""

FORGOTTEN_RUNS: tuple[ForgottenRuns, ...] = ("refuse", "load")

_BOUND = re.compile(r"@incarnation=[0-9]+(,[0-9]+)*$")


def check_run_id(run_id: str, *, actor: str) -> None:
    """Raise `InvalidRequestError` for what cannot be the name of a new run."""
    if not isinstance(run_id, str):
        raise InvalidRequestError(
            f"run id {run_id!r:.80}", actor=actor, expected="a text", reason=Reason.BAD_ARGUMENT
        )
    if run_id == "":
        raise InvalidRequestError(
            "an empty run id", actor=actor, expected="a name, or None", reason=Reason.BAD_ARGUMENT
        )
    if not is_new_name(run_id):
        raise InvalidRequestError(
            f"run id '{printable(run_id)}'",
            actor=actor,
            expected=f"UTF-8, {NEW_NAME}",
            reason=Reason.UNPRINTABLE_NAME,
        )


def run_into(run_id: str, *topics: Topic) -> str:
    """What the log calls a run of a load into these topics.

    A topic that was deleted and made again is another topic, into which nothing was loaded yet: there the run has the
    incarnation behind its name. No two runs get one name.
    """
    if any(topic.incarnation for topic in topics) or _BOUND.search(run_id):
        numbers = [str(topic.incarnation) for topic in sorted(topics, key=lambda topic: topic.name)]
        return f"{run_id}@incarnation={','.join(numbers)}"
    return run_id


def check_forgotten_runs(given: str) -> None:
    """Raise `InvalidRequestError` unless it is one of `FORGOTTEN_RUNS`."""
    if given not in FORGOTTEN_RUNS:
        raise InvalidRequestError(
            f"forgotten_runs {given!r}",
            expected=" or ".join(map(repr, FORGOTTEN_RUNS)),
            reason=Reason.BAD_ARGUMENT,
        )


def committed_before(row: TransactionRow, run_id: str, forgotten_runs: ForgottenRuns) -> bool:
    """Whether a run was committed, as far as the row knows. Raises `InvalidRequestError` where nobody can tell."""
    check_forgotten_runs(forgotten_runs)
    known = row.has_committed(run_id)
    if known is not None or forgotten_runs == "load":
        return bool(known)
    raise InvalidRequestError(
        f"run {run_id!r} is none of the last 100 of transactional id {row.transactional_id!r}",
        expected="one of these: an older run may have been loaded, and nobody can tell",
        action="give each hundred runs a transactional id of their own (one a month, say); if this one was never"
        " loaded, forgotten_runs='load' (--forgotten-runs load)",
        reason=Reason.RUN_FORGOTTEN,
    )


def check_run_is_there(logs: Logs, transactional_id: str, run_id: str, *topics: Topic) -> None:
    """Look into the topics that a run has loaded, before somebody is told that it was committed and nothing is to do.

    Raises `CorruptObjectError` where a log of theirs was lost, or a topic has no records at all although the run wrote
    some there: it was lost, and made again. If the run's own row is sealed by now, nobody can tell, and that is refused
    too.
    """
    for topic in topics:
        ends = logs.refresh_all(
            logs.get(topic.name, topic.incarnation, number) for number in range(topic.partitions)
        )
        if any(state.log_end_offset for state in ends):
            continue
        decided = _decision_of(logs.coordinator(transactional_id), run_id)
        if decided is None or any(
            (at.topic, at.incarnation) == (topic.name, topic.incarnation) for at in decided.partitions
        ):
            raise CorruptObjectError(
                f"run {run_id!r} of transactional id {transactional_id!r} was committed, but topic {topic.name!r} has"
                " no records at all",
                place=f"topics/{topic.name}/{topic.incarnation}/",
                expected="the run's records, or what says that retention has removed them",
                action="restore the topic from a copy or a backup, or load under other run ids if it was made again"
                " empty",
                reason=Reason.LOG_LOST,
            )


def _decision_of(log: EntryLog, run_id: str) -> TransactionRow | None:
    """The row that committed the run; None where it is sealed."""
    rows = (batch.row for batch in log.batches() if isinstance(batch.row, TransactionRow))
    decided = [row for row in rows if row.run_id == run_id and row.state is TransactionState.PREPARE_COMMIT]
    return decided[-1] if decided else None
