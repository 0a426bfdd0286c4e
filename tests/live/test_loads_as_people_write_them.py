"""Loads in a real Airflow, as people write, clear, rename and repeat them: each file's rows are in the topic once.

The DAGs are in tests/live/loads. All cases go on at the same time. A function `play_...` does what people do in a case,
and the test after it looks at what came of it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from shutil import copyfile
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from tests.live import shop
from tests.live.loading import Ended, Loads
from tests.live.stack import running_stack
from tests.support.postgres import PostgresServer
from tests.support.servers import MinioServer
from txn_engine.loading import LOADED_FILES

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.minio,
    pytest.mark.slow,
    pytest.mark.shard("airflow"),
    pytest.mark.together("a live Airflow"),
    pytest.mark.timeout(1_800),
]

HERE = Path(__file__).parent / "loads"
ROWS = pa.schema([("id", pa.int64())])
TIMED_ROWS = ROWS.append(pa.field("paid_at", pa.timestamp("us", "UTC")))
TOPICS = (
    "mapped_plain",
    "mapped_by_id",
    "mapped_by_manifest",
    "twice_load",
    "notes_gone_load",
    "interval_by_path",
    "interval_by_manifest",
    "cleared_plain",
    "cleared_by_manifest",
    "task_marked_load",
    "run_marked_load",
    "waits_wait",
    "as_text_load",
    "as_native_load",
    "forgotten_load",
    "templated_load",
    "nightly_load",
    "nightly_extract",
    "nightly_nameless",
)
MANIFESTS = ("mapped_files", "interval_files", "cleared_files")
DAY, NEXT_DAY = "2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z"
BY_HAND = "2026-03-02T09:30:00Z"
"""In the interval of the run of `DAY`, with the `ds` of that of `NEXT_DAY`."""
LONG_AGO = datetime(2026, 1, 5, tzinfo=UTC)


@dataclass(frozen=True)
class Seen:
    """What came of a run or of a clear, and the rows of topics after it."""

    ended: Ended
    rows: dict[str, list[int]]

    def task(self, name: str) -> tuple[str, ...]:
        """The state of a task, or of each part of a mapped one."""
        states = self.ended.states
        return tuple(states[each] for each in sorted(states) if each == name or each.startswith(f"{name}["))


@pytest.fixture(scope="module")
def loads(
    minio_server: MinioServer, postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Loads]:
    """An Airflow with these DAGs alone, so nothing sweeps its store. It has Postgres as metadata database: on SQLite
    its services end when so much happens at once."""
    folder = tmp_path_factory.mktemp("loads")
    metadata, payments = (new_database(postgres_server) for _ in range(2))
    with running_stack(
        minio_server, database_url=metadata.replace("://", "+psycopg2://"), dags=folder
    ) as stack:
        for topic in TOPICS:
            stack.engine.admin.create_topic(topic, partitions=1, schema=ROWS)
        stack.engine.admin.create_topic("interval_by_column", partitions=1, schema=TIMED_ROWS)
        for topic in MANIFESTS:
            stack.engine.admin.create_topic(topic, partitions=1, schema=LOADED_FILES)
        make_payments(payments)
        stack.rest.post("/connections", shop.connection(payments))
        found = Loads(stack, folder)
        write_files(found)
        for name in ("held.py", "nightly.py", "loads.py"):
            copyfile(HERE / name, folder / name)
        yield found


def write_files(loads: Loads) -> None:
    for name in ("mapped/b", "twice/a", "notes_gone/b", "cleared/a"):
        loads.write(f"{name}.csv", 1, 2)
    for day, first in (("2026-03-01", 1), ("2026-03-02", 3)):
        loads.write(f"interval/from_{day}.csv", first, first + 1)
        loads.write(f"interval/of_{day}.csv", 10 + first, 11 + first)
    for name in ("templates", "forgotten", "templated", "nightly"):
        loads.write(f"{name}.csv", 1, 2)
    for dag_id in ("task_marked", "run_marked"):
        loads.write(f"held/{dag_id}")


def new_database(server: PostgresServer) -> str:
    """The URL of an empty database."""
    name = f"loads_{secrets.token_hex(8)}"
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return f"{server.dsn.rpartition('/')[0]}/{name}"


def make_payments(dsn: str) -> None:
    """Two payments of each of two days."""
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE incoming (id bigint PRIMARY KEY, paid_at timestamptz)")
        connection.execute(
            "INSERT INTO incoming SELECT n, timestamptz '2026-02-28 13:00Z' + n * interval '12 h'"
            " FROM generate_series(1, 4) AS of (n)"
        )


def seen(loads: Loads, ended: Ended, *topics: str) -> Seen:
    return Seen(ended, {topic: loads.rows(topic) for topic in topics})


# --- a mapped list that changes ---------------------------------------------------------------------------

MAPPED = ("plain", "by_id", "by_manifest")


def play_mapped(loads: Loads) -> list[Seen]:
    """A file comes before the one that was loaded, and the run is cleared. Then the new file is loaded by itself, as
    the red task says."""
    look = partial(seen, loads)
    topics = [f"mapped_{name}" for name in MAPPED]
    run = loads.start("mapped")
    rounds = [look(loads.ended(run), *topics)]
    loads.write("mapped/a.csv", 10, 11)
    rounds.append(look(loads.again(run), *topics))
    (loads.files / "mapped" / "b.csv").unlink()
    rounds.append(look(loads.ended(loads.start("mapped")), *topics))
    return rounds


def test_a_mapped_list_that_shifts(played: Played) -> None:
    """The index that has another file now is red, and what was loaded is not loaded again. In a run of its own the new
    file is loaded: each row is there once."""
    first, shifted, new = played(play_mapped)
    for name in MAPPED:
        topic = f"mapped_{name}"
        assert (first.task(name), first.rows[topic]) == (("success",), [1, 2])
        assert (shifted.task(name), shifted.rows[topic]) == (("failed", "success"), [1, 2])
        assert (new.task(name), new.rows[topic]) == (("success",), [1, 2, 10, 11])


def play_twice(loads: Loads) -> Seen:
    """A list has the same file twice."""
    return seen(loads, loads.ended(loads.start("twice")), "twice_load")


def test_a_file_twice_in_a_mapped_list(played: Played) -> None:
    """A file that a list has twice is loaded once."""
    once = played(play_twice)
    assert (once.task("load"), once.rows["twice_load"]) == (("success", "success"), [1, 2])


def play_notes_gone(loads: Loads) -> list[Seen]:
    """Airflow's notes of the tasks are deleted, and the list changes before the run is cleared."""
    run = loads.start("notes_gone")
    rounds = [seen(loads, loads.ended(run), "notes_gone_load")]
    loads.stack.rest.delete(f"{run.place}/taskInstances/load/state-store", all_map_indices=True)
    loads.write("notes_gone/a.csv", 10, 11)
    rounds.append(seen(loads, loads.again(run), "notes_gone_load"))
    return rounds


