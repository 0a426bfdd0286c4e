"""Every kind of finding: what it means, what is checked by it, and what to do (printed as docs/VERIFY.md)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

Severity = Literal["error", "warning"]


class Code(NamedTuple):
    """A kind of finding. `checks`: the invariant of the protocol (1 to 9) or the rule that it belongs to."""

    meaning: str
    checks: str
    action: str
    severity: Severity = "error"


_RESTORE = "restore this object from a copy; until then nothing behind it can be trusted"
_RESTORE_FILE = "restore this data file from a copy; reads of its offsets fail or are wrong until then"
_REPORT = (
    "keep the store as it is and report this: a writer broke the protocol, or the log was edited by hand"
)
_SNAPSHOT = (
    "run `txn-engine coordinator snapshot`, then remove this one; readers fall back to an older one meanwhile"
)
_FOREIGN = "look at who put it there and move it away"

GROUPS: Final[Mapping[str, Mapping[str, Code]]] = MappingProxyType(
    {
        "Objects and entries": {
            "object-missing": Code("A JSON object that the store needs is not there.", "format", _RESTORE),
            "object-damaged": Code(
                "A JSON object is not the one that was written: its checksum, its kind or what it says.",
                "format",
                _RESTORE,
            ),
            "restore-unfinished": Code(
                "A restore has begun the store and not come to its end: nobody can open it.",
                "format",
                "run the `txn-engine restore` again: it goes on",
            ),
            "object-misnamed": Code(
                "A folder with objects of the format, of a partition or an incarnation that the store does not have.",
                "format",
                _FOREIGN,
            ),
            "folder-in-the-way": Code(
                "On a local disk a folder has the name of an object: what is written there next, as an entry, is "
                "refused.",
                "format",
                "remove the folder if it is empty, else look at who put it there",
            ),
            "object-foreign": Code(
                "An object, or a folder with objects, of a name that the format does not have there. Nothing reads it.",
                "format",
                _FOREIGN,
                "warning",
            ),
            "keys-not-listed": Code(
                "The store refuses to list its root, or a folder: foreign keys may be there unseen.",
                "format",
                "list with credentials that may, or move away the folder that cannot be read",
                "warning",
            ),
            "entry-damaged": Code("An entry's bytes are not those that were written.", "1", _RESTORE),
            "entry-missing": Code("A slot of the log is empty, and later ones are filled.", "1", _RESTORE),
            "entry-misnamed": Code(
                "An entry's rows belong at another slot than its key says.", "1", _RESTORE
            ),
            "log-lost": Code(
                "A partition's log is empty and has no snapshot, but a cut, a table, a group, a transaction, a data "
                "file or an object below `begun/` says that it went further.",
                "1",
                "restore this folder from a copy, or the store from a backup; the topic's other partitions can be read "
                "alone meanwhile",
            ),
            "topic-lost": Code(
                "No object of a topic is left, and a cut, a group or a transaction names it. A topic that was deleted "
                "leaves its tombstone.",
                "format",
                "restore the topic's folder from a copy, or the store from a backup; if it is to be gone, `txn-engine "
                "topics delete` records that",
            ),
            "entry-overlaps": Code("An entry begins inside the one before it.", "1", _RESTORE),
            "entry-malformed": Code("An entry is whole, but not what the format asks for.", "1", _REPORT),
            "descriptor-malformed": Code("The columns of a row contradict one another.", "format", _REPORT),
            "append-time-falls": Code("The log's time goes back.", "time is in the log", _REPORT),
            "control-unknown": Code(
                "A control row of a kind that format 2 does not have.",
                "format",
                "audit this store with the version of txn-engine that wrote it",
            ),
        },
        "Data files": {
            "data-file-missing": Code(
                "A file that the log counts on is not there. A warning where its records were dead already, and its "
                "24 hours of grace are not over.",
                "2",
                _RESTORE_FILE,
            ),
            "data-file-damaged": Code(
                "A data file's bytes are not those that were written.", "2", _RESTORE_FILE
            ),
            "data-file-truncated": Code("A data file is shorter than its entry says.", "2", _RESTORE_FILE),
            "data-file-swapped": Code(
                "A whole data file, but not the one that its entry names.", "2", _RESTORE_FILE
            ),
            "data-file-misnamed": Code(
                "A row names a file of another producer or epoch, or one uploaded after the row.",
                "one file, one fate",
                _REPORT,
            ),
            "data-file-named-twice": Code("Two rows name the same file.", "one file, one fate", _REPORT),
            "data-file-below-floor": Code(
                "A row names a file that the clean-up may delete: its name is below the floor.",
                "floor",
                _REPORT,
            ),
            "erased-there": Code(
                "A file holds a record that a finished erasure took away: it was put back.",
                "erasure",
                "find out who restored it; `txn-engine erase` with the same condition and `--execute` takes it away "
                "again",
            ),
            "data-file-records": Code(
                "A file holds more or fewer records than its row says, or at other offsets.", "2", _REPORT
            ),
            "data-file-order": Code(
                "Inside a file a record's offset is not above that of the one before it.", "2", _REPORT
            ),
            "data-file-timestamps": Code("A file's timestamps lie outside its row's bounds.", "2", _REPORT),
            "data-file-schema": Code("A file's columns are not its topic's.", "format", _REPORT),
            "data-file-field-ids": Code(
                "A file's Parquet field ids, by which Iceberg's readers go, are not those of its topic's columns. A "
                "warning where the file is of before there were ids, and took them over from somebody's table: the "
                "topic is not published as Iceberg then.",
                "format",
                "`txn-engine maintain compact` writes such files anew; where it is no warning, report it: a writer "
                "broke the protocol",
            ),
        },
        "Producers": {
            "epoch-falls": Code("A record follows one of a higher epoch of its producer.", "7", _REPORT),
            "epoch-mixed": Code(
                "A batch of another epoch than the producer's open transaction.", "7", _REPORT
            ),
            "plain-batch-in-transaction": Code(
                "A batch outside a transaction by a transactional producer: an abort would not undo it.",
                "2",
                _REPORT,
            ),
            "sequence-gap": Code(
                "A producer's sequence numbers skip some: a batch is missing.", "4", _REPORT
            ),
            "sequence-repeated": Code(
                "A producer's sequence numbers come twice: a batch is doubled.", "4", _REPORT
            ),
            "sequence-missing": Code("A producer's batch without sequence numbers.", "4", _REPORT),
        },
        "Markers and decisions": {
            "marker-epoch": Code(
                "A marker's epoch is not the one after the open transaction's.", "7", _REPORT
            ),
            "marker-repeated": Code("A marker that was there before.", "3", _REPORT),
            "marker-fenced": Code("A marker by authority of an older decision than the last.", "3", _REPORT),
            "marker-without-decision": Code("A marker, and no Prepare row that decides so.", "3", _REPORT),
            "marker-against-decision": Code("A commit marker for an abort, or the reverse.", "3, 6", _REPORT),
            "marker-of-another-epoch": Code("A marker at another epoch than its decision.", "7", _REPORT),
            "marker-outside-decision": Code(
                "A marker in a partition that its decision does not list.", "3", _REPORT
            ),
            "decision-overridden": Code("An operator aborted what was decided as a commit.", "3, 6", _REPORT),
            "decision-not-carried-out": Code(
                "A transaction is complete, and a partition of it has no marker.", "3", _REPORT
            ),
            "hanging-transaction": Code(
                "An open transaction that nobody will decide; it holds back every read_committed reader.",
                "3, 5",
                "`txn-engine transactions find-hanging` shows it, `transactions abort` ends it",
            ),
        },
        "The coordinator's log": {
            "wrong-partition": Code(
                "A row in another partition than its id's or its group's.", "format", _REPORT
            ),
            "state-move": Code("A state that cannot follow the one before.", "6", _REPORT),
            "transaction-epoch": Code("An id's epoch falls, or was not bumped at an end.", "6, 7", _REPORT),
            "transaction-producer": Code(
                "An id's producer id changes inside a transaction.", "6, 7", _REPORT
            ),
            "transaction-partitions": Code(
                "A partition leaves a transaction, or joins at its end.", "3", _REPORT
            ),
            "decision-offset": Code(
                "A row that names another decision than the last one of its id.", "6", _REPORT
            ),
            "run-id-lost": Code(
                "A committed run id is forgotten early, or was never decided.", "run ids", _REPORT
            ),
            "producer-id-shared": Code("Two transactional ids write as the same producer.", "7", _REPORT),
            "producer-id-reused": Code(
                "A transactional id is given a producer id that it had before.", "7", _REPORT
            ),
            "producer-id-block": Code(
                "A block of producer ids overlaps another, or is missing though ids of it, or of the block below it, "
                "are in use (errors); or is missing (a warning).",
                "producer ids",
                _REPORT,
                "warning",
            ),
            "transaction-timed-out": Code(
                "A transaction is open for longer than its time-out.",
                "work for a sweep",
                "`txn-engine coordinator sweep` aborts it",
                "warning",
            ),
            "transaction-pending": Code(
                "A decision is not carried out everywhere yet.",
                "work for a sweep",
                "`txn-engine coordinator markers` finishes it",
                "warning",
            ),
        },
        "Consumer groups": {
            "offset-over-pending": Code("A commit while another producer's is pending.", "8", _REPORT),
            "offset-moved": Code(
                "A commit on top of another row than the one its reader fetched.", "8", _REPORT
            ),
            "offset-beyond-end": Code(
                "A group's committed offset is beyond the log's end: the log lost its last entries, or somebody "
                "committed an offset that nobody had read.",
                "8",
                "if nobody did so on purpose, restore the log's last entries from a copy; "
                "`txn-engine groups reset-offsets` moves the group",
                "warning",
            ),
        },
        "Control rows, seals and snapshots": {
            "rewrite-illegal": Code(
                "A rewrite of what was not live, was undecided or not below the LSO, or one that changes which "
                "records there are, or their times; their values are not compared.",
                "rewrite",
                _REPORT,
            ),
            "erase-illegal": Code(
                "An erase row of a file that was undecided, not below the LSO or erased before, or in whose place "
                "stands what it never held; which records are missing nobody can tell.",
                "erasure",
                _REPORT,
            ),
            "clean-illegal": Code(
                "A clean row that moves back, lies beyond the LSO, or lets tombstones go before their time.",
                "compaction by key",
                _REPORT,
            ),
            "key-lost": Code(
                "Compaction left out the latest committed record of a key, or a tombstone that an older record needed.",
                "compaction by key",
                "keep the store as it is and report this: the replaced file named here is deleted 24 hours after its"
                " rewrite, and still holds the record",
            ),
            "key-doubled": Code(
                "A key has two live records where the log says that a partition is clean.",
                "compaction by key",
                _REPORT,
            ),
            "trim-illegal": Code(
                "A trim that moves back, lies beyond the LSO, inside a file, or on no entry.", "trim", _REPORT
            ),
            "expire-illegal": Code("A producer was forgotten with a transaction open.", "expire", _REPORT),
            "floor-illegal": Code("A floor that falls, or lies above its own row.", "floor", _REPORT),
            "lso-wrong": Code(
                "The LSO falls, lies beyond the log, or above undecided records.", "5", _REPORT
            ),
            "seal-misplaced": Code("A seal behind an entry that still holds its rows.", "seal", _RESTORE),
            "seal-illegal": Code(
                "A seal that no trim allowed: at `entries_start` or above it.", "seal", _RESTORE
            ),
            "sealed-without-snapshot": Code(
                "Entries are sealed, and no sound snapshot holds what they said.",
                "9",
                "restore a snapshot from a copy: the sealed rows stand only there",
            ),
            "snapshots-too-few": Code(
                "Entries may be sealed, and fewer than two sound snapshots hold what they say.",
                "seal",
                "run `txn-engine coordinator snapshot`, before any clean-up",
            ),
            "snapshot-damaged": Code("A snapshot's bytes are not those that were written.", "9", _SNAPSHOT),
            "snapshot-differs": Code("A snapshot is not what the log gives.", "9", _SNAPSHOT),
            "snapshot-ahead": Code(
                "A snapshot of more than there is of the log.",
                "1, 9",
                "the log behind this snapshot lost its last entries: restore them from a copy",
            ),
            "snapshot-misplaced": Code("A snapshot that ends inside an entry.", "9", _SNAPSHOT),
            "cut-unreadable": Code(
                "A cut names a snapshot that is not there, or an offset that its log does not have.",
                "cuts",
                "restore the snapshot from a copy, or run `txn-engine cuts delete N --execute` and make another cut",
            ),
            "cut-lost": Code(
                "A cut's object is gone, though a table names the cut (an error); or there is no cut an hour after its "
                "number was claimed: its maker died, or the object was lost (a warning).",
                "cuts",
                "restore the object from a copy; `txn-engine maintain clean` gives up a number that never had one",
                "warning",
            ),
            "cut-torn": Code(
                "A committed transaction lies half inside a cut: some of its rows below it, others at or above it.",
                "cuts",
                "trust nothing that was read as of this cut; run `txn-engine cuts delete N --execute` and make another",
            ),
        },
        "Tables": {
            "table-foreign": Code(
                "Something in a table's log that txn-engine did not write, or not so. Nobody publishes behind it.",
                "tables",
                "find out who may write there; remove it, and the commits behind it, and publish again",
            ),
            "table-differs": Code(
                "A version of a table shows other files than are live below its cut, other numbers of records, or other"
                " columns than its topic has.",
                "tables",
                "`txn-engine tables unpublish TOPIC --execute`, then publish again; the topic itself is not touched by "
                "this",
            ),
            "table-broken": Code(
                "A snapshot, a data file or a manifest is gone, or another, and a version of a table needs it.",
                "tables",
                "restore it from a copy, or publish again: only older versions need it then",
            ),
            "table-elsewhere": Code(
                "An Iceberg table names its files by another address than the store's: the store was moved or copied,"
                " and readers of the table read the files of the original.",
                "tables",
                "`txn-engine tables unpublish TOPIC --format iceberg --execute`, then publish again; where the store"
                " is only opened by another address here, open it by the one that the table names",
            ),
            "table-unpinned": Code(
                "No pin holds what the newest version of a table names: clean-up may delete it.",
                "tables",
                "publish again, with something new in the topic",
            ),
        },
    }
)
"""The kinds of finding by what they are about."""

CODES: Final[Mapping[str, Code]] = MappingProxyType(
    {name: code for group in GROUPS.values() for name, code in group.items()}
)
"""Every kind of finding by its code."""
