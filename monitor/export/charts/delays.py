"""A picture of how soon drops of accuracy are detected, as SVG that follows the reader's light or dark theme.

Detected and missed drops differ by shape as well as by colour.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from monitor.export.charts import marks as marks

_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM, _ROW = 900, 330, 60, 58, 46, 22
_STYLE = (
    "<style>.delays text{font:12px sans-serif;fill:#222}.delays .soft{fill:#5c5c5c}"
    ".delays .line{stroke:#d5d5d5;fill:none}.delays .dot{fill:#0072b2}"
    ".delays .missed{stroke:#d55e00;stroke-width:2;fill:none}.delays .back{fill:#fff}"
    "@media screen and (prefers-color-scheme:dark){.delays text{fill:#e6edf3}.delays .soft{fill:#9aa4af}"
    ".delays .line{stroke:#3a424b}.delays .dot{fill:#5ab4e5}.delays .missed{stroke:#f0883e}"
    ".delays .back{fill:#0d1117}}</style>"
)


@dataclass(frozen=True, slots=True)
class DelayRow:
    """A row of the picture: repeated drops of one size and kind in the accuracy of one model.

    Parameters
    ----------
    name : str
    detected : sequence of int
        For each detected drop, the number of windows until the alarm, 1 or more.
    missed : sequence of int
        For each missed drop, the number of windows without an alarm.
    """

    name: str
    detected: Sequence[int]
    missed: Sequence[int]


def delays_svg(title: str, rows: Sequence[DelayRow]) -> str:
    """Return the picture: a row for each case, on a logarithmic axis of windows.

    Examples
    --------
    >>> svg = delays_svg("Backtest", [DelayRow("delay/erm, 5 points", [2, 3], [40])])
    >>> svg.count('class="dot"'), svg.count('class="missed"')  # with one of each in the legend
    (3, 2)
    """
    height = _TOP + _ROW * max(len(rows), 1) + _BOTTOM
    most = max((number for row in rows for number in (*row.detected, *row.missed)), default=1)
    ticks = [
        number * 10**power
        for power in range(math.ceil(math.log10(max(most, 10))))
        for number in (1, 2, 5)
        if number * 10**power <= max(most, 10)
    ]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="delays" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="{marks.text(title)}">{_STYLE}',
        f'<rect class="back" width="{_WIDTH}" height="{height}"/>',
        f'<text x="12" y="24" style="font-size:16px">{marks.text(title)}</text>',
        '<circle class="dot" cx="18" cy="42" r="4"/><text x="28" y="46">detected</text>',
        f'{_cross(110, 42)}<text x="122" y="46">missed until the end</text>',
    ]
    for number in ticks:
        x = marks.number(_place(number, most))
        parts.append(f'<path class="line" d="M{x} {_TOP}V{height - _BOTTOM}"/>')
        parts.append(f'<text class="soft" x="{x}" y="{height - 26}" text-anchor="middle">{number:,}</text>')
    parts.append(
        f'<text class="soft" x="{(_LEFT + _WIDTH - _RIGHT) / 2:g}" y="{height - 8}" text-anchor="middle">'
        "windows since the drop</text>"
    )
    for number, row in enumerate(rows):
        parts += _row(row, _TOP + _ROW * number + _ROW / 2, most)
    return "".join([*parts, "</svg>"]) + "\n"


def _row(row: DelayRow, y: float, most: int) -> list[str]:
    height = marks.number(y)
    return [
        f'<text x="{_LEFT - 12}" y="{marks.number(y + 4)}" text-anchor="end">{marks.text(row.name)}</text>',
        f'<path class="line" d="M{_LEFT} {height}H{_WIDTH - _RIGHT}"/>',
        *(
            f'<circle class="dot" cx="{marks.number(_place(windows, most))}" cy="{height}" r="4"/>'
            for windows in row.detected
        ),
        *(_cross(_place(windows, most), y) for windows in row.missed),
    ]


def _cross(x: float, y: float) -> str:
    return f'<path class="missed" d="M{marks.number(x - 4)} {marks.number(y - 4)}l8 8m0 -8l-8 8"/>'


def _place(windows: int, most: int) -> float:
    """Return the position of a number of windows, in pixels from the left."""
    share = math.log(max(windows, 1)) / math.log(max(most, 10))
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)
