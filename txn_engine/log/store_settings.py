"""What a store's operators change after it was set up (docs/FORMAT.md): one chain of objects, each the whole of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final

from storage import JSON_BYTES_MAX
from txn_engine.clock import Clock
from txn_engine.configs import STORE, Value
from txn_engine.errors import CorruptObjectError, InvalidConfigError, RequestTimedOutError
from txn_engine.ids import IdSource
from txn_engine.log.chain import expect_from, last_of
from txn_engine.log.objects import Objects, checked_number, decode_json, encode_json
from txn_engine.log.own_process import OwnLock
from txn_engine.log.read_ahead import ReadAhead
from txn_engine.log.settings_format import decoded_settings
from txn_engine.log.store_config import COUNTS, LIMITS, StoreConfig, StoreLimits
from txn_engine.reasons import Reason

_KIND: Final = "settings"
CACHED_MS: Final = 5_000
"""How long a process uses what it has read before it asks the store again."""
_CHANGE_TRIES: Final = 1_000
_INT64_MAX: Final = 2**63 - 1
CHANGEABLE: Final = {name: setting for name, setting in STORE.items() if not setting.fixed}
"""The settings that may change."""


@dataclass(frozen=True, slots=True)
class SettingsNow:
    """The settings as they are: those that may change, by Kafka's names, and how often they were changed."""

    settings: Mapping[str, Value]
    changes: int = 0

    @property
    def limits(self) -> StoreLimits:
        """Those that clients go by."""
        return StoreLimits(**{field: int(self.settings[name]) for name, field in LIMITS.items()})


def settings_key(number: int) -> str:
    """The object that says what the settings are since they were changed so often before."""
    return f"settings/{number:020d}.json"


class StoreSettings:
    """The settings of a store. What it knows of them is looked up again after five seconds."""

    def __init__(
        self,
        objects: Objects,
        config: StoreConfig,
        clock: Clock,
        new_id: IdSource,
        readers: Executor,
        cache_clock: Clock,
    ) -> None:
        self._objects = objects
        self._config = config
        self._clock = clock
        self._new_id = new_id
        self._readers = readers
        self._cache_clock = cache_clock
        self._lock = OwnLock()
        self._known: tuple[int, SettingsNow] | None = None
        self._asked: tuple[int, ReadAhead] | None = None

    @property
    def limits(self) -> StoreLimits:
        """The limits as they are now, give or take five seconds. Raises `CorruptObjectError` where they are damaged."""
        with self._lock.here():
            known, asked, self._asked = self._known, self._asked, None
        if known is not None and self._is_new(known[0]):
            return known[1].limits
        if asked is not None and self._is_new(asked[0]):
            return self._look_up(*asked).limits
        return self.look_up().limits

    @property
    def last_seen(self) -> SettingsNow | None:
        """What this process saw last, without a look at the store; None where it has not looked yet."""
        with self._lock.here():
            return None if self._known is None else self._known[1]

    def look_ahead(self) -> None:
        """The limits will be asked for soon: begin to look, where an object is a round trip away."""
        with self._lock.here():
            known = self._known
        if self._objects.is_near or (known is not None and self._is_new(known[0])):
            return
        ahead = ReadAhead(self._find, self._readers)
        expect_from(ahead, settings_key, 0 if known is None else known[1].changes)
        with self._lock.here():
            self._asked = (self._cache_clock(), ahead)

    def _is_new(self, asked_ms: int) -> bool:
        return self._cache_clock() - asked_ms < CACHED_MS

    def look_up(self) -> SettingsNow:
        """The settings as the store has them now."""
        return self._look_up(self._cache_clock(), ReadAhead(self._find, self._readers))

    def _look_up(self, asked_ms: int, ahead: ReadAhead) -> SettingsNow:
        with self._lock.here():
            seen = 0 if self._known is None else self._known[1].changes
        changes, found = last_of(ahead, settings_key, known=seen, is_near=self._objects.is_near)
        now = _decoded(found[-1], changes - 1) if found else self._begun()
        with self._lock.here():
            self._known = (asked_ms, now)
        return now

    def change(
        self, alter: Callable[[Mapping[str, Value]], Mapping[str, Value]]
    ) -> tuple[SettingsNow, SettingsNow]:
        """Let the settings be what `alter` makes of them as they are; those before and after.

        As `TopicRegistry.change`: who loses the race judges again, and nothing is written where nothing changes.
        """
        for _ in range(_CHANGE_TRIES):
            now = self.look_up()
            wanted = alter(now.settings)
            if wanted == now.settings:
                return now, now
            held = {
                "number": now.changes,
                "created_ms": self._clock(),
                "settings": dict(wanted),
                "write_id": self._new_id(),
            }
            data = encode_json(held, _KIND)
            if self._objects.create(settings_key(now.changes), data, max_bytes=JSON_BYTES_MAX).won:
                self._objects.confirm()
                return now, self.look_up()
        raise RequestTimedOutError(
            f"{_CHANGE_TRIES} other changes came first", actor="settings", expected="its turn"
        )

    def check(self, wanted: Mapping[str, int]) -> None:
        """Raise `InvalidConfigError` where a setting is another by now."""
        now = self.look_up().settings
        others = [name for name, value in wanted.items() if now.get(name, value) != value]
        if others:
            raise InvalidConfigError(
                f"{others[0]} {wanted[others[0]]} for a store that has {now[others[0]]}",
                actor="store",
                expected="the settings that it has",
                action="change them by `txn-engine configs alter`",
                reason=Reason.STORE_HAS_OTHER_SETTINGS,
            )

    def fixed(self) -> dict[str, Value]:
        """The settings that only the one who sets a store up can choose."""
        return {name: self._config.internal_partitions[topic] for name, topic in COUNTS.items()}

    def as_of(self, changes: int) -> SettingsNow:
        """The settings once they had been changed so often. Raises `CorruptObjectError` where no object says so."""
        if changes == 0:
            return self._begun()
        data = self._find(settings_key(changes - 1))
        if data is None:
            raise CorruptObjectError(
                "no such object, and a cut names it", place=settings_key(changes - 1), expected="settings"
            )
        return _decoded(data, changes - 1)

    def _begun(self) -> SettingsNow:
        """Those that the store began with."""
        begun = {name: setting.default for name, setting in CHANGEABLE.items()}
        return SettingsNow(
            begun | {name: getattr(self._config.limits, field) for name, field in LIMITS.items()}
        )

    def _find(self, key: str) -> bytes | None:
        return self._objects.find(key, max_bytes=JSON_BYTES_MAX)


def _decoded(data: bytes, number: int) -> SettingsNow:
    key = settings_key(number)
    held = decode_json(data, key=key, kind=_KIND, needed=("number", "created_ms", "settings", "write_id"))
    checked_number(held, "number", number, number, key=key)
    checked_number(held, "created_ms", 0, _INT64_MAX, key=key)
    return SettingsNow(decoded_settings(held["settings"], CHANGEABLE, key), number + 1)
