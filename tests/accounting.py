"""The accounting identities, read from outside: every record is counted in exactly one place.

    answers received = used + pending + duplicate + rejected + shed, those of arenas (comparisons) too
    labels received  = matched + waiting + duplicate + conflicting + expired + rejected + shed

They hold in every scrape, at any moment and after any fault. The parts are counted where records end up,
the received where they come in, so that a record lost or counted twice in between shows. Events without
answers stand apart. Where each record is one answer, label or event, their sum is the records that were sent.
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
_OUTCOMES = ("matched", "duplicate", "conflicting", "expired", "rejected", "ambiguous", "shed")


@dataclass(frozen=True)
class Account:
    """The count of one kind of record that was received, and its parts."""

    kind: str
    received: int
    parts: dict[str, int]

    def assert_adds_up(self) -> None:
        """AssertionError that shows every part where they are more or fewer than was received."""
        total = sum(self.parts.values())
        assert self.received == total, (
            f"{self.kind}: received {self.received:,}, but {self._shown} = {total:,}: "
            f"{abs(self.received - total):,} {'lost' if total < self.received else 'too many'}"
        )

    def __add__(self, other: Account) -> Account:
        parts = {name: count + other.parts[name] for name, count in self.parts.items()}
        return Account(self.kind, self.received + other.received, parts)

    def __str__(self) -> str:
        return f"{self.kind}: received {self.received:,} = {self._shown}"

    @property
    def _shown(self) -> str:
        shown = {name: count for name, count in self.parts.items() if count or "compared" not in name}
        return " + ".join(f"{name} {count:,}" for name, count in shown.items())


@dataclass(frozen=True)
class Accounts:
    """The accounts of answers, comparisons, labels and events of one daemon or of several."""

    answers: Account
    labels: Account
    ignored: int

    @property
    def received(self) -> int:
        """Answers, labels, and events without either."""
        return self.answers.received + self.labels.received + self.ignored

    def __add__(self, other: Accounts) -> Accounts:
        ignored = self.ignored + other.ignored
        return Accounts(self.answers + other.answers, self.labels + other.labels, ignored)

    def __str__(self) -> str:
        return f"{self.answers}\n{self.labels}; events ignored: {self.ignored:,}"


def accounts(metrics: Metrics) -> Accounts:
    """Return the accounts of a scrape."""
    ignored = int(metrics.total("events_ignored_total"))
    return Accounts(answers_account(metrics), labels_account(metrics), ignored)


def answers_account(metrics: Metrics) -> Account:
    """Return the answers of a scrape, all sources and models together."""
    parts = {part: int(metrics.total(name)) for part, name in _ANSWERS.items()}
    return Account("answers", int(metrics.total("answers_received_total")), parts)


def labels_account(metrics: Metrics) -> Account:
    """Return the labels of a scrape, all sources and tasks together."""
    parts = {outcome: int(metrics.total("labels_total", outcome=outcome)) for outcome in _OUTCOMES}
    parts["waiting"] = int(metrics.total("labels_waiting"))
    return Account("labels", int(metrics.total("labels_received_total")), parts)


def assert_adds_up(origin: Metrics | DaemonProcess | AgentView, sent: int | None = None) -> Metrics:
    """Hold both identities of a scrape, or of the next one of a daemon or an agent; the scrape is returned.

    With `sent` the records that were sent are held too: each is one answer, label or event. A daemon shows
    the last of them a moment after it saved them, which is waited for. Series that `export.max_series` left
    out of the scrape cannot be summed: raise it in such a test.
    """
    if sent is not None and isinstance(origin, DaemonProcess):
        origin.until(lambda: accounts(origin.metrics()).received >= sent, f"it shows {sent:,} records")
    scrape = scraped(origin)
    held = accounts(scrape)
    held.answers.assert_adds_up()
    held.labels.assert_adds_up()
    assert sent in (None, held.received), f"{sent:,} records were sent, but: {held}"
    return scrape


def scraped(origin: Metrics | DaemonProcess | AgentView) -> Metrics:
    """Return the next scrape of a daemon or an agent; a scrape as it is."""
    if isinstance(origin, AgentView):
        return Metrics(generate_latest(registry(lambda: origin, _EVERY_SERIES)).decode())
    return origin.metrics() if isinstance(origin, DaemonProcess) else origin
