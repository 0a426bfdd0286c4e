"""Programs run in the environments of `.ci/setup-readers`, with other engines at versions that cannot be
installed next to ours."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.support.servers import REPOSITORY
from txn_engine.spark.java import find_java_home

HOME = REPOSITORY / ".cache" / "readers"
PROGRAMS = Path(__file__).parent / "programs"
_TIMEOUT_S = 280


def run(environment: str, program: str, request: dict[str, Any], **variables: str) -> Any:
    """Run `programs/<program>.py` in `tables`, `delta` or `iceberg`, and return its answer. Raises
    `AssertionError` if it fails.

    The request is its argument, in JSON. The answer is its last line, in JSON.
    """
    home = HOME / environment
    jars = sorted((HOME / f"{environment}-jars").glob("*.jar"))
    held = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SPARK"))}
    held |= {"JAVA_HOME": str(find_java_home()), "READER_JARS": ",".join(map(str, jars)), **variables}
    ended = subprocess.run(
        [home / "bin" / "python", PROGRAMS / f"{program}.py", json.dumps(request)],
        check=False, capture_output=True, text=True, env=held, timeout=_TIMEOUT_S,
    )  # fmt: skip
    assert ended.returncode == 0, f"{program} in {environment}: {ended.stdout[-2000:]} {ended.stderr[-6000:]}"
    return json.loads(ended.stdout.splitlines()[-1])
