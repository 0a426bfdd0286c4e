"""Measure how long each DAG file takes to parse, and what it imports: `python -m tests.dags.parse_times`.

A new process loads Airflow and its plugins, as the DAG processor does, and forks for each file, as it does
too: everything that a file imports costs time again and again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.numbers import Run
from tests.support.airflow_home import DAGS, PLUGINS, REPO

HEAVY = ("pyspark", "great_expectations", "txn_engine", "storage", "pyarrow", "pandas", "obstore")

_PROGRAM = """
import json, os, sys, time
import airflow.plugins_manager as plugins
plugins.ensure_plugins_loaded() if hasattr(plugins, "ensure_plugins_loaded") else plugins.get_plugin_info()
from airflow.dag_processing.dagbag import DagBag

def parse(path):
    before, started, worked = set(sys.modules), time.perf_counter(), time.process_time()
    bag = DagBag(dag_folder=path)
    seconds, processor = time.perf_counter() - started, time.process_time() - worked
    new = set(sys.modules) - before
    plugins = sys.argv[1]
    ours = sorted(m for m, mod in sys.modules.items() if str(getattr(mod, "__file__", "")).startswith(plugins))
    heavy = [m for m in json.loads(sys.argv[2]) if m in new]
    found = dict(errors=dict(bag.import_errors), dags=sorted(bag.dags))
    return dict(seconds=seconds, processor=processor, modules=len(new), heavy=heavy, ours=ours, **found)

for path in sys.argv[3:]:
    sys.stdout.flush()
    child = os.fork()
    if not child:
        print("PARSED " + json.dumps({"file": os.path.basename(path), **parse(path)}), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def measure(folder: Path = DAGS) -> list[Mapping[str, Any]]:
    """For each DAG file of the folder: seconds by the clock and of processor time, the number of imported modules, the
    heavy ones, those of the plugins, its DAGs and its errors."""
    paths = [str(path) for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(PLUGINS), json.dumps(HEAVY), *paths],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        cwd=REPO,
        env=dict(os.environ),
    )
    found = [
        json.loads(line.removeprefix("PARSED "))
        for line in ran.stdout.splitlines()
        if line.startswith("PARSED ")
    ]
    if len(found) != len(paths):
        raise RuntimeError(f"{len(found)} of {len(paths)} files were parsed: {ran.stdout}\n{ran.stderr}")
    return found


def main() -> int:
    """Print the times. Returns 1 if a file takes a second, does not parse, or imports what it must not."""
    run = Run("dag-parsing", [])
    files = measure()
    print(f"{'file':32} {'ms':>7} {'modules':>8}  heavy imports")
    for file in files:
        heavy = ", ".join(file["heavy"]) or "none"
        print(f"{file['file']:32} {file['seconds'] * 1_000:7.1f} {file['modules']:8d}  {heavy}")
    run.record({file["file"]: {"ms": round(file["seconds"] * 1_000, 1)} for file in files})
    return int(any(file["seconds"] >= 1 or file["heavy"] or file["errors"] for file in files))


if __name__ == "__main__":
    sys.exit(main())
