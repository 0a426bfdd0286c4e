"""Alerts: what a person has to look at, told once, with what it means and what to do.

An alert is a task that fails, or a run that fails without one (it timed out). The callback always logs the text; where
the Airflow Variable `txn_engine_alerts` names a notifier, that is called too: any class of Airflow's `BaseNotifier`,
with its own arguments, in which `{{ alert.title }}` and `{{ alert.text }}` stand for the alert. The Variable is JSON;
each field may be left out:

    notifier             "airflow.providers.smtp.notifications.smtp.SmtpNotifier", or any other; none: the log alone
    arguments            {"to": "on-call@example.org", "subject": "{{ alert.title }}", "html_content": "..."}
    repeat_after_s       3600: the same alert of a task that goes on failing is sent again so much later
    stalled_after_s      900: readers that wait so long behind one transaction are an alert
    lag_growing_runs     6: a group's lag that grew in so many runs of `txn_compute_lso` in a row is an alert
    lag_min              10000: ... and that is at least so many offsets by now
    dead_letters_max     "1%": more of a topic's rows that became dead letters are an alert; or a count, as "500"
    dead_letters_max_of  {"payments": "0.1%"}: for these topics that instead; null: no alert
    dead_letters_window_s  3600: ... of the rows of the last so many seconds
    dead_letters_min     10: ... and that are at least so many
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from airflow.sdk import Variable
from airflow.sdk.exceptions import AirflowException, AirflowFailException

if TYPE_CHECKING:
    from txn_engine.loading import DeadLetterLimit

log = logging.getLogger(__name__)

UNKNOWN_HOLDER = "Unknown"
"""The `holder_state` of a transaction whose coordinator row may stand where nothing can be read."""

VARIABLE = "txn_engine_alerts"
_SENT_KEY = "alerts_sent"
_TASK_FAILED, _TIMED_OUT = "task_failure", "timed_out"  # Airflow's reasons for a failed run
_SUBJECTS_NAMED = 3
_PLACES_NAMED = 50
_NAME_CHARS = 249  # of a topic's name, as a letter says it

_MEANING = {
    "txn_coordinator_sweep": "Nothing is swept meanwhile: readers wait in front of transactions whose producers died. "
    "No data is at risk.",
    "txn_write_markers": "Decided transactions stay invisible where their markers are missing. No data is at risk.",
    "txn_compute_lso": "Nobody watches meanwhile: a transaction that holds readers back would not be told of.",
    "txn_maintain": "Nothing is lost: the ledger grows, and readers open more and smaller files, until it runs again.",
    "txn_spark_consume": "No output of this run is visible, and the group's position has not moved: the next run reads "
    "the same range.",
    "txn_verify_exactly_once": "Nothing was proved, and what waits for this proof is held back.",
}


class AlertError(AirflowFailException):
    """Something that a person should look at. Not retried: looking again at once would show the same.

    `title` and `subjects` (what it is about, by stable names) tell one alert from another; the text is one line: what
    is seen, what it means, what to do.
    """

    def __init__(self, title: str, text: str, subjects: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.title = title
        self.subjects = tuple(subjects)


@dataclass(frozen=True, slots=True)
class Settings:
    """The Variable `txn_engine_alerts`; see the module's text."""

    notifier: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    repeat_after_s: int = 3_600
    stalled_after_s: int = 900
    lag_growing_runs: int = 6
    lag_min: int = 10_000
    dead_letters_max: str = "1%"
    dead_letters_max_of: Mapping[str, str] = field(default_factory=dict)
    dead_letters_window_s: int = 3_600
    dead_letters_min: int = 10

    @classmethod
    def load(cls) -> Settings:
        """What the Variable says. Where it cannot be read, the defaults: a typing error must not lose an alert."""
        try:
            found = Variable.get(VARIABLE, default=None, deserialize_json=True)
            return cls() if found is None else cls.of(found)
        except ValueError as error:
            log.error("Variable %s: %s; the defaults hold, and alerts go to the log alone", VARIABLE, error)
            return cls()

    @classmethod
    def of(cls, found: object) -> Settings:
        """Raises `ValueError` for what cannot be meant."""
        if not isinstance(found, dict):
            raise ValueError("expected a JSON object")
        known = {each.name: type(getattr(cls(), each.name)) for each in fields(cls)}
        for name, value in found.items():
            if name not in known:
                raise ValueError(f"unknown field {name!r}; expected some of {', '.join(known)}")
            if not isinstance(value, known[name]) or isinstance(value, bool):
                raise ValueError(f"field {name!r} is {value!r}; expected {known[name].__name__}")
            if isinstance(value, int) and value < 1:
                raise ValueError(f"field {name!r} is {value}; expected 1 or more")
        settings = cls(**found)
        if found.keys() & {"dead_letters_max", "dead_letters_max_of"}:
            for topic in ("", *settings.dead_letters_max_of):
                settings.dead_letter_limit(topic)
        return settings

    def dead_letter_limit(self, topic: str) -> DeadLetterLimit:
        """How many of the topic's rows may be dead letters. Raises `ValueError` for what cannot be meant."""
        from txn_engine.errors import InvalidRequestError
        from txn_engine.loading import DeadLetterLimit

        given = self.dead_letters_max_of.get(topic, self.dead_letters_max)
        try:
            return DeadLetterLimit.of(given)
        except InvalidRequestError:
            raise ValueError(
                f"dead letters of {topic or 'any topic'}: {given!r}; expected a share, as '1%', or a count, as '500'"
            ) from None


