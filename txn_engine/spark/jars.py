"""The jars of the connectors by which Spark reads and writes buckets, and of Postgres' driver: fetched once, and each
the one whose SHA-256 its list names (a connector's: `storage.Hadoop`). Versions belong together: pyspark 4.3 carries
Hadoop 3.5.0.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pyspark

from storage import Hadoop, backend_of
from txn_engine.reasons import Reason
from txn_engine.spark.cache_folder import cache_folder
from txn_engine.spark.errors import SparkSessionError
from txn_engine.spark.java import find_java_home

FETCH_TIMEOUT_S = 900
_SAID_CHARS_MAX = 300


class Jar(NamedTuple):
    """One jar of Maven's, and the sum of its bytes."""

    organisation: str
    name: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """Its name in the folder."""
        return f"{self.organisation}.{self.name}-{self.version}.jar"


def jar_settings(url: str) -> dict[str, str]:
    """The Spark settings that bring the jars of the connector for the store at `url`, every one checked; to be set
    before the session's JVM starts. Empty for a store that needs none, or for which there is no connector.

    Raises:
        SparkSessionError: a jar is missing and could not be fetched, or is not the one that the list names.
    """
    backend = backend_of(url)
    if backend is None or backend.hadoop is None:
        return {}
    return {
        "spark.jars": ",".join(map(str, checked_jars(listed_jars(backend.hadoop), cache_folder() / "jars")))
    }


def postgres_jar_settings() -> dict[str, str]:
    """The Spark settings that bring the driver by which Spark's JDBC reads and writes Postgres, for `spark_session`'s
    `extra`; to be set before the session's JVM starts.

    Raises:
        SparkSessionError: the jar is missing and could not be fetched, or is not the one that the list names.
    """
    listed = Path(__file__).with_name("postgres-jars.txt")
    return {"spark.jars": ",".join(map(str, checked_jars(listed, cache_folder() / "jars")))}


def listed_jars(connector: Hadoop) -> Path:
    """The list of the connector's jars."""
    return Path(__file__).with_name(connector.jars)


def checked_jars(listed: Path, folder: Path) -> list[Path]:
    """The jars of that list, in that folder: what is missing is fetched, and nothing with another sum is returned.

    Processes that fetch at once do no harm: each moves whole, checked files into place.
    """
    lines = listed.read_text(encoding="utf-8").splitlines()
    wanted = [Jar(*line.split()) for line in lines if line and not line.startswith("#")]
    if missing := [jar for jar in wanted if not (folder / jar.file_name).is_file()]:
        _fetch(missing, folder)
    _check(wanted, folder)
    return [folder / jar.file_name for jar in wanted]


def _check(jars: list[Jar], folder: Path) -> None:
    for jar in jars:
        seen = hashlib.sha256((folder / jar.file_name).read_bytes()).hexdigest()
        if seen != jar.sha256:
            raise SparkSessionError(
                f"{jar.file_name} has the SHA-256 {seen}",
                actor="spark",
                place=str(folder / jar.file_name),
                expected=jar.sha256,
                action="remove the file, so that it is fetched anew; if it comes again, somebody gives you another jar",
                reason=Reason.OTHER_JAR,
            )


def _fetch(jars: list[Jar], folder: Path) -> None:
    """By the Ivy that PySpark brings, exactly these; nothing that does not fit its sum gets into the folder."""
    dependency = '<dependency org="{}" name="{}" rev="{}" transitive="false" conf="default->master"/>'
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as made:
        new = Path(made)
        (new / "ivy.xml").write_text(
            '<ivy-module version="2.0"><info organisation="txn-engine" module="jars"/>'
            '<configurations><conf name="default"/></configurations><dependencies>'
            + "".join(dependency.format(*jar[:3]) for jar in jars)
            + "</dependencies></ivy-module>",
            encoding="utf-8",
        )
        done = subprocess.run(
            [
                *(find_java_home() / "bin" / "java", "-jar", ivy, "-ivy", new / "ivy.xml", "-cache", new / "ivy"),
                *("-types", "jar", "bundle", "-retrieve", f"{new}/[organisation].[artifact]-[revision].[ext]"),
            ],
            check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            encoding="utf-8", errors="replace", timeout=FETCH_TIMEOUT_S,
        )  # fmt: skip
        absent = [jar.file_name for jar in jars if not (new / jar.file_name).is_file()]
        if done.returncode != 0 or absent:
            raise SparkSessionError(
                f"jars were not fetched: {', '.join(absent)}: {done.stdout.strip()[-_SAID_CHARS_MAX:]}",
                actor="spark",
                place=str(folder),
                expected="Maven Central, or the jars put into the folder by hand",
                reason=Reason.JARS_NOT_FETCHED,
            )
        _check(jars, new)
        for jar in jars:
            (new / jar.file_name).replace(folder / jar.file_name)


if __name__ == "__main__":
    for each in sys.argv[1:-1]:
        checked_jars(Path(each), Path(sys.argv[-1]))
