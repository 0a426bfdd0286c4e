"""Line charts as SVG text: no background, and colours that can be read on a light page and on a dark one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_COLOURS = ("#2f81d6", "#d9822b", "#3a9d5d", "#b05cc8")
_WIDTH, _HEIGHT = 420, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 22, 46, 44
_COLUMNS = 2
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#444}.title{font-weight:600;font-size:13px}"
    ".axis{stroke:#888;fill:none}.grid{stroke:#8884;fill:none}"
    "@media(prefers-color-scheme:dark){text{fill:#ccc}}"
)

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over one pair of axes: x by its logarithm, y from 0."""

    title: str
    x_label: str
    y_label: str
    lines: dict[str, Points]


def svg_of(charts: Sequence[Chart], title: str) -> str:
    """A picture of them all, two in a row."""
    rows = -(-len(charts) // _COLUMNS)
    width, height = _COLUMNS * _WIDTH, rows * _HEIGHT
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
    ]
    for number, chart in enumerate(charts):
        x, y = number % _COLUMNS * _WIDTH, number // _COLUMNS * _HEIGHT
        parts += [f'<g transform="translate({x} {y})">', *_chart(chart), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


def _chart(chart: Chart) -> list[str]:
    points = [point for line in chart.lines.values() for point in line]
    xs = sorted({x for x, _ in points})
    low, high = math.log2(xs[0]), math.log2(xs[-1])
    top = _round_up(max(y for _, y in points))
    wide, tall = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        share = (math.log2(x) - low) / (high - low) if high > low else 0.5
        return round(_LEFT + share * wide, 1), round(_HEIGHT - _BOTTOM - y / top * tall, 1)

    parts = [_text(_LEFT, 18, chart.title, "start", "title")]
    for step in range(5):
        value = top * step / 4
        _, y = place(xs[0], value)
        parts.append(f'<path class="grid" d="M{_LEFT} {y}h{wide}"/>')
        parts.append(_text(_LEFT - 6, y + 4, _number(value), "end"))
    for x in _ticks(xs):
        at, _ = place(x, 0)
        parts.append(f'<path class="axis" d="M{at} {_HEIGHT - _BOTTOM}v4"/>')
        parts.append(_text(at, _HEIGHT - _BOTTOM + 17, _number(x), "middle"))
    parts.append(f'<path class="axis" d="M{_LEFT} {_TOP}v{tall}h{wide}"/>')
    parts.append(_text(_LEFT + wide / 2, _HEIGHT - 10, chart.x_label, "middle"))
    middle = _TOP + tall / 2
    parts.append(
        f'<text x="13" y="{middle}" text-anchor="middle" transform="rotate(-90 13 {middle})">'
        f"{escape(chart.y_label)}</text>"
    )
    for number, (name, line) in enumerate(chart.lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        places = [place(x, y) for x, y in line]
        path = " ".join(f"{x},{y}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="2.5" fill="{colour}"/>' for x, y in places]
        if len(chart.lines) > 1:
            at = _LEFT + number * wide / len(chart.lines)
            parts.append(f'<rect x="{at}" y="27" width="10" height="10" fill="{colour}"/>')
            parts.append(_text(at + 14, 36, name, "start"))
    return parts


def _text(x: float, y: float, text: str, anchor: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{named}>{escape(text)}</text>'


def _ticks(xs: Sequence[float]) -> list[float]:
    """At most seven of the values there are, the last one with them."""
    every = -(-len(xs) // 7)
    return list(reversed(xs[::-1][::every]))


def _round_up(value: float) -> float:
    """1, 2, 4, 5 or 8 times a power of ten, and not below the value."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 5, 8, 10) if step * power >= value * 0.9999)


def _number(value: float) -> str:
    if value >= 1_000:
        return f"{value / 1_000:g}k" if value % 100 == 0 else f"{value:,.0f}"
    return f"{value:.3g}"
