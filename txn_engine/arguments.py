"""Arguments of calls that fence, erase or load: each is looked at before anything is done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral

from txn_engine.errors import InvalidRequestError
from txn_engine.reasons import Reason


def check_flags(actor: str, **given: object) -> None:
    """Raise `InvalidRequestError` for a flag that is neither True nor False: what is only true or false in Python's
    eyes may be an argument in the wrong place.
    """
    for name, value in given.items():
        if type(value) is not bool:
            raise _refused(actor, name, value, "True or False")


def check_callables(actor: str, **given: object) -> None:
    """Raise `InvalidRequestError` for what cannot be called; None is no argument."""
    for name, value in given.items():
        if value is not None and not callable(value):
            raise _refused(actor, name, value, "a function")


def checked_texts(actor: str, name: str, given: object) -> list[str]:
    """The texts, each once. Raises `InvalidRequestError` for one text, which would be taken for its letters."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise _refused(actor, name, given, "a list of texts")
    found = list(given)
    for each in found:
        if not isinstance(each, str):
            raise _refused(actor, name, each, "texts")
    return list(dict.fromkeys(found))


def check_whole_numbers(actor: str, **given: object) -> None:
    """Raise `InvalidRequestError` for what is not a whole number, such as True."""
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise _refused(actor, name, value, "a whole number")


def _refused(actor: str, name: str, value: object, expected: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{name} {value!r:.80}", actor=actor, expected=expected, reason=Reason.BAD_ARGUMENT
    )
