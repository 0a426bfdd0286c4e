"""The Quality page lists the suite's reports for viewers, and shows them whole to users who may see records."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pages import busy_store
from tests.pages.conftest import PREFIX
from tests.support.waiting import wait_for
from txn_engine import connect

pytestmark = pytest.mark.airflow

DAG, RUN = "txn_verify_exactly_once", "manual__2026-11-21T10_00_00"
ACCOUNT = 770_077_007_700  # as no time and no path has it


@pytest.fixture(scope="module")
def report(airflow_app: Any) -> Iterator[Path]:
    """The report of a task about a topic with a record twice, in the store of the connection
    `other_store`."""
    from txn_engine_airflow.alerts import AlertError
    from txn_engine_airflow.verification import report_folder, verify_exactly_once

    with connect("memory://report") as engine, pytest.MonkeyPatch.context() as patch:
        patch.setenv(
            "AIRFLOW_CONN_OTHER_STORE", '{"conn_type": "txn_engine", "extra": {"url": "memory://report"}}'
        )
        patch.setenv("TXN_ENGINE_CONNECTIONS", "other_store")
        engine.admin.create_topic("payments", partitions=1, schema=busy_store.SCHEMA)
        for _ in range(2):
            engine.partition("payments", 0).append(busy_store.records(ACCOUNT, 1))
        params = {"conn_id": "other_store", "topic": "payments", "record_id": "account_id", "scope": "everything",
                  "engine": "auto", "spark_above": 10**9,
                  "output_count": None}  # fmt: skip
        with pytest.raises(AlertError) as alert:
            verify_exactly_once(
                params,
                dag_id=DAG,
                run_id=RUN,
                own_check=params,
                announce=lambda *_: None,
                emit=lambda *_: None,
            )
    assert alert.value.subjects == (f"payments {RUN}",)
    folder = report_folder(None, dag_id=DAG, run_id=RUN)
    yield folder
    import shutil

    shutil.rmtree(folder)


def listed(browser: Any) -> list[dict[str, Any]]:
    return list(
        wait_for(
            lambda: browser.get(f"{PREFIX}/api/reports").json()["reports"],
            what="the report on the page",
            every_s=0.2,
        )
    )


def test_a_viewer_sees_outcomes_and_counts_but_no_record(report: Path, client: Callable[..., Any]) -> None:
    browser = client("vera")
    (line,) = listed(browser)
    assert (line["dag_id"], line["run_name"], line["success"], line["has_page"]) == (DAG, RUN, False, True)
    assert line["failed"] >= 1
    found = browser.get(f"{PREFIX}/api/report", params={"dag": DAG, "run": line["folder"]})
    failed = [check for check in found.json()["checks"] if check["status"] == "failed"]
    assert "record_ids_unique" in {check["name"] for check in failed}
    assert all(check["action"] for check in failed)
    assert "salary" not in found.text
    assert str(ACCOUNT) not in found.text
    assert browser.get(f"{PREFIX}/report-files/{DAG}/{line['folder']}/index.html").status_code == 403


def test_the_full_report_is_served_with_its_pictures_and_without_scripts(
    report: Path, client: Callable[..., Any]
) -> None:
    browser = client("otto")
    (line,) = listed(browser)
    folder = f"{PREFIX}/report-files/{DAG}/{line['folder']}"
    page = browser.get(f"{folder}/index.html")
    assert page.status_code == 200
    assert "sandbox allow-same-origin" in page.headers["content-security-policy"]
    assert "script-src" not in page.headers["content-security-policy"]
    assert "Exactly once: not proven" in page.text
    assert browser.get(f"{folder}/validation.json").json()["run_name"] == RUN
    assert browser.get(f"{folder}/data_docs/index.html").status_code == 200


def test_a_report_is_open_to_those_who_may_view_its_own_connection(
    report: Path, client: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Viewers of the default connection do not see it, and nobody sees a report without a connection."""
    from airflow.api_fastapi.app import get_auth_manager

    def may_view(name: str) -> None:
        monkeypatch.setattr(
            type(get_auth_manager()),
            "is_authorized_connection",
            lambda *_, details, **__: details.conn_id == name,
        )

    def seen(browser: Any) -> tuple[int, bool]:
        told = browser.get(f"{PREFIX}/api/report", params={"dag": DAG, "run": RUN}).json()
        return browser.get(f"{PREFIX}/report-files/{DAG}/{RUN}/index.html").status_code, told["can_open"]

    browser = client("otto")
    listed(browser)
    may_view("txn_engine_default")
    assert seen(browser) == (403, False)
    may_view("other_store")
    assert seen(browser) == (200, True)
    monkeypatch.undo()
    told = report / "connection.json"
    was = told.read_text()
    for content in (None, "{", "[]", '{"conn_id": 7}'):
        told.unlink(missing_ok=True) if content is None else told.write_text(content)
        assert seen(client("ada")) == (403, False)
    told.write_text(was)
    assert seen(client("ada")) == (200, True)


