"""`python -m tests.docs.kinds --write` makes from the engine's code what Airflow's side knows of the kinds of
stores."""

from __future__ import annotations

import json
import sys
from dataclasses import fields
from typing import Any

from storage import BACKENDS, Backend, Setting
from tests.support.servers import REPOSITORY

FILE = REPOSITORY / "plugins" / "txn_engine_airflow" / "kinds.json"


def text() -> str:
    """The file as the code has it now."""
    return json.dumps([_kind(each) for each in BACKENDS], indent=2) + "\n"


def rows() -> list[str]:
    """The table of settings in docs/STORES.md."""
    return [
        f"| {backend.name} | `{each.keyword}` | `{each.variables[0]}` | `{_field(each)}` |"
        for backend in BACKENDS
        for each in backend.settings
    ]


def _field(setting: Setting) -> str:
    return setting.field if setting.field in ("login", "password") else f"extra.{setting.field}"


def _kind(backend: Backend) -> dict[str, Any]:
    names = ("name", "schemes", "example", "credentials", "authority", "environment", "identities")
    held = {name: getattr(backend, name) for name in names}
    return {**held, "settings": [_setting(each) for each in backend.settings]}


def _setting(setting: Setting) -> dict[str, Any]:
    held = {each.name: getattr(setting, each.name) for each in fields(setting) if each.name != "variables"}
    return {**held, "variable": setting.variables[0] if setting.variables else ""}


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        FILE.write_text(text(), encoding="utf-8")
    sys.exit(0 if FILE.read_text(encoding="utf-8") == text() else 1)
