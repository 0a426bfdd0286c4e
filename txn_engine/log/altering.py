"""Changing settings: what was asked for, judged by what is there; and settings as a user sees them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from txn_engine.configs import STORE, TOPIC, Setting, Value, looked_up, parsed
from txn_engine.configs.store import NOT_A_STORES
from txn_engine.configs.topic import NOT_A_TOPICS
from txn_engine.errors import InvalidConfigError, InvalidRequestError
from txn_engine.log.store_settings import CHANGEABLE, SettingsNow
from txn_engine.log.topics import Topic
from txn_engine.reasons import Reason
from txn_engine.types import ConfigChange, ConfigEntry, Configs

_NOT_A_TOPICS: Final = dict.fromkeys(STORE, "no topic: it is one of the store's settings") | dict(
    NOT_A_TOPICS
)
_NOT_A_STORES: Final = dict.fromkeys(TOPIC, "the topic that it is meant for") | dict(NOT_A_STORES)


def altered_topic(topic: Topic, given: Mapping[str, object]) -> Topic:
    """The topic with these settings; None of one that is to be as it is without being set. Raises `InvalidConfigError`
    for what there is not, is out of range, or does not go with the topic's columns.
    """
    wanted = topic.with_settings(_parsed(given, TOPIC, _NOT_A_TOPICS, f"topic {topic.name!r}"))
    wanted.check_settings()
    return wanted


def store_begun_with(given: Mapping[str, object] | None) -> dict[str, int]:
    """The settings with which a store is set up. Raises `InvalidConfigError` as `altered_store`."""
    return (
        {}
        if not given
        else {name: int(value) for name, value in _parsed(given, STORE, _NOT_A_STORES, "store").items()}
    )


def altered_store(now: Mapping[str, Value], given: Mapping[str, object]) -> Mapping[str, Value]:
    """The store's settings with these; as `altered_topic`. Those that stay are judged too."""
    asked = _parsed(given, STORE, _NOT_A_STORES, "store")
    fixed = [name for name in asked if name not in CHANGEABLE]
    if fixed:
        raise InvalidConfigError(
            f"setting {fixed[0]!r}, which is chosen when a store is set up",
            actor="store",
            expected=f"to stay: {STORE[fixed[0]].fixed}",
            reason=Reason.FIXED_SETTING,
        )
    return {name: parsed(CHANGEABLE[name], value, actor="store") for name, value in {**now, **asked}.items()}


def _parsed(
    given: object, known: Mapping[str, Setting], elsewhere: Mapping[str, str], actor: str
) -> dict[str, Value]:
    if not isinstance(given, Mapping) or not given:
        raise InvalidRequestError(
            f"settings {given!r:.80}", actor=actor, expected="at least one, {Kafka's name: value}"
        )
    settings = {name: looked_up(name, known, elsewhere, actor=actor) for name in given}
    return {
        name: settings[name].default if value is None else parsed(settings[name], value, actor=actor)
        for name, value in given.items()
    }


def configs_of_topic(topic: Topic, before: Topic | None = None) -> Configs:
    """The topic's settings; `before`: as it was, to say what has changed."""
    entries = [_entry(TOPIC[name], value) for name, value in topic.settings.items()]
    changes = () if before is None else _changes(before.settings, topic.settings)
    return Configs(entries, topic.changes, changes)


def configs_of_store(
    now: SettingsNow, fixed: Mapping[str, Value], before: SettingsNow | None = None
) -> Configs:
    """The store's settings, those that stay too."""
    entries = [_entry(STORE[name], value) for name, value in {**now.settings, **fixed}.items()]
    changes = () if before is None else _changes(before.settings, now.settings)
    return Configs(entries, now.changes, changes)


def _entry(setting: Setting, value: Value) -> ConfigEntry:
    return ConfigEntry(setting.name, value, setting.default, bool(setting.fixed), setting.what)


def _changes(before: Mapping[str, Value], after: Mapping[str, Value]) -> Iterator[ConfigChange]:
    for name, value in after.items():
        if before[name] != value:
            yield ConfigChange(name, before[name], value)
