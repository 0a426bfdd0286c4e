"""What `pip install txn-engine` brings, without any extra, as a folder for `PYTHONPATH`."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from tests.support.servers import REPOSITORY


def link_required_packages(folder: Path) -> Path:
    """Fill the folder with links to the packages that the project requires, and to those that these require.

    `python -S` with this folder on its path is a process in which every other package is really missing.
    """
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    open_ends, seen = [Requirement(each) for each in project["dependencies"]], set[str]()
    while open_ends:
        requirement = open_ends.pop()
        if requirement.name in seen or (
            requirement.marker and not requirement.marker.evaluate({"extra": ""})
        ):
            continue
        seen.add(requirement.name)
        found = metadata.distribution(requirement.name)
        open_ends += [Requirement(each) for each in found.requires or ()]
        for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            (folder / top).symlink_to(Path(str(found.locate_file(top))))
    return folder