@dataclass(frozen=True, slots=True)
class Alert:
    """What is told: a title for a subject line, a text of a few lines, and what it is about."""

    title: str
    text: str
    subjects: tuple[str, ...]

    @classmethod
    def of(cls, context: Mapping[str, Any]) -> Alert:
        """The alert that a failed task stands for."""
        instance, error = context["ti"], context.get("exception")
        place = f"{instance.dag_id}.{instance.task_id}"
        if isinstance(error, AlertError):
            title, subjects, means = error.title, error.subjects, ""
        else:
            title, subjects, means = f"{place} failed", ("failed",), _MEANING.get(instance.dag_id, "")
        lines = [
            _told_of(error),
            means,
            f"Run {instance.run_id} of {place}, try {instance.try_number}; what to do stands in the DAG's docs.",
            f"Log: {getattr(instance, 'log_url', None) or 'in the Airflow UI'}",
        ]
        return cls(_one_line(f"txn-engine: {title}"), "\n".join(line for line in lines if line), subjects)

    @classmethod
    def of_run(cls, context: Mapping[str, Any]) -> Alert:
        """The alert that a run stands for which ended with no failed task."""
        dag = context["dag"]
        what, why = "failed", context["reason"]
        if why == _TIMED_OUT:
            what = "timed out"
            why = f"it took longer than {dag.dagrun_timeout}; the tasks that had not ended were skipped"
        lines = [
            f"Run {context['run_id']} of {dag.dag_id} {what}: {why}.",
            _MEANING.get(dag.dag_id, ""),
            "Is a worker alive, is there room in the pool? What to do stands in the DAG's docs.",
        ]
        title = f"txn-engine: {dag.dag_id}: a run {what}"
        return cls(title, "\n".join(line for line in lines if line), ("run",))


def on_failure(context: Mapping[str, Any]) -> None:
    """Tell of a failed task: an Airflow callback. The log has it before anything else is tried."""
    alert = Alert.of(context)
    log.error("ALERT %s\n%s", alert.title, alert.text)
    settings = Settings.load()
    if not settings.notifier:
        return
    from txn_engine.clock import system_clock

    sent, now_ms = _sent(context), system_clock()
    repeat_ms = settings.repeat_after_s * 1_000
    recent = {
        what: at for what, at in sent.items() if 0 <= now_ms - at < repeat_ms
    }  # ahead: the clock was set
    if recent.keys() >= set(alert.subjects):
        log.info("sent within the last %d s, so not sent again", settings.repeat_after_s)
        _remember(context, recent)
        return
    notify(settings, alert, context)
    _remember(context, recent | dict.fromkeys(alert.subjects, now_ms))


