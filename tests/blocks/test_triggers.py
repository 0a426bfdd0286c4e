"""Triggers and watchers in an event loop of their own: what they see, what they survive, what they leave
behind."""

from __future__ import annotations

import asyncio
import itertools
import threading
from typing import Any

import pytest

from tests.blocks.looping import HastyTime, first, in_a_loop, nothing_within, rebuilt, until
from tests.blocks.payments import commit, leave_open, payments
from tests.support.stores import accounts_in
from tests.support.waiting import LIMIT_S
from txn_engine import Engine, OffsetAndMetadata, TopicPartition, connect
from txn_engine.testing import ManualClock

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("quick_looks")]

FAST = {"poll_interval_s": 0.1}


def watch(**settings: Any) -> Any:
    """A watch of `payments`."""
    from txn_engine_airflow.watchers import CommittedRecordsTrigger

    return CommittedRecordsTrigger(topic="payments", **FAST | settings)


def move_group(engine: Engine, group_id: str = "balances") -> None:
    """Let the group read and commit everything."""
    with engine.consumer(group_id=group_id) as consumer:
        consumer.subscribe(["payments"])
        while consumer.poll() is not None:
            pass
        consumer.commit()


# --- the watch of a topic ---------------------------------------------------------------------------------


def test_events_follow_one_another_without_a_gap(engine: Engine) -> None:
    """Each event says from where to where it goes and how many records it covers, and the next one begins
    where it ended."""

    async def story() -> list[dict[str, Any]]:
        events = watch().run()
        told = []
        for number in range(3):
            await asyncio.to_thread(commit, engine, payments(100 * number, 10))
            told.append((await anext(events)).payload)
        await events.aclose()
        return told

    told = in_a_loop(story())
    assert [event["records"] for event in told] == [10, 10, 10]
    assert told[0]["start_offsets"] == {"0": 0, "1": 0}
    for before, after in itertools.pairwise(told):
        assert after["start_offsets"] == before["end_offsets"]
    ends = engine.admin.list_offsets("payments")
    assert told[-1]["end_offsets"] == {str(at.partition): ends[at].last_stable_offset for at in ends}


def test_open_aborted_and_deferred_transactions_are_no_news(engine: Engine) -> None:
    """Only records that readers may see make an event. A record after an open transaction counts once that
    has ended."""

    async def story() -> dict[str, Any]:
        producer = leave_open(engine, payments(0, 5), "open")
        leave_open(engine, payments(20, 5), "gone").abort_transaction()
        assert await nothing_within(watch().run(), 1)
        events = watch().run()
        await asyncio.to_thread(producer.commit_transaction)
        told = (await anext(events)).payload
        await events.aclose()
        return told

    assert in_a_loop(story())["records"] == 5
    assert accounts_in(engine) == list(range(5))


def test_after_a_restart_nothing_is_lost_and_nothing_read_comes_again(engine: Engine) -> None:
    """After a restart, a watch with a group begins where the group is, so that neither records from the time
    without a triggerer nor a lost event are missed."""
    commit(engine, payments(0, 10))
    told = in_a_loop(first(watch(group_id="balances")))
    assert (told["records"], told["group_id"]) == (10, "balances")
    assert in_a_loop(first(rebuilt(watch(group_id="balances")))) == told  # that event started no run
    move_group(engine)
    assert in_a_loop(nothing_within(rebuilt(watch(group_id="balances")).run(), 1))
    commit(engine, payments(100, 3))
    assert in_a_loop(first(rebuilt(watch(group_id="balances"))))["records"] == 3
    assert in_a_loop(first(rebuilt(watch())))["records"] == 13  # without a group: all there is


