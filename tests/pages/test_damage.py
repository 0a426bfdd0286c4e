"""The pages of an app that was started on a damaged store: a red row for the damage, and all other data up to date."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pages.conftest import PREFIX
from tests.support import damage
from tests.support.damage import COORDINATOR, HURT_GROUP, HURT_ID, KINDS, SOUND_GROUP, SOUND_ID
from tests.support.waiting import wait_for
from txn_engine import TopicPartition, connect

pytestmark = pytest.mark.airflow

PARTITION = "payments-0"
LOST = "lost"
GAP = "gap"
"""A topic of one partition, which can be read, and one of whose data files is gone."""


@pytest.fixture(scope="module")
def store_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a store that is damaged before anybody looks, and has every stray key too."""
    root = tmp_path_factory.mktemp("store") / "ledger"
    url = damage.build(root)
    with connect(url) as engine:
        engine.admin.create_topic(LOST, partitions=1, schema=damage.SCHEMA)
        engine.admin.create_topic(GAP, partitions=1, schema=damage.SCHEMA)
        engine.partition(GAP, 0).append(damage.records(1))
    (gone,) = (root / f"topics/{GAP}/0/0/data").iterdir()
    gone.unlink()
    damage.overwrite(root, f"topics/{LOST}/0.json")
    for kind in ("last entry, garbage", "coordinator's last entry, garbage", "all stray keys at once"):
        KINDS[kind].do(root)
    return url


@pytest.fixture
def ask(client: Callable[..., Any]) -> Callable[..., Any]:
    browser = client("otto")

    def get(path: str, status: int = 200, **query: Any) -> Any:
        answer = browser.get(f"{PREFIX}/api/{path}", params=query)
        assert answer.status_code == status, answer.text
        return answer.json()

    return get


def places(lines: list[dict[str, Any]]) -> set[str]:
    assert all(line["code"] == "CORRUPT_MESSAGE" and line["error"] for line in lines)
    return {
        line["topic"] if line["partition"] < 0 else f"{line['topic']}-{line['partition']}" for line in lines
    }


def test_the_overview_has_a_red_row_for_each_place_and_all_else(ask: Callable[..., Any]) -> None:
    found = ask("overview")
    assert places(found["damage"]) == {LOST, PARTITION, COORDINATOR, f"{GAP}-0"}
    assert found["damaged"] == 4
    assert "a b" in found["foreign"]
    assert all(name.isprintable() for name in found["foreign"])
    lines = {line["topic"]: line for line in found["topics"]}
    assert {name: line["damaged"] for name, line in lines.items()} == {
        "balances": 0,
        "payments": 1,
        GAP: 0,
        LOST: -1,
    }
    assert lines["balances"]["records"] == 14
    assert lines["payments"]["records"] == 7
    assert ask("health")["trouble"] == ""


def test_each_page_names_its_own_damage(ask: Callable[..., Any]) -> None:
    """A page about something unreadable is an error that names the object. The other pages work."""
    assert places(ask("topics")["damage"]) == {LOST, PARTITION, f"{GAP}-0"}
    assert places(ask("topic", topic=GAP)["damage"]) == {f"{GAP}-0"}
    assert places(ask("topic", topic="payments")["damage"]) == {PARTITION}
    assert [line["partition"] for line in ask("topic", topic="payments")["partitions"]] == [1]
    assert ask("topic", topic="balances")["damage"] == []
    assert places(ask("transactions")["damage"]) == {COORDINATOR}
    assert [line["transactional_id"] for line in ask("transactions")["lines"]] == [SOUND_ID]
    assert ask("partition", topic="balances", partition=0)["cells"]
    for path, query, named in (
        ("topic", {"topic": LOST}, f"topics/{LOST}/0.json"),
        ("partition", {"topic": "payments", "partition": 0}, "topics/payments/0/0/log/"),
        ("transaction", {"id": HURT_ID}, "topics/__transaction_state/0/"),
    ):
        assert named in str(ask(path, 409, **query))


def test_what_goes_on_is_seen_and_so_is_new_damage(ask: Callable[..., Any], store_url: str) -> None:
    """The next look shows later records, next to a partition that has been damaged since."""
    assert {line["group_id"] for line in ask("groups")["groups"]} == {SOUND_GROUP, HURT_GROUP}
    with connect(store_url) as engine:
        at = TopicPartition("balances", 1)
        next_entry = engine.logs.get("balances", 0, 1).keys.entry(
            engine.admin.list_offsets("balances")[at].high_watermark
        )
        damage.put(Path(store_url.removeprefix("file://")), next_entry, damage.GARBAGE)
        engine.partition("balances", 0).append(damage.records(100))
    wait_for(
        lambda: places(ask("topics")["damage"]) == {LOST, PARTITION, f"{GAP}-0", "balances-1"},
        what="the new damage on the page",
        every_s=0.1,
    )
    assert [
        (line["partition"], line["records"]) for line in ask("topic", topic="balances")["partitions"]
    ] == [(0, 8)]
    assert ask("health")["trouble"] == ""
