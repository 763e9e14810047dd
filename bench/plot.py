"""Plots as SVG, without a library: one line over time, with a shaded stretch."""

from collections.abc import Sequence

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 720, 260, 60, 36, 24


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
