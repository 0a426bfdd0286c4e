"""What the deployment lets the params of a run name: connections, files, folders, jobs, functions, Spark settings.

Arguments of operators, sensors and the hook are code: whoever writes a DAG decides them, and nothing here holds them
back. Params are not: whoever may trigger a DAG fills in its form. So a param of the shipped DAGs that names one of
these is held against the environment of the worker, in the task, before anything is opened; the form, which the DAG
processor makes, offers what its own environment names.

    TXN_ENGINE_CONNECTIONS     connection ids, with commas between them, the first for runs that name none;
                               default: txn_engine_default
    TXN_ENGINE_INPUT_ROOTS     folders, with colons between them: files at any depth below them may be read;
                               default: none
    TXN_ENGINE_REPORT_ROOTS    folders: reports may be written below them; default: none, so reports go below
                               AIRFLOW_HOME/txn_engine_reports
    TXN_ENGINE_INPUT_TOPICS    topics, with commas: what a run of txn_spark_consume may read beside `OWN_JOB`; default:
                               none
    TXN_ENGINE_GROUPS          groups whose position it may move beside `OWN_JOB`; default: none
    TXN_ENGINE_OUTPUT_TOPICS   topics that it may write to beside `OWN_JOB`; default: none
    TXN_ENGINE_TRANSACTIONAL_IDS
                               ids that it may fence and write under beside `OWN_JOB`; default: none
    TXN_ENGINE_GROUP_OFFSETS_DAYS
                               the least that group_offsets_days of txn_maintain may be; default: 7, as Kafka keeps them
    TXN_ENGINE_ENTRIES_DAYS    the least that its entries_days may be; default: 1
    TXN_ENGINE_ORPHAN_DAYS     the least that its orphan_days may be; default: 1
    TXN_ENGINE_SWEEP_SECONDS   how often txn_coordinator_sweep looks for transactions that have timed out; default: 60
    TXN_ENGINE_STORE_MUST_EXIST
                               true: tasks, triggers and pages open a store only where one was begun; default: false,
                               and the first one that opens an empty place begins a store there
    TXN_ENGINE_CUT_MINUTES     how old the newest cut of all topics is before txn_write_markers makes the next one;
                               0: it makes none; default: 60
    TXN_ENGINE_CUT_DAYS        for how long it has them kept; default: 7
    TXN_ENGINE_TRANSFORMS      module:function, with commas: what may be run beside the engine's own transform;
                               default: none
    TXN_ENGINE_SUITES          files of suites that vote before the commit, with colons: a run of txn_spark_consume is
                               held against the first unless it names another of them, and cannot do without;
                               default: none, and a run cannot name any. An operator's `checks` may be the name of
                               one of these files, without its folder and its ending
    TXN_ENGINE_DECLARATIONS    files of declarations, with colons, that a run of txn_verify_exactly_once may name;
                               default: none
    TXN_ENGINE_VERIFY_SUITES   files of suites, with colons, that a declaration of txn_verify_exactly_once may name;
                               default: none
    TXN_ENGINE_SPARK_PARAMS    names of Spark settings, with commas, that a run may give; default: those of
                               `HARMLESS_SPARK_SETTINGS`
    TXN_ENGINE_SPARK_CONF      a JSON object of Spark settings: master, jars, Java's options, and whatever else holds
                               for each job; default: none

A variable that is empty counts as not set. What is refused is refused in one line that names the variable, and no
retry follows.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txn_engine_airflow.connection import DEFAULT_CONN_ID
from txn_engine_airflow.errors import TaskError, TaskReason

if TYPE_CHECKING:
    from txn_engine.found_files import FoundFile

CONNECTIONS_VARIABLE = "TXN_ENGINE_CONNECTIONS"
INPUT_ROOTS_VARIABLE = "TXN_ENGINE_INPUT_ROOTS"
REPORT_ROOTS_VARIABLE = "TXN_ENGINE_REPORT_ROOTS"
INPUT_TOPICS_VARIABLE = "TXN_ENGINE_INPUT_TOPICS"
GROUPS_VARIABLE = "TXN_ENGINE_GROUPS"
OUTPUT_TOPICS_VARIABLE = "TXN_ENGINE_OUTPUT_TOPICS"
TRANSACTIONAL_IDS_VARIABLE = "TXN_ENGINE_TRANSACTIONAL_IDS"
TRANSFORMS_VARIABLE = "TXN_ENGINE_TRANSFORMS"
SUITES_VARIABLE = "TXN_ENGINE_SUITES"
DECLARATIONS_VARIABLE = "TXN_ENGINE_DECLARATIONS"
VERIFY_SUITES_VARIABLE = "TXN_ENGINE_VERIFY_SUITES"
SPARK_PARAMS_VARIABLE = "TXN_ENGINE_SPARK_PARAMS"
SPARK_CONF_VARIABLE = "TXN_ENGINE_SPARK_CONF"
SWEEP_SECONDS_VARIABLE = "TXN_ENGINE_SWEEP_SECONDS"
STORE_MUST_EXIST_VARIABLE = "TXN_ENGINE_STORE_MUST_EXIST"
CUT_MINUTES_VARIABLE = "TXN_ENGINE_CUT_MINUTES"
CUT_DAYS_VARIABLE = "TXN_ENGINE_CUT_DAYS"

OWN_JOB: Mapping[str, str] = {
    "topic": "payments",
    "group_id": "balances",
    "output_topic": "balances",
    "transactional_id": "balances",
}
"""What `txn_spark_consume` reads, moves and writes where nobody says otherwise, by param."""
JOB_VARIABLES = {
    "topic": INPUT_TOPICS_VARIABLE,
    "group_id": GROUPS_VARIABLE,
    "output_topic": OUTPUT_TOPICS_VARIABLE,
    "transactional_id": TRANSACTIONAL_IDS_VARIABLE,
}
"""By param: what names the others that a run of `txn_spark_consume` may name."""
OWN_TRANSFORM = "txn_engine.spark.balances:balances"
AGES: Mapping[str, tuple[str, float]] = {
    "group_offsets_days": ("TXN_ENGINE_GROUP_OFFSETS_DAYS", 7.0),
    "entries_days": ("TXN_ENGINE_ENTRIES_DAYS", 1.0),
    "orphan_days": ("TXN_ENGINE_ORPHAN_DAYS", 1.0),
}
"""By param of `txn_maintain`: what names the least that it may be, and the least where nothing does."""
DAYS_MAX = 3_650
CUT_MINUTES_MAX = 525_600
SWEEP_SECONDS_MAX = 86_400
_MINUTE_MS, _DAY_MS = 60_000, 86_400_000

_SIZE, _COUNT, _FLAG = "[1-9][0-9]{0,5}[kmgKMG]?", "[1-9][0-9]{0,5}", "true|false"
_WORD = "[A-Za-z0-9][A-Za-z0-9._+-]{0,63}"
"""A value of a setting that only the deployment knows: no path, URL, option or list."""
HARMLESS_SPARK_SETTINGS: Mapping[str, str] = {
    "spark.cores.max": _COUNT,
    "spark.default.parallelism": _COUNT,
    "spark.driver.cores": _COUNT,
    "spark.driver.maxResultSize": _SIZE,
    "spark.driver.memory": _SIZE,
    "spark.executor.cores": _COUNT,
    "spark.executor.instances": _COUNT,
    "spark.executor.memory": _SIZE,
    "spark.executor.memoryOverhead": _SIZE,
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": _SIZE,
    "spark.sql.adaptive.coalescePartitions.enabled": _FLAG,
    "spark.sql.adaptive.enabled": _FLAG,
    "spark.sql.adaptive.skewJoin.enabled": _FLAG,
    "spark.sql.autoBroadcastJoinThreshold": f"{_SIZE}|-1",
    "spark.sql.files.maxPartitionBytes": _SIZE,
    "spark.sql.shuffle.partitions": _COUNT,
}
"""Settings that say how much and in how many pieces, and the form of their values; none names code, place or key."""


# --- connections --------------------------------------------------------------------------------------------


def connections() -> tuple[str, ...]:
    """The connections that a run may name, the default first."""
    return _listed(CONNECTIONS_VARIABLE) or (DEFAULT_CONN_ID,)


def permitted_connection(conn_id: object) -> str:
    """The connection's id. Raises `AirflowFailException` for one that the deployment does not name."""
    if isinstance(conn_id, str) and conn_id in connections():
        return conn_id
    raise _refusal(
        "conn_id", conn_id, CONNECTIONS_VARIABLE, f"one that {{}} names: {', '.join(connections())}"
    )


