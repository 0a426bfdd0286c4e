"""What obstore reported, in our words: the same for every service, but for what a service calls things."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from storage.errors import (
    AccessDeniedError,
    ArchivedObjectError,
    BucketNotFoundError,
    DamagedObjectError,
    NotConnectedError,
    ObjectNotFoundError,
    PutIfAbsentUnsupportedError,
    StorageError,
    StoreNotWritableError,
    StoreUnreachableError,
)
from storage.reasons import StoreReason

_CODE = re.compile(r"<Code>\s*([A-Za-z0-9]+)\s*</Code>")
# Such a store answers 200 to a request that deletes several objects, with an error for each that it does not delete.
_UNDELETED = re.compile(r"DeleteObjects request failed for key .*\(code: ([A-Za-z0-9]+)\)\s*$", re.DOTALL)
_STATUS = re.compile(r"status code: (\d{3})")
_UNREACHABLE = re.compile(
    r"error sending request|kind: (?:Connect|Timeout|Interrupted)|operation timed out|dns error|"
    r"error decoding response|connection (?:reset|closed)|request or response body error"
)
_NO_ANSWER = re.compile(r"kind: (?:Connect|Timeout)\b|operation timed out|TimedOut|dns error|certificate")
# What obstore says of an answer that began: its body ended early, or is not what it should be.
_BROKEN = re.compile(
    r"request or response body error|error decoding response|kind: Decode|invalid utf-8 sequence|"
    r"Error getting list response body|Got invalid list response|IncompleteBody|IncompleteMessage|UnexpectedEof"
)
_XML_BODY = re.compile(r"status code: \d{3}[^:\n]*: (<\?xml.*|<Error.*)", re.DOTALL)
_XML_ROOT = re.compile(r"(?:<\?xml[^>]*\?>)?\s*<(\w+)")
_BUSY_STATUS = frozenset({408, 429})
_BUSY_CODES = frozenset({"RequestTimeout", "SlowDown", "ServerBusy", "ServiceUnavailable", "InternalError"})
_UNLISTABLE = re.compile(
    r'object with invalid path: (?:Error parsing )?Path "(.*)"(?:: | contained )', re.DOTALL
)
_BEYOND_THE_END = "Wanted range starting at "
_NOT_CONNECTED = re.compile(r"kind: Connect\b")


class UnlistableNameError(DamagedObjectError):
    """A page of a listing that obstore does not give, for the name of one object in it."""


class AmbiguousNotFoundError(ObjectNotFoundError):
    """A 404 without the service's word for it: from a HEAD, or from something that is not the store."""


@dataclass(frozen=True, slots=True)
class Words:
    """What a service calls things in its answers.

    no_object, no_bucket, denied: its error codes; denied_action: what to do about one of the last (the code, and the
    operation that was refused); no_identity: what stands in an error of asking the machine for a role or an account
    where it has none; credentials: what is to be set; sentences: what stands in answers that have no code, and the code
    that it is of; archived: codes of an object in an archive; full: codes of a bucket or a disk that is full, which the
    store sends before it keeps anything.
    """

    actor: str
    bucket: str
    no_object: frozenset[str]
    no_bucket: frozenset[str]
    denied: frozenset[str]
    denied_action: Callable[[str, str], str]
    no_identity: tuple[str, ...]
    credentials: str
    sentences: tuple[tuple[str, str], ...] = ()
    archived: frozenset[str] = frozenset()
    full: frozenset[str] = frozenset()


def code_of(text: str, words: Words) -> str:
    """The service's error code; empty where there is none."""
    if (found := _CODE.search(text)) is not None:
        return found.group(1)
    if (found := _UNDELETED.search(text.partition("Debug source")[0])) is not None:
        return found.group(1)
    return next((code for sentence, code in words.sentences if sentence in text), "")


def is_beyond_the_end(text: str, words: Words) -> bool:
    """Whether it says that an object has no such bytes."""
    return code_of(text, words) == "InvalidRange" or _BEYOND_THE_END in text


