"""The folder of a checkpoint is known from its location, however that is spelled."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.refusals import refused
from txn_engine.errors import InvalidRequestError
from txn_engine.reasons import Reason
from txn_engine.spark.source.locations import METADATA, resolved

HDFS = "hdfs://namenode:8020/user/ann"


@pytest.mark.spark
def test_as_hadoop_resolves_it(spark: SparkSession, tmp_path: Path) -> None:
    """Every spelling that Hadoop takes for a folder of this machine has the URL of Hadoop's own answer."""
    assert spark._jvm is not None
    hadoop = spark._jvm.org.apache.hadoop
    files = hadoop.fs.FileSystem.get(spark._jsparkSession.sessionState().newHadoopConf())
    directory = str(files.getWorkingDirectory().toString())
    relative = os.path.relpath(tmp_path, directory.removeprefix("file:"))
    spelled = [
        *("ck", "./ck", "ck/", "a/../ck", "a//ck", "a b/c%20d", "é/ck", f"{relative}/ck"),
        *(f"{tmp_path}/ck", f"{tmp_path}//ck/", f"{tmp_path}/x/../ck", f"/{tmp_path.name}/a:b"),
        *(f"file:{tmp_path}/ck", f"file://{tmp_path}/ck", f"FILE:{tmp_path}/./ck"),
    ]
    for location in spelled:
        path = hadoop.fs.Path(location)
        theirs = str(files.makeQualified(path).toString())
        expected = "file://" + os.path.realpath(theirs.partition(":")[2])
        assert resolved(location, directory) == expected, location


def test_one_folder_and_its_spellings(tmp_path: Path) -> None:
    """A relative location, an absolute one, a URL and a link lead to one URL. In another working directory the same
    text is another folder.
    """
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    directory = f"file:{tmp_path}"
    spelled = ["ck", "./x/../ck", f"{tmp_path}/ck", f"file://{tmp_path}//ck/", f"{tmp_path}/link/ck"]
    assert {resolved(location, directory) for location in spelled} == {f"file://{tmp_path}/ck"}
    assert resolved("ck", f"{directory}/elsewhere") != resolved("ck", directory)


def test_on_the_default_file_system() -> None:
    """What a location leaves out is that of `fs.defaultFS`. A bucket has one URL under each of its schemes."""
    full = "hdfs://namenode:8020/user/ann/ck"
    for location in ("ck", "/user/ann/ck", "hdfs:/user/ann/ck", "hdfs:///user/ann/ck", full):
        assert resolved(location, HDFS) == full, location
    assert resolved(full, None) == full
    assert {resolved(f"{scheme}://bucket/a/ck", HDFS) for scheme in ("s3", "s3a", "s3n")} == {
        "s3a://bucket/a/ck"
    }


@pytest.mark.parametrize(
    ("location", "directory"),
    [
        ("ck", None),
        ("/nowhere/ck", None),
        ("hdfs:///ck", None),
        ("hdfs:/ck", "file:/a"),
        ("//ck/x", HDFS),
        ("file:ck", HDFS),
    ],
)
def test_a_location_that_cannot_be_resolved(location: str, directory: str | None) -> None:
    """It is refused instead of being guessed."""
    with refused(InvalidRequestError, Reason.UNRESOLVED_CHECKPOINT):
        resolved(location, directory)


def test_without_a_default_file_system_the_folder_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that did not call `register` names no default file system. A location without a scheme is then a
    folder of this machine if Spark has begun a checkpoint there.
    """
    monkeypatch.chdir(tmp_path)
    Path("ck").mkdir()
    for location in ("ck", f"{tmp_path}/ck"):
        with refused(InvalidRequestError, Reason.UNRESOLVED_CHECKPOINT):
            resolved(location, None)
    Path("ck", METADATA).write_text("{}")
    assert resolved("ck", None) == resolved(f"{tmp_path}/ck/", None) == f"file://{tmp_path}/ck"