def test_a_group_that_does_not_move_is_told_of_again(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the group does not move, the event comes again after a growing pause. New records are reported at
    once, together with everything that is left."""
    import txn_engine_airflow.watchers as watchers

    monkeypatch.setattr(watchers, "REMIND_MIN_S", 2.0)
    monkeypatch.setattr(watchers, "REMIND_MAX_S", 5.0)
    commit(engine, payments(0, 10))

    async def story() -> None:
        hasty = HastyTime()
        monkeypatch.setattr(watchers, "time", hasty)
        monkeypatch.setattr(watchers, "asyncio", hasty)
        events = watch(group_id="balances", poll_interval_s=1).run()
        told, at = [], []
        for _ in range(5):
            told.append((await anext(events)).payload)
            at.append(hasty.now_s)
        assert [each["records"] for each in told] == [10] * 5
        assert at == [0, 2, 6, 11, 16]
        await asyncio.to_thread(commit, engine, payments(100, 3), "more")
        news = (await anext(events)).payload
        assert (news["records"], news["start_offsets"]) == (13, told[0]["start_offsets"])
        assert hasty.now_s == 17
        await asyncio.to_thread(move_group, engine)
        assert await hasty.nothing_until(events, 60)

    in_a_loop(story())


def test_a_group_at_rest_is_told_of_while_retention_goes_on(
    store_url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If retention moves the log's start while the group rests, each reminder reports fewer records, and the
    pauses grow."""
    import txn_engine_airflow.watchers as watchers

    hour_ms, real = 3_600_000, watchers.committed_since
    monkeypatch.setattr(watchers, "REMIND_MIN_S", 1.5)
    schema = engine.admin.describe_topic("payments").schema
    engine.admin.delete_topic("payments")
    engine.admin.create_topic("payments", schema=schema, key="account_id", retention_ms=20 * hour_ms)
    clock = ManualClock(engine.clock() - 20 * hour_ms)
    earlier = connect(store_url, clock=clock)
    for number in range(20):
        commit(earlier, payments(10 * number, 10))
        clock.advance(hour_ms)

    def trimmed(*args: Any) -> Any:
        clock.advance(hour_ms)
        assert earlier.maintenance.retain("payments").partitions
        return real(*args)

    async def story() -> None:
        hasty = HastyTime()
        monkeypatch.setattr(watchers, "time", hasty)
        monkeypatch.setattr(watchers, "asyncio", hasty)
        events = watch(group_id="balances", poll_interval_s=1).run()
        told, at = [], []
        for _ in range(3):
            told.append((await anext(events)).payload["records"])
            at.append(hasty.now_s)
        await events.aclose()
        assert told == sorted(set(told), reverse=True)
        assert at == [0, 2, 5]

    monkeypatch.setattr(watchers, "committed_since", trimmed)
    with earlier:
        in_a_loop(story())


def test_a_group_that_is_at_work_is_left_in_peace(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the group has moved since the last event, the next reminder comes after a whole pause. If it has
    read the news already, no event comes."""
    import txn_engine_airflow.watchers as watchers
    from txn_engine_airflow.progress import Committed, Position

    now = [0.0]
    monkeypatch.setattr(watchers.time, "monotonic", lambda: now[0])
    reminder = watchers._Reminder()

    def left(start: int, records: int) -> tuple[Position, Committed]:
        at = Position(0, {0: start})
        return at, Committed("payments", at, Position(0, {0: 9}), records)

    assert reminder.follow(*left(0, 9), was_due=reminder.is_due())
    now[0] = 60.0
    assert reminder.is_due()
    assert not reminder.follow(*left(4, 5), was_due=True)
    now[0] = 119.0
    assert not reminder.is_due()
    now[0] = 120.0
    assert reminder.is_due()
    assert reminder.follow(*left(4, 5), was_due=True)
    now[0] = 239.0
    assert not reminder.is_due()
    now[0] = 240.0
    assert not reminder.follow(*left(9, 0), was_due=reminder.is_due())
    now[0] = 1e9
    assert not reminder.is_due()

    commit(engine, payments(0, 4))
    move_group(engine)
    trigger = watch(group_id="balances")
    _, found = trigger._look(engine, seen=Position(), all_left=False)
    assert found.records == 0


def test_a_topic_that_is_not_there_yet_and_one_made_again_are_followed(engine: Engine) -> None:
    """A watch waits for a topic that does not exist, and reads a topic that was created again from its
    start."""
    schema = engine.admin.describe_topic("payments").schema
    engine.admin.delete_topic("payments")

    async def story() -> tuple[int, int]:
        events = watch().run()
        coming = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0.5)
        assert not coming.done()
        await asyncio.to_thread(engine.admin.create_topic, "payments", schema=schema, key="account_id")
        await asyncio.to_thread(commit, engine, payments(0, 8))
        before = (await coming).payload
        await asyncio.to_thread(engine.admin.delete_topic, "payments")
        await asyncio.to_thread(engine.admin.create_topic, "payments", schema=schema, key="account_id")
        await asyncio.to_thread(commit, engine, payments(0, 8), "again")
        after = (await anext(events)).payload
        await events.aclose()
        assert after["start_offsets"] == {"0": 0}
        return before["records"], after["records"]

    assert in_a_loop(story()) == (8, 8)


def test_a_watch_waits_for_a_store_that_is_away(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A watch waits for a store that is away, however long, logs it once, and goes on from where it was."""
    import txn_engine_airflow.watchers as watchers
    from txn_engine.errors import StoreUnavailableError

    real, failing = watchers.committed_since, [3]

    def away(*args: Any) -> Any:
        if failing[0] > 0:
            failing[0] -= 1
            raise StoreUnavailableError("no answer", actor="store")
        return real(*args)

    monkeypatch.setattr(watchers, "committed_since", away)
    monkeypatch.setattr(watchers, "PAUSE_MAX_S", 1.0)
    commit(engine, payments(0, 4))
    assert in_a_loop(first(watch()))["records"] == 4
    assert failing == [0]
    assert [record.levelname for record in caplog.records if "no answer" in record.message] == ["WARNING"]


def test_a_watch_reads_a_connection_that_was_mended(
    engine: Engine, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch reads a corrected connection without a restart of the triggerer. While the store answers, the
    connection is read only once."""
    import txn_engine_airflow.engines as engines
    from txn_engine.errors import StoreAccessError
    from txn_engine_airflow.connection import StoreConnection

    keys, loads, real = ["OLD"], [], engines.connect_to

    def load(conn_id: str) -> StoreConnection:
        loads.append(keys[0])
        return StoreConnection(store_url, "test", (("access_key", keys[0]), ("secret_key", "s")))

    def connect_to(store: StoreConnection) -> Any:
        engine = real(StoreConnection(store_url, "test"))
        engine.key = store.access["access_key"]  # type: ignore[attr-defined]
        return engine

    class Watch(type(watch())):  # type: ignore[misc]
        def _look(self, engine: Any, **settings: Any) -> Any:
            if engine.key == "OLD":
                raise StoreAccessError("access denied", place="s3://ledger", expected="rights")
            return super()._look(engine, **settings)

    async def story() -> None:
        events = Watch(topic="payments", group_id="balances", **FAST).run()
        coming = asyncio.ensure_future(anext(events))
        await until(lambda: len(loads) > 1 and engines._shared == {})  # let go of after each refusal
        keys[0] = "NEW"
        assert (await coming).payload["records"] == 4
        known = len(loads)
        assert await nothing_within(events, 1)
        assert len(loads) == known

    monkeypatch.setattr(StoreConnection, "load", load)
    monkeypatch.setattr(engines, "connect_to", connect_to)
    commit(engine, payments(0, 4))
    in_a_loop(story())


def test_a_watched_asset_is_its_own_and_says_who_watches(engine: Engine) -> None:
    """A watched asset is not the topic's asset, whose watchers another DAG file would remove. Equal settings
    have one watcher."""
    from airflow.triggers.base import BaseEventTrigger

    from txn_engine_airflow import topic_asset, watched_topic

    asset = watched_topic("payments", group_id="a group&more")
    assert asset.uri == "txn-engine-watch://txn_engine_default/payments?group=a+group%26more"
    assert asset.uri != topic_asset("payments").uri
    same = watched_topic("payments", group_id="a group&more")
    (watcher,), (other,) = asset.watchers, same.watchers
    assert BaseEventTrigger.hash(*watcher.trigger.serialize()) == BaseEventTrigger.hash(
        *other.trigger.serialize()
    )
    assert watched_topic("payments").uri == "txn-engine-watch://txn_engine_default/payments"


# --- what triggers have in common -------------------------------------------------------------------------


def test_a_slow_store_never_holds_up_the_loop(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection and every look run in threads, so a slow store never holds up the loop."""
    import txn_engine_airflow.engines as engines
    import txn_engine_airflow.watchers as watchers

    beats: list[threading.Event] = []

    def beside_the_loop(real: Any) -> Any:
        def answer(*args: Any) -> Any:
            beats.append(threading.Event())
            assert beats[-1].wait(60), "the event loop stood still"
            return real(*args)

        return answer

    async def story() -> dict[str, Any]:
        waiting = asyncio.ensure_future(first(watch()))
        while not waiting.done():
            await asyncio.sleep(0.05)
            for beat in beats:
                beat.set()
        return waiting.result()

    monkeypatch.setattr(engines, "connect_to", beside_the_loop(engines.connect_to))
    monkeypatch.setattr(watchers, "committed_since", beside_the_loop(watchers.committed_since))
    commit(engine, payments(0, 4))
    assert in_a_loop(story())["records"] == 4
    assert len(beats) == 2


def test_a_store_that_hangs_holds_up_nobody_elses(
    engine: Engine, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many triggers wait for a store that hangs, a trigger on another store is answered, and no
    thread is left behind."""
    import txn_engine_airflow.engines as engines

    monkeypatch.setenv("AIRFLOW_CONN_HUNG", f"txn-engine://{store_url.removeprefix('file://')}")
    commit(engine, payments(0, 4))
    answer = threading.Event()

    class Hung(type(watch())):  # type: ignore[misc]
        def _look(self, *_: Any, **__: Any) -> Any:
            assert answer.wait(100)
            raise AssertionError("nobody waits for this any more")

    async def story() -> None:
        hung = [
            asyncio.ensure_future(anext(Hung(topic=f"t{number}", conn_id="hung", **FAST).run()))
            for number in range(40)
        ]
        await asyncio.sleep(1)
        try:
            assert (await asyncio.wait_for(first(watch()), 20))["records"] == 4
            for wait in hung:
                wait.cancel()
        finally:
            answer.set()
        await asyncio.wait(hung)

    in_a_loop(story())
    assert engines._threads == engines._shared == {}
    left = [each for each in threading.enumerate() if each.name.startswith("store-hung")]
    for thread in left:
        thread.join(LIMIT_S)  # each ends by itself, a moment after its last answer
    assert not any(thread.is_alive() for thread in left)


def test_triggers_share_an_engine_and_the_last_closes_it(engine: Engine) -> None:
    """Triggers of one store share an engine, and the last one closes it, even if they are cancelled while
    they wait. None of its threads is left."""
    import txn_engine_airflow.engines as engines

    def threads() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name.startswith("txn-")}

    before = threads()

    def users() -> int:
        return sum(shared.users for shared in engines._shared.values())

    async def story() -> None:
        waiting = [asyncio.ensure_future(anext(watch(group_id=f"g{number}").run())) for number in range(3)]
        await until(lambda: users() == 3)
        assert len(engines._shared) == 1
        waiting[0].cancel()
        await until(lambda: users() == 2)
        for wait in waiting[1:]:
            wait.cancel()
        await asyncio.wait(waiting)

    in_a_loop(story())
    assert engines._shared == {}
    assert threads() <= before  # a thread of an earlier test may have ended


def test_a_look_that_fails_is_repeated_and_then_told(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four failed looks are repeated. The fifth in a row ends the wait with an error worth a retry, and an
    error that cannot be repaired ends it at once."""
    import txn_engine_airflow.triggers as triggers
    from txn_engine.errors import StoreUnavailableError
    from txn_engine_airflow.progress import stable_end

    commit(engine, payments(0, 2))
    since = {"incarnation": -1, "offsets": {}}
    trigger = triggers.NewRecordsTrigger(topic="payments", since=since, **FAST)
    real, failing = triggers.committed_since, [4]

    def away(*args: Any) -> Any:
        failing[0] -= 1
        if failing[0] >= 0:
            raise StoreUnavailableError("no answer", actor="store")
        return real(*args)

    monkeypatch.setattr(triggers, "committed_since", away)
    assert in_a_loop(first(rebuilt(trigger)))["done"]["records"] == 2
    failing[0] = 5
    told = in_a_loop(first(trigger))
    assert told["hopeless"] is False
    assert "no answer" in told["error"]
    monkeypatch.setattr(triggers, "committed_since", real)
    nowhere = triggers.NewRecordsTrigger(topic="no-such-topic", since=since, **FAST)
    told = in_a_loop(first(nowhere))
    assert told["hopeless"] is True
    assert "'no-such-topic'" in told["error"]
    assert stable_end(engine, "payments").offsets


@pytest.mark.shard("airflow")
def test_a_wait_goes_on_in_another_triggerer_for_what_it_was_begun(engine: Engine) -> None:
    """A wait goes on in another triggerer with the end that is in its arguments, so records committed between
    two triggerers count."""
    from txn_engine_airflow.progress import stable_end
    from txn_engine_airflow.triggers import GroupCaughtUpTrigger, NewRecordsTrigger, TransactionFinalTrigger

    commit(engine, payments(0, 10))
    end = stable_end(engine, "payments").to_json()
    new = NewRecordsTrigger(topic="payments", since=end, records_min=5, **FAST)
    caught_up = GroupCaughtUpTrigger(topic="payments", group_id="balances", until=end, **FAST)
    producer = leave_open(engine, payments(50, 2), "open")
    identity = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    final = TransactionFinalTrigger(transactional_id="open", **identity, **FAST)
    for trigger in (new, caught_up, final):
        assert in_a_loop(nothing_within(trigger.run(), 1))

    move_group(engine)  # up to the open transaction at least
    producer.commit_transaction()
    move_group(engine)
    commit(engine, payments(100, 4))  # behind the end that the group was to reach: not waited for
    leave_open(engine, payments(200, 1), "open")  # the id's next transaction: not waited for
    assert in_a_loop(first(rebuilt(new)))["done"]["records"] >= 5
    assert in_a_loop(first(rebuilt(caught_up)))["done"]["group_id"] == "balances"
    assert in_a_loop(first(rebuilt(final)))["done"] == {"transactional_id": "open", "state": "Ongoing"}


def test_pending_offsets_are_not_caught_up(engine: Engine) -> None:
    """A group with pending offsets has not caught up until their transaction is committed."""
    from txn_engine_airflow.progress import stable_end
    from txn_engine_airflow.triggers import GroupCaughtUpTrigger

    commit(engine, payments(0, 10))
    ends = stable_end(engine, "payments")
    trigger = GroupCaughtUpTrigger(topic="payments", group_id="balances", until=ends.to_json(), **FAST)
    consumer = engine.consumer(group_id="balances")
    consumer.subscribe(["payments"])
    consumer.poll()
    producer = engine.producer(transactional_id="balances")
    producer.init_transactions()
    producer.begin_transaction()
    offsets = {
        TopicPartition("payments", number): OffsetAndMetadata(at)
        for number, at in (ends.offsets or {}).items()
    }
    producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
    assert in_a_loop(nothing_within(trigger.run(), 1))
    producer.commit_transaction()
    assert in_a_loop(first(trigger))["done"]["position"] == ends.to_json()["offsets"]


@pytest.mark.parametrize("seconds", [0, 0.5, -1, 3_601, float("nan"), float("inf")])
def test_a_poll_interval_out_of_bounds_is_refused_when_the_file_is_parsed(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Triggers, watches and sensors refuse a poll interval out of bounds when the file is parsed."""
    monkeypatch.undo()
    from txn_engine_airflow import TransactionFinalSensor, watched_topic
    from txn_engine_airflow.triggers import TransactionFinalTrigger

    with pytest.raises(ValueError, match="expected 1 to 3600 seconds"):
        TransactionFinalTrigger(transactional_id="a", poll_interval_s=seconds)
    with pytest.raises(ValueError, match="expected 1 to 3600 seconds"):
        watched_topic("payments", poll_interval_s=seconds)
    with pytest.raises((ValueError, OverflowError)):
        TransactionFinalSensor(task_id="wait", transactional_id="a", poke_interval=seconds)