def classified(
    error: Exception, operation: str, words: Words, *, bucket: str, place: str, redirect_action: str
) -> StorageError:
    """Only the service's own word means that an object is absent."""
    text = str(error)
    code = code_of(text, words)
    found = _STATUS.search(text)
    status = int(found.group(1)) if found else 0
    said = f"{operation} failed: " + (f"{status} {code}".strip() if status or code else type(error).__name__)
    actor = words.actor
    if (unlistable := _UNLISTABLE.search(text)) is not None:
        return UnlistableNameError(
            f"an object whose name no listing here can give: {unlistable[1]!a}",
            actor=actor,
            place=place,
            expected="names without control characters, '//', and segments '.' or '..'",
            action="find out who put it there, and move it away with the store's own tools",
        )
    if code in words.no_bucket:
        return BucketNotFoundError(
            f"there is no {words.bucket} {bucket!r}",
            actor=actor,
            place=place,
            action="create it or mend the URL",
        )
    if code in words.no_object:
        return ObjectNotFoundError("there is no such object", actor=actor, place=place)
    if _is_cut_short(text):
        return broken_answer(actor, place, operation=operation)
    if status == 404 or isinstance(error, FileNotFoundError):
        unclear = AmbiguousNotFoundError if operation == "head" else StoreUnreachableError
        return unclear(
            f"{operation} failed: a 404 that does not say {' or '.join(sorted(words.no_object))}",
            actor=actor,
            place=place,
            expected=f"the answer of a store of this kind ({actor})",
            action="check the endpoint and what stands between (a proxy?)",
        )
    if any(sign in text for sign in words.no_identity):
        return AccessDeniedError(
            "no credentials: none were given, none are in the environment, and the machine has no role",
            actor=actor,
            place=place,
            action=f"set {words.credentials}",
        )
    if code in words.archived:
        return ArchivedObjectError(
            said,
            actor=actor,
            place=place,
            expected="an object that can be read at once",
            action="restore it from the archive by the store's own tools, and end the rule that moves objects there",
            reason=StoreReason.ARCHIVED,
        )
    if code in words.full:
        return StoreNotWritableError(
            said,
            actor=actor,
            place=place,
            expected=f"room in the {words.bucket}",
            action="raise its quota or make room, then try again",
            reason=StoreReason.NO_ROOM,
        )
    if status in (401, 403) or code in words.denied:
        return AccessDeniedError(said, actor=actor, place=place, action=words.denied_action(code, operation))
    if status == 501 and operation == "put-if-absent":
        return PutIfAbsentUnsupportedError(
            said,
            actor=actor,
            place=place,
            expected="If-None-Match: * honoured",
            action="use another store",
        )
    if status in (301, 307, 308) or "redirect" in text:
        return StorageError(said, actor=actor, place=place, action=redirect_action)
    return _unclear(text, status, code, said, operation, words, place)


def _is_cut_short(text: str) -> bool:
    """Whether an error's body is XML whose end did not come, which a 404 needs to be the service's own word."""
    if (body := _XML_BODY.search(text.partition("Debug source")[0])) is None:
        return False
    root = _XML_ROOT.match(body[1])
    return root is None or f"</{root[1]}>" not in body[1]


def broken_answer(actor: str, place: str, *, operation: str = "") -> StorageError:
    """What an answer is whose end did not come, or that is not what it should be."""
    failed = f"{operation} failed: " if operation else ""
    return StoreUnreachableError(
        f"{failed}the answer was cut short, or cannot be parsed",
        actor=actor,
        place=place,
        expected="a whole answer",
        action="try again; if it stays, look at the network and at what stands between (a proxy?)",
        reason=StoreReason.BROKEN_ANSWER,
    )


def _unclear(
    text: str, status: int, code: str, said: str, operation: str, words: Words, place: str
) -> StorageError:
    """What says nothing of the object, or that the client says of the credentials before it asks anybody."""
    actor = words.actor
    if status or code:
        is_busy = code in _BUSY_CODES or status in _BUSY_STATUS or (status >= 500 and status != 501)
        kind = StoreUnreachableError if is_busy or status >= 500 else StorageError
        action = "try again; if it stays, look at the store's own log"
        reason = StoreReason.BUSY if is_busy else None
        return kind(said, actor=actor, place=place, action=action, reason=reason)
    if _BROKEN.search(text) and not _NO_ANSWER.search(text):
        return broken_answer(actor, place, operation=operation)
    if _UNREACHABLE.search(text):
        kind = NotConnectedError if _NOT_CONNECTED.search(text) else StoreUnreachableError
        broke, reason = _transport(text)
        action = "check the endpoint and the network, then try again"
        if reason is StoreReason.BAD_CERTIFICATE:
            action = "check the endpoint; if a private authority signs there, give its certificate (docs/STORES.md)"
        return kind(
            f"{operation} failed: {broke}",
            actor=actor,
            place=place,
            expected="an answer",
            action=action,
            reason=reason,
        )
    seen = text.partition("Debug source")[0]
    if operation == "open" and "credential" in seen:
        return AccessDeniedError(
            f"credentials that cannot be used: {seen}",
            actor=actor,
            place=place,
            action=f"set {words.credentials}, or mend what they name",
        )
    return StorageError(f"{operation} failed: {seen}", actor=actor, place=place)


def _transport(text: str) -> tuple[str, StoreReason]:
    for sign, words, reason in (
        ("InvalidCertificate", "the TLS certificate was not accepted", StoreReason.BAD_CERTIFICATE),
        ("ConnectionRefused", "connection refused", StoreReason.CONNECTION_REFUSED),
        ("dns error", "the host name does not resolve", StoreReason.UNKNOWN_HOST),
        ("ConnectionReset", "the connection was reset", StoreReason.CONNECTION_RESET),
        ("TimedOut", "no answer in time", StoreReason.NO_ANSWER),
        ("Timeout", "no answer in time", StoreReason.NO_ANSWER),
        ("certificate", "the TLS certificate was not accepted", StoreReason.BAD_CERTIFICATE),
    ):
        if sign in text:
            return words, reason
    return "the connection broke", StoreReason.CONNECTION_BROKE
