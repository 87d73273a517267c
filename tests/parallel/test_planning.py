"""The facts about a stream from which the work of several processes is planned."""

from __future__ import annotations

from monitor.config.layouts import layouts
from monitor.parallel.partitioning import StreamPartitioner
from monitor.parallel.planning import Facts, note_share
from tests.numbers import predictions, regression
from tests.records import decode


def test_labels_along_predicted_numbers_are_labels_and_no_verdicts() -> None:
    records = [record | {"sigma": 1.0} for record in predictions(1, 50)]
    for levels in ((), (0.05, 0.95)):
        chunk = decode(*records, layouts=tuple(layouts({"t": regression(quantiles=levels)})))
        facts = Facts()
        facts.note(chunk, "row")
        for share in StreamPartitioner().share(chunk):
            note_share(facts, share, size=1, cap=10)
        assert (facts.labels["t"], facts.verdicts) == (50, 0), levels
        assert not facts.certain, "a standard deviation of 1 is no certain score"
