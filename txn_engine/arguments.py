"""Arguments of public calls: each is looked at before anything is done."""

from __future__ import annotations

import builtins
import inspect
from collections import abc
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from itertools import chain
from numbers import Integral, Real
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from txn_engine.errors import InvalidRequestError
from txn_engine.reasons import Reason

Kind = TypeVar("Kind")
_SETTINGS = ("config", "settings")
Test = Callable[[object], bool]
_NUMBERS: Mapping[type, type] = {int: Integral, float: Real}


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


def checks_arguments(kind: type[Kind]) -> type[Kind]:
    """Let every public method of the class look at the types of its arguments, as its annotations have them, before it
    does anything: `InvalidRequestError` names the argument, what it is and the type.

    Settings, in a dict or in `**keywords`, are checked as settings. A one-shot iterator is not used up to look
    at its elements.
    """
    for name, method in list(vars(kind).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(kind, name, _checking(method))
    return kind


def _checking(method: Callable[..., Any]) -> Callable[..., Any]:
    _, *parameters = inspect.signature(method).parameters.values()
    positional = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    annotations = {
        each.name: each.annotation
        for each in parameters
        if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL) and each.name not in _SETTINGS
    }
    names = _Names(inspect.unwrap(method).__globals__)
    tests: dict[str, Test] = {}

    @wraps(method)
    def checked(self: object, /, *given: Any, **named: Any) -> Any:
        if not tests:  # the annotations name classes that are not there yet when the method's class is made
            tests.update({name: type_test(eval(text, {}, names)) for name, text in annotations.items()})
        for name, value in chain(zip(positional, given, strict=False), named.items()):
            test = tests.get(name)
            if test is not None and not test(value):
                raise _refused(method.__name__, name, _Shown(value), annotations[name])
        return method(self, *given, **named)

    return checked


class _Names(dict[str, Any]):
    """The names of a module; those that it has for its annotations alone are of no type that could be looked at."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, getattr(abc, name, Any))


class _Shown:
    """A value in an error: its type, unless it is short and plain. What callers give may be records."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __repr__(self) -> str:
        is_plain = self._value is None or isinstance(self._value, str | int | float)
        return repr(self._value) if is_plain else f"of type {type(self._value).__name__}"

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)


def type_test(hint: Any) -> Test:
    """Whether a value may be an argument of this type. Numbers are whole or real ones of any library, and no bools;
    which of the texts of a `Literal` it is the call itself looks at.
    """
    if hint is Any or hint is object:
        return _any
    if hint is None or hint is type(None):
        return lambda value: value is None
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        tests = [type_test(each) for each in inside]
        return lambda value: any(test(value) for test in tests)
    if origin is Literal:
        kinds = {type(each) for each in inside}
        return lambda value: type(value) in kinds
    kind = hint if origin is None else origin
    if kind is abc.Callable:
        return callable
    if not isinstance(kind, type):
        return _any
    if kind in _NUMBERS:
        number = _NUMBERS[kind]
        return lambda value: isinstance(value, number) and not isinstance(value, bool)
    if kind.__module__ == "collections.abc" and issubclass(kind, abc.Iterable):
        return _test_of_elements(kind, tuple(map(type_test, inside)))
    if getattr(kind, "_is_protocol", False):
        members = _members(kind)
        return lambda value: all(hasattr(value, name) for name in members)
    return lambda value: isinstance(value, kind)


def _any(_: object) -> bool:
    return True


def _test_of_elements(kind: type, tests: tuple[Test, ...]) -> Test:
    if issubclass(kind, abc.Mapping):
        of_key, of_value = tests or (_any, _any)
        return lambda value: (
            isinstance(value, abc.Mapping)
            and all(of_key(key) and of_value(each) for key, each in value.items())
        )
    (of_element,) = tests or (_any,)

    def test(value: object) -> bool:
        if not isinstance(value, abc.Iterable):
            return False
        return isinstance(value, abc.Iterator) or of_element is _any or all(map(of_element, value))

    return test


def _members(kind: type) -> set[str]:
    found = {name for each in kind.__mro__ if getattr(each, "_is_protocol", False) for name in vars(each)}
    return {name for name in found if name == "__call__" or not name.startswith("_")}
