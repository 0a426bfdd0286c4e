"""Settings change while everybody is at work: two operators at once, and all clients that follow the
settings.

The objects that landed say what was set and when. Each call is compared with what was in effect while it ran
and five seconds before. Two operators that change other settings at once do not undo each other's changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tests.simulator.applications import Application
from tests.simulator.history import Writing
from tests.simulator.kernel import DAY, HOUR, MINUTE, SECOND, sleep
from tests.simulator.knobs import Knobs
from tests.simulator.process import Process
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.errors import InvalidTransactionTimeoutError, TxnEngineError
from txn_engine.maintain import MaintenancePolicy
from txn_engine.producer import Producer
from txn_engine.types import TopicPartition

TOPICS: tuple[str, ...] = ()
TABLE: Final = "table"
GROUP: Final = "rare"
_CLIENTS: Final = 2
_DAY_MS: Final = 86_400_000
_LOOKS: Final = 40
_SLOT: Final = 8 * HOUR
_SEEN_WITHIN: Final = 5 * SECOND
_CLOCKS_OFF: Final = 13 * HOUR
"""Two clocks that jumped by as much as they do, and how coarse they are."""
_SCHEMA = pa.schema([pa.field("key", pa.string(), nullable=False), ("value", pa.int64())])
_TIMEOUTS_MS: Final = (60_000, 600_000, 900_000, 3_600_000)
_CHOICES: Final[Mapping[str, Sequence[Any]]] = {
    "transaction.max.timeout.ms": _TIMEOUTS_MS,
    "transactional.id.expiration.ms": (2 * _DAY_MS, 7 * _DAY_MS, 40 * _DAY_MS),
    "producer.id.expiration.ms": (600_000, _DAY_MS, 9 * _DAY_MS),
    "offsets.retention.minutes": (-1, 1_440, 28_800),
    "cleanup.policy": ("delete", "compact", "compact,delete"),
    "retention.ms": (-1, _DAY_MS, 20 * _DAY_MS),
    "delete.retention.ms": (0, _DAY_MS, 20 * _DAY_MS),
    "min.compaction.lag.ms": (0, 3_600_000),
}
_OF_THE_STORE: Final = tuple(
    name for name in _CHOICES if name.partition(".")[0] not in ("cleanup", "retention", "delete", "min")
)
_CHANGE = re.compile(r"(settings|topics/table/0/changes)/([0-9]{20})\.json")
_ENTRY = re.compile(
    r"topics/(table|__transaction_state|__consumer_offsets)/0/([0-9]+)/log/([0-9]{20})\.parquet"
)


@dataclass(slots=True)
class Called:
    """A call that follows settings: when it began and ended (-1: its process died), and its result."""

    what: str
    began: int
    ended: int = -1
    said: Any = None

    def is_under_way(self, at: int) -> bool:
        """Whether the call, or a put of it, may have been under way. A put may land after nobody waits for it
        any more."""
        return self.began <= at and (self.ended < 0 or at <= self.ended + HOUR)


@dataclass(slots=True)
class Notes:
    """The calls of all clients."""

    calls: list[Called] = field(default_factory=list)

    def begin(self, world: World, what: str) -> Called:
        called = Called(what, world.kernel.now)
        self.calls.append(called)
        return called


def notes_of(world: World) -> Notes:
    """The notes of this run."""
    notes: Notes = world.notes.setdefault("settings", Notes())
    return notes


def shape(knobs: Knobs) -> Knobs:
    """Weeks, not hours, and clocks that begin right: old and young differ by days."""
    return replace(
        knobs, partitions=1, skewed_clocks=False, transactions=min(knobs.transactions, 8), longest_pause=DAY
    )


def set_up(world: World) -> None:
    """Two operators, writers of few keys, a client that asks for time-outs, a group that rests for weeks, and
    keepers."""

    def create(_: Process, engine: Engine) -> None:
        engine.admin.create_topic(
            TABLE, schema=_SCHEMA, key="key", cleanup_policy="compact", delete_retention_ms=_DAY_MS
        )

    world.run_alone("setup", create)
    each = max(world.knobs.transactions // _CLIENTS, 1)
    for number in range(_CLIENTS):
        world.client(f"writer{number}", _writer(number, each))
        world.client(f"operator{number}", _operator)
    world.client("asker", _asker)
    world.client("group", _group)
    for number in range(2):
        world.client(f"keeper{number}", _keeper, worker=False)
    world.client("watcher", _watcher, worker=False)


# --- clients ----------------------------------------------------------------------------------------------


def _operator(process: Process, engine: Engine) -> None:
    world = process.world
    for index in range(10):
        draw = world.chance.random("alter", process.name, index)
        of_store = draw.random() < 0.5
        names = [name for name in _CHOICES if (name in _OF_THE_STORE) == of_store]
        settings = {name: draw.choice(_CHOICES[name]) for name in draw.sample(names, draw.randint(1, 2))}
        called = notes_of(world).begin(world, "alter")
        called.said = (None if of_store else TABLE, settings)
        with suppress(TxnEngineError):
            engine.admin.alter_configs(settings, topic=None if of_store else TABLE)
        called.ended = world.kernel.now
        slot = (world.kernel.now // _SLOT + 1) * _SLOT  # both at once, as a rule
        late = draw.randint(SECOND, 2 * DAY) if draw.random() < 0.3 else draw.choice((0, SECOND // 5))
        sleep(slot - world.kernel.now + late)


def _writer(number: int, transactions: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        world = process.world
        app = Application(process, engine, f"writer-{number}", timeout_ms=60_000)
        for index in range(transactions):
            app.transact(f"{process.name}-{index}", lambda producer, writing: _write(app, producer, writing))
            app.rest(low=MINUTE, high=3 * DAY if world.chance.at("late", process.name, index) < 0.4 else HOUR)

    return body


def _write(app: Application, producer: Producer, writing: Writing) -> None:
    draw = app.world.chance.random("write", writing.name)
    for _ in range(draw.randint(1, 3)):
        keys = [draw.choice("abcdefgh") for _ in range(draw.randint(1, 3))]
        values = [None if draw.random() < 0.4 else 1 for _ in keys]
        producer.produce(
            TABLE, pa.table({"key": keys, "value": pa.array(values, pa.int64())}, schema=_SCHEMA)
        )


def _asker(process: Process, engine: Engine) -> None:
    """Ask for a time-out with a new id again and again, often twice within seconds."""
    world = process.world
    for index in range(16):
        draw = world.chance.random("ask", process.name, index)
        timeout_ms = draw.choice(_TIMEOUTS_MS)
        called = notes_of(world).begin(world, "init")
        try:
            engine.coordinator.init_producer_id(f"{process.name}-{index}", transaction_timeout_ms=timeout_ms)
            called.said = (timeout_ms, True)
        except InvalidTransactionTimeoutError:
            called.said = (timeout_ms, False)
        except TxnEngineError:
            pass
        called.ended = world.kernel.now
        sleep(draw.randint(SECOND, 8 * SECOND) if draw.random() < 0.5 else draw.randint(HOUR, DAY))


def _group(process: Process, engine: Engine) -> None:
    """A group that commits, and rests for days or weeks."""
    world = process.world
    for index in range(4):
        with suppress(TxnEngineError), engine.consumer(group_id=f"{GROUP}{index % 3}") as consumer:
            consumer.assign([TopicPartition(TABLE, 0)])
            consumer.poll(max_records=2)
            consumer.commit()
        sleep(world.chance.spread(HOUR, 12 * DAY, "group", process.name, index))


def _keeper(process: Process, engine: Engine) -> None:
    world, rounds = process.world, 0
    policy = MaintenancePolicy(
        orphan_age_ms=60 * _DAY_MS, entries_age_ms=60 * _DAY_MS, min_files=2, min_dirty_ratio=0
    )
    jobs = ("compact", "compact", "retain", "expire_producers", "expire_offsets", "expire_ids", "sweep")
    while not world.stopping:
        rounds += 1
        draw = world.chance.random("keep", process.name, rounds)
        job = draw.choice(jobs)
        called = notes_of(world).begin(world, job)
        with suppress(TxnEngineError):
            if job == "expire_offsets":
                engine.admin.expire_group_offsets()
            elif job == "sweep":
                engine.coordinator.abort_timed_out_transactions()
                engine.coordinator.write_pending_markers()
            elif job == "expire_ids":
                engine.coordinator.expire_transactional_ids()
            elif job == "expire_producers":
                engine.maintenance.expire_producers(TABLE)
            else:
                getattr(engine.maintenance, job)(TABLE, policy=policy)
        called.ended = world.kernel.now
        sleep(draw.randint(10 * SECOND, 40 * HOUR))


def _watcher(process: Process, engine: Engine) -> None:
    """Read the settings as one process uses them, often twice within seconds."""
    world, rounds = process.world, 0
    while not world.stopping and rounds < _LOOKS:
        rounds += 1
        for what in ("limits", "topic"):
            called = notes_of(world).begin(world, what)
            with suppress(TxnEngineError):
                limits = engine.limits if what == "limits" else None
                called.said = (
                    {
                        "transaction.max.timeout.ms": limits.max_transaction_timeout_ms,
                        "transactional.id.expiration.ms": limits.transactional_id_expiration_ms,
                    }
                    if limits
                    else {
                        name: engine.logs.topics.get(TABLE).settings[name]
                        for name in ("cleanup.policy", "retention.ms")
                    }
                )
            called.ended = world.kernel.now
        draw = world.chance.random("watch", process.name, rounds)
        sleep(draw.randint(SECOND, 7 * SECOND) if draw.random() < 0.7 else draw.randint(MINUTE, 8 * HOUR))


# --- rules --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Timeline:
    """What was in effect from when on, by the objects that landed. `began`: the settings before the first of
    them."""

    began: dict[str, Any]
    steps: list[tuple[int, dict[str, Any]]] = field(default_factory=list)

    def values(self, name: str, since: int, until: int) -> set[Any]:
        """The values of the setting during this time."""
        found, now = set(), self.began[name]
        for at, settings in self.steps:
            if at > since:
                found.add(now)
            if at > until:
                return found
            now = settings[name]
        return found | {now}


class _Judge:
    def __init__(self, world: World) -> None:
        self._landed = world.shelf.landed
        self._calls = notes_of(world).calls
        limits = json.loads(world.shelf.get("store.json"))["limits"]
        began = {
            "transaction.max.timeout.ms": limits["max_transaction_timeout_ms"],
            "transactional.id.expiration.ms": limits["transactional_id_expiration_ms"],
            "producer.id.expiration.ms": limits["producer_id_expiration_ms"],
            "offsets.retention.minutes": -1,
        }
        topic = {
            "cleanup.policy": "compact",
            "retention.ms": -1,
            "delete.retention.ms": _DAY_MS,
            "min.compaction.lag.ms": 0,
        }
        self.lines = {"settings": Timeline(began), "topics/table/0/changes": Timeline(topic)}
        self.found: list[str] = []
        for at, key, data, _ in self._landed:
            if match := _CHANGE.fullmatch(key):
                self._step(at, key, self.lines[match[1]], int(match[2]), json.loads(data)["settings"])

    def _line(self, name: str) -> Timeline:
        return self.lines["settings" if name in _OF_THE_STORE else "topics/table/0/changes"]

    def _step(self, at: int, key: str, line: Timeline, number: int, settings: dict[str, Any]) -> None:
        """Changes land one after another, and change only settings that an operator had asked for."""
        if number != len(line.steps):
            self.found.append(f"settings: {key} landed behind {len(line.steps)} others")
        before = line.steps[-1][1] if line.steps else line.began
        asked = [call.said[1] for call in self._calls if call.what == "alter" and call.began <= at]
        for name, value in before.items():
            after = settings.get(name)
            if after != value and not any(wanted.get(name, value) == after for wanted in asked):
                self.found.append(
                    f"settings: {key} has {name} {after!r}, before {value!r}: nobody asked for it"
                )
        if settings != before:
            changed = {name for name in before if settings.get(name) != before[name]}
            if not any(changed <= wanted.keys() for wanted in asked):
                self.found.append(
                    f"settings: {key} changes {sorted(changed)} at once, which no call asked for"
                )
        line.steps.append((at, settings))

    def _in_effect(self, name: str, call: Called, until: int | None = None) -> set[Any]:
        end = until if until is not None else (call.ended if call.ended >= 0 else self._landed[-1][0])
        return self._line(name).values(name, call.began - _SEEN_WITHIN, end)

    def calls(self) -> None:
        """Each call's result follows the settings that were in effect while it ran."""
        for call in self._calls:
            if call.said is None or call.ended < 0:
                continue
            if call.what == "init":
                timeout_ms, taken = call.said
                held = self._in_effect("transaction.max.timeout.ms", call)
                if (taken and timeout_ms > max(held)) or (not taken and timeout_ms <= min(held)):
                    self.found.append(
                        f"settings: a time-out of {timeout_ms} {'taken' if taken else 'refused'} under {held}"
                    )
            elif call.what in ("limits", "topic"):
                for name, value in call.said.items():
                    held = self._in_effect(name, call)
                    if value not in held:
                        self.found.append(f"settings: {name} was {value!r} to a reader, when it was {held}")

    def _during(self, what: str, at: int, name: str) -> set[Any]:
        """The values of the setting for the calls of a kind that were under way then."""
        found: set[Any] = set()
        for call in self._calls:
            if call.what == what and call.is_under_way(at):
                found |= self._in_effect(name, call, at)
        return found

    def rows(self) -> None:
        """Everything that the logs lost was old enough by some setting that was in effect."""
        ids: dict[str, int] = {}
        offsets: dict[tuple[Any, ...], int] = {}
        producers: dict[int, int] = {}
        data: dict[int, int] = {}
        log_start = 0
        for at, key, raw, operation in self._landed:
            match = _ENTRY.fullmatch(key)
            if match is None or operation != "put_if_absent":
                continue
            for row in pq.read_table(pa.BufferReader(raw), use_threads=False).to_pylist():
                if match[1] == "__transaction_state":
                    self._id(row["transaction"], at, ids)
                elif match[1] == "__consumer_offsets":
                    self._offset(row, at, offsets)
                else:
                    if row["producer_id"] >= 0:
                        producers[row["producer_id"]] = at
                    if row["control"] == "none":
                        data[row["last_offset"]] = at
                    log_start = self._control(row, at, producers, data, log_start)

    def _too_young(self, what: str, age: int, at: int, sweep: str, setting: str, unit: int) -> None:
        held = self._during(sweep, at, setting)
        least = min((value * unit for value in held if value != -1), default=1 << 62)
        if age < least - _CLOCKS_OFF:
            self.found.append(f"settings: {what} went after {age / DAY:.1f} days, under {setting} {held}")

    def _id(self, row: Mapping[str, Any] | None, at: int, ids: dict[str, int]) -> None:
        if row is None:
            return
        name = row["transactional_id"]
        if row["state"] == "Dead":
            age = at - ids.get(name, 0)
            self._too_young(name, age, at, "expire_ids", "transactional.id.expiration.ms", 1_000)
        ids[name] = at

    def _offset(self, row: Mapping[str, Any], at: int, offsets: dict[tuple[Any, ...], int]) -> None:
        commit = row["offset_commit"]
        if commit is None:
            return
        key = (commit["group_id"], commit["topic"], commit["partition"])
        if commit["offset"] == -1:
            age = at - offsets.get(key, 0)
            self._too_young(f"{key}'s offset", age, at, "expire_offsets", "offsets.retention.minutes", MINUTE)
        offsets[key] = at

    def _control(
        self, row: Mapping[str, Any], at: int, producers: dict[int, int], data: dict[int, int], log_start: int
    ) -> int:
        if row["control"] in ("none", "commit", "abort"):
            return log_start
        value = json.loads(row["control_value"])
        if row["control"] == "expire":
            for each in value["producer_ids"]:
                age = at - producers.get(each, 0)
                self._too_young(
                    f"producer {each}", age, at, "expire_producers", "producer.id.expiration.ms", 1_000
                )
        elif row["control"] == "trim" and value["log_start_offset"] > log_start:
            gone = [age for offset, age in data.items() if log_start <= offset < value["log_start_offset"]]
            for landed in gone:
                self._too_young("a record", at - landed, at, "retain", "retention.ms", 1_000)
            if all("delete" not in policy for policy in self._during("retain", at, "cleanup.policy")):
                self.found.append(f"settings: records were dropped at {at}, of a topic that keeps them")
            return int(value["log_start_offset"])
        elif row["control"] in ("rewrite", "clean") and value["tombstones_to"] >= 0:
            policies = self._during("compact", at, "cleanup.policy")
            if all("compact" not in policy for policy in policies):
                self.found.append(f"settings: a {row['control']} by key at {at}, under {policies}")
            told = value.get("delete_retention_ms", _DAY_MS)
            held = self._during("compact", at, "delete.retention.ms")
            if told not in held:
                self.found.append(
                    f"settings: a {row['control']} by delete.retention.ms {told}, when it was {held}"
                )
        return log_start


def check(world: World, final: Any) -> list[str]:
    """Judge the chains, every call, every row, and what is read in the end."""
    judge = _Judge(world)
    judge.calls()
    judge.rows()
    for topic, line in ((None, judge.lines["settings"]), (TABLE, judge.lines["topics/table/0/changes"])):
        now = world.run_alone(
            "last", lambda _, engine, topic=topic: dict(engine.admin.describe_configs(topic))
        )
        wanted = line.steps[-1][1] if line.steps else line.began
        if any(now[name] != value for name, value in wanted.items()):
            judge.found.append(f"settings: in the end they are read as {now}, and were set to {wanted}")
    return judge.found
