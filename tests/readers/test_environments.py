"""Each environment of the readers has the versions that its list names, and its jars."""

from __future__ import annotations

import re

import pytest

from tests.readers.environments import HOME, run
from tests.support.servers import REPOSITORY

pytestmark = pytest.mark.shard("engines")


@pytest.mark.parametrize("environment", ["tables", "delta", "iceberg"])
def test_an_environment_is_what_its_list_says(environment: str) -> None:
    listed = (REPOSITORY / "requirements" / f"readers-{environment}.txt").read_text(encoding="utf-8")
    pinned = dict(re.findall(r"^([a-z0-9-]+)==(\S+) \\$", listed, re.MULTILINE))
    assert run(environment, "versions", {"packages": list(pinned)}) == pinned
    if environment != "tables":
        jars = (REPOSITORY / "requirements" / f"readers-{environment}-jars.txt").read_text(encoding="utf-8")
        assert len(list((HOME / f"{environment}-jars").glob("*.jar"))) == len(re.findall(r"(?m)^[a-z]", jars))
