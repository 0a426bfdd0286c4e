"""Workers that die (SIGKILL) in the middle of their task, for the pipeline of tests/live/shop.py, which
imports this module.

Each place is a file in the folder `deaths`. The process that comes there and removes the file dies, so each
place has one death.
"""

from __future__ import annotations

import functools
import os
import signal
from pathlib import Path
from typing import Any

import psycopg
from airflow.sdk import get_current_context

from txn_engine.databases import consuming
from txn_engine.postgres import outbox
from txn_engine.producer import Producer

FOLDER = Path(__file__).parent / "deaths"


def mortal(owner: type, method: str) -> None:
    """Let the process that calls the method die before the call, or after it."""
    work = getattr(owner, method)

    @functools.wraps(work)
    def dying(*args: Any, **settings: Any) -> Any:
        die(f"before {method}")
        found = work(*args, **settings)
        die(f"after {method}")
        return found

    setattr(owner, method, dying)


def die(moment: str) -> None:
    """Die, unless this is not a place to die or another process has died here before."""
    place = FOLDER / f"{get_current_context()['ti'].task_id} {moment}"
    try:
        place.unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


mortal(outbox.Outbox, "claim")
mortal(Producer, "commit_transaction")
mortal(psycopg.Cursor, "executemany")
mortal(consuming.ConsumeRun, "follow")
