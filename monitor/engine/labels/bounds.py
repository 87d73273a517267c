"""How many answers and labels the join keeps in so many bytes."""

from __future__ import annotations

from monitor.engine.labels.columns import LABEL_COLUMNS, answer_columns
from monitor.engine.labels.table import BoundedTable

_FEWEST_LABELS = 1000  # a smaller table would cut a batch of labels into as many pieces as it has rows


def rows_within(
    max_bytes: int | None, max_answers: int, max_labels: int, series: int, scored: int = 0
) -> tuple[int, int]:
    """How many answers, and how many labels, are kept: of both the same share of what may be.

    Of labels at least 1,000, and one answer; None is no bound.

    Examples
    --------
    >>> rows_within(None, 1_000_000, 100_000, series=1)
    (1000000, 100000)
    >>> rows_within(43_650_000, 1_000_000, 100_000, series=1)
    (500000, 50000)
    """
    labels = max(max_labels, _FEWEST_LABELS)
    if max_bytes is None:
        return max_answers, labels
    answer = BoundedTable.bytes_per_row(answer_columns(series, scored))
    label = BoundedTable.bytes_per_row(LABEL_COLUMNS)
    share = min(1.0, max_bytes / (max_answers * answer + labels * label))
    labels = max(int(labels * share), _FEWEST_LABELS)
    return max(1, min(max_answers, (max_bytes - labels * label) // answer)), labels
