"""Charts as SVG inside a page: ratios with their intervals, and every pair. Colours come from the page's classes, so they follow its theme."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["pairs", "ratios"]

_WIDTH, _LEFT, _RIGHT = 720, 92, 24
_ROW, _TOP, _AXIS = 46, 16, 34
_HEIGHT = 240


def ratios(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Each row a name and a {"median", "low", "high"}, on one logarithmic axis with a line at 1."""
    low, high = _span([one[key] for _, one in rows for key in ("low", "median", "high")])
    height = _TOP + _ROW * len(rows) + _AXIS
    parts = [_axis(low, high, _TOP, height - _AXIS)]
    for i, (name, one) in enumerate(rows):
        y = _TOP + _ROW * i + _ROW / 2
        left, middle, right = (_place(one[key], low, high) for key in ("low", "median", "high"))
        kind = "effect" if i == 0 else "quiet"
        parts.append(f'<text x="{_LEFT - 12}" y="{y + 4:.1f}" text-anchor="end">{name}</text>')
        parts.append(f'<line class="{kind}" x1="{left:.1f}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke-width="6" stroke-linecap="round"/>')
        parts.append(f'<circle class="{kind}" cx="{middle:.1f}" cy="{y:.1f}" r="6"><title>{one["median"]:.5f}</title></circle>')
    return _svg(height, "Ratio b / a and control, with their intervals", parts)


def pairs(points: Sequence[tuple[float, bool]], controls: Sequence[tuple[float, bool]]) -> str:
    """(ratio, kept) of each pair as a dot and of each control as a ring, in the order in which they were taken."""
    low, high = _span([ratio for ratio, _ in (*points, *controls)])
    parts = []
    bottom = _HEIGHT - _AXIS
    for tick in _ticks(low, high):
        y = bottom - (math.log(tick) - math.log(low)) / (math.log(high) - math.log(low)) * (bottom - _TOP)
        kind = "one" if tick == 1 else "grid"
        parts.append(f'<line class="{kind}" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 12}" y="{y + 4:.1f}" text-anchor="end">{tick:.4g}</text>')
    for kind, radius, values in (("quiet", 3.5, controls), ("effect", 4.5, points)):
        for i, (ratio, kept) in enumerate(values):
            x = _LEFT + (i + 0.5) * (_WIDTH - _LEFT - _RIGHT) / len(values)
            y = bottom - (math.log(ratio) - math.log(low)) / (math.log(high) - math.log(low)) * (bottom - _TOP)
            state = kind if kept else f"{kind} dropped"
            parts.append(
                f'<circle class="{state}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"><title>{ratio:.5f}{"" if kept else ", left out"}</title></circle>'
            )
    parts.append(
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2:.0f}" y="{_HEIGHT - 8}" text-anchor="middle">pairs in the order in which they were taken</text>'
    )
    return _svg(_HEIGHT, "Every pair's ratio b / a, and every control's", parts)


def _svg(height: float, label: str, parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _axis(low: float, high: float, top: float, bottom: float) -> str:
    parts = []
    for tick in _ticks(low, high):
        x = _place(tick, low, high)
        parts.append(f'<line class="{"one" if tick == 1 else "grid"}" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 20:.1f}" text-anchor="middle">{tick:.4g}</text>')
    return "".join(parts)


def _place(ratio: float, low: float, high: float) -> float:
    return _LEFT + (math.log(ratio) - math.log(low)) / (math.log(high) - math.log(low)) * (_WIDTH - _LEFT - _RIGHT)


def _span(values: Sequence[float]) -> tuple[float, float]:
    """The range of an axis: all the values, and 1, with some room."""
    logs = [0.0, *(math.log(value) for value in values)]
    room = max(0.08 * (max(logs) - min(logs)), 0.002)
    return math.exp(min(logs) - room), math.exp(max(logs) + room)


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers within a range that holds 1, up to about eight and 1 among them; past a factor of four, powers of two."""
    if high / low > 4:
        first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
        apart = max(1, -(-(last - first) // 8))
        return [2.0**power for power in range(first, last + 1) if power % apart == 0]
    step = next(size * 10.0**power for power in range(-6, 2) for size in (1, 2, 5) if (high - low) / (size * 10.0**power) <= 7)
    return [round(i * step, 9) for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