def on_run_failure(context: Mapping[str, Any]) -> None:
    """Tell of a run that ended with no failed task to tell of it: an Airflow callback of the DAG.

    On a time-out Airflow skips the tasks that are left, and calls nothing but this. Where a task failed, that one has
    told. Nothing is remembered of it: each such run is told.
    """
    if context["reason"] == _TASK_FAILED:
        return
    alert = Alert.of_run(context)
    log.error("ALERT %s\n%s", alert.title, alert.text)
    settings = Settings.load()
    if settings.notifier:
        notify(settings, alert, context)


def _sent(context: Mapping[str, Any]) -> Mapping[str, int]:
    """When this task last sent what, in this run or an earlier one; nothing where that cannot be read."""
    instance = context["ti"]
    index = -1 if instance.map_index is None else instance.map_index  # without: a list of all there ever were
    try:
        found = instance.xcom_pull(key=_SENT_KEY, include_prior_dates=True, map_indexes=index)
    except Exception as error:  # noqa: BLE001 -- whatever it is, it must not keep an alert from being sent
        log.warning("what was sent before cannot be read, so this is sent: %s", error)
        return {}
    return found if isinstance(found, dict) else {}


def _remember(context: Mapping[str, Any], sent: Mapping[str, int]) -> None:
    """Note what was sent when; where that cannot be, it is sent again."""
    if "exception" not in context:
        return  # the worker died, and the DAG processor tells: it may write no XCom, and would wait for the answer
    try:
        context["ti"].xcom_push(_SENT_KEY, dict(sent))
    except Exception as error:  # noqa: BLE001 -- whatever it is, the alert is out
        log.warning("what was sent cannot be noted, so it may be sent again: %s", error)


def notify(settings: Settings, alert: Alert, context: Mapping[str, Any]) -> None:
    """Call the notifier. Raises what that raises: Airflow logs it."""
    from airflow.sdk import BaseNotifier

    module, _, name = settings.notifier.rpartition(".")
    kind = getattr(importlib.import_module(module), name)
    if not (isinstance(kind, type) and issubclass(kind, BaseNotifier)):
        raise TypeError(
            f"Variable {VARIABLE}: {settings.notifier} is no notifier; expected a class of BaseNotifier"
        )
    kind(**settings.arguments)({**context, "alert": {"title": alert.title, "text": alert.text}})
    log.info("sent by %s", settings.notifier)


# --- what is an alert ---------------------------------------------------------------------------------------


def check_damage(unreadable: Sequence[Sequence[str]]) -> None:
    """Raise for places that cannot be read: pairs of a place and what is wrong with it."""
    errors = {each[0]: each[1] for each in unreadable}
    if not errors:
        return
    raise AlertError(
        f"damaged: {_some(list(errors))}",
        f"{len(errors)} places of the store cannot be read: {_some(list(errors), most=_PLACES_NAMED)}; all else goes "
        f"on. {_some([f'{place}: {error}' for place, error in errors.items()], '; ')}; `txn-engine verify` says what "
        "is damaged, docs/operations.md what to do",
        list(errors),
    )


def check_pools(conf: Mapping[str, Any] | None) -> None:
    """Raise where the configuration of a run says that pools do not exist (`policy.py` puts them there)."""
    from txn_engine_airflow.pools import (
        COORDINATOR_POOL_VARIABLE,
        DEFAULT_POOL,
        DESCRIPTION,
        JOBS_POOL_VARIABLE,
        MISSING,
        SLOTS,
    )

    names = (conf or {}).get(MISSING)
    if not names:
        return
    raise AlertError(
        f"no such pool: {_some(names)}",
        f"pools that do not exist in Airflow: {_some(names)}; the tasks meant for them run in {DEFAULT_POOL}, and wait "
        f'when other tasks fill it; make each with `airflow pools set {names[0]} {SLOTS} "{DESCRIPTION}"` (a scheduler '
        f"that starts makes the coordinator's), or set {COORDINATOR_POOL_VARIABLE} or {JOBS_POOL_VARIABLE} to "
        f"{DEFAULT_POOL} in the scheduler's environment to keep the tasks there",
        names,
    )


