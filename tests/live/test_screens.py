"""The pages in a real Chromium on a real Airflow: what a person does there, and what is refused without a
log-in.

`make test` runs them on the api-server alone, with a store in which everything was done by hand. The shard
runs them on a whole Airflow whose DAGs did it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from urllib.parse import quote

import httpx
import pyarrow as pa
import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.conftest import missing_server
from tests.live import settled as by_hand
from tests.live.stack import Stack, running_stack
from tests.live.test_real_run import payments_flow, wait_until_all_is_well
from tests.suite.tiers import in_shard
from tests.support.browser import (
    BOTH_THEMES,
    DARK_AND_NARROW,
    EVERY_LOOK,
    SCREENSHOTS,
    chromium_binary,
    log_in,
    logged_in_again,
    open_page,
    running_browser,
    screenshots,
)
from tests.support.servers import MinioServer
from txn_engine.loading import DEAD_LETTERS
from txn_engine_airflow.pages.routes_pages import PAGES
from txn_engine_airflow.standalone.home import USER

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.minio,
    pytest.mark.slow,
    pytest.mark.together("a live Airflow"),
    pytest.mark.timeout(1_800),
]

FOREVER_MS = 900_000
REFRESHED_MS = 30_000
A_REFRESH_MS = 3_100
"""A page asks again each 3 s."""
DEAD = "rows-that-fail"
QUERIES = {
    "transaction": f"?id={quote('first-bank')}",
    "topic": "?topic=payments",
    "partition": "?topic=payments&partition=0",
    "group": "?group=balances",
    "dead-letter-topic": f"?topic={DEAD}",
    "cut": "?number=0",
}
"""What the pages are about that show one thing. The query of `report` comes from the list of reports."""
OPENED_ABOVE = {"transactions", "transaction", "dead-letters", "dead-letter-topic", "quality", "report"}
PATHS = {path: path + QUERIES.get(path, "") for path in PAGES}
API = (
    "me",
    "overview",
    "health",
    "runs",
    "transactions",
    "transaction?id=first-bank",
    "topics",
    "topic?topic=payments",
    "partition?topic=payments&partition=0",
    "records?topic=payments&partition=0&offset=0",
    "groups",
    "group?group=balances",
    "dead-letters",
    f"dead-letter-topic?topic={DEAD}",
    f"letters?topic={DEAD}&partition=0",
    "cuts",
    "cut?number=0",
    "reports",
    "report?dag=x&run=y",
)


@pytest.fixture(scope="module", params=in_shard("airflow", ["api-server", "whole"], keep=["api-server"]))
def settled(request: pytest.FixtureRequest, minio_server: MinioServer) -> Iterator[Stack]:
    """Payments were loaded, summed up and verified, and there are a cut and dead letters for the pages to show."""
    if request.param == "whole":
        stack: Stack = request.getfixturevalue("stack")
        if not stack.traffic.committed:
            payments_flow(stack, "first")
            wait_until_all_is_well(stack, patience_s=500)
        leave_dead_letters(stack)
        stack.engine.cut()
        yield stack
        return
    with running_stack(minio_server, whole=False) as stack:
        stack.traffic.make_topics()
        payments_flow(stack, "first")
        stack.traffic.make_hanging_topic("lost-and-found")  # the pages look for new topics each 12 s
        by_hand.settle(stack)
        leave_dead_letters(stack)
        stack.engine.cut()
        yield stack


def leave_dead_letters(stack: Stack) -> None:
    """Two rows that could not be used, with markup and a control character in them."""
    stack.engine.admin.create_topic(DEAD, partitions=1, schema=DEAD_LETTERS)
    row = {
        "topic": "payments",
        "columns": "<b>bold</b>\x1b",
        "reason": "<i>why</i>",
        "error_class": "E",
        "tries": 1,
    }
    letter = (
        dict.fromkeys(DEAD_LETTERS.names) | row | {"failed_at": stack.engine.clock(), "source_file": "a.csv"}
    )
    stack.engine.partition(DEAD, 0).append(pa.Table.from_pylist([letter] * 2, schema=DEAD_LETTERS))


@pytest.fixture(scope="module")
def person(settled: Stack) -> Iterator[BrowserContext]:
    """An administrator at a browser."""
    binary = chromium_binary()
    if binary is None:
        missing_server("no Chromium: install Debian's `chromium`, or run .ci/setup-debian")
    with running_browser(binary) as browser:
        context = log_in(browser, settled.airflow.url, USER, settled.airflow.secrets.password)
        yield context
        context.close()


def test_overview_shows_topics_and_the_last_runs(person: BrowserContext) -> None:
    page = open_page(person, "")
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    expect(page.locator("#content")).to_contain_text("payments")
    expect(page.locator("#content")).to_contain_text("balances")
    expect(page.locator("#freshness")).to_have_text("Up to date")
    page.close()


def test_filter_then_open_one_transaction(person: BrowserContext) -> None:
    """The list can be filtered by id. A transaction whose markers were deferred shows its whole time line."""
    page = open_page(person, "transactions")
    expect(page.get_by_role("link", name="first-shop", exact=True)).to_be_visible()
    page.get_by_label("Transactional id", exact=True).fill("first-bank")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_role("link", name="first-shop", exact=True)).to_have_count(0)
    page.get_by_role("link", name="first-bank", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("first-bank")
    expect(page.get_by_role("heading", name="Decided: commit")).to_be_visible()
    expect(page.locator("#content")).to_contain_text("4 of 4 partitions")
    expect(page.locator("#lede")).to_contain_text("CompleteCommit")
    page.close()


def test_abort_an_open_transaction(person: BrowserContext, settled: Stack) -> None:
    """An abort has to be confirmed. The store has it afterwards, and Airflow's audit log says who did it."""
    settled.traffic.leave_open("forgotten", timeout_ms=FOREVER_MS)
    page = open_page(person, "transactions")
    page.get_by_role("button", name="Abort the transaction of forgotten").click()
    sure = page.get_by_role("button", name="Abort the transaction", exact=True)
    expect(sure).to_be_disabled()
    page.get_by_label("I know whose transaction this is").check()
    sure.click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert settled.traffic.states()["forgotten"] == "CompleteAbort"
    logged = settled.audit_log("txn_engine.abort_transaction")
    assert any(owner == USER and "forgotten" in extra for owner, extra in logged)
    page.close()


