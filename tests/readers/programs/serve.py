"""Run the programs of this folder one after the other in this process, which keeps its engine started.

Each line of standard input is a JSON object: a program's name and its request. Each gets a line back: `answer`, or
`failed` with a traceback. All that the engines print goes to standard error.
"""

from __future__ import annotations

import io
import json
import os
import runpy
import sys
import traceback
from contextlib import redirect_stdout
from pathlib import Path

FOLDER = Path(__file__).parent


def said(program: str, request: dict[str, object]) -> dict[str, object]:
    """What a program prints last."""
    sys.argv[1:] = [json.dumps(request)]
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            runpy.run_path(str(FOLDER / f"{program}.py"))
        return {"answer": json.loads(printed.getvalue().splitlines()[-1])}
    except Exception:  # noqa: BLE001 - whatever it is, the test shows it
        return {"failed": f"{traceback.format_exc()}\n{printed.getvalue()[-2000:]}"}


with os.fdopen(os.dup(1), "w") as answers:
    os.dup2(2, 1)  # a JVM prints what it likes
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(said(asked["program"], asked["request"])), file=answers, flush=True)