# --- files and folders --------------------------------------------------------------------------------------


def permitted_input_file(path: object, *, param: str = "input_file") -> FoundFile:
    """The file itself, with no symbolic link left in its path: a regular one, below a root for input.

    Raises `AirflowFailException` for any other, and where the deployment names no roots. Who may write below a root
    decides what is read there. A link that takes the file's place later is refused by whatever opens this path.
    """
    from txn_engine.found_files import FoundFile

    name = _absolute(param, path, INPUT_ROOTS_VARIABLE)
    roots = _roots(param, path, INPUT_ROOTS_VARIABLE)
    try:
        found = Path(os.path.realpath(name, strict=True))
        mode = found.stat().st_mode
    except (OSError, ValueError) as error:
        if not _is_below(Path(os.path.realpath(name)), roots):
            raise _outside(param, path, INPUT_ROOTS_VARIABLE) from None  # not told whether it is there
        reason = error.strerror if isinstance(error, OSError) else "no path"
        raise TaskError(
            f"{param} {_shown(path)}: it cannot be read: {reason}",
            reason=TaskReason.UNREADABLE_FILE,
            subject=param,
        ) from None
    root = next((root for root in roots if root in found.parents), None)
    if root is None:
        raise _outside(param, path, INPUT_ROOTS_VARIABLE)
    if not stat.S_ISREG(mode):
        raise TaskError(
            f"{param} {_shown(path)}: it is no regular file; expected one",
            reason=TaskReason.NOT_A_FILE,
            subject=param,
        )
    return FoundFile.of(found, str(root))