# `make test` aborts one without a browser in tests/pages/test_abort.py
@pytest.mark.shard("airflow")
def test_abort_a_hanging_transaction(person: BrowserContext, settled: Stack) -> None:
    """Only a person can end an open transaction that no row of the coordinator knows."""
    settled.traffic.leave_hanging("orphaned")
    page = open_page(person, "transactions")
    page.get_by_role("button", name=re.compile("Abort the hanging transaction on orphaned-0")).click()
    page.get_by_label("I know whose transaction this is").check()
    page.get_by_role("button", name="Abort the transaction", exact=True).click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert not settled.engine.admin.find_hanging_transactions("orphaned")
    page.close()


def test_show_dead_letters(person: BrowserContext, settled: Stack) -> None:
    """The page says why rows could not be used and shows the rows. Markup in them is text."""

    def counted() -> bool:
        answer = person.request.get(f"/txn-engine/api/dead-letter-topic?topic={DEAD}")
        return answer.ok and bool(answer.json()["is_read"])

    settled.wait_for("the dead letters on the pages", counted, patience_s=60, pause_s=0.2)
    page = open_page(person, "dead-letters")
    expect(page.get_by_role("table", name="Reasons")).to_contain_text("<i>why</i>")
    page.get_by_role("table", name="Dead-letter topics").get_by_role("link", name=DEAD).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(DEAD)
    page.get_by_role("button", name="Show letters").click()
    shown = page.get_by_role("table", name=f"Letters of {DEAD}-0")
    expect(shown).to_contain_text("<b>bold</b>\\x1b")
    expect(shown.get_by_role("row")).to_have_count(3)
    expect(page.locator("#content :is(b, i)")).to_have_count(0)
    page.close()


def abort(settled: Stack, name: str) -> None:
    """Abort a transaction as another process does."""
    at = settled.engine.admin.describe_transaction(name)
    settled.engine.coordinator.end_transaction(name, at.producer_id, at.producer_epoch, committed=False)


def refresh_until(page: Page, settled: Stack, is_so: Callable[[], bool]) -> None:
    """Put the page's clock forward, refresh for refresh, until it shows what the server has seen."""

    def refreshed() -> bool:
        page.clock.fast_forward(A_REFRESH_MS)
        page.wait_for_timeout(200)
        return is_so()

    settled.wait_for("what the page is to show", refreshed, patience_s=REFRESHED_MS / 1_000, pause_s=0.1)


