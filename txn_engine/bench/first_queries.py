"""The first query of a published table by engines of others, each in a process of its own, beside the same engine over
the list of the same files.

The engines stand in environments of their own (`.ci/setup-readers`): none of them works with all that this one has.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from storage import is_remote
from txn_engine.bench import first_query_child
from txn_engine.bench.progress import Progress
from txn_engine.engine import Engine
from txn_engine.errors import TxnEngineError
from txn_engine.spark.cache_folder import cache_folder
from txn_engine.spark.java import find_java_home

AIM: Final = 1.2
ROUNDS: Final = 3
_TIMEOUT_S: Final = 900
_CHILD: Final = first_query_child.__file__


@dataclass(frozen=True, slots=True)
class Reader:
    """An engine, by the name that the child has for it, and the environment that it stands in."""

    name: str
    engine: str
    environment: str
    form: str


READERS: Final = (
    Reader("DuckDB", "duckdb", "tables", "delta"),
    Reader("DuckDB", "duckdb", "tables", "iceberg"),
    Reader("Polars", "polars", "tables", "delta"),
    Reader("Polars", "polars", "tables", "iceberg"),
    Reader("Spark", "delta", "delta", "delta"),
    Reader("Spark", "iceberg", "iceberg", "iceberg"),
)


@dataclass(frozen=True, slots=True)
class FirstQuery:
    """One engine's first query of one table of so many live files; medians in ms, ratio: of the two. `note`: why it was
    not run.
    """

    engine: str
    format: str
    state: str
    files: int
    table_ms: float = 0.0
    bare_ms: float = 0.0
    ratio: float = 0.0
    met: bool = False
    rounds: int = 0
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def first_queries(
    engine: Engine,
    topic: str,
    state: str,
    uris: Mapping[str, str],
    progress: Progress,
    *,
    rounds: int = ROUNDS,
) -> Iterator[FirstQuery]:
    """Each engine, each format. uris: of the tables, all at a cut behind which nothing was written."""
    files = [file.uri for file in engine.scan(topic).files()]
    with tempfile.TemporaryDirectory(prefix="txn-engine-bench-") as folder:
        listed = Path(folder) / "files"
        listed.write_text("\n".join(files), encoding="utf-8")
        for number, reader in enumerate(READERS):
            progress(f"first query, {state}", number, len(READERS))
            lacking = _lacking(reader, engine.url)
            if lacking:
                yield FirstQuery(reader.name, reader.form, state, len(files), note=lacking)
            else:
                yield _measured(reader, state, len(files), uris[reader.form], listed, rounds)


def home() -> Path:
    """Where the environments are."""
    return cache_folder() / "readers"


def _lacking(reader: Reader, url: str) -> str:
    if is_remote(url):
        return "not run: measured on a local store alone"
    if not (home() / reader.environment / "bin" / "python").exists():
        return f"not run: no environment {home() / reader.environment}; `.ci/setup-readers` builds it"
    return ""


def _measured(reader: Reader, state: str, files: int, uri: str, listed: Path, rounds: int) -> FirstQuery:
    """Both in turn; which of them goes first alternates. They have to say the same."""
    if reader.engine == "iceberg":
        uri = uri.rpartition("/metadata/")[0]
    seconds: dict[str, list[float]] = {reader.form: [], "bare": []}
    said = set()
    for number in range(rounds):
        for form in (reader.form, "bare") if number % 2 else ("bare", reader.form):
            answer = _ask(reader, form, uri, listed)
            seconds[form].append(answer["seconds"])
            said.add((answer["count"], answer["sum"]))
    if len(said) != 1:
        raise TxnEngineError(
            f"{reader.name} over {uri}: {sorted(said)}",
            actor="bench",
            expected="the count and sum of the files",
        )
    ours, bare = (statistics.median(seconds[form]) * 1e3 for form in (reader.form, "bare"))
    ratio = ours / bare
    return FirstQuery(reader.name, reader.form, state, files, ours, bare, ratio, ratio <= AIM, rounds)


def _ask(reader: Reader, form: str, uri: str, listed: Path) -> dict[str, Any]:
    jars = sorted(map(str, (home() / f"{reader.environment}-jars").glob("*.jar")))
    asked = {"engine": reader.engine, "form": form, "uri": uri, "files": str(listed), "jars": ",".join(jars)}
    held = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SPARK"))}
    if jars:
        held["JAVA_HOME"] = str(find_java_home())
    python = home() / reader.environment / "bin" / "python"
    ended = subprocess.run(
        [python, "-P", _CHILD, json.dumps(asked)],
        check=False, capture_output=True, text=True, env=held, timeout=_TIMEOUT_S,
    )  # fmt: skip
    if ended.returncode:
        raise TxnEngineError(
            f"{reader.name} over {form}: {' '.join(ended.stderr.split())[-400:]}",
            actor="bench",
            place=str(python),
        )
    answer: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return answer
