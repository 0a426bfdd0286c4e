"""Bugs in settings that change: what is written, who sees it when, and what follows it."""

from __future__ import annotations

from typing import Any

from tests.simulator.mutants.mutation import Edit, Mutant, Replace
from txn_engine.log.topics import Topic

_STORE = "txn_engine/log/store_settings.py"
_TOPICS = "txn_engine/log/topics.py"
_COORDINATOR = "txn_engine/coordinator/coordinator.py"
_MAINTENANCE = "txn_engine/maintain/maintenance.py"
_WHERE = ("settings",)


def _a_week_by_default(self: Any) -> int | None:
    return int(self.offsets_retention_minutes) % 10_081 * 60_000


def _retention_is_not_said(proposal: Any) -> int | None:
    return None


def _trims_whatever_the_policy(self: Topic) -> int | None:
    return None if self.retention_ms < 0 else self.retention_ms


def _compacted_once(self: Topic) -> bool:
    return self.key is not None


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "settings-are-not-judged-again",
        "who loses the race for a change of the store's settings puts what it had made of the old ones at the next number",
        (
            Edit(
                _STORE,
                "            now = self.look_up()\n            wanted = alter(now.settings)\n",
                "            now = self.look_up()\n            wanted = locals().get('wanted') or alter(now.settings)\n",
            ),
        ),
        _WHERE,
    ),
    Mutant(
        "a-topics-change-is-not-judged-again",
        "who loses the race for a change of a topic puts what it had made of the old settings at the next number",
        (
            Edit(
                _TOPICS,
                "            wanted = alter(topic)\n",
                "            wanted = replace(locals().get('wanted') or alter(topic), changes=topic.changes)\n",
            ),
        ),
        _WHERE,
    ),
    Mutant(
        "a-change-says-what-changed",
        "a change of the store's settings says only those that are others: the rest are read as never set",
        (
            Edit(
                _STORE,
                '                "settings": dict(wanted),\n',
                '                "settings": {n: v for n, v in wanted.items() if v != now.settings[n]},\n',
            ),
        ),
        _WHERE,
    ),
    Mutant(
        "settings-are-read-once",
        "a process looks at the store's settings once",
        (Replace("txn_engine.log.store_settings.CACHED_MS", 10**15),),
        _WHERE,
    ),
    Mutant(
        "a-topics-settings-are-read-once",
        "a process looks at a topic once",
        (Replace("txn_engine.log.topics.CACHED_MS", 10**15),),
        _WHERE,
    ),
    Mutant(
        "a-topics-changes-count-for-nothing",
        "a topic is what its own object says, whatever has changed since",
        (
            Edit(
                _TOPICS,
                "        changed = replace(created.with_settings(change.settings), changes=changes)\n",
                "        changed = replace(created, changes=changes)\n",
            ),
        ),
        _WHERE,
    ),
    Mutant(
        "time-outs-by-what-the-store-began-with",
        "InitProducerId goes by the longest time-out that store.json has",
        (
            Edit(
                _COORDINATOR,
                "transaction_timeout_ms, self._logs.settings.limits.max_transaction_timeout_ms\n",
                "transaction_timeout_ms, self._logs.config.limits.max_transaction_timeout_ms\n",
            ),
        ),
        _WHERE,
    ),
    Mutant(
        "ids-expire-by-what-the-store-began-with",
        "transactional ids expire after as long as store.json has",
        (
            Edit(
                _COORDINATOR,
                "after_ms = self._logs.settings.limits.transactional_id_expiration_ms",
                "after_ms = self._logs.config.limits.transactional_id_expiration_ms",
            ),
        ),
        _WHERE,
    ),
    Mutant(
        "producers-are-forgotten-by-what-the-store-began-with",
        "idle producers are forgotten after as long as store.json has",
        (
            Edit(
                _MAINTENANCE,
                "self._logs.settings.limits.producer_id_expiration_ms",
                "self._logs.config.limits.producer_id_expiration_ms",
            ),
        ),
        _WHERE,
    ),
    Mutant(
        "offsets-are-kept-for-a-week",
        "groups' offsets are forgotten after seven days where nobody has set that they are",
        (Replace("txn_engine.log.store_config.StoreLimits.offsets_retention_ms", _a_week_by_default),),
        _WHERE,
    ),
    Mutant(
        "a-row-does-not-say-by-which-retention",
        "a row by key does not say by which delete.retention.ms it was judged: it is judged anew by what the topic began with",
        (Replace("txn_engine.protocol.control_rules._said", _retention_is_not_said),),
        _WHERE,
    ),
    Mutant(
        "records-go-whatever-the-policy",
        "retention drops old records of a topic that is compacted only",
        (Replace("txn_engine.log.topics.Topic.trims_after_ms", _trims_whatever_the_policy),),
        _WHERE,
    ),
    Mutant(
        "compacted-for-ever",
        "a topic that was compacted once is compacted by key whatever its policy is now",
        (Replace("txn_engine.log.topics.Topic.is_compacted", _compacted_once),),
        _WHERE,
    ),
)