def test_a_mapped_list_that_shifts_without_airflows_notes(played: Played) -> None:
    """Without Airflow's notes nothing says which file an index had. Each part that is green has loaded its file,
    once."""
    first, shifted = played(play_notes_gone)
    assert first.rows["notes_gone_load"] == [1, 2]
    assert (shifted.task("load"), shifted.rows["notes_gone_load"]) == (("success", "success"), [1, 2, 10, 11])


# --- one interval, several runs ---------------------------------------------------------------------------


def play_interval(loads: Loads) -> list[Seen]:
    """Two days are back-filled, and somebody starts a run by hand in the interval of the first one."""
    runs = [*loads.backfill("interval", DAY, NEXT_DAY), loads.start("interval", BY_HAND)]
    ends = [loads.ended(run) for run in runs]
    topics = ("interval_by_column", "interval_by_path", "interval_by_manifest")
    return [seen(loads, ended, *topics) for ended in ends]


def test_an_interval_that_is_loaded_by_hand_too(played: Played) -> None:
    """With an interval column, or a manifest, an interval's rows are loaded once. Files whose path has the run's date
    are loaded by each run, as the operator's docs say."""
    runs = played(play_interval)
    assert len(runs) == 3
    assert [set(run.ended.states.values()) for run in runs] == [{"success"}] * 3
    rows = runs[-1].rows
    assert rows["interval_by_column"] == [1, 2, 3, 4]
    assert rows["interval_by_manifest"] == [1, 2, 3, 4, 11, 12, 13, 14]
    assert rows["interval_by_path"] == [1, 1, 2, 2, 3, 4, 11, 12, 13, 13, 14, 14]


# --- other names ------------------------------------------------------------------------------------------


def play_renamed(loads: Loads) -> list[Seen]:
    """A DAG is renamed, and a task of it too. The new DAG runs for a date that the old one has loaded."""
    topics = ("nightly_load", "nightly_extract", "nightly_nameless")
    old = seen(loads, loads.ended(loads.start("nightly", DAY)), *topics)
    other = loads.dags / "nightly.new"
    copyfile(HERE / "nightly_renamed.py", other)
    os.replace(other, loads.dags / "nightly.py")
    return [old, seen(loads, loads.ended(loads.start("nightly_loads", DAY)), *topics)]


