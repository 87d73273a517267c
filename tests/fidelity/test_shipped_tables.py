"""What `tests.fidelity.shipped_tables` printed, and a short form of it where the tables are at hand."""

from __future__ import annotations

import re

import pytest

from tests.fidelity.shipped_tables import LABELS, METRICS, SIZES, VARIABLE, folder, measured, table, tables
from tests.harness import kept


def test_the_tables_are_asked_for_by_name(monkeypatch, tmp_path):
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(FileNotFoundError, match=rf"set {VARIABLE} to a folder .* nannyml 0\.13\.1"):
        folder()
    with pytest.raises(
        FileNotFoundError, match=r"synthetic_car_loan_reference\.csv is not there, or another"
    ):
        folder(tmp_path)


def test_labels_make_every_metric_hold_nearly_as_the_accuracy_does():
    """Of windows of 500; of 10 and 12 windows of 5,000 one alone is 8 to 10 points."""
    rows = re.findall(r"^(car loans|credit cards) +([\d,]+)  (\w+) +(.+)$", kept(table), re.MULTILINE)
    assert len(rows) == 2 * len(SIZES) * len(METRICS)
    held = {(name, size, metric): list(map(float, cells.split()[::2])) for name, size, metric, cells in rows}
    for (name, size, metric), (none, few, late, at_once) in held.items():
        assert metric == "accuracy" or min(few, late, at_once) >= none, (name, size, metric)
        assert size != "500" or late >= held[name, size, "accuracy"][2] - 8, (name, size, metric)


def test_labels_widen_the_recall_of_car_loans():
    """4 windows of 5,000 before the change of the concept: labels add next to nothing."""
    try:
        data = folder()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    cells = measured(tables(data)[0], 5000, windows=4)
    assert cells["recall", len(LABELS) - 1][1] < 1.5 * cells["recall", 0][1]
