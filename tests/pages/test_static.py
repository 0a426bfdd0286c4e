"""The front end works as plain files, needs no network, and its colours have enough contrast."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

import txn_engine_airflow
from txn_engine_airflow.pages import __file__ as pages_file

STATIC = Path(pages_file).parent / "static"
AA_TEXT, AA_GRAPHICS = 4.5, 3.0


def texts() -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(STATIC.iterdir())}


def test_nothing_is_fetched_from_elsewhere() -> None:
    for name, text in texts().items():
        addresses = [
            at for at in re.findall(r"(?:https?:)?//[\w.-]+\.[a-z]{2,}", text) if "www.w3.org" not in at
        ]
        assert addresses == [], name


def test_every_module_that_is_imported_is_there() -> None:
    from txn_engine_airflow.pages.routes_pages import PAGES

    for name, text in texts().items():
        for imported in re.findall(r'(?:from|import) "\./([^"]+)"', text):
            assert (STATIC / imported).is_file(), (name, imported)
        for linked in re.findall(r'(?:src|href)="static/([^"]+)"', text):
            assert (STATIC / linked).is_file(), (name, linked)
    assert [page for page, _ in PAGES.values() if not (STATIC / f"page-{page}.js").is_file()] == []


def test_no_text_can_become_markup() -> None:
    """The pages never build markup from text, although the content security policy would stop it too."""
    for name, text in texts().items():
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
        ), name
        assert not re.search(r'<[^>]+\s(?:on\w+|style)="', text), name


@pytest.mark.shard("airflow")
def test_importing_the_package_makes_no_app() -> None:
    """Importing the package does not make the app, because every process of Airflow loads plugins. The app is
    made when it is asked for."""
    import subprocess
    import sys

    code = (
        "import sys, txn_engine_airflow.plugin as p; plugin = p.TxnEnginePlugin();"
        "print([m for m in ('txn_engine', 'pyarrow', 'txn_engine_airflow.pages.app') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=200,
        cwd=Path(txn_engine_airflow.__file__).parents[1],
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "[]"


# --- colours ------------------------------------------------------------------------------------------------


def tokens(mode: str) -> dict[str, str]:
    css = (STATIC / "tokens.css").read_text()
    light, dark = re.findall(r"\{([^}]*)\}", css)
    found = dict(re.findall(r"--([\w-]+):\s*([^;]+);", light))
    return found | (dict(re.findall(r"--([\w-]+):\s*([^;]+);", dark)) if mode == "dark" else {})


def luminance(colour: str) -> float:
    """WCAG's relative luminance of `#fff` or `oklch(l c h)`. Colours outside sRGB are clipped as browsers do it."""
    if colour == "#fff":
        return 1.0
    match = re.fullmatch(r"oklch\(([\d.]+) ([\d.]+) ([\d.]+)\)", colour)
    assert match, colour
    light, chroma, hue = map(float, match.groups())
    a, b = chroma * math.cos(math.radians(hue)), chroma * math.sin(math.radians(hue))
    long = (light + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (light - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (light - 0.0894841775 * a - 1.2914855480 * b) ** 3
    red = 4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short
    green = -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short
    blue = -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short
    red, green, blue = (min(max(part, 0.0), 1.0) for part in (red, green, blue))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


TEXTS = [
    *[("fg", on) for on in ("bg", "bg-subtle", "bg-muted", "neutral-bg", "info-bg")],
    *[("fg-muted", on) for on in ("bg", "bg-subtle", "bg-muted")],
    *[("link", on) for on in ("bg", "bg-muted")],
    ("brand", "bg"), ("bad", "bg"), ("warn", "bg"),
    ("good", "good-bg"), ("warn", "warn-bg"), ("bad", "bad-bg"), ("info", "info-bg"),
]  # fmt: skip
KINDS = ("committed", "open", "aborted", "compacted", "marker", "trimmed")
GRAPHICS = [
    *[(f"kind-{kind}", on) for kind in KINDS for on in ("bg", "bg-muted")],
    ("kind-marker", "kind-committed"),  # the two without a texture
    ("border-strong", "bg"), ("focus", "bg"), ("brand", "bg-muted"),
]  # fmt: skip


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_contrast_is_enough(mode: str) -> None:
    """The contrast is at least 4.5 for text and 3 for other things that carry meaning (WCAG 2.2 AA)."""
    colours = tokens(mode)
    poor = [
        (front, back, round(contrast(colours[front], colours[back]), 2))
        for pairs, least in ((TEXTS, AA_TEXT), (GRAPHICS, AA_GRAPHICS))
        for front, back in pairs
        if contrast(colours[front], colours[back]) < least
    ]
    assert poor == []


def test_the_contrast_formula_is_wcag_s() -> None:
    assert contrast("#fff", "oklch(0 0 0)") == pytest.approx(21, abs=0.01)
    assert contrast("#fff", "oklch(0.5999 0 0)") == pytest.approx(3.95, abs=0.05)  # #808080
