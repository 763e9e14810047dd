"""Plots as SVG, without a library: one line over time with a shaded stretch, and bars in groups."""

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 720, 260, 60, 36, 24
ROW, NAMES, FIGURES = 15, 110, 60  # of bars: height of one, room for names before and figures behind them
COLOURS = ("#1f5fa8", "#c4622d", "#3d8b5f", "#8a5aa8", "#777777")


def timeline(title: str, values: Sequence[float], shaded: tuple[float, float], unit: str) -> str:
    """Return a plot of *values*, one for each second, with the seconds *shaded* marked."""
    top = max([*values, 1.0])
    across, up = (WIDTH - LEFT - 10) / max(1, len(values) - 1), (HEIGHT - BOTTOM - TOP) / top
    points = " ".join(f"{LEFT + x * across:.1f},{HEIGHT - BOTTOM - y * up:.1f}" for x, y in enumerate(values))
    start, end = (LEFT + x * across for x in shaded)
    marks = [
        f'<text x="{LEFT - 6}" y="{HEIGHT - BOTTOM - value * up + 4:.1f}" text-anchor="end">{value:.0f}</text>'
        for value in (0, top / 2, top)
    ]
    step = max(1, len(values) // 10)
    marks += [
        f'<text x="{LEFT + x * across:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{x}</text>'
        for x in range(0, len(values), step)
    ]
    view = f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11"'
    stretch = f'x="{start:.1f}" y="{TOP}" width="{end - start:.1f}" height="{HEIGHT - BOTTOM - TOP}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {view}>',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            f'<rect {stretch} fill="#fde2e2"/>',
            f'<text x="{LEFT}" y="15">{title}: {unit} over seconds; the storm is shaded</text>',
            *marks,
            f'<polyline points="{points}" fill="none" stroke="#1f5fa8" stroke-width="1.5"/>',
            f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - 10}" fill="none" stroke="#444"/>',
            "</svg>\n",
        ]
    )


def bars(title: str, groups: Mapping[str, Sequence[tuple[str, float]]]) -> str:
    """Return horizontal bars of (name, value), those of a group to one scale, with the group's name above."""
    names = sorted({name for values in groups.values() for name, _ in values})
    colours = {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(names)}
    parts, y = [f'<text x="8" y="16" font-size="13">{escape(title)}</text>'], 2 * ROW
    for group, values in groups.items():
        parts.append(f'<text x="8" y="{y + 11}" font-weight="bold">{escape(group)}</text>')
        y += ROW
        top = max(value for _, value in values) or 1.0
        for name, value in values:
            width = (WIDTH - NAMES - FIGURES) * value / top
            place = f'x="{NAMES}" y="{y + 2}" width="{width:.1f}" height="{ROW - 4}"'
            parts.append(f'<text x="{NAMES - 6}" y="{y + 11}" text-anchor="end">{escape(name)}</text>')
            parts.append(f'<rect {place} fill="{colours[name]}"/>')
            parts.append(f'<text x="{NAMES + width + 4:.1f}" y="{y + 11}">{value:.2f}</text>')
            y += ROW
        y += ROW // 2
    view = f'viewBox="0 0 {WIDTH} {y}" font-family="sans-serif" font-size="11"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {view}>\n<rect width="{WIDTH}" height="{y}" fill="white"/>'
    return "\n".join([head, *parts, "</svg>\n"])
