"""The wheel is installed next to Airflow, which finds provider and plugin once each, without a checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest

from storage import BACKENDS
from tests.support.airflow_home import HOME, REPO

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

LOOK = """
import json, sys
sys.path[:0] = [sys.argv[1], sys.argv[2]]  # no .pth file is read: the checkout is not on the path
from airflow.providers_manager import ProvidersManager
manager = ProvidersManager()
hook = manager.hooks["txn_engine"]
from airflow import plugins_manager
plugins, errors = plugins_manager._get_plugins()
ours = [p for p in plugins if "txn_engine" in type(p).__module__ or "txn_engine" in getattr(p, "__module__", "")]
from airflow.dag_processing.dagbag import DagBag
import txn_engine_airflow, txn_engine
bag = DagBag(dag_folder=sys.argv[1] + "/txn_engine_airflow/example_dags")
print("RESULT " + json.dumps({
    "version": manager.providers["txn-engine"].version,
    "hook": hook.hook_class_name,
    "fields": sorted(name for name in manager.connection_form_widgets if "__txn_engine__" in name),
    "relabeled": manager.field_behaviours["txn_engine"]["relabeling"]["host"],
    "plugins": [type(p).__name__ for p in ours],
    "errors": errors,
    "imported": [txn_engine_airflow.__file__, txn_engine.__file__],
    "dags": sorted(bag.dags),
    "dag_errors": bag.import_errors,
    "heavy": [m for m in ("pyarrow", "obstore", "pyspark", "pandas", "great_expectations") if m in sys.modules],
}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that hatchling builds, unpacked as an installer does it."""
    folder = tmp_path_factory.mktemp("wheel")
    build = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    made = subprocess.run(
        [sys.executable, "-c", build, str(folder)],
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    target = folder / "installed"
    with zipfile.ZipFile(folder / made.stdout.split()[-1]) as wheel:
        wheel.extractall(target)
    return target


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All packages that are installed here, except for this project itself."""
    folder = tmp_path_factory.mktemp("packages")
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not entry.name.startswith(("txn_engine", "_txn_engine")):
            (folder / entry.name).symlink_to(entry)
    return folder


def test_the_wheel_holds_its_packages_and_the_dags(installed: Path) -> None:
    """The wheel has the Airflow package once, at the top, and the DAGs inside. It has no tests and no plugins
    folder."""
    tops = {entry.name for entry in installed.iterdir() if not entry.name.endswith(".dist-info")}
    assert tops == {"storage", "txn_engine", "txn_engine_airflow", "pyspark_txn_engine"}
    assert len(list(installed.rglob("hook.py"))) == 1
    assert (installed / "txn_engine" / "_airflow" / "dags" / "txn_coordinator_sweep.py").is_file()
    assert not (installed / "txn_engine" / "_airflow" / "plugins").exists()
    assert (installed / "txn_engine_airflow" / "example_dags" / "example_txn_pipeline.py").is_file()


@pytest.mark.shard("machine")
@pytest.mark.parametrize("folder", ["missing", "checkout"])
def test_airflow_finds_provider_and_plugin_once(
    installed: Path, packages: Path, tmp_path: Path, folder: str
) -> None:
    """Airflow finds provider and plugin once, without a plugins folder and with one that has the package
    too."""
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(HOME),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(REPO / "plugins" if folder == "checkout" else tmp_path / "no"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path),
    }
    environment.pop("PYTHONPATH", None)
    ran = subprocess.run(
        [sys.executable, "-S", "-c", LOOK, str(installed), str(packages)],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    lines = [line for line in ran.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, ran.stderr[-3_000:]
    found: dict[str, Any] = json.loads(lines[0].removeprefix("RESULT "))
    assert found["imported"] == [
        str(installed / name / "__init__.py") for name in ("txn_engine_airflow", "txn_engine")
    ]
    assert found["hook"] == "txn_engine_airflow.hook.TxnEngineHook"
    asked = {each.field for backend in BACKENDS for each in backend.settings} - {"login", "password"}
    assert found["fields"] == sorted(f"extra__txn_engine__{name}" for name in {"url", *asked})
    assert found["relabeled"] == "Bucket, or folder"
    assert found["plugins"] == ["TxnEnginePlugin"]
    assert (found["errors"], found["dag_errors"]) == ({}, {})
    assert found["heavy"] == []  # neither provider nor plugin nor the examples' parse needs them
    assert found["dags"] == [
        "example_txn_load_files",
        "example_txn_pipeline",
        "example_txn_postgres",
        "example_txn_spark",
        "example_txn_stream",
        "example_txn_watch",
    ]