def test_a_dag_and_a_task_that_are_renamed(played: Played) -> None:
    """With `identity` the renamed ones know what was loaded. Without it they are other tasks, and load again."""
    old, new = played(play_renamed)
    assert set(old.ended.states.values()) == set(new.ended.states.values()) == {"success"}
    assert set(map(tuple, old.rows.values())) == {(1, 2)}
    assert new.rows == {
        "nightly_load": [1, 2],
        "nightly_extract": [1, 2],
        "nightly_nameless": [1, 1, 2, 2],
    }


# --- files that change ------------------------------------------------------------------------------------


def play_cleared(loads: Loads) -> tuple[list[Seen], list[list[str]]]:
    """A file comes, a file changes, and each time the run is cleared. Also the warnings of the load without a
    manifest."""
    look = lambda ended: seen(loads, ended, "cleared_plain", "cleared_by_manifest")  # noqa: E731
    run = loads.start("cleared")
    rounds = [look(loads.ended(run))]
    loads.write("cleared/b.csv", 10, 11)
    rounds.append(look(loads.again(run)))
    loads.write("cleared/a.csv", 1, 2, 3)
    rounds.append(look(loads.again(run)))
    warnings = [
        [entry["event"] for entry in loads.log(run, "plain", tried) if entry.get("level") == "warning"]
        for tried in (each.ended.tries["plain"] for each in rounds)
    ]
    return rounds, warnings


def test_files_that_change_before_a_run_is_cleared(played: Played) -> None:
    """With a manifest a new file is loaded, and a changed one is red. Without one nothing is loaded, and a warning
    names the files."""
    (first, new, changed), warnings = played(play_cleared)
    assert [each.task("by_manifest") for each in (first, new, changed)] == [
        ("success",),
        ("success",),
        ("failed",),
    ]
    assert [each.rows["cleared_by_manifest"] for each in (first, new, changed)] == [
        [1, 2],
        [1, 2, 10, 11],
        [1, 2, 10, 11],
    ]
    for each in (first, new, changed):
        assert (each.task("plain"), each.rows["cleared_plain"]) == (("success",), [1, 2])
    named = [{name for name in ("a.csv", "b.csv") for line in lines if name in line} for lines in warnings]
    assert named == [set(), {"b.csv"}, {"a.csv", "b.csv"}]


# --- marked as failed -------------------------------------------------------------------------------------


def play_marked(loads: Loads, dag_id: str, place: str) -> tuple[Seen, list[str | None]]:
    """Somebody marks a task, or its run, as failed while its transaction is open before the records of another load.
    The states of its transaction are from before, and after. Nothing sweeps this store."""
    topic, transactional_id = f"{dag_id}_load", f"{dag_id}/load"
    run = loads.start(dag_id)
    loads.wait_until_open(dag_id, transactional_id)
    with loads.engine.producer(transactional_id=f"beside {dag_id}") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce(topic, pa.table({"id": [7]}))
    states = [loads.state(transactional_id)]
    assert loads.rows(topic) == []
    body = {"new_state": "failed"} if place else {"state": "failed"}
    loads.stack.rest.patch(f"{run.place}{place}", body)
    loads.stack.wait_for(f"readers of {topic}", lambda: loads.rows(topic), patience_s=240)
    loads.wait_until_final(transactional_id)
    states.append(loads.state(transactional_id))
    return seen(loads, loads.ended(run), topic), states


def play_task_marked(loads: Loads) -> tuple[Seen, list[str | None]]:
    return play_marked(loads, "task_marked", "/taskInstances/load")


def play_run_marked(loads: Loads) -> tuple[Seen, list[str | None]]:
    return play_marked(loads, "run_marked", "")


@pytest.mark.parametrize("play", [play_task_marked, play_run_marked])
def test_a_task_that_is_marked_as_failed(played: Played, play: Callable[[Loads], Any]) -> None:
    """A task that is marked as failed, or whose run is, aborts its transaction. Readers do not wait for its
    time-out."""
    last, states = played(play)
    assert last.task("load") == ("failed",)
    assert states == ["Ongoing", "CompleteAbort"]
    assert [*last.rows.values()] == [[7]]


# --- sensors and templates --------------------------------------------------------------------------------


def play_waits(loads: Loads) -> Ended:
    """A sensor waits for what does not come."""
    run = loads.start("waits")
    loads.wait_for_state(run, "wait", "deferred")
    return loads.ended(run)


def test_a_deferred_sensor_with_an_execution_timeout(played: Played) -> None:
    """A sensor ends with its `execution_timeout`, though its time-out is an hour, and is not skipped."""
    assert played(play_waits).states == {"wait": "failed"}


BAD = {
    "bad_path": "path",
    "bad_id": "transactional_id",
    "bad_manifest": "manifest",
    "bad_partition": "start_offsets",
    "bad_run": "run_id",
}


