"""The accounting identities, read from outside: whatever came stands in exactly one place.

    answers received = used + pending + duplicate + rejected + shed, those of arenas (comparisons) too
    labels received  = matched + waiting + duplicate + conflicting + expired + rejected + shed

They hold in every scrape, at any moment and after any fault. The parts are counted where records end up,
the received where they come in, so that what is lost or counted twice in between shows.
"""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client.exposition import generate_latest

from monitor.export.prometheus.collector import registry
from monitor.reports.views import AgentView
from tests.daemon import DaemonProcess, Metrics

_EVERY_SERIES = 1_000_000

_ANSWERS = {
    "used": "predictions_total",
    "pending": "answers_pending",
    "duplicate": "duplicates_total",
    "rejected": "rejected_total",
    "shed": "shed_total",
    "compared": "comparisons_total",
    "compared, pending": "comparisons_pending",
    "compared before": "comparison_duplicates_total",
}
_OUTCOMES = ("matched", "duplicate", "conflicting", "expired", "rejected", "shed")


@dataclass(frozen=True)
class Account:
    """What came of one kind of record, and where it stands."""

    kind: str
    received: int
    parts: dict[str, int]

    def assert_adds_up(self) -> None:
        """AssertionError that shows every part where they are more or fewer than was received."""
        found = sum(self.parts.values())
        shown = " + ".join(f"{name} {count:,}" for name, count in self.parts.items())
        assert self.received == found, (
            f"{self.kind}: received {self.received:,}, but {shown} = {found:,}: "
            f"{abs(self.received - found):,} {'lost' if found < self.received else 'too many'}"
        )


def answers_account(metrics: Metrics) -> Account:
    """The answers of a scrape, all sources and models together."""
    parts = {part: int(metrics.total(name)) for part, name in _ANSWERS.items()}
    return Account("answers", int(metrics.total("answers_received_total")), parts)


def labels_account(metrics: Metrics) -> Account:
    """The labels of a scrape, all sources and tasks together."""
    parts = {outcome: int(metrics.total("labels_total", outcome=outcome)) for outcome in _OUTCOMES}
    parts["waiting"] = int(metrics.total("labels_waiting"))
    return Account("labels", int(metrics.total("labels_received_total")), parts)


def assert_adds_up(found: Metrics | DaemonProcess | AgentView) -> Metrics:
    """Hold both identities of a scrape, or of the next one of a daemon or an agent; the scrape is returned.

    Series that `export.max_series` left out of the scrape cannot be summed: raise it in such a test.
    """
    scrape = scraped(found)
    answers_account(scrape).assert_adds_up()
    labels_account(scrape).assert_adds_up()
    return scrape


def scraped(found: Metrics | DaemonProcess | AgentView) -> Metrics:
    """The next scrape of a daemon or an agent; a scrape as it is."""
    if isinstance(found, AgentView):
        return Metrics(generate_latest(registry(lambda: found, _EVERY_SERIES)).decode())
    return found.metrics() if isinstance(found, DaemonProcess) else found
