"""Settings as an object of the store has them: {Kafka's name: value}."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from txn_engine.configs import Setting, Value
from txn_engine.errors import CorruptObjectError, UnsupportedFormatError


def decoded_settings(held: object, known: Mapping[str, Setting], key: str) -> dict[str, Value]:
    """The settings that an object says, and of those that it does not the values that hold without being set: it was
    written before there were such settings. `CorruptObjectError` for what no writer leaves; `UnsupportedFormatError`
    for a setting that a later version has, since what it asks for would not be done.
    """
    if not isinstance(held, Mapping):
        raise CorruptObjectError(f"settings {held!r:.80}", place=key, expected="settings by their names")
    later = sorted(set(held) - set(known))
    if later:
        raise UnsupportedFormatError(
            f"setting {later[0]!r:.80}", place=key, expected="one that this version of the engine knows"
        )
    found = {name: setting.default for name, setting in known.items()}
    for name, value in held.items():
        found[name] = _checked(known[name], value, key)
    return found


def _checked(setting: Setting, value: object, key: str) -> Value:
    """The value, which is stored as the setting has it: no other way of saying it."""
    with suppress(ValueError):
        normal = setting.value(value)
        if normal == value and type(normal) is type(value):
            return normal
    raise CorruptObjectError(f"{setting.name} {value!r:.80}", place=key, expected=setting.range_text)
