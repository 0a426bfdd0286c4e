"""`python -m tests.setup.sbom FILE` writes all pinned packages, jars, servers and images as a CycloneDX SBOM.

It is made from the pinned lists alone, so that the same lists give the same file.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from tests.support.servers import REPOSITORY

WHEELS = ("runtime", "dev", "build", "java", "go", "uv", "readers-tables", "readers-delta", "readers-iceberg")
JARS = (
    "txn_engine/spark/s3a-jars.txt",
    "txn_engine/spark/postgres-jars.txt",
    *(f"requirements/{name}-jars.txt" for name in ("kafka", "readers-delta", "readers-iceberg")),
)
MODULES = ("requirements/minio.txt",)
NODE = ("requirements/azurite/package-lock.json",)
IMAGES = ("docker-compose.yml", "deploy/Dockerfile")
_WHEEL = re.compile(r"^([\w.-]+)(?:\[[^]]*\])?==([^\s;]+)(.*(?:\n[ \t]+--hash.*)*)", re.MULTILINE)
_IMAGE = re.compile(r"([a-z0-9./-]+):([\w.-]+)@sha256:([0-9a-f]{64})")


def _sha256(values: list[str]) -> list[HashType]:
    return [HashType(alg=HashAlgorithm.SHA_256, content=value) for value in values]


def _component(
    purl: PackageURL, list_name: str, hashes: list[str], kind: ComponentType = ComponentType.LIBRARY
) -> Component:
    return _of_hashes(purl, list_name, _sha256(hashes), kind)


def _of_hashes(
    purl: PackageURL, list_name: str, hashes: list[HashType], kind: ComponentType = ComponentType.LIBRARY
) -> Component:
    return Component(
        type=kind,
        name=purl.name,
        group=purl.namespace,
        version=purl.version,
        purl=purl,
        bom_ref=f"{list_name}#{purl}",
        hashes=hashes,
        properties=[Property(name="txn-engine:pinned-in", value=list_name)],
    )


def _rows(path: str) -> Iterator[list[str]]:
    for line in (REPOSITORY / path).read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            yield line.split()


def components() -> Iterator[Component]:
    """Each pin of each list. A package may be pinned in several lists."""
    for name in WHEELS:
        path = f"requirements/{name}.txt"
        for wheel, version, rest in _WHEEL.findall((REPOSITORY / path).read_text()):
            hashes = re.findall(r"--hash=sha256:([0-9a-f]{64})", rest)
            yield _component(PackageURL("pypi", None, wheel, version), path, hashes)
    for path in JARS:
        for organisation, name, version, digest in _rows(path):
            yield _component(PackageURL("maven", organisation, name, version), path, [digest])
    for path in MODULES:
        for module, version, _ in _rows(path):  # Go's own sum is over a list of files, no hash of CycloneDX's
            namespace, _, name = module.rpartition("/")
            yield _component(PackageURL("golang", namespace, name, version), path, [])
    for path in NODE:
        for place, package in json.loads((REPOSITORY / path).read_text())["packages"].items():
            if not place:
                continue  # the list itself
            namespace, _, name = place.rpartition("node_modules/")[2].rpartition("/")
            algorithm, _, digest = package["integrity"].partition("-")
            assert algorithm == "sha512"
            hashes = [HashType(alg=HashAlgorithm.SHA_512, content=base64.b64decode(digest).hex())]
            purl = PackageURL("npm", namespace or None, name, package["version"], subpath=place)
            yield _of_hashes(purl, path, hashes)
    for path in IMAGES:
        for image, tag, digest in _IMAGE.findall((REPOSITORY / path).read_text()):
            purl = PackageURL("docker", None, image, f"sha256:{digest}", {"tag": tag})
            yield _component(purl, path, [digest], ComponentType.CONTAINER)


def sbom() -> str:
    """The SBOM as JSON, of CycloneDX 1.6."""
    bom = Bom(components=components())
    bom.metadata.component = Component(
        type=ComponentType.APPLICATION, name="txn-engine", bom_ref="txn-engine"
    )
    bom.register_dependency(bom.metadata.component, bom.components)
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def main(file: str) -> None:
    """Write the SBOM."""
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(sbom())
    print(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
