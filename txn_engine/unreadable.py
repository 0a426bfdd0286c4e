"""What a store cannot give: the places that cannot be read, named beside all that can.

One damaged object stops what lies behind it and nothing else. Whatever looks at many places at once (a listing, a
sweep, a job, a page) does so for all that can be read, and hands back the rest as `Unreadable`.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, NoReturn, TypeVar

from txn_engine.errors import (
    CorruptObjectError,
    StoreAccessError,
    TxnEngineError,
    UnexpectedError,
    UnsupportedFormatError,
)
from txn_engine.types import TopicPartition

Found = TypeVar("Found")

DAMAGE: Final = (CorruptObjectError, UnsupportedFormatError, StoreAccessError, UnexpectedError)
"""What says something of one place. A store that does not answer is none of these, and ends the whole call."""

WHOLE_TOPIC: Final = -1
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A partition that cannot be read, or with `partition` -1 a topic, and the error that says which object and why."""

    topic: str
    partition: int
    error: TxnEngineError

    @property
    def place(self) -> str:
        """`payments-0`, or the topic alone."""
        return _place(self.topic, self.partition)

    def to_dict(self) -> dict[str, str | int]:
        """As JSON has it."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "code": self.error.code,
            "message": str(self.error),
        }

    def __str__(self) -> str:
        return f"{self.place}: {self.error}"


def _place(topic: str, partition: int) -> str:
    return topic if partition == WHOLE_TOPIC else f"{topic}-{partition}"


class Listing(list[Found]):
    """A list of all that could be read, and in `unreadable` the places where there may be more of it."""

    def __init__(self, found: Iterable[Found] = (), unreadable: Iterable[Unreadable] = ()) -> None:
        super().__init__(found)
        self.unreadable = tuple(unreadable)


class ByPartition(dict[TopicPartition, Found]):
    """What was found of each partition that could be read; asking for one that could not raises its error."""

    def __init__(
        self, found: Iterable[tuple[TopicPartition, Found]] = (), unreadable: Iterable[Unreadable] = ()
    ) -> None:
        super().__init__(found)
        self.unreadable = tuple(unreadable)

    def __missing__(self, partition: TopicPartition) -> NoReturn:
        for each in self.unreadable:
            if (each.topic, each.partition) == partition:
                raise each.error
        raise KeyError(partition)


def raise_if_refused_everywhere(unreadable: Iterable[Unreadable], *, found_any: bool) -> None:
    """Raise the store's refusal where it gives nothing at all: then no object is to blame."""
    errors = [each.error for each in unreadable]
    if errors and not found_any and all(isinstance(error, StoreAccessError) for error in errors):
        raise errors[0]


def raise_if_no_write_was_taken(unreadable: Iterable[Unreadable], *, wrote_any: bool) -> None:
    """Raise the store's refusal where it takes nothing at all, and nothing else is to be told."""
    errors = [each.error for each in unreadable]
    if errors and not wrote_any and all(map(_is_refused_write, errors)):
        raise errors[0]


def _is_refused_write(error: TxnEngineError) -> bool:
    return isinstance(error, StoreAccessError) and error.of_a_write


@contextmanager
def one_place(topic: str, partition: int = WHOLE_TOPIC) -> Iterator[None]:
    """Around what is done in one partition, or topic, of many: an exception that is no error of the engine leaves as
    an `UnexpectedError`, so that whoever goes on with the others has to know the engine's errors alone.

    Ctrl-C, and all else that is no `Exception`, leaves as it is.
    """
    try:
        yield
    except TxnEngineError:
        raise
    except Exception as error:
        raise unexpected(_place(topic, partition), error) from error


def unexpected(place: str, error: Exception) -> UnexpectedError:
    """What an exception that nobody foresaw is called in a report: its type, and where it was raised.

    The log has the whole way there. What it says is repeated in neither: libraries' texts quote values of records.
    """
    frames = traceback.extract_tb(error.__traceback__)
    name = type(error).__name__
    _LOGGER.error("an unexpected %s in %s:\n%s", name, place, "".join(traceback.format_list(frames)))
    raised = f" at {PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return UnexpectedError(f"{name}{raised}", place=place)