def test_reports_are_for_those_who_may_see_runs(
    report: Path, client: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.api_fastapi.app import get_auth_manager

    browser = client("otto")
    listed(browser)
    monkeypatch.setattr(
        type(get_auth_manager()),
        "is_authorized_dag",
        lambda *_, access_entity=None, **__: access_entity is None,
    )
    assert browser.get(f"{PREFIX}/api/reports").json()["reports"] == []
    assert browser.get(f"{PREFIX}/api/report", params={"dag": DAG, "run": RUN}).status_code == 404
    assert browser.get(f"{PREFIX}/report-files/{DAG}/{RUN}/index.html").status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        f"{DAG}/{RUN}/%00.json",
        f"{DAG}/{RUN}/{'x' * 5_000}.json",
        f"{DAG}/{'x' * 5_000}/index.html",
        f"%00/{RUN}/index.html",
        f"{DAG}/{RUN}/../../../airflow.db",
        f"{DAG}/{RUN}/%2e%2e/%2e%2e/%2e%2e/airflow.db",
        f"{DAG}/%2e%2e/{DAG}/validation.json",
        "%2e%2e/txn_engine_reports/x",
        f"{DAG}/{RUN}/link.html",
        f"{DAG}/{RUN}/secret.cfg",
        f"{DAG}/{RUN}/",
    ],
)
def test_nothing_outside_of_a_report_is_served(report: Path, client: Callable[..., Any], path: str) -> None:
    """Nothing outside of a report is served: not with dots, not through a link in a report, and no kind of
    file that a report does not have."""
    (report / "secret.cfg").write_text("sql_alchemy_conn")
    if not (report / "link.html").is_symlink():
        (report / "link.html").symlink_to("/etc/hostname")
    assert client("ada").get(f"{PREFIX}/report-files/{path}").status_code == 404


def test_a_run_that_left_no_report_is_listed_with_them(report: Path) -> None:
    """The list has failed runs without a report or with an earlier try's, and running ones, but no run with its own."""
    from txn_engine_airflow.pages.dag_runs import Run
    from txn_engine_airflow.pages.quality_reports import ReportShelf, without_report

    (own,) = ReportShelf().look()
    reported = RUN
    runs = [
        Run("red", "failed", own.written_ms, own.written_ms),
        Run("going", "running", own.written_ms, -1),
        Run("waiting", "queued", -1, -1),
        Run(reported, "success", own.written_ms - 60_000, own.written_ms),
    ]
    assert [run.run_id for run in without_report(runs, [own])] == ["red", "going", "waiting"]
    cleared = Run(reported, "failed", own.written_ms + 60_000, own.written_ms + 90_000)
    assert without_report([cleared], [own]) == (cleared,)


def test_a_report_has_one_time(report: Path) -> None:
    """The page's list, the report and Great Expectations' results have the same time, whatever the file's time is."""
    from txn_engine_airflow.pages.quality_reports import ReportShelf

    content = json.loads((report / "validation.json").read_text())
    os.utime(report / "validation.json", (1_800_000_000, 1_800_000_000))
    (own,) = ReportShelf().look()
    assert own.made_ms == content["gathered_ms"]
    when = dt.datetime.fromtimestamp(own.made_ms / 1_000, dt.UTC)
    assert f"{when:%d %b %Y, %H:%M:%S} UTC" in (report / "index.html").read_text()
    assert f"{when:%Y-%m-%dT%H:%M:%S}" in json.dumps(content["great_expectations"])


def test_a_report_that_cannot_be_read_is_left_out(report: Path) -> None:
    from txn_engine_airflow.pages.quality_reports import ReportShelf

    broken = report.parent / "broken"
    broken.mkdir(exist_ok=True)
    try:
        for content in ("{", "[]", '{"run_name": "x"}'):
            (broken / "validation.json").write_text(content)
            assert [found.run_name for found in ReportShelf().look()] == [RUN]
    finally:
        (broken / "validation.json").unlink()
        broken.rmdir()


def test_a_report_that_cannot_be_read_is_warned_of_once(
    report: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning appears once, again if the report was rewritten, and no more once the report can be read."""
    from txn_engine_airflow.pages.quality_reports import ReportShelf

    broken = report.parent / "broken"
    broken.mkdir(exist_ok=True)
    file, shelf = broken / "validation.json", ReportShelf()
    try:
        for written, warned in ((1, 1), (2, 2)):
            file.write_text("{")
            os.utime(file, (written, written))
            for _ in range(3):
                assert [found.run_name for found in shelf.look()] == [RUN]
            assert caplog.text.count("cannot be read") == warned
        file.write_text((report / "validation.json").read_text())
        assert len(shelf.look()) == 2
        assert caplog.text.count("cannot be read") == 2
    finally:
        file.unlink()
        broken.rmdir()


def test_one_report_that_is_none_keeps_no_other_from_being_shown(report: Path, tmp_path: Path) -> None:
    """A FIFO, a link out of the folder, a file that grows without end or numbers that no browser accepts do
    not keep the other reports from being shown."""
    from txn_engine_airflow.pages.quality_reports import ReportShelf
    from txn_engine_airflow.verification import connection_of_report

    content = json.loads((report / "validation.json").read_text())
    bad = [report.parent / f"bad-{number}" for number in range(7)]
    for folder in bad[:6]:
        folder.mkdir()
    try:
        os.mkfifo(bad[0] / "validation.json")
        (bad[1] / "validation.json").symlink_to(report / "validation.json")
        with (bad[2] / "validation.json").open("wb") as huge:
            huge.truncate(1 << 40)
        for folder, seconds in ((bad[3], float("inf")), (bad[4], 10**400)):
            wrong = content | {"statistics": content["statistics"] | {"seconds": seconds}}
            (folder / "validation.json").write_text(json.dumps(wrong))
        (bad[5] / "validation.json").write_text("[" * 200_000)
        (tmp_path / "validation.json").write_text(json.dumps(content))
        bad[6].symlink_to(tmp_path)
        shelf = ReportShelf()
        assert {found.folder for found in shelf.look()} == {report.name}
        assert {found.folder for found in shelf.look()} == {report.name}
        os.mkfifo(bad[0] / "connection.json")
        assert connection_of_report(bad[0]) is None
    finally:
        import shutil

        bad[6].unlink(missing_ok=True)
        for folder in bad[:6]:
            shutil.rmtree(folder)
