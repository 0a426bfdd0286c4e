"""A child process's end of the pipe to the demo: orders come in and words go out, one JSON object a line."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from txn_engine.errors import TxnEngineError

Order = dict[str, Any]

FAILED, LEFT_ALONE = 1, 3
_END: Order = {"do": "end"}


class Pipe:
    """Orders from the demo, and words to it.

    What libraries print goes to the log, not between the words. When the demo is gone without a goodbye, the process
    ends at once, whatever it is doing: nothing that the demo started outlives it.
    """

    def __init__(self) -> None:
        self._words = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
        os.dup2(2, 1)
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        threading.Thread(target=self._listen, name="pipe", daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            order = json.loads(line)
            self._orders.put(order)
            if order == _END:
                return
        os._exit(LEFT_ALONE)

    def next_order(self) -> Order | None:
        """The next order, waiting for it; None when there will be no more."""
        order = self._orders.get()
        return None if order == _END else order

    def say(self, word: str, **facts: object) -> None:
        """Tell the demo something."""
        self._words.write(json.dumps({"word": word, **facts}, default=str) + "\n")
        self._words.flush()


def serve(work: Callable[[Pipe], None]) -> int:
    """Run a child's work; what goes wrong is said in one line and stands whole in the log. Returns the exit code."""
    pipe = Pipe()
    try:
        work(pipe)
    except TxnEngineError as error:
        traceback.print_exc()
        pipe.say("failed", text=str(error))
        return FAILED
    except Exception as error:  # noqa: BLE001 - the demo says it, and names the log
        traceback.print_exc()
        pipe.say("failed", text=f"{type(error).__name__}: {' '.join(str(error).split())[:400]}")
        return FAILED
    return 0