def permitted_report_folder(path: object, *, param: str = "report_folder") -> Path:
    """The folder itself, with no symbolic link left in its path, below a root for reports or a root; it may be missing.

    Raises `AirflowFailException` for any other, for one that leads through something that is no folder, and where the
    deployment names no roots.
    """
    name = _absolute(param, path, REPORT_ROOTS_VARIABLE)
    roots = _roots(param, path, REPORT_ROOTS_VARIABLE)
    found = Path(os.path.realpath(name))
    if found not in roots and not _is_below(found, roots):
        raise _outside(param, path, REPORT_ROOTS_VARIABLE)
    nearest = next(place for place in (found, *found.parents) if os.path.lexists(place))
    if not nearest.is_dir():
        raise TaskError(
            f"{param} {_shown(path)}: it leads through what is no folder",
            reason=TaskReason.NOT_A_FOLDER,
            subject=param,
        )
    return found


def check_nothing_leads_out(folder: Path) -> None:
    """Raise `AirflowFailException` where a folder that will be written into holds a symbolic link, FIFO or device."""
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            mode = os.lstat(os.path.join(parent, name)).st_mode
            if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                raise TaskError(
                    f"report folder {_shown(str(folder))}: {_shown(name)} in it is neither file nor folder; expected a"
                    " folder of reports alone: remove it",
                    reason=TaskReason.UNSAFE_FOLDER,
                    subject=name,
                )


def _absolute(param: str, path: object, variable: str) -> str:
    if not isinstance(path, str) or not path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise _refusal(param, path, variable, 'an absolute path without "..", below a folder that {} names')
    return path


def _roots(param: str, path: object, variable: str) -> tuple[Path, ...]:
    roots = tuple(
        Path(os.path.realpath(root))
        for root in os.environ.get(variable, "").split(os.pathsep)
        if os.path.isabs(root)
    )
    if not roots:
        raise _refusal(
            param,
            path,
            variable,
            "none, for {} in the worker's environment names no folder; or a path below one",
        )
    return roots


def _is_below(path: Path, roots: Iterable[Path]) -> bool:
    return any(root in path.parents for root in roots)


def _outside(param: str, path: object, variable: str) -> TaskError:
    return _refusal(
        param, path, variable, "a path below a folder that {} names, also once links are followed"
    )


# --- topics, groups, ids ------------------------------------------------------------------------------------


def job_names(param: str) -> tuple[str, ...]:
    """What a run of `txn_spark_consume` may name as its `topic`, `group_id`, ..., the DAG's own first."""
    return tuple(dict.fromkeys((OWN_JOB[param], *_listed(JOB_VARIABLES[param]))))


def permitted_job_name(param: str, name: object) -> str:
    """The name. Raises `AirflowFailException` for one that the deployment does not name.

    Whoever names another's transactional id fences its producer, another's group moves its position, another topic
    writes there.
    """
    if isinstance(name, str) and name in job_names(param):
        return name
    raise _refusal(param, name, JOB_VARIABLES[param], f"{OWN_JOB[param]}, or one that {{}} names")


