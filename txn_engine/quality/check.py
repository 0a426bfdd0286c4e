"""What is to be proved: which topic, which columns, which output, which group."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass

from txn_engine.errors import InvalidRequestError

_ACTOR = "exactly-once check"


@dataclass(frozen=True, slots=True)
class ExactlyOnceCheck:
    """A topic, what its consumer made of it, and the columns that tie the two to the input file.

    `record_id` names the column that tells one record from another. `account`, `amount` and `direction` say how the
    output was summed: amounts whose `direction` is one of `credit_values` count up, all others down (without
    `direction` all count up). Parts left None are not checked, and the report says so. Money is compared as whole
    numbers of the smallest unit; float columns are refused.

    `up_to_position`: judge what `group_id` has consumed, while producers go on: the records below its committed offsets
    and the output that was committed with them. What lies behind, and what is under way, is not judged. Without it
    everything is, and whatever is under way makes checks fail.

    `input_delimiter` and `input_date_format` describe the input file (the Berka file's by default).
    """

    topic: str
    record_id: str
    account: str | None = None
    amount: str | None = None
    direction: str | None = None
    credit_values: tuple[str, ...] = ()
    output_topic: str | None = None
    output_account: str = "account_id"
    output_total: str = "turnover"
    output_count: str | None = "payments"
    group_id: str | None = None
    up_to_position: bool = False
    input_delimiter: str = ";"
    input_date_format: str = "%y%m%d"

    def __post_init__(self) -> None:
        if self.output_topic is not None and (self.account is None or self.amount is None):
            raise InvalidRequestError(
                f"output_topic {self.output_topic!r} is given without account and amount",
                actor=_ACTOR,
                expected="the columns of the topic that the output sums",
            )
        if self.direction is not None and not self.credit_values:
            raise InvalidRequestError(
                f"direction {self.direction!r} is given without credit_values",
                actor=_ACTOR,
                expected="the values of that column that count up",
            )
        if self.up_to_position and self.group_id is None:
            raise InvalidRequestError(
                "up_to_position is given without group_id",
                actor=_ACTOR,
                expected="the group whose position counts",
            )
        if len(self.input_delimiter) != 1:
            raise InvalidRequestError(
                f"input_delimiter is {self.input_delimiter!r}", actor=_ACTOR, expected="one character"
            )
        if not _says_a_day(self.input_date_format):
            raise InvalidRequestError(
                f"input_date_format is {self.input_date_format!r}",
                actor=_ACTOR,
                expected="one that strptime takes, with year, month and day, as %Y-%m-%d",
            )

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that the check reads: the one checked, then its output."""
        return (self.topic,) if self.output_topic is None else (self.topic, self.output_topic)

    @property
    def topic_columns(self) -> tuple[str, ...]:
        """The columns that the topic, and the input file, must have."""
        named = (self.record_id, self.account, self.amount, self.direction)
        return tuple(dict.fromkeys(name for name in named if name is not None))

    @property
    def output_columns(self) -> tuple[str, ...]:
        """The columns that the output topic must have."""
        named = (self.output_account, self.output_total, self.output_count)
        return tuple(dict.fromkeys(name for name in named if name is not None))


def _says_a_day(date_format: str) -> bool:
    """Whether a date that is written so can be read again."""
    day = dt.date(2001, 12, 31)
    try:
        return dt.datetime.strptime(day.strftime(date_format), date_format).date() == day  # noqa: DTZ007 -- a day
    except (ValueError, re.error):
        return False
