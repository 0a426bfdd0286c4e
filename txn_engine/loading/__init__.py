"""Files into topics, bad rows into dead-letter topics: input = output + dead letters, in one transaction.

How a file becomes records is `txn_engine.files`'s. Whoever loads (command line, operators, a program) brings the
producer and the transaction; `load_files` brings both.
"""

from txn_engine.loading.counting import (
    DeadLetterCount,
    LetterCounter,
    LetterCounts,
    by_log,
    counts,
    replayed_to,
)
from txn_engine.loading.dead_letters import (
    DEAD_LETTERS,
    DeadLetters,
    check_dead_letter_topic,
    is_dead_letter_schema,
)
from txn_engine.loading.limits import DeadLetterLimit
from txn_engine.loading.load import FileLoad, LoadResult, load_files
from txn_engine.loading.manifest import LOADED_FILES, Manifest
from txn_engine.loading.rates import DeadLetterRate, rates
from txn_engine.loading.replay import Replayed, read_repaired, replay
from txn_engine.loading.waiting import dead_letter_topics, group_of

__all__ = [
    "load_files",
    "LoadResult",
    "FileLoad",
    "DeadLetters",
    "DeadLetterLimit",
    "DEAD_LETTERS",
    "Manifest",
    "LOADED_FILES",
    "check_dead_letter_topic",
    "is_dead_letter_schema",
    "dead_letter_topics",
    "DeadLetterCount",
    "LetterCounter",
    "LetterCounts",
    "counts",
    "by_log",
    "replayed_to",
    "DeadLetterRate",
    "rates",
    "group_of",
    "replay",
    "read_repaired",
    "Replayed",
]