def test_focus_stays_on_its_row(person: BrowserContext, settled: Stack) -> None:
    """Rows come and go at each refresh. Enter presses the button that has the focus, or nothing if that row is gone."""
    for name in ("goes-first", "stays-on"):
        settled.traffic.leave_open(name, timeout_ms=FOREVER_MS)
    own_window = logged_in_again(person, settled.airflow.url)  # with a clock of its own
    page = open_page(own_window, "transactions", has_clock=True)
    above = page.get_by_role("button", name="Abort the transaction of goes-first")
    own = page.get_by_role("button", name="Abort the transaction of stays-on")
    refresh_until(page, settled, lambda: above.count() == own.count() == 1)
    own.focus()
    abort(settled, "goes-first")
    refresh_until(page, settled, lambda: above.count() == 0)
    expect(own).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("stays-on")
    page.keyboard.press("Escape")
    expect(own).to_be_focused()
    abort(settled, "stays-on")
    refresh_until(page, settled, lambda: own.count() == 0)
    expect(page.get_by_role("region", name="Transactional ids", exact=True)).to_be_focused()
    own_window.close()


def test_trouble_is_announced(person: BrowserContext, settled: Stack) -> None:
    """A screen reader announces that the store has trouble, and that the session has ended."""
    own = logged_in_again(person, settled.airflow.url)  # a clock belongs to all pages of a browser's context
    page = open_page(own, "", has_clock=True)
    announced = page.get_by_role("status")
    away = page.request.get("/txn-engine/api/health").json() | {"age_ms": 61_000, "trouble": "no bucket"}
    page.route("**/api/health", lambda route: route.fulfill(json=away))
    page.clock.fast_forward(A_REFRESH_MS)
    expect(announced.filter(has_text="no bucket")).to_be_visible(timeout=REFRESHED_MS)
    expect(announced.filter(has_text="and may be different by now")).to_be_visible()
    expect(page.locator("#freshness")).to_contain_text("old")
    page.unroute("**/api/health")
    page.clock.fast_forward(A_REFRESH_MS)
    expect(announced.filter(has_text="no bucket")).to_have_count(0, timeout=REFRESHED_MS)
    page.route("**/api/**", lambda route: route.fulfill(status=401, json={"detail": "not logged in"}))
    page.clock.fast_forward(A_REFRESH_MS)
    expect(announced.filter(has_text="Your session has ended")).to_be_visible(timeout=REFRESHED_MS)
    own.close()


def test_read_the_report(person: BrowserContext) -> None:
    """A run in the list leads to its checks and to the full report in its frame."""
    page = open_page(person, "quality")
    page.get_by_role("table", name="Runs").get_by_role("link").first.click()
    expect(page.get_by_role("heading", name="Full report")).to_be_visible()
    expect(page.locator("#content")).to_contain_text("Passed")
    report = page.frame_locator("iframe.report")
    expect(report.locator("body")).to_contain_text("exactly", ignore_case=True)
    page.close()


def test_anonymous_is_refused(settled: Stack) -> None:
    """Without a log-in no page, no data, no file and no path that does not exist says anything of the store."""
    pages = [*PATHS.values(), *(f"api/{path}" for path in API)]
    files = ["static/main.js", "static/nothing", "report-files/x/y/index.html", "nothing", "docs"]
    with httpx.Client(base_url=f"{settled.airflow.url}/txn-engine/", trust_env=False, timeout=30) as stranger:
        for path in pages + files:
            answer = stranger.get(path)
            assert answer.status_code in (401, 403), path
            assert "first-bank" not in answer.text
            assert "balances" not in answer.text


def test_anonymous_aborts_nothing(settled: Stack) -> None:
    """Both actions are refused without a log-in."""
    for path in ("abort", "abort-hanging"):
        url = f"{settled.airflow.url}/txn-engine/api/{path}"
        assert httpx.post(url, json={}, trust_env=False, timeout=30).status_code in (401, 403), path