def check_hanging(rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise for transactions that are open on a partition and that no coordinator row owns (rows of `hanging`)."""
    if not rows:
        return
    from txn_engine.suggested import command

    told = [
        f"{_place(row)} from offset {row['start_offset']} (producer {row['producer_id']}, epoch "
        f"{row['producer_epoch']}, last written to {row['open_for_s']:,} s ago): "
        + command(
            "transactions abort",
            topic=row["topic"],
            partition=row["partition"],
            start_offset=row["start_offset"],
        )
        for row in rows
    ]
    raise AlertError(
        f"hanging transaction: {_some([_place(row) for row in rows])}",
        f"transactions that are open and that no coordinator row owns: {len(rows)}; no sweep will end them, and "
        "read_committed readers wait in front of them for ever; make sure that the producer is gone, then end each: "
        f"{_some(told, '; ')}",
        [f"{_place(row)} {row['producer_id']} {row['start_offset']}" for row in rows],
    )


def check_lso(rows: Sequence[Mapping[str, Any]], stalled_after_s: int) -> None:
    """Raise for partitions whose readers wait behind one transaction for too long (rows of `last_stable_offsets`), or
    for nobody knows how long: a clock is wrong, and may be so for years.
    """
    waiting = [row for row in rows if row["behind"] > 0]
    stalled = [row for row in waiting if row["held_for_s"] < 0 or row["held_for_s"] >= stalled_after_s]
    if not stalled:
        return
    held = [f"{_place(row)} (held by {row['held_by']})" for row in stalled]
    told = [
        f"{_place(row)} at offset {row['last_stable_offset']}, {row['behind']:,} before the log's end, held by "
        f"{row['held_by']} {_held_for(row)}: {_what_ends(row)}"
        for row in stalled
    ]
    raise AlertError(
        f"LSO stalled: {_some(held)}",
        f"partitions whose read_committed readers wait longer than {stalled_after_s:,} s, or for an unknown time: "
        f"{len(stalled)}; "
        f"{_some(told, '; ')}",
        [f"{_place(row)} {row['held_by']}" for row in stalled],
    )


def _held_for(row: Mapping[str, Any]) -> str:
    if row["held_for_s"] < 0:
        return "(age unknown: the log's time is ahead of this clock; `txn-engine doctor` measures the clock)"
    return f"for {row['held_for_s']:,} s"


def _what_ends(row: Mapping[str, Any]) -> str:
    from txn_engine.suggested import command

    state, held_by = row["holder_state"], row["held_by"]
    if state == UNKNOWN_HOLDER:
        return "its coordinator's log cannot be read: mend that first"
    if not state and row["held_for_s"] < 0:
        ending = command(
            "transactions abort",
            topic=row["topic"],
            partition=row["partition"],
            start_offset=row["last_stable_offset"],
        )
        return (
            "no coordinator row owns it, so no sweep ends it, and find-hanging goes by its age; make sure that the "
            f"producer is gone, then `{ending}`"
        )
    if not state:
        return (
            "no coordinator row owns it, so no sweep ends it; `txn-engine transactions find-hanging` shows it"
        )
    if state.startswith("Prepare"):
        return (
            f"it is decided ({state}), its markers are missing; is txn_write_markers green? by hand: "
            "`txn-engine coordinator markers`"
        )
    if row["held_for_s"] < 0:
        return (
            f"whether its timeout of {row['holder_timeout_s']:,} s has passed is unknown; "
            f"`{command('transactions fence', held_by)}` ends it now"
        )
    if row["held_for_s"] > row["holder_timeout_s"]:
        return (
            f"its timeout of {row['holder_timeout_s']:,} s has passed; is txn_coordinator_sweep green? by hand: "
            "`txn-engine coordinator sweep`"
        )
    return (
        f"its timeout of {row['holder_timeout_s']:,} s has not passed, its producer may be at work; "
        f"`{command('transactions fence', held_by)}` ends it now"
    )


def check_lag(history: Mapping[str, Sequence[int]], settings: Settings) -> None:
    """Raise for groups whose lag grew from run to run; `history`: by group and topic, oldest first."""
    growing = {
        name: lags
        for name, lags in history.items()
        if len(lags) > settings.lag_growing_runs
        and lags[-1] >= settings.lag_min
        and all(before < after for before, after in pairwise(lags))
    }
    if not growing:
        return
    told = [f"{name}: {', '.join(f'{lag:,}' for lag in lags)}" for name, lags in growing.items()]
    raise AlertError(
        f"lag growing: {_some(list(growing))}",
        f"consumer groups whose lag grew in each of the last {settings.lag_growing_runs} runs: {len(growing)}; "
        f"{_some(told, '; ')}; the consumer does not keep up, or does not run (txn_spark_consume: is it green, and not "
        "paused?); `txn-engine groups describe GROUP` shows its position by partition",
        list(growing),
    )


def check_dead_letters(rows: Sequence[Mapping[str, Any]], settings: Settings) -> None:
    """Raise for topics of whose rows too many became dead letters (rows of `dead_letters`)."""
    by_topic: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_topic.setdefault(row["topic"], []).append(row)
    told = {
        topic: text
        for topic, found in by_topic.items()
        if (text := _too_many_letters(topic, found, settings))
    }
    if not told:
        return
    raise AlertError(
        f"dead letters: {_some([topic[:_NAME_CHARS] for topic in told])}",
        f"topics of whose rows too many became dead letters within {settings.dead_letters_window_s:,} s: {len(told)}; "
        f"{_some(list(told.values()), '; ')}; they wait there and nothing is lost: what has changed in the files or "
        "records that are loaded? Once they are mended, or the topic's columns are, `txn-engine dead-letters replay` "
        "loads them",
        list(told),
    )


def _too_many_letters(topic: str, rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """What is told of a topic with too many; "" for no other. Where its records cannot be read no share is known."""
    from txn_engine.suggested import command

    limit = settings.dead_letter_limit(topic)
    letters, records = sum(row["letters"] for row in rows), min(row["records"] for row in rows)
    if letters < settings.dead_letters_min or (records < 0 and limit.share is not None):
        return ""
    if not limit.is_above(letters, letters + records):
        return ""
    allowed = settings.dead_letters_max_of.get(topic, settings.dead_letters_max)
    of_rows = (
        "" if records < 0 else f" of {letters + records:,} rows ({100 * letters / (letters + records):.3g}%)"
    )
    commands = ", ".join(f"`{command('dead-letters list', row['dead_letter_topic'])}`" for row in rows)
    return f"{topic[:_NAME_CHARS]}: {letters:,}{of_rows}, more than {allowed}: {commands}"


def _place(row: Mapping[str, Any]) -> str:
    return f"{row['topic']}-{row['partition']}"


def _some(names: Sequence[str], separator: str = ", ", *, most: int = _SUBJECTS_NAMED) -> str:
    shown = separator.join(names[:most])
    left = len(names) - most
    return shown if left <= 0 else f"{shown}{separator}and {left} more"


def _told_of(error: object) -> str:
    """What an error of the engine says: names and counts. Of any other its kind alone: its text may quote a record."""
    if isinstance(error, BaseException) and not isinstance(error, AirflowException):
        return f"{type(error).__name__}: what it says stands in the task's log."
    text = _one_line(error) if error is not None else ""
    return text or "The task was ended from outside: it said nothing."


def _one_line(text: object) -> str:
    """Fit for a subject line and a terminal: what is not printable is written in escapes."""
    from txn_engine.names import printable

    return printable(" ".join(str(text).split()))
