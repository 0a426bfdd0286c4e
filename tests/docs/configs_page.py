"""docs/CONFIGS.md, from the code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.support.servers import REPOSITORY
from txn_engine.configs import STORE, TOPIC, Setting
from txn_engine.configs.client import CONSUMER, NOT_A_CONSUMERS, NOT_A_PRODUCERS, PRODUCER
from txn_engine.configs.store import NOT_A_STORES
from txn_engine.configs.topic import NOT_A_TOPICS

PAGE = REPOSITORY / "docs" / "CONFIGS.md"
_HEAD = """\
# Settings

Made from the code by `make docs`; do not edit. Every setting has Kafka's name where Kafka has it, and beside its
default stands that of Kafka 4.4. What Kafka has and this engine has not is at the end, each with what to expect
instead: it is refused with these words, never ignored.

```bash
txn-engine configs describe                                              # the store's
txn-engine configs describe --topic payments
txn-engine configs alter --topic payments --config retention.ms=604800000            # shows what it would do
txn-engine configs alter --topic payments --config retention.ms=604800000 --execute
txn-engine configs alter --topic payments --reset retention.ms --execute
```

Where a change of `retention.ms`, `retention.bytes` or `cleanup.policy` is shown, so is how many records and bytes the
next run of `maintain retention` would drop.

In Python `engine.admin.describe_configs(topic=None)` and `alter_configs(settings, topic=None, dry_run=False)`. A call
changes all that it names, or nothing; of two who change something at once the second judges what the first has left.

**When a change is seen.** The engine that made it goes by it in its next call, every other process within five
seconds. A call that is under way goes on by what it began with; a job of maintenance looks again before each partition,
and compaction by key before each of its rows. What stood in the log before is not judged anew: rows that were judged by
`delete.retention.ms` say by which. Settings of clients are given when they are made, and stay.

**Who may change them.** Who may put objects below `settings/` and `topics/*/changes/`: the *maintainer* of
[SECURITY.md](SECURITY.md), no *writer*.

**Code of before** does not know these objects, and goes by what a topic or a store was made with: it may drop what a
longer `retention.ms` keeps. Bring all processes up to this version before the first change.
"""
# ruff: noqa: ISC004
_PARTS: tuple[tuple[str, str, Mapping[str, Setting]], ...] = (
    (
        "Of a topic",
        "Kafka's of a topic. Given by `topics create --config`, changed by `configs alter --topic`.",
        TOPIC,
    ),
    (
        "Of the store",
        "Kafka's of a broker. Given by `connect(url, configs={...})` or `topics create --store-config` for a fresh\n"
        "store, changed by `configs alter`.",
        STORE,
    ),
    (
        "Of a producer",
        "Keywords of `engine.producer`, with underscores for dots (`linger_ms=50`), or a dict under Kafka's names\n"
        '(`{"linger.ms": 50}`).',
        PRODUCER,
    ),
    ("Of a consumer", "In the same way, of `engine.consumer`.", CONSUMER),
)
_ABSENT = (
    ("a topic", NOT_A_TOPICS),
    ("the store", NOT_A_STORES),
    ("a producer", NOT_A_PRODUCERS),
    ("a consumer", NOT_A_CONSUMERS),
)


def page() -> str:
    """The page as the code has it now."""
    return "\n".join([_HEAD, *_settings(), *_absent()])


def _settings() -> Iterator[str]:
    for title, how, settings in _PARTS:
        yield f"## {title}\n\n{how}\n"
        yield "| setting | values | default | Kafka's | |\n|---|---|---|---|---|"
        for setting in settings.values():
            yield _row(setting)
        yield ""


def _row(setting: Setting) -> str:
    kafka = "-" if setting.kafka is None else f"`{_text(setting.kafka)}`" if _text(setting.kafka) else "none"
    default = f"`{_text(setting.default)}`" if _text(setting.default) else "none"
    notes = [setting.what]
    if setting.why and setting.kafka is not None:
        notes.append(f"*Not Kafka's:* {setting.why}.")
    if setting.relies:
        notes.append(f"*Not less:* {setting.relies}.")
    if setting.fixed:
        notes.append(f"*Only where a store is set up:* {setting.fixed}.")
    return (
        f"| `{setting.name}` | {setting.range_text or 'a name'} | {default} | {kafka} | {' '.join(notes)} |"
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _absent() -> Iterator[str]:
    yield "## What there is not\n"
    yield "`ssl.*`: whatever begins so, and is not named by itself.\n"
    yield "| of Kafka | asked of | expect |\n|---|---|---|"
    found: dict[tuple[str, str], list[str]] = {}
    for who, names in _ABSENT:
        for name, expected in names.items():
            if not expected.endswith("it is one of its settings"):
                found.setdefault((name, expected), []).append(who)
    for (name, expected), asked in sorted(found.items()):
        yield f"| `{name}` | {', '.join(asked)} | {expected} |"
    yield ""
