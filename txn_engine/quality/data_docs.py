"""Great Expectations' own Data Docs, kept beside the report and made to open offline.

As it writes them, their style and scripts come from six hosts on the network: offline they are bare, and the index is
empty. Here the scripts and everything fetched are taken out, a small style sheet is put in, and the index is ours. What
only the scripts did (filters, folding) is gone; the folded parts are open.
"""

from __future__ import annotations

import html
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txn_engine.quality.quiet import quiet

if TYPE_CHECKING:
    from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext

_SITE = "beside_the_report"
_VIEW = {"module_name": "txn_engine.quality.docs_view", "class_name": "PageView"}
_POLICY = (
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'\">"
)
_FETCHED = re.compile(
    r"<script\b.*?</script\s*>|<script\b[^>]*>|<style\b.*?</style\s*>|<link\b[^>]*>|<img\b[^>]*>|<footer\b.*?</footer\s*>",
    re.DOTALL | re.IGNORECASE,
)
_ON_EVENT = re.compile(r"\son[a-z]+=\"[^\"]*\"", re.IGNORECASE)


def build_data_docs(context: EphemeralDataContext, folder: Path) -> str:
    """Write the pages of this context's validations into `folder`, in place of what an earlier run left there.

    Never raises: empty, or why there are none.
    """
    try:
        with quiet():
            _build(context, folder)
    except Exception as error:  # noqa: BLE001 - an ornament of the report must not cost us the report
        return f"{type(error).__name__}: {error}"
    return ""


def _build(context: EphemeralDataContext, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    site: Any = {  # its type does not know the sections' builders
        "class_name": "SiteBuilder",
        "store_backend": {
            "class_name": "TupleFilesystemStoreBackend",
            "base_directory": str(folder.absolute()),
        },
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
        "site_section_builders": {section: {"view": _VIEW} for section in ("expectations", "validations")},
    }
    context.add_data_docs_site(_SITE, site)
    context.build_data_docs(site_names=[_SITE], build_index=False)  # ours takes its place
    shutil.rmtree(folder / "static", ignore_errors=True)  # 3 MB of fonts and pictures
    style = (Path(__file__).parent / "pages" / "data_docs.css").read_text(encoding="utf-8")
    for page in folder.rglob("*.html"):
        page.write_text(_offline(page.read_text(encoding="utf-8"), style), encoding="utf-8")
    (folder / "index.html").write_text(_index(folder, style), encoding="utf-8")


def _offline(text: str, style: str) -> str:
    """The page without anything that is fetched or run, with our style."""
    text = _ON_EVENT.sub("", _FETCHED.sub("", text))
    text = text.replace("<html>", '<html lang="en">', 1).replace("<title></title>", "", 1)
    return text.replace("<head>", f"<head>{_POLICY}", 1).replace(
        "</head>", f"<style>{style}</style></head>", 1
    )


def _index(folder: Path, style: str) -> str:
    """A plain list of the validations, one a batch."""
    items = "".join(
        f'<li><a href="{html.escape(page.relative_to(folder).as_posix(), quote=True)}">'
        f"{html.escape(page.relative_to(folder).parts[1])}</a></li>"
        for page in sorted(folder.glob("validations/**/*.html"))
    )
    return (
        f'<!DOCTYPE html><html lang="en"><head>{_POLICY}<meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>Great Expectations</title>'
        f"<style>{style}</style></head><body><h1>Great Expectations: validations of this run</h1>"
        f"<p>One page a batch. The report itself is one folder up.</p><ul>{items}</ul></body></html>"
    )
