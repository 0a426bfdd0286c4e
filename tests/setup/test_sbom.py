"""The SBOM is a valid CycloneDX document, and has everything that is pinned."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.setup.sbom import main
from tests.support.servers import REPOSITORY

PINS = (
    *sorted((REPOSITORY / "requirements").glob("*.txt")),
    REPOSITORY / "txn_engine/spark/s3a-jars.txt",
    REPOSITORY / "txn_engine/spark/postgres-jars.txt",
    REPOSITORY / "docker-compose.yml",
    REPOSITORY / "deploy/Dockerfile",
)


@pytest.fixture(scope="module")
def sbom(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The SBOM as `make sbom` writes it."""
    file = tmp_path_factory.mktemp("dist") / "sbom.json"
    main(str(file))
    return file.read_text()


@pytest.mark.shard("machine")
def test_the_sbom_is_sound(sbom: str) -> None:
    """The SBOM is valid by the strict schema."""
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(sbom) is None


def test_the_sbom_names_every_pin(sbom: str) -> None:
    """The SBOM has as many components as each list pins, with every SHA-256."""
    components = json.loads(sbom)["components"]
    counted: Counter[str] = Counter(each["properties"][0]["value"] for each in components)
    held = {each["content"] for component in components for each in component.get("hashes", ())}
    for path in PINS:
        pinned = path.read_text()
        if path.suffix != ".txt":
            expected = len(set(re.findall(r"@sha256:[0-9a-f]{64}", pinned)))
        elif "--hash" in pinned:
            expected = sum("==" in line and not line.startswith("#") for line in pinned.splitlines())
        else:
            expected = sum(not line.startswith("#") for line in pinned.splitlines())
        assert expected > 0
        assert counted[str(path.relative_to(REPOSITORY))] == expected
        assert set(re.findall(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])", pinned)) <= held
    node = "requirements/azurite/package-lock.json"
    assert counted[node] == len(json.loads((REPOSITORY / node).read_text())["packages"]) - 1
    purls = {component["purl"] for component in components}
    assert any(purl.startswith("pkg:golang/github.com/minio/minio@") for purl in purls)
    assert any(purl.startswith("pkg:maven/org.apache.hadoop/hadoop-aws@") for purl in purls)