def play_templates(loads: Loads, dag_id: str) -> tuple[Seen, dict[str, list[tuple[str, str]]]]:
    """A group reads once a sensor waits for it. Also what was raised in each bad task."""
    run = loads.start(dag_id)
    loads.wait_for_state(run, "caught_up", "deferred")
    with loads.engine.consumer(group_id=dag_id) as consumer:
        consumer.subscribe([f"{dag_id}_load"])
        consumer.poll()
        consumer.commit()
    last = seen(loads, loads.ended(run), f"{dag_id}_load")
    return last, {name: loads.raised(run, name) for name in BAD}


def play_as_text(loads: Loads) -> tuple[Seen, dict[str, list[tuple[str, str]]]]:
    return play_templates(loads, "as_text")


def play_as_native(loads: Loads) -> tuple[Seen, dict[str, list[tuple[str, str]]]]:
    return play_templates(loads, "as_native")


@pytest.mark.parametrize("play", [play_as_text, play_as_native])
def test_arguments_by_templates(played: Played, play: Callable[[Loads], Any]) -> None:
    """Arguments may be templates, rendered to text or natively. A bad one fails its task at the first try, with an
    error that begins with the argument's name."""
    last, raised = played(play)
    good = {"load": "success", "new": "success", "caught_up": "success", "final": "success"}
    assert last.ended.states == good | dict.fromkeys(BAD, "failed")
    assert [*last.rows.values()] == [[1, 2]]
    assert {name: last.ended.tries[name] for name in BAD} == dict.fromkeys(BAD, 1)
    assert {name: told[-1] for name, told in raised.items()} == {
        name: ("TaskError", argument) for name, argument in BAD.items()
    }


def play_templated(loads: Loads) -> list[Seen]:
    """A topic is a template, and another DAG waits for the topic."""
    first = seen(loads, loads.ended(loads.start("templated")), "templated_load")
    loads.stack.wait_for("the DAG after it", lambda: loads.runs("after_templated"), patience_s=240)
    return [first]


def test_a_topic_by_a_template_starts_what_waits_for_it(played: Played) -> None:
    """A load whose topic is a template sends the event of that topic."""
    (first,) = played(play_templated)
    assert (first.task("load"), first.rows["templated_load"]) == (("success",), [1, 2])


# --- beyond the memory of the log -------------------------------------------------------------------------


def play_forgotten(loads: Loads) -> list[Seen]:
    """A run is older than all that the log remembers. Somebody sets the Variable, and clears it, twice."""
    with loads.engine.producer(transactional_id="forgotten/load") as producer:
        producer.init_transactions()
        for number in range(101):
            date = LONG_AGO + timedelta(days=1 + number)
            with producer.transaction(run_id=f"forgotten/load@{date.isoformat()}"):
                producer.produce("forgotten_load", pa.table({"id": [1_000 + number]}))
    run = loads.start("forgotten", LONG_AGO.isoformat())
    rounds = [seen(loads, loads.ended(run), "forgotten_load")]
    loads.stack.rest.post("/variables", {"key": "loads_forgotten_runs", "value": "load"})
    rounds += [seen(loads, loads.again(run), "forgotten_load") for _ in range(2)]
    return rounds


def test_a_run_that_is_forgotten_loads_when_a_variable_says_so(played: Played) -> None:
    """A run that the log has forgotten is red at its first try, and loads once when the Variable says so."""
    refused, told, again = played(play_forgotten)
    assert (refused.task("load"), refused.ended.tries) == (("failed",), {"load": 1})
    of_file = [[row for row in each.rows["forgotten_load"] if row < 1_000] for each in (refused, told, again)]
    assert of_file == [[], [1, 2], [1, 2]]
    assert told.task("load") == again.task("load") == ("success",)


# --- all at once ------------------------------------------------------------------------------------------

PLAYS: tuple[Callable[[Loads], Any], ...] = (
    play_waits,
    play_mapped,
    play_cleared,
    play_forgotten,
    play_task_marked,
    play_run_marked,
    play_as_text,
    play_as_native,
    play_renamed,
    play_notes_gone,
    play_interval,
    play_twice,
    play_templated,
)
Played = Callable[[Callable[[Loads], Any]], Any]


@pytest.fixture(scope="module")
def played(loads: Loads) -> Iterator[Played]:
    """What came of a case. All cases begin at once."""
    with ThreadPoolExecutor(len(PLAYS)) as pool:
        begun = {play: pool.submit(play, loads) for play in PLAYS}
        yield lambda play: begun[play].result()


def test_the_store_is_sound(loads: Loads, played: Played) -> None:
    """After all of it the audit finds nothing wrong."""
    for play in PLAYS:
        played(play)
    assert loads.engine.admin.verify().findings == ()
