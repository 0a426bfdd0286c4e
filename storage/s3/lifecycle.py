"""What a bucket's lifecycle rules do to the objects of a store, read from their XML: minio-py refuses some forms of it
that servers take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

TEXT_BYTES_MAX: Final = 1 << 20
_ARCHIVES: Final = frozenset({"GLACIER", "DEEP_ARCHIVE"})
"""Storage classes whose objects nobody can read before they are restored."""
_SPARES_CURRENT: Final = frozenset(
    {
        "NoncurrentVersionExpiration",
        "NoncurrentVersionTransition",
        "AbortIncompleteMultipartUpload",
        "DelMarkerExpiration",
    }
)
_KNOWN: Final = _SPARES_CURRENT | {"ID", "Status", "Filter", "Prefix", "Expiration", "Transition"}
_EXPIRES: Final = frozenset({"Days", "Date", "ExpiredObjectDeleteMarker", "ExpiredObjectAllVersions"})
_FILTERS: Final = frozenset({"Prefix", "Tag", "And", "ObjectSizeGreaterThan", "ObjectSizeLessThan"})


@dataclass(frozen=True, slots=True)
class LifecycleRule:
    """One enabled rule. danger: what it does to current objects of the store, in words; empty if nothing. unread: what
    of it is not known here, so that nobody can say; empty if nothing. old_version_days: after how many days it removes
    the noncurrent versions of all objects of the store; None if it does not.
    """

    rule_id: str
    danger: str = ""
    unread: str = ""
    old_version_days: int | None = None

    @property
    def named(self) -> str:
        """For sentences."""
        return f"lifecycle rule {self.rule_id!r}" if self.rule_id else "a lifecycle rule without an id"


class UnreadableRulesError(ValueError):
    """The answer is no lifecycle configuration."""


def rules_of(text: bytes, prefix: str) -> tuple[LifecycleRule, ...]:
    """The enabled rules. prefix: the store's in its bucket. Raises `UnreadableRulesError`."""
    if len(text) > TEXT_BYTES_MAX:
        raise UnreadableRulesError(f"{len(text)} bytes")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise UnreadableRulesError(str(error)) from error
    if _name(root) != "LifecycleConfiguration":
        raise UnreadableRulesError(f"<{_name(root)}>")
    rules = [each for each in root if _name(each) == "Rule"]
    return tuple(_rule(each, prefix) for each in rules if _text(each, "Status") == "Enabled")


def _rule(rule: Element, prefix: str) -> LifecycleRule:
    rule_id = _text(rule, "ID")
    covered = _Covered.by(rule)
    expiration = _find(rule, "Expiration")
    acts = set() if expiration is None else {_name(each) for each in expiration}
    unknown = sorted(({_name(each) for each in rule} - _KNOWN) | (acts - _EXPIRES) | covered.unknown)
    if not covered.overlaps(prefix):
        return LifecycleRule(rule_id)
    days = _old_version_days(rule) if covered.is_all_of(prefix) else None
    dangers = [each for each in (_deletes(rule), _archives(rule)) if each]
    if dangers:
        return LifecycleRule(rule_id, f"{' and '.join(dangers)} {covered.words}", old_version_days=days)
    if unknown:
        return LifecycleRule(rule_id, unread=f"<{'>, <'.join(unknown)}>", old_version_days=days)
    return LifecycleRule(rule_id, old_version_days=days)


@dataclass(frozen=True, slots=True)
class _Covered:
    """Which objects a rule is for. has_tags: those with some tag, of which a store has none."""

    prefix: str
    has_tags: bool
    sizes: str
    unknown: frozenset[str]

    @classmethod
    def by(cls, rule: Element) -> _Covered:
        found = _find(rule, "Filter")
        inner = [] if found is None else [each for each in found if _name(each) != "And"]
        both = None if found is None else _find(found, "And")
        inner += [] if both is None else list(both)
        by_name = {_name(each): (each.text or "") for each in inner}
        sizes = [
            f"{words} {by_name[name].strip()} bytes"
            for name, words in (("ObjectSizeGreaterThan", "more than"), ("ObjectSizeLessThan", "fewer than"))
            if name in by_name
        ]
        return cls(
            by_name.get("Prefix", _text(rule, "Prefix")),
            "Tag" in by_name,
            " and ".join(sizes),
            frozenset(by_name) - _FILTERS,
        )

    def overlaps(self, prefix: str) -> bool:
        ours = f"{prefix}/" if prefix else ""
        return not self.has_tags and (ours.startswith(self.prefix) or self.prefix.startswith(ours))

    def is_all_of(self, prefix: str) -> bool:
        ours = f"{prefix}/" if prefix else ""
        return ours.startswith(self.prefix) and not self.sizes and not self.unknown

    @property
    def words(self) -> str:
        of = f" of {self.sizes}" if self.sizes else ""
        return f"objects{of} below {self.prefix!r}" if self.prefix else f"every object{of}"


def _deletes(rule: Element) -> str:
    expiration = _find(rule, "Expiration")
    when = "" if expiration is None else _when(expiration)
    return f"deletes {when}" if when else ""


def _archives(rule: Element) -> str:
    for each in rule:
        if _name(each) == "Transition" and _text(each, "StorageClass") in _ARCHIVES:
            return f"moves to {_text(each, 'StorageClass')} {_when(each) or 'at once'}"
    return ""


def _old_version_days(rule: Element) -> int | None:
    """None also where some of the versions stay, whatever their age."""
    action = _find(rule, "NoncurrentVersionExpiration")
    if action is None or _text(action, "NewerNoncurrentVersions"):
        return None
    days = _text(action, "NoncurrentDays")
    return int(days) if days.isascii() and days.isdigit() else None


def _when(action: Element) -> str:
    """After how many days, or on which date; empty where it does nothing by age."""
    days, date = _text(action, "Days"), _text(action, "Date")
    if days:
        return f"after {days} day{'' if days == '1' else 's'}"
    return f"on {date[:10]}" if date else ""


def _name(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _find(element: Element, name: str) -> Element | None:
    return next((each for each in element if _name(each) == name), None)


def _text(element: Element, name: str) -> str:
    found = _find(element, name)
    return "" if found is None else (found.text or "").strip()
