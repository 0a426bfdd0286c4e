"""Whose a file is and where it begins, as Spark carries them: in the modification time that it is told of each file.

`_metadata.file_modification_time` is the one number of a file that is ours to choose, that is the same for every row of
it without being computed for any, and that filters may ask before a file is opened. Nothing else of a plan asks when a
data file was written: files are never written twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf

from txn_engine.types import ScanFile

MILLIS_MAX: Final = (2**63 - 1) // 1_000
"""A later time overflows: Spark multiplies the milliseconds of a file by 1,000, and does not say so."""


@dataclass(frozen=True, slots=True)
class Stamps:
    """The milliseconds that each file is given, in the files' order, and what they say as columns of its rows."""

    millis: Sequence[int]
    topic: Column
    partition: Column
    base_offset: Column

    @staticmethod
    def column() -> Column:
        """The stamp of a row's file."""
        return sf.unix_millis(sf.col("_metadata.file_modification_time"))


def stamp_files(files: Sequence[ScanFile]) -> Stamps:
    """Base offset, topic and partition in the bits of one number; where one is too large, the files' numbers."""
    topics = list(dict.fromkeys(file.topic for file in files))
    number_of = {name: number for number, name in enumerate(topics)}
    bits = max(file.partition for file in files).bit_length()
    all_bits = bits + (len(topics) - 1).bit_length()
    packed = [file.base_offset << all_bits | number_of[file.topic] << bits | file.partition for file in files]
    if max(packed) > MILLIS_MAX:
        return number_files(files)
    stamp = Stamps.column()
    topic = sf.shiftright(stamp, bits).bitwiseAND(sf.lit((1 << (all_bits - bits)) - 1).cast("bigint"))
    partition = stamp.bitwiseAND(sf.lit((1 << bits) - 1).cast("bigint"))
    return Stamps(
        packed, looked_up(topics, "string", topic), partition.cast("int"), sf.shiftright(stamp, all_bits)
    )


def number_files(files: Sequence[ScanFile]) -> Stamps:
    """Each file's number, to look up by it whatever there is to say of a file (`looked_up`)."""
    stamp = Stamps.column()
    return Stamps(
        range(len(files)),
        looked_up([file.topic for file in files], "string", stamp),
        looked_up([file.partition for file in files], "int", stamp),
        looked_up([file.base_offset for file in files], "bigint", stamp),
    )


def looked_up(values: Sequence[int] | Sequence[str], kind: str, number: Column) -> Column:
    """The `number`th of the values, which hold no comma: one literal to Spark, however many they are."""
    literal = sf.split(sf.lit(",".join(map(str, values))), ",").cast(f"array<{kind}>")
    return sf.get(literal, number.cast("int"))