# --- ages ---------------------------------------------------------------------------------------------------


def days_min(param: str) -> float:
    """How old must be what `txn_maintain` takes away, whatever a run says.

    Raises `AirflowFailException` where the environment has no such number.
    """
    variable, default = AGES[param]
    return _number(variable, default, "days", DAYS_MAX)


def permitted_days(param: str, days: float) -> float:
    """The days. Raises `AirflowFailException` for fewer than the deployment keeps what this param takes away."""
    least = days_min(param)
    if days >= least:
        return days
    raise _refusal(param, days, AGES[param][0], f"at least {least:g}, as {{}} says")


# --- cuts ---------------------------------------------------------------------------------------------------


def cut_every_ms() -> int:
    """How old the newest cut is before the next one is due; 0: none is made by itself.

    Raises `AirflowFailException` where the environment has no such number.
    """
    if os.environ.get(CUT_MINUTES_VARIABLE) == "0":
        return 0
    return max(1, int(_number(CUT_MINUTES_VARIABLE, 60, "minutes", CUT_MINUTES_MAX) * _MINUTE_MS))


def sweep_seconds() -> int:
    """How often timed-out transactions are looked for, by the environment of the DAG processor.

    Raises `AirflowFailException` where that has no such number.
    """
    return max(1, int(_number(SWEEP_SECONDS_VARIABLE, 60, "seconds", SWEEP_SECONDS_MAX)))


def cut_keep_ms() -> int:
    """For how long such a cut is kept. Raises `AirflowFailException` where the environment has no such number."""
    return max(1, int(_number(CUT_DAYS_VARIABLE, 7, "days", DAYS_MAX) * _DAY_MS))


# --- Spark --------------------------------------------------------------------------------------------------


def transforms() -> tuple[str, ...]:
    """The functions that a run may name, the engine's own first."""
    return tuple(dict.fromkeys((OWN_TRANSFORM, *_listed(TRANSFORMS_VARIABLE))))


def permitted_transform(name: object) -> str:
    """The function's name. Raises `AirflowFailException` for one that the deployment does not name."""
    if isinstance(name, str) and name in transforms():
        return name
    raise _refusal("transform", name, TRANSFORMS_VARIABLE, f"{OWN_TRANSFORM}, or one that {{}} names")


def suites() -> tuple[str, ...]:
    """The files of suites that a run may name, the one for runs that name none first."""
    return _files_of(SUITES_VARIABLE)


def named_checks(checks: Any) -> Any:
    """`checks` of an operator, in which each name of a suite is the path of the one file of `TXN_ENGINE_SUITES` that is
    called so, without its folder and its ending. Everything else is left as it is, so also a path.

    Raises `AirflowFailException` for a name that no file has, or several.
    """
    if isinstance(checks, Mapping):
        return (
            {topic: _named_suite(suite) for topic, suite in checks.items()}
            if _is_by_topic(checks)
            else checks
        )
    return _named_suite(checks)


def _is_by_topic(checks: Mapping[str, Any]) -> bool:
    """{topic: suite}, and not a suite as a plain dict."""
    return not isinstance(checks.get("expectations"), list | tuple)


def _named_suite(given: Any) -> Any:
    if not isinstance(given, str) or not re.fullmatch(r"[\w-]+", given):
        return given
    found = [path for path in suites() if Path(path).stem == given]
    if len(found) == 1:
        return found[0]
    raise TaskError(
        f"checks {_shown(given)}: {len(found)} of the files that {SUITES_VARIABLE} names are called so; expected one, "
        "the path of a suite, or a plain dict",
        reason=TaskReason.BAD_ARGUMENT,
        subject="checks",
        variable=SUITES_VARIABLE,
    )


def _files_of(variable: str) -> tuple[str, ...]:
    named = os.environ.get(variable, "").split(os.pathsep)
    return tuple(dict.fromkeys(path for path in named if os.path.isabs(path)))


def permitted_suite(path: object) -> str | None:
    """The suite's path, None where the deployment names none. Raises `AirflowFailException` for any other.

    A suite's SQL runs in the job's session, and a run without its suite is let through unchecked: so neither another
    nor none is for whoever may trigger the DAG to say.
    """
    named = suites()
    if path in named or (path is None and not named):
        return path if isinstance(path, str) else None
    raise _refusal("checks", path, SUITES_VARIABLE, "one that {} names; none where it names none")


