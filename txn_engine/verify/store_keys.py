"""The keys that a store has, as docs/FORMAT.md names them ("Keys"), and what of a listing is none of them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from storage.errors import BucketNotFoundError, StorageError, StoreUnreachableError
from storage.store import FolderStore, ObjectStore

INTERNAL: Final = ("__transaction_state", "__consumer_offsets")
MAX_OFFSET: Final = 2**63 - 1
BLOCK_IDS: Final = 1_000
MAX_BLOCK: Final = 2**63 // BLOCK_IDS - 1
_MAX_GROWTH: Final = 9_999  # each makes a topic larger, and 10,000 partitions are the most
_TOPIC_OBJECT: Final = re.compile(r"topics/([^/]+)/(0|[1-9][0-9]{0,8})\.json")
NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,8}")
"""An incarnation's, or a partition's."""
OFFSET_OBJECT: Final = re.compile(r"([0-9]{20})\.parquet")
"""An entry, or a snapshot."""
COUNTED_OBJECT: Final = re.compile(r"([0-9]{20})\.json")
"""A growth or a change of a topic, a change of the store's settings, or a block of producer ids."""
DATA_FILE: Final = re.compile(
    r"([0-9]{20})-p(-1|0|[1-9][0-9]{0,18})-e(-1|0|[1-9][0-9]{0,4})-([0-9a-f]{32})\.parquet"
)
_TOPIC_NAME: Final = re.compile(r"(?!__|\.{1,2}$)[A-Za-z0-9._-]{1,249}")  # of one that somebody made
GROWTHS: Final = "partitions"
CHANGES: Final = "changes"
SETTINGS: Final = "settings"
BEGUN: Final = "begun"
PINS: Final = "published"
ERASURES: Final = "erasures"
DELTA_LOG: Final = "_delta_log"
ICEBERG: Final = "iceberg"
FOREIGN_NAMED_MAX: Final = 20
NO_ANSWER: Final = (StoreUnreachableError, BucketNotFoundError)
"""What says nothing of one object, or folder."""


@dataclass(frozen=True, slots=True)
class _Folder:
    """What may be right below a folder: objects, and folders, by their names. `most`: the highest number of one."""

    objects: re.Pattern[str] | None = None
    folders: tuple[tuple[re.Pattern[str], _Folder], ...] = ()
    most: int = MAX_OFFSET

    def below(self, name: str) -> _Folder | None:
        """The folder of that name; None where there can be none."""
        return next((folder for pattern, folder in self.folders if pattern.fullmatch(name)), None)

    def may_hold(self, name: str) -> bool:
        """Whether an object may have that name."""
        match = None if self.objects is None else self.objects.fullmatch(name)
        return match is not None and (match.re.groups == 0 or int(match[1]) <= self.most)


_OFFSETS = _Folder(OFFSET_OBJECT)
_INTERNAL_PARTITION = _Folder(folders=((re.compile("log|snapshots"), _OFFSETS),))
_PARTITION = _Folder(
    folders=((re.compile("log|snapshots"), _OFFSETS), (re.compile("data"), _Folder(DATA_FILE)))
)
_INTERNAL_TOPIC = _Folder(folders=((NUMBER, _Folder(folders=((NUMBER, _INTERNAL_PARTITION),))),))
_ERASURE = re.compile(r"([0-9]{20})(?:-done)?\.json")
_PIN = re.compile(r"([0-9]{20})-[0-9]{20}\.json")
_DELTA_OBJECT = re.compile(r"_last_checkpoint|[0-9]{20}\.(?:json|checkpoint\.parquet)")
_ICEBERG_OBJECT = re.compile(
    r"version-hint\.text|v[1-9][0-9]{0,18}\.metadata\.json|[0-9]{20}-(?:list|manifest)-[0-9a-f]{32}\.avro"
)
_INCARNATION = _Folder(
    folders=(
        (NUMBER, _PARTITION),
        (re.compile(GROWTHS), _Folder(COUNTED_OBJECT, most=_MAX_GROWTH)),
        (re.compile(CHANGES), _Folder(COUNTED_OBJECT)),
        (re.compile(ERASURES), _Folder(_ERASURE)),
        (re.compile(PINS), _Folder(folders=((re.compile("delta|iceberg"), _Folder(_PIN)),))),
        (re.compile(DELTA_LOG), _Folder(_DELTA_OBJECT)),
        (re.compile(ICEBERG), _Folder(folders=((re.compile("metadata"), _Folder(_ICEBERG_OBJECT)),))),
    )
)
_TOPIC = _Folder(re.compile(rf"(?:{NUMBER.pattern})\.json"), ((NUMBER, _INCARNATION),))
_TOPICS = _Folder(
    folders=(
        (re.compile("|".join(INTERNAL)), _INTERNAL_TOPIC),
        (_TOPIC_NAME, _TOPIC),
    )
)
_PROBES = _Folder(
    re.compile("clock-[0-9a-f]{32}"), ((re.compile("[0-9a-f]{32}"), _Folder(re.compile("taken|race"))),)
)
_PROOF = re.compile(r"([0-9]{20})(?:\.json|-[0-9a-f]{32}\.parquet)")
_PROOFS = _Folder(folders=((_TOPIC_NAME, _Folder(folders=((NUMBER, _Folder(_PROOF)),))),))
_NUMBERED = _Folder(re.compile(rf"(?:{NUMBER.pattern})\.json"))
_CUT = _Folder(re.compile(r"(?:claim|cut|deleted)\.json"))
_STORE = _Folder(
    re.compile(r"(?:store|restored)\.json"),
    (
        (re.compile("topics"), _TOPICS),
        (re.compile("producer_ids"), _Folder(COUNTED_OBJECT, most=MAX_BLOCK)),
        (re.compile(SETTINGS), _Folder(COUNTED_OBJECT)),
        (re.compile("probes"), _PROBES),
        (re.compile("proofs"), _PROOFS),
        (re.compile(BEGUN), _Folder(folders=((re.compile("|".join(INTERNAL)), _NUMBERED),))),
        (re.compile("cuts"), _Folder(folders=((re.compile("[0-9]{20}"), _CUT),))),
    ),
)


