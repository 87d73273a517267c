"""Streams of predicted numbers, of which the size of the errors is known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from connectors.formats.decode.decoder import Decoder
from monitor.base.source import RawMessages
from monitor.config.layouts import layouts
from monitor.config.regression import Regression
from monitor.engine.reference import Reference
from monitor.engine.regression import references_of_numbers
from tests.streams import CLASSES, Record, Rig, answers


def predictions(
    seed: int,
    n: int,
    model: str = "gbm",
    start: float = 1.7e9,
    shift: float = 0.0,
    labelled: float = 1.0,
    sigma: bool = False,
) -> list[Record]:
    """Return predictions a second apart, with normal errors whose deviation grows with the feature x.

    A share of the records, `labelled`, bring their label.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(shift, 1.0, n).round(4)
    deviation = np.exp(0.5 * x)
    predicted = (10 + 3 * x).round(4)
    truth = (predicted + deviation * rng.standard_normal(n)).round(4)
    has_label = rng.random(n) < labelled
    records = []
    for i in range(n):
        record: Record = {
            "id": f"{model}-{start:.0f}-{i}",
            "time": start + i,
            "model": model,
            "prediction": float(predicted[i]),
            "features": {"x": float(x[i])},
        }
        if sigma:
            record["sigma"] = float(deviation[i])
        if has_label[i]:
            record["label"] = float(truth[i])
        records.append(record)
    return records


def regression(**settings: Any) -> Regression:
    """Return a task of predicted numbers with small windows that do not age, unless `settings` differ."""
    own = {
        "kind": "regression",
        "tolerance": 1.5,
        "reference": {"path": "reference.ndjson"},
        "window": {"size": 100, "min_size": 20, "max_age_seconds": 1e9},
        "features": {"x": "number"},
    }
    return Regression(**own | settings)


OTHERS: dict[str, Any] = {
    "error_metrics": ["mae", "mape", "wape", "coverage", "r2"],
    "quantiles": [0.1, 0.5, 0.9],
}
"""The settings of a task with metrics of errors without a unit."""

_ENDS = {"0.1": -1.0, "0.5": 0.0, "0.9": 1.5}


def stated(records: list[Record], share: float = 1.0) -> list[Record]:
    """Return the records with numbers above 0, and with quantiles in the first `share` of them."""
    changed = []
    for i, record in enumerate(records):
        own = record | {name: record[name] + 60.0 for name in ("prediction", "label") if name in record}
        if i < share * len(records):
            own["quantiles"] = {level: own["prediction"] + end for level, end in _ENDS.items()}
        changed.append(own)
    return changed


def reference_of_numbers(settings: Regression, records: Iterable[Record | bytes]) -> dict[str, Reference]:
    """Return a labelled reference as the daemon would read it."""
    values = [msgspec.json.encode(record) for record in records]
    messages = RawMessages(values, "reference", list(range(len(values))))
    [batch] = Decoder(layouts({"t": settings}), "reference").decode([messages]).batches
    return references_of_numbers(batch, settings)


def as_numbers(records: Iterable[Record | bytes]) -> list[Record | bytes]:
    """Return records of two classes as records of numbers: ten times the second score, 0 or 10 as truth."""
    converted: list[Record | bytes] = []
    for record in records:
        if isinstance(record, bytes):
            converted.append(record)
            continue
        own = dict(record)
        if "scores" in own:
            own["prediction"] = round(10 * own.pop("scores")[1], 3)
        if "models" in own:
            own["models"] = {model: round(10 * scores[1], 3) for model, scores in own["models"].items()}
        if "label" in own:
            own["label"] = 10.0 * CLASSES.index(own["label"])
        converted.append(own)
    return converted


def rig_of_numbers(**settings: Any) -> Rig:
    """Return a rig whose task predicts the numbers of `as_numbers`."""
    own = regression(**{"features": {}, "tolerance": 4} | settings)
    rng = np.random.default_rng(9)
    known = [row for model in ("erm", "irm") for row in answers(rng, 600, model, start=1.6e9, labelled=True)]
    return Rig({"t": own}, {"t": reference_of_numbers(own, as_numbers(known))})


def delays(seed: int, n: int, start: float = 1.7e9, labelled: bool = False, **changed: float) -> list[Record]:
    """Return predicted delays whose errors grow with the hour; `echo` is only correlated with the hour.

    Parameters
    ----------
    seed, n : int
    start : float
    labelled : bool
    changed
        `later` adds hours to the population of the hour, `wider` multiplies its deviation, and `longer`
        multiplies the predictions and errors at the same features.
    """
    rng = np.random.default_rng(seed)
    hour = rng.normal(12 + changed.get("later", 0.0), 4 * changed.get("wider", 1.0), n)
    echo = 0.8 * (hour - 12) / 4 + 0.6 * rng.normal(size=n)
    predicted = rng.gamma(4, 5, n) * changed.get("longer", 1.0)
    label = predicted - rng.normal(size=n) * (predicted / 20) * np.exp((hour - 12) / 8)
    return [
        {
            "id": f"{seed}-{start:.0f}-{i}",
            "time": start + i,
            "model": "gbm",
            "prediction": float(predicted[i]),
            "features": {"hour": float(hour[i]), "echo": float(echo[i])},
            **({"label": float(label[i])} if labelled else {}),
        }
        for i in range(n)
    ]