def permitted_declaration(path: object) -> Path:
    """A declaration's path. Raises `AirflowFailException` for one that the deployment does not name. A declaration may
    hold SQL, and people who can write to an input root or trigger the DAG must not choose that.
    """
    if isinstance(path, str) and path in _files_of(DECLARATIONS_VARIABLE):
        return Path(path)
    raise _refusal("declaration", path, DECLARATIONS_VARIABLE, "a declaration that {} names, if any")


def permitted_verify_suite(path: Path) -> Path:
    """A suite's path that a declaration names. Raises `AirflowFailException` for one that the deployment does not name:
    where Spark makes the proof a suite's SQL may read whatever the job can.
    """
    if str(path) in _files_of(VERIFY_SUITES_VARIABLE):
        return path
    raise _refusal("declaration", str(path), VERIFY_SUITES_VARIABLE, "suites that {} names, if any")


def spark_params() -> dict[str, str]:
    """The Spark settings that a run may give, and the regular expression that a value must match whole."""
    names = _listed(SPARK_PARAMS_VARIABLE) or tuple(HARMLESS_SPARK_SETTINGS)
    return {name: HARMLESS_SPARK_SETTINGS.get(name, _WORD) for name in names}


def permitted_spark_settings(given: object) -> dict[str, str]:
    """The settings as Spark takes them. Raises `AirflowFailException` for those that a run may not give."""
    known = spark_params()
    if given is not None and not isinstance(given, Mapping):
        raise TaskError(
            "spark_settings: expected an object of names and values",
            reason=TaskReason.BAD_SETTING,
            subject="spark_settings",
        )
    return {name: _spark_value(name, value, known) for name, value in (given or {}).items()}


def _spark_value(name: str, value: object, known: Mapping[str, str]) -> str:
    if name not in known:
        raise _refusal(
            "spark_settings",
            name,
            SPARK_PARAMS_VARIABLE,
            f"only what {{}} lets a run give ({', '.join(known)}); master, jars and options are the deployment's: "
            f"{SPARK_CONF_VARIABLE}",
        )
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if not isinstance(value, (str, int)) or not re.fullmatch(known[name], text):
        raise TaskError(
            f"spark_settings: {name} is {_shown(value)}; expected {known[name]}",
            reason=TaskReason.BAD_SETTING,
            subject=name,
        )
    return text


def deployment_spark_conf() -> dict[str, str]:
    """The Spark settings of the deployment, for each job. Raises `AirflowFailException` for what cannot be meant."""
    text = os.environ.get(SPARK_CONF_VARIABLE) or "{}"
    try:
        found: Any = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise TaskError(  # the text may hold a key: it is not repeated
            f"{SPARK_CONF_VARIABLE} in the worker's environment cannot be read; expected a JSON object of texts",
            reason=TaskReason.BAD_SETTING,
            variable=SPARK_CONF_VARIABLE,
        )
    return dict(found)


def store_must_exist() -> bool:
    """Whether an empty place is an error and not a new store. Raises `AirflowFailException` for what is not a flag."""
    text = os.environ.get(STORE_MUST_EXIST_VARIABLE) or "false"
    if re.fullmatch(_FLAG, text):
        return text == "true"
    raise TaskError(
        f"{STORE_MUST_EXIST_VARIABLE} is {_shown(text)}; expected true or false",
        reason=TaskReason.BAD_SETTING,
        variable=STORE_MUST_EXIST_VARIABLE,
    )


# --- what all of them share ---------------------------------------------------------------------------------


def _number(variable: str, default: float, unit: str, most: int) -> float:
    text = os.environ.get(variable) or f"{default:g}"
    if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,9})?", text) and 0 < float(text) <= most:
        return float(text)
    raise TaskError(
        f"{variable} is {_shown(text)}; expected {unit}, more than 0 and at most {most}",
        reason=TaskReason.BAD_SETTING,
        variable=variable,
    )


def _listed(variable: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_words(os.environ.get(variable, ""))))


def _words(text: str) -> Iterator[str]:
    for word in text.split(","):
        if word.strip():
            yield word.strip()


def _refusal(param: str, value: object, variable: str, expected: str) -> TaskError:
    return TaskError(
        f"{param} {_shown(value)} is refused: the deployment does not permit it to a run's params; expected "
        f"{expected.format(variable)}",
        reason=TaskReason.NOT_PERMITTED,
        subject=param,
        variable=variable,
    )


def _shown(value: object) -> str:
    return ascii(value)[:200]