@pytest.fixture(scope="module")
def busy(settled: Stack, person: BrowserContext) -> Iterator[Stack]:
    """A store with open, undecided and hanging transactions, which are ended for later tests of the same Airflow."""
    traffic = settled.traffic
    traffic.leave_open("night-batch", timeout_ms=FOREVER_MS)
    traffic.pay("late-shop")
    traffic.leave_open("second-till", timeout_ms=FOREVER_MS)
    traffic.pay_deferred("late-bank")
    traffic.leave_hanging("lost-and-found")

    def shown() -> bool:
        return bool(person.request.get("/txn-engine/api/overview").json()["totals"]["hanging"])

    settled.wait_for("the hanging transaction on the pages", shown, patience_s=60, pause_s=0.2)
    yield settled
    for name in ("night-batch", "second-till"):
        abort(settled, name)
    settled.engine.admin.abort_transaction("lost-and-found", 0, 0)


@pytest.mark.shard("airflow")
def test_abort_is_in_view_on_a_narrow_screen(person: BrowserContext, busy: Stack) -> None:
    """On a telephone the button and how long the transaction has been open are visible without scrolling sideways."""
    for path in ("", "transactions"):
        page = open_page(person, path)
        page.set_viewport_size({"width": 390, "height": 900})
        button = page.get_by_role("button", name="Abort the transaction of night-batch")
        button.scroll_into_view_if_needed()
        row = page.get_by_role("row").filter(has=button)
        for shown in (button, row.get_by_role("cell").nth(1)):
            box = shown.bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 390
        page.close()


def test_ages_go_by_the_servers_clock_and_go_on_without_it(person: BrowserContext, busy: Stack) -> None:
    """A browser two hours ahead shows the same ages. Without an api-server they still grow, and the page says so."""
    ahead = logged_in_again(person, busy.airflow.url)  # a clock belongs to all pages of a browser's context
    page = ahead.new_page()
    page.clock.install(time=time.time() + 7_200)
    page.goto("/txn-engine/transactions")
    age = page.get_by_role("row").filter(has_text="night-batch").get_by_role("cell").nth(1)
    expect(age).to_have_text(re.compile(r"^(under 1 s|\d+ s|\d+ min( \d+ s)?)$"))
    before = age.inner_text()
    page.route("**/api/**", lambda route: route.abort())
    page.clock.run_for(30_000)
    expect(page.get_by_role("status").filter(has_text="may be different by now")).to_be_visible()
    expect(page.locator("#freshness")).to_contain_text("old")
    assert age.inner_text() != before
    ahead.close()


def test_a_strip_says_where_readers_stop(person: BrowserContext, busy: Stack) -> None:
    """Records committed after an open transaction are shown as waiting, because readers do not get them yet."""
    held = person.request.get("/txn-engine/api/overview").json()["held"]
    at = next(each for each in held if each["topic"] == "payments" and each["waiting_records"])
    page = open_page(person, f"partition?topic=payments&partition={at['partition']}")
    expect(page.locator("#content")).to_contain_text(f"stop at offset {at['last_stable']:,}")
    expect(page.locator("#content")).to_contain_text(f"{at['waiting_records']:,} more wait")
    page.close()


@pytest.mark.parametrize("name", in_shard("airflow", PATHS, keep=lambda name: name not in OPENED_ABOVE))
def test_screenshots(person: BrowserContext, busy: Stack, name: str) -> None:
    """Each page fits the window. The pictures are kept in .cache/screenshots. `make test` takes the pages that no test
    above opens, and the overview light and wide too. In the shard each page is light and dark, wide and narrow.
    """
    path = PATHS[name]
    if name == "report":
        (report, *_) = person.request.get("/txn-engine/api/reports").json()["reports"]
        path += f"?dag={quote(report['dag_id'])}&run={quote(report['folder'])}"
    looks = EVERY_LOOK if busy.whole else DARK_AND_NARROW if name else BOTH_THEMES
    pictures = screenshots(person, path, name or "overview", looks)
    assert all(picture.stat().st_size > 5_000 for picture in pictures)


def test_inside_airflow(person: BrowserContext, busy: Stack) -> None:
    """Airflow's menu leads to the pages, which are shown in Airflow's frame and in its colours."""
    page = person.new_page()
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto("/")
    page.get_by_role("link", name="Txn engine").click()
    frame = page.frame_locator("iframe")
    expect(frame.get_by_role("heading", level=1)).to_have_text("Overview")
    expect(frame.locator("#content")).to_contain_text("night-batch")
    page.screenshot(path=SCREENSHOTS / "inside-airflow.png")
    page.close()
