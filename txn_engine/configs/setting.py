"""One setting: its name, type, range and defaults, and a value of it from whatever was given."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from txn_engine.errors import InvalidConfigError
from txn_engine.reasons import Reason

Value = int | float | str | bool
Scope = Literal["store", "topic"]
INT64_MAX: Final = 2**63 - 1
_SHOWN: Final = 80
_NAMES: Final = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


@dataclass(frozen=True, slots=True)
class Setting:
    """What there is to know of a setting without a store.

    default: what holds where nobody has said otherwise; its type is the setting's. kafka: Kafka's own default; None: it
    has no such setting. low, high: the range of a number. never: whether -1 is taken too, for none or never. choices:
    what a text may be; normal: makes it the one that is stored, None where it is none of them. relies: who relies on a
    value in the range. why: why the default is another than Kafka's. fixed: only the one who makes the store can set
    it; says why.
    """

    name: str
    what: str
    default: Value
    kafka: Value | None
    low: float = 0
    high: float = INT64_MAX
    never: bool = False
    choices: str = ""
    normal: Callable[[str], str | None] = str
    relies: str = ""
    why: str = ""
    fixed: str = ""

    @property
    def field(self) -> str:
        """Its name as Python has it."""
        return self.name.replace(".", "_").replace("-", "_")

    @property
    def range_text(self) -> str:
        """Which values it takes, for a person."""
        if isinstance(self.default, bool):
            return "true or false"
        if isinstance(self.default, str):
            return self.choices
        never = "-1, or " if self.never else ""
        return f"{never}{self.low} or more" if self.high == INT64_MAX else f"{never}{self.low} to {self.high}"

    def value(self, given: object) -> Value:
        """The value that was given, also as the text that a command line has; ValueError with what was expected."""
        kind = type(self.default)
        if isinstance(self.default, bool):
            return _flag(given)
        if isinstance(self.default, str):
            text = self.normal(given) if isinstance(given, str) else None
            if text is None:
                raise ValueError(self.range_text)
            return text
        number = _number(given, kind)
        if number is None:
            raise ValueError(f"{_NAMES[kind]}, {self.range_text}")
        if not self.low <= number <= self.high and not (self.never and number == -1):
            raise ValueError(self.range_text)
        return number


def _flag(given: object) -> bool:
    if isinstance(given, bool):
        return given
    if isinstance(given, str) and given.strip().lower() in ("true", "false"):
        return given.strip().lower() == "true"
    raise ValueError("true or false")


def _number(given: object, kind: type) -> int | float | None:
    """The number, None for what is none of this kind: a float that is whole is a whole number, no text is infinite."""
    if isinstance(given, bool):
        return None
    if isinstance(given, str):
        if len(given) > _SHOWN or not given.isascii() or "_" in given:
            return None
        try:
            given = kind(given)
        except ValueError:
            return None
    if isinstance(given, int):
        return kind(given) if abs(given) <= INT64_MAX + 1 else None
    if not isinstance(given, float) or not math.isfinite(given):
        return None
    if kind is float:
        return given
    return int(given) if given.is_integer() and abs(given) <= INT64_MAX else None


def looked_up(
    name: object, known: Mapping[str, Setting], elsewhere: Mapping[str, str], *, actor: str
) -> Setting:
    """The setting of that name. `elsewhere`: what is no setting here, and why, or where it is one.

    Raises `InvalidConfigError` for any other name, and offers the nearest one that there is.
    """
    if isinstance(name, str) and name in known:
        return known[name]
    text = str(name)[:_SHOWN]
    near = difflib.get_close_matches(text.lower(), known, n=1)
    is_slip = (
        bool(near)
        and name not in elsewhere
        and difflib.SequenceMatcher(a=text.lower(), b=near[0]).ratio() > 0.9
    )
    why = None if is_slip else absence(name, elsewhere)
    if why is not None:
        raise InvalidConfigError(
            f"setting {text!r}", actor=actor, expected=why, reason=Reason.NO_MEANING_HERE
        )
    raise InvalidConfigError(
        f"setting {text!r}, which there is not",
        actor=actor,
        expected=f"{near[0]!r}" if near else f"one of {', '.join(known)}",
        reason=Reason.UNKNOWN_SETTING,
    )


def absence(name: object, elsewhere: Mapping[str, str]) -> str | None:
    """What to expect instead of a setting that is known not to be one here; `ssl.*` stands for all that begin so."""
    if not isinstance(name, str):
        return None
    if name in elsewhere:
        return elsewhere[name]
    families = (each for each in elsewhere if each.endswith("*") and name.startswith(each[:-1]))
    return next((elsewhere[each] for each in sorted(families, key=len, reverse=True)), None)


def parsed(setting: Setting, given: object, *, actor: str) -> Value:
    """The value that was given for a setting; `InvalidConfigError` with the range for one that it does not take."""
    try:
        return setting.value(given)
    except ValueError as error:
        raise InvalidConfigError(
            f"{setting.name} {given!r:.80}",
            actor=actor,
            expected=str(error),
            action=setting.relies or None,
            reason=Reason.BAD_SETTING,
        ) from None
