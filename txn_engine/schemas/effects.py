"""What a change of a topic's columns means to whoever reads or writes the topic: told before it is made."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from txn_engine.schemas.layout import Layout


@dataclass(frozen=True, slots=True)
class Effect:
    """What becomes of one kind of reader or writer."""

    reader: str
    what: str


@dataclass(frozen=True, slots=True)
class TopicAlteration:
    """What `alter_topic` did, or would do: the columns before and after, the number of the new version, and to whom it
    makes a difference. `dry_run`: nothing was written.
    """

    topic: str
    version: int
    changes: tuple[str, ...]
    before: pa.Schema
    after: pa.Schema
    effects: tuple[Effect, ...]
    dry_run: bool


def effects(
    before: Layout, after: Layout, published: Mapping[str, str | None], scheduled: Collection[str]
) -> tuple[Effect, ...]:
    """To whom the step from the one to the other makes a difference. published: by the formats of the topic's tables,
    why there will be no further version of them; None where there can be. scheduled: the formats that maintenance
    publishes; others wait for somebody to do so.
    """
    gone = [each.name for each in before.columns if each.id not in after.by_id]
    renamed = [
        f"{each.name} to {after.by_id[each.id].name}"
        for each in before.columns
        if each.id in after.by_id and after.by_id[each.id].name != each.name
    ]
    widened = [
        each.name
        for each in before.columns
        if each.id in after.by_id and after.by_id[each.id].type != each.type
    ]
    told = [
        Effect(
            "consumers, scans, SQL",
            "the new columns over all files, old ones too; other processes within 5 s",
        ),
        Effect("producers", _producers(gone, renamed)),
    ]
    if gone or renamed or widened:
        names = ", ".join([*gone, *renamed, *widened])
        told.append(
            Effect("running Spark streams", f"those that read {names} end with one line: start them again")
        )
    told += [
        Effect(f"{name} table", _of_table(name, refusal, widened, is_scheduled=name in scheduled))
        for name, refusal in published.items()
    ]
    told.append(Effect("quality", "goes on; each digest says the version of the columns that it goes by"))
    if gone:
        told.append(Effect("data", f"{', '.join(gone)}: read no more; gone from files as they are rewritten"))
    return tuple(told)


def _producers(gone: Sequence[str], renamed: Sequence[str]) -> str:
    if gone or renamed:
        return (
            "records with the columns of before are refused from their next call; files under way stay right"
        )
    return "records with the columns of before are taken, and completed"


def _of_table(name: str, refusal: str | None, widened: Sequence[str], *, is_scheduled: bool) -> str:
    if refusal is not None:
        return f"stays as it was published, and is not published again: {refusal}; copy into another topic"
    asked = ""
    if name == "delta" and widened:
        asked = ", which asks readers for typeWidening: Spark and DuckDB have it, deltalake and Polars refuse"
    waits = "" if is_scheduled else "; it was published by hand: `tables publish` makes that version"
    return f"has the new columns from its next version on{asked}{waits}"
