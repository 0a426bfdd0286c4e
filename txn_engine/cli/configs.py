"""`txn-engine configs`: the settings of a store and of its topics, as kafka-configs.sh shows and alters them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from txn_engine.cli.command import SETTINGS, Group, Place, common_options, execute_options
from txn_engine.cli.output import PREVIEWED, Output, columns

if TYPE_CHECKING:
    from txn_engine.types import Configs

_SETTINGS = columns("Name", "Value", "Default", "Set")
_CHANGES = columns("Name", "Before", "After")
_topic_option = click.option("--topic", metavar="TOPIC", help="Of this topic; without it: of the store.")


@click.group(cls=Group, short_help="Settings of the store and of topics, under Kafka's names.")
def configs() -> None:
    """Show and alter settings.

    A topic's are Kafka's of a topic, the store's are Kafka's of a broker. Who has the store open goes by a change
    within five seconds.
    """


@configs.command(
    context_settings=SETTINGS,
    short_help="Show the settings of the store, or of a topic.",
    examples=(
        "txn-engine configs describe --url file:///srv/ledger",
        "txn-engine configs describe --topic payments --json",
    ),
)
@_topic_option
@common_options
def describe(topic: str | None, place: Place, out: Output) -> None:
    """Show each setting, its value, and what it is where nobody has said otherwise.

    Set is `topic` or `store` where somebody has, `fixed` where only the one who set the store up could.
    """
    with place.open() as engine:
        found = engine.admin.describe_configs(topic)
    rows = [
        {
            "name": entry.name,
            "value": _shown(entry.value, out),
            "default": _shown(entry.default, out),
            "set": _who(topic, is_default=entry.is_default, is_fixed=entry.is_fixed),
            "what": entry.what,
        }
        for entry in found.entries.values()
    ]
    out.table("configs", _SETTINGS, rows, topic=topic, version=found.version)


@configs.command(
    context_settings=SETTINGS,
    short_help="Show what a change would do; with --execute, do it.",
    examples=(
        "txn-engine configs alter --topic payments --config retention.ms=604800000 --url file:///srv/ledger",
        "txn-engine configs alter --topic payments --config retention.ms=604800000 --execute",
        "txn-engine configs alter --topic payments --reset retention.ms --execute",
        "txn-engine configs alter --config transaction.max.timeout.ms=3600000 --execute",
    ),
)
@_topic_option
@click.option(
    "--config", "given", multiple=True, metavar="NAME=VALUE", help="Let this setting be so (repeatable)."
)
@click.option(
    "--reset",
    "reset",
    multiple=True,
    metavar="NAME",
    help="Let this setting be as it is where nobody has said otherwise (repeatable).",
)
@execute_options
@common_options
def alter(
    topic: str | None, given: Sequence[str], reset: Sequence[str], execute: bool, place: Place, out: Output
) -> None:
    """Show which settings would be others; with --execute, alter them: all at once, or none.

    Settings that are not named stay. Whoever relies on the old value is told: such a change is refused.
    """
    settings = _parsed(given, reset)
    with place.open() as engine:
        found = engine.admin.alter_configs(settings, topic=topic, dry_run=not execute)
    if execute:
        out.done()
    _tell(found, topic, out, execute=execute)


def _parsed(given: Sequence[str], reset: Sequence[str]) -> dict[str, str | None]:
    settings: dict[str, str | None] = dict.fromkeys(reset)
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"--config {text}: expected NAME=VALUE")
        if name in settings:
            raise click.UsageError(f"{name}: given twice")
        settings[name] = value
    if not settings:
        raise click.UsageError("nothing to alter: give --config NAME=VALUE or --reset NAME")
    return settings


def _tell(found: Configs, topic: str | None, out: Output, *, execute: bool) -> None:
    rows = [
        {"name": each.name, "before": _shown(each.before, out), "after": _shown(each.after, out)}
        for each in found.changes
    ]
    drop = found.would_drop
    more = {} if drop is None else {"would_drop": {**asdict(drop), "unreadable": list(drop.unreadable)}}
    out.table("changes", _CHANGES, rows, topic=topic, version=found.version, executed=execute, **more)
    if drop is not None:
        unknown = ", ".join(f"{topic}-{number}" for number in drop.unreadable)
        out.note(
            f"the next run of `maintain retention` would drop {drop.records:,} records, {drop.bytes:,} bytes"
            + (f"; not known of {unknown}, which cannot be read" if unknown else "")
        )
    if not rows:
        out.note("nothing to change: it is so already")
    elif not execute:
        out.note(PREVIEWED)


def _who(topic: str | None, *, is_default: bool, is_fixed: bool) -> str:
    if is_fixed:
        return "fixed"
    if is_default:
        return ""
    return "store" if topic is None else "topic"


def _shown(value: Any, out: Output) -> Any:
    """As Kafka writes it, but in JSON."""
    if out.as_json:
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)
