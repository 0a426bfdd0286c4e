"""What each command does to a bucket of each setting: the table of docs/BUCKETS.md."""

from __future__ import annotations

from dataclasses import dataclass

from tests.buckets.commands import COMMANDS, Seen


@dataclass(frozen=True)
class Note:
    """What a cell has that does not simply work.

    seen: exit code, error code, reason and checks, as `tests/buckets/commands.py` reads them; text: what the page says.
    """

    seen: Seen
    text: str


NOTES = {
    "keeps_versions": Note(
        Seen(0, checks=("versioning!",)),
        "`doctor` warns that the bucket keeps what is deleted. A lifecycle rule for noncurrent versions alone ends the "
        "warning.",
    ),
    "held_by_versions": Note(
        Seen(1, "ERASURE_INCOMPLETE"),
        "The records are gone from the topic, but old versions of its files hold them still. The message says how many "
        "versions there are, and until when the bucket keeps them. Remove the versions, then run `erase` again.",
    ),
    "versions_unknown": Note(
        Seen(1, "ERASURE_INCOMPLETE"),
        "The records are gone from the topic. The key may not ask whether the bucket keeps old versions, so nobody "
        "knows whether they are gone for good. The message names the right that is missing, "
        "`s3:GetBucketVersioning`.",
    ),
    "denied": Note(
        Seen(1, "CLUSTER_AUTHORIZATION_FAILED"),
        "The store refused the key. The message names the object, the store's own answer, and the right that is "
        "missing or what to check.",
    ),
    "delete_denied": Note(
        Seen(1, "CLUSTER_AUTHORIZATION_FAILED"),
        "The store refused to delete. Nothing that is needed is lost. The same command goes on with a key that may "
        "delete.",
    ),
    "doctor_denied": Note(
        Seen(1, checks=("reachable",)),
        "`doctor` says that the store refuses the key, and which call it refuses.",
    ),
    "doctor_reads": Note(
        Seen(0, checks=("versioning!", "lifecycle!", "put-if-absent!")),
        "`doctor` warns that nothing may be written here, that reading works, and that the key may not ask for "
        "versioning and lifecycle rules.",
    ),
    "doctor_may_not_put": Note(
        Seen(0, checks=("put-if-absent!",)),
        "`doctor` warns that nothing may be written here and that reading works.",
    ),
    "doctor_keeps_probes": Note(
        Seen(0, checks=("versioning!", "lifecycle!", "probes!")),
        "`doctor` proves put-if-absent, and warns that its probes stay, and that the key may not ask for versioning "
        "and lifecycle rules.",
    ),
    "doctor_may_not_ask": Note(
        Seen(0, checks=("versioning!", "lifecycle!")),
        "`doctor` warns that the key may not ask for versioning and lifecycle rules.",
    ),
    "no_room": Note(
        Seen(1, "KAFKA_STORAGE_ERROR", "no_room"),
        "The bucket or the disk is full. Raise the quota or make room, then run the command again.",
    ),
    "doctor_no_room": Note(Seen(1, checks=("put-if-absent",)), "`doctor` says that there is no room."),
    "certificate": Note(
        Seen(1, "NETWORK_EXCEPTION", "bad_certificate"),
        "The server's certificate was not accepted. Name the authority's file in `AWS_CA_BUNDLE`.",
    ),
    "doctor_certificate": Note(
        Seen(1, checks=("reachable",)), "`doctor` says that the server's certificate was not accepted."
    ),
    "archived": Note(
        Seen(1, "CORRUPT_MESSAGE", "archived"),
        "The object is in an archive. Restore it with the store's own tools, and end the rule that moves objects "
        "there.",
    ),
    "doctor_archived": Note(
        Seen(1, checks=("contents",)),
        "`doctor` reads one byte of the oldest data file of each log, and names those that the store does not give.",
    ),
    "doctor_archived_backups": Note(
        Seen(1, checks=("backups",)),
        "`doctor` reads one byte of one data file of each log that the newest backup has, and names one that the store "
        "does not give.",
    ),
    "verify_archived": Note(
        Seen(1), "The command names each data file that it could not read, with the store's answer."
    ),
}


def _doctor(note: str) -> dict[str, str]:
    return {"doctor": note, "doctor_backups": note}


_WRITES = ("topic", "load", "group", "cut", "backup", "prune", "restore", "erase", "clean")
_KEPT = {**_doctor("keeps_versions"), "erase": "held_by_versions"}
EXPECTED: dict[str, dict[str, str]] = {
    "versioned": _KEPT,
    "suspended": _KEPT,
    "governance": _KEPT,
    "compliance": _KEPT,
    "lock_as_aws": _KEPT,
    "sse_missing": {**dict.fromkeys(_WRITES, "denied"), **_doctor("doctor_may_not_put")},
    "quota": {**dict.fromkeys(_WRITES, "no_room"), **_doctor("doctor_no_room")},
    "disk_full": {**dict.fromkeys(_WRITES, "no_room"), **_doctor("doctor_no_room")},
    "read_only": {**dict.fromkeys(_WRITES, "denied"), **_doctor("doctor_reads")},
    "no_delete": {
        **dict.fromkeys(("prune", "erase", "clean"), "delete_denied"),
        **_doctor("doctor_keeps_probes"),
    },
    "no_list": {**dict.fromkeys(COMMANDS, "denied"), **_doctor("doctor_denied")},
    "prefix_list": {**_doctor("doctor_may_not_ask"), "erase": "versions_unknown"},
    "revoked": {**dict.fromkeys(COMMANDS, "denied"), **_doctor("doctor_denied")},
    "unknown_ca": {**dict.fromkeys(COMMANDS, "certificate"), **_doctor("doctor_certificate")},
    "archived": {
        **dict.fromkeys(("consume", "group", "backup", "restore", "erase"), "archived"),
        **dict.fromkeys(("verify", "backup_verify"), "verify_archived"),
        "doctor": "doctor_archived",
        "doctor_backups": "doctor_archived_backups",
    },
}
"""The cells that do not simply work, by the setting and the command, with the name of their note."""


def note_of(setting: str, command: str) -> str | None:
    """The name of the cell's note; None where the command works."""
    return EXPECTED.get(setting, {}).get(command)
