"""What a store cannot give: the places that cannot be read, named beside all that can.

One damaged object stops what lies behind it and nothing else. Whatever looks at many places at once (a listing, a
sweep, a job, a page) does so for all that can be read, and hands back the rest as `Unreadable`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NoReturn, TypeVar

from txn_engine.errors import CorruptObjectError, StoreAccessError, TxnEngineError, UnsupportedFormatError
from txn_engine.types import TopicPartition

Found = TypeVar("Found")

DAMAGE: Final = (CorruptObjectError, UnsupportedFormatError, StoreAccessError)
"""What says something of one object. A store that does not answer is none of these, and ends the whole call."""

WHOLE_TOPIC: Final = -1


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A partition that cannot be read, or with `partition` -1 a topic, and the error that says which object and why."""

    topic: str
    partition: int
    error: TxnEngineError

    @property
    def place(self) -> str:
        """`payments-0`, or the topic alone."""
        return self.topic if self.partition == WHOLE_TOPIC else f"{self.topic}-{self.partition}"

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
    if found_any:
        return
    errors = [each.error for each in unreadable]
    if errors and all(isinstance(error, StoreAccessError) for error in errors):
        raise errors[0]
