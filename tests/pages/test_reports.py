"""The Quality page: the suite's own reports, listed for viewers, shown whole to those who may see records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pages import scene
from tests.pages.conftest import PREFIX
from txn_engine import connect

pytestmark = pytest.mark.airflow

DAG, RUN = "txn_verify_exactly_once", "manual__2026-11-21T10_00_00"


@pytest.fixture(scope="module")
def report(airflow_app: Any) -> Iterator[Path]:
    """A real report of a topic with a record twice."""
    from txn_engine.quality import ExactlyOnceCheck, check_exactly_once
    from txn_engine_airflow.verification import report_folder

    folder = report_folder(None, DAG, RUN)
    with connect("memory://report") as engine:
        engine.admin.create_topic("payments", partitions=1, schema=scene.SCHEMA)
        for _ in range(2):
            engine.partition("payments", 0).append(scene.records(77, 1))
        check = ExactlyOnceCheck(
            topic="payments", record_id="account_id", account=None, amount=None, direction=None,
            output_topic=None, output_account="account_id", output_total="turnover", output_count=None, group_id=None,
        )  # fmt: skip
        check_exactly_once(engine, check, report_folder=folder, run_name=RUN)
    yield folder
    import shutil

    shutil.rmtree(folder)


def listed(browser: Any) -> list[dict[str, Any]]:
    deadline = time.monotonic() + 60
    while not (found := browser.get(f"{PREFIX}/api/reports").json()["reports"]):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return list(found)


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
    assert "77" not in found.text.replace(str(line["made_ms"]), "").replace(str(line["seconds"]), "")
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


@pytest.mark.parametrize(
    "path",
    [
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
    """Not by dots, not by a link that a report holds, not of a kind that no report has."""
    (report / "secret.cfg").write_text("sql_alchemy_conn")
    if not (report / "link.html").is_symlink():
        (report / "link.html").symlink_to("/etc/hostname")
    assert client("ada").get(f"{PREFIX}/report-files/{path}").status_code == 404


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