def is_topic_name(name: str) -> bool:
    """Whether a topic that somebody made can have this name."""
    return _TOPIC_NAME.fullmatch(name) is not None


def offset_in_name(key: str) -> int | None:
    """The offset that the last segment of an entry's or a snapshot's key names; None for any other name."""
    return offset_of(key.rpartition("/")[2])


def offset_of(name: str) -> int | None:
    """The offset that the name of an entry or a snapshot says; None for any other name."""
    match = OFFSET_OBJECT.fullmatch(name)
    return int(match[1]) if match and int(match[1]) <= MAX_OFFSET else None


@dataclass(slots=True)
class KeySurvey:
    """What was listed of a store.

    foreign: how many objects there are below each foreign key: an object of a name that the format does not have
    there, or the topmost folder of such a name (with a slash), which counts once. At most 20 are named;
    `foreign_objects` counts all objects. folders: those with an object under a name of the format's at any depth, each
    with its slash. refused: why something could not be listed. complete: not stopped at the limit. incarnations: by
    topic, those that have an object.
    """

    foreign: Counter[str] = field(default_factory=Counter)
    foreign_objects: int = 0
    objects: int = 0
    folders: set[str] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)
    complete: bool = True
    incarnations: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    _last: str = ""

    @property
    def not_named(self) -> int:
        """How many foreign objects are below none of the keys that are named."""
        return self.foreign_objects - self.foreign.total()

    def note(self, key: str) -> None:
        """Count the object at `key`."""
        self.objects += 1
        foreign = foreign_part(key)
        if foreign is None:
            folder = key.rpartition("/")[0]
            if (topic := _TOPIC_OBJECT.fullmatch(key)) is not None:
                self.incarnations[topic[1]].add(int(topic[2]))
            if folder != self._last:  # keys come folder by folder
                self._keep_folders(folder)
                self._last = folder
            return
        self.foreign_objects += 1
        if foreign in self.foreign or len(self.foreign) < FOREIGN_NAMED_MAX:
            self.foreign[foreign] += 1

    def _keep_folders(self, folder: str) -> None:
        while folder and f"{folder}/" not in self.folders:
            self.folders.add(f"{folder}/")
            folder = folder.rpartition("/")[0]


@lru_cache(maxsize=64)
def _way(path: str) -> tuple[_Folder | None, str]:
    """What the format has at this path; or None, and the topmost folder on the way (with a slash) that it has not.

    Keys come folder by folder, so that most ask for the one that the key before them is in.
    """
    folder, way = _STORE, ""
    for name in path.split("/") if path else ():
        way += f"{name}/"
        below = folder.below(name)
        if below is None:
            return None, way
        folder = below
    return folder, ""


def foreign_part(key: str) -> str | None:
    """The key, or the topmost folder on its way (with a slash), that the format does not have; None: it has them."""
    parent, _, name = key.rpartition("/")
    folder, foreign = _way(parent)
    if folder is None:
        return foreign
    return None if folder.may_hold(name) else key


def folders_in_the_way(store: ObjectStore) -> list[str]:
    """The folders, each with its slash, that have the name of an object of the format, where no object can be then."""
    if not isinstance(store, FolderStore):
        return []
    try:
        return [folder for folder in store.all_folders() if foreign_part(folder.removesuffix("/")) is None]
    except NO_ANSWER:
        raise
    except StorageError:
        return []  # the root, or a folder on a bad sector, is not listed, as the survey of keys says


def survey_keys(store: ObjectStore, *, most: int | None = None) -> KeySurvey:
    """List a store once, and tell its own keys from others.

    most: stop after so many objects. Where the root may not be listed, or a folder right below it, the format's own
    folders are listed one by one, and `refused` says so.
    """
    survey = KeySurvey()
    if _read(survey, store, "", most):
        return survey
    survey = KeySurvey(refused=survey.refused)
    for folder in (BEGUN, "cuts", "producer_ids", "settings", "topics"):
        _read(survey, store, folder, most)
    return survey


def _read(survey: KeySurvey, store: ObjectStore, folder: str, most: int | None) -> bool:
    """Note what is below the folder; False where the store refuses to list it."""
    try:
        listed = (
            store.keys(folder)
            if isinstance(store, FolderStore)
            else (info.key for info in store.list(folder))
        )
        for key in listed:
            if survey.objects == most:
                survey.complete = False
                break
            survey.note(key)
    except NO_ANSWER:
        raise
    except StorageError as error:
        survey.refused.append(str(error))
        return False
    return True
