"""A data file's name: whose it is and when its upload began (docs/FORMAT.md)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from txn_engine.errors import InvalidRequestError
from txn_engine.reasons import Reason

_NAME = re.compile(
    r"data/([0-9]{20})-p(-1|0|[1-9][0-9]{0,18})-e(-1|0|[1-9][0-9]{0,4})-([0-9a-f]{32})\.parquet"
)


@dataclass(frozen=True, slots=True)
class DataFileName:
    """`log_end` is the partition's log end that the writer saw before it uploaded."""

    log_end: int
    producer_id: int
    producer_epoch: int
    write_id: str

    @property
    def data_path(self) -> str:
        """The path relative to the partition's folder, as descriptors name it."""
        return f"data/{self.log_end:020d}-p{self.producer_id}-e{self.producer_epoch}-{self.write_id}.parquet"


def parse_data_path(data_path: str) -> DataFileName:
    """What the name says. Raises `InvalidRequestError` for a path of another form."""
    match = _NAME.fullmatch(data_path)
    if match is None:
        raise InvalidRequestError(
            f"data file {data_path!r}", expected="data/<log end>-p<pid>-e<epoch>-<write id>.parquet"
        )
    log_end, producer_id, producer_epoch, write_id = match.groups()
    return DataFileName(int(log_end), int(producer_id), int(producer_epoch), write_id)


def is_data_path(data_path: str) -> bool:
    """Whether it is of that form."""
    return _NAME.fullmatch(data_path) is not None


def check_not_below_floor(name: DataFileName, floor: int) -> None:
    """Raise for a name strictly below the partition's floor: the clean-up may have deleted that file (PROTOCOL.md,
    section 6).
    """
    if name.log_end < floor:
        raise InvalidRequestError(
            f"data file {name.data_path}, uploaded when the log ended at {name.log_end}",
            expected=f"a log end of at least the floor {floor} in its name",
            action="upload the records again, under a fresh name",
            reason=Reason.FILE_BELOW_FLOOR,
        )
