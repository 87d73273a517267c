"""Counts the records of a replay by outcome, for the table at its end, and warns of many unused records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from monitor.base.records import Keys, RejectReason
from monitor.config.root import Config
from monitor.parallel.planning import Facts
from monitor.reports.views import EngineView, LabelOutcome

FEW = 0.05
"""The largest share of unused answers or labels without a warning at the end of the table."""

Waiting = Mapping[str, Keys]
"""The keys of the ids of labels that wait for their answer, by task: a result of `Engine.waiting_labels`."""


@dataclass(frozen=True, slots=True)
class LabelCounts:
    """The numbers of labels that could be read, by outcome.

    Parameters
    ----------
    matched : int
        Labels that joined their answer.
    unmatched : int
        Labels without an answer within the horizon, and labels that name a request of several rows.
    conflicting, duplicate : int
        The numbers of labels for an id that already had a label with a different class, and with the same
        class.
    """

    matched: int = 0
    unmatched: int = 0
    conflicting: int = 0
    duplicate: int = 0

    def __add__(self, other: LabelCounts) -> LabelCounts:
        return LabelCounts(
            self.matched + other.matched,
            self.unmatched + other.unmatched,
            self.conflicting + other.conflicting,
            self.duplicate + other.duplicate,
        )

    @property
    def total(self) -> int:
        """The number of labels with any outcome: the sum of all counts."""
        return self.matched + self.unmatched + self.conflicting + self.duplicate


@dataclass(frozen=True, slots=True)
class Accounts:
    """The numbers of answers and labels of a replay that could be read, by outcome.

    Parameters
    ----------
    used, duplicates : int
        Answers in windows, and repeated answers.
    labels : LabelCounts
    named : int
        Labels that name a model, in a file that also holds answers.
    certain : tuple of (task, model)
        The models whose answers all have a score of exactly 1, or a confidence of exactly 0 or 1.
    """

    used: int = 0
    duplicates: int = 0
    labels: LabelCounts = LabelCounts()
    named: int = 0
    certain: tuple[tuple[str, str], ...] = ()


def accounts_of(
    config: Config,
    views: Sequence[EngineView],
    waiting: Sequence[Waiting],
    facts: Sequence[Facts],
) -> Accounts:
    """Return the numbers of answers and labels by outcome, summed over the engines of a replay.

    Parameters
    ----------
    config : Config
    views : sequence of EngineView
        The state of each engine at the end of the replay. No two engines have the same model.
    waiting : sequence of mapping
        For each engine, the labels that still wait for an answer.
    facts : sequence of Facts
        Facts about the input, from each process that read a part of it.
    """
    certain = sum((each.certain for each in facts), Counter[tuple[str, str]]())
    models = [one for view in views for one in view.series if not one.group]
    whole = [one for view in views for one in view.tasks]
    read = {(one.task, one.model): one.predictions + one.pending + one.duplicates for one in models}
    counts = [_of_task(config, name, views, waiting) for name in config.tasks]
    return Accounts(
        used=sum(one.predictions + one.pending for one in models) + sum(one.used for one in whole),
        duplicates=sum(one.duplicates for one in models) + sum(one.duplicates for one in whole),
        labels=sum(counts, LabelCounts()),
        named=sum(each.named_labels for each in facts),
        certain=tuple(name for name, rows in read.items() if rows and certain.get(name, 0) == rows),
    )


def _of_task(
    config: Config, name: str, views: Sequence[EngineView], waiting: Sequence[Waiting]
) -> LabelCounts:
    """Count the labels of one task. Each label reached every engine with a model of the task."""
    own = [
        (view, keys.get(name, np.zeros(0, dtype=np.uint64)))
        for view, keys in zip(views, waiting, strict=True)
        if any(task == name for task, _ in view.labels)
    ]
    if not own:
        return LabelCounts()

    def count(view: EngineView, *outcomes: LabelOutcome) -> int:
        return sum(view.labels.get((name, outcome), 0) for outcome in outcomes)

    matched = [count(view, LabelOutcome.MATCHED) for view, _ in own]
    missed = [count(view, LabelOutcome.EXPIRED, LabelOutcome.AMBIGUOUS) for view, _ in own]
    repeated = [
        max(count(view, outcome) for view, _ in own)
        for outcome in (LabelOutcome.CONFLICTING, LabelOutcome.DUPLICATE)
    ]
    left = own[0][1]
    for _, keys in own[1:]:  # a label that joined in one engine still waits in the others
        left = np.intersect1d(left, keys)
    unmatched = min(missed) + (own[0][0].labels_waiting.get(name, 0) if len(own) == 1 else len(left))
    task = config.scored_tasks.get(name)
    if len(own) > 1 and task is not None and task.classes:
        total = max(
            m + x + view.labels_waiting.get(name, 0)
            for m, x, (view, _) in zip(matched, missed, own, strict=True)
        )
        return LabelCounts(max(total - unmatched, 0), unmatched, *repeated)
    return LabelCounts(sum(matched), unmatched, *repeated)


def table(accounts: Accounts, answers_rejected: Counter[str], labels_rejected: Counter[str]) -> Iterator[str]:
    """Yield the lines of the table of outcomes, without outcomes that did not occur, and the warnings.

    Examples
    --------
    >>> counts = LabelCounts(matched=3, unmatched=9)
    >>> for line in table(Accounts(used=40, duplicates=560, labels=counts), Counter(), Counter(no_id=1)):
    ...     print(line[:84])
    answers used                     40
    duplicates                      560
    labels matched                    3
    labels unmatched                  9
    labels rejected: no id            1
    Warning: 93 % of the answers were not used (duplicates): give each answer an id of i
    Warning: 77 % of the labels were not used (unmatched, rejected): labels join the ans
    """
    labels = accounts.labels
    rows = [
        ("answers used", accounts.used),
        ("duplicates", accounts.duplicates),
        ("labels matched", labels.matched),
        ("labels unmatched", labels.unmatched),
        ("labels conflicting", labels.conflicting),
        ("labels repeated", labels.duplicate),
        *((f"answers rejected: {_words(reason)}", count) for reason, count in answers_rejected.most_common()),
        *((f"labels rejected: {_words(reason)}", count) for reason, count in labels_rejected.most_common()),
    ]
    shown = [(name, count) for name, count in rows if count or name in ("answers used", "duplicates")]
    width = max(24, max(len(name) for name, _ in shown))
    yield from (f"{name:{width}}{count:>11,}" for name, count in shown)
    yield from warnings(accounts, answers_rejected.total(), labels_rejected)


def _words(reason: str) -> str:
    return reason.replace("_", " ")


def warnings(accounts: Accounts, answers_rejected: int, labels_rejected: Counter[str]) -> Iterator[str]:
    """Yield a warning for each kind of loss that concerns more than a few of the records."""
    labels = accounts.labels
    causes = {"duplicates": accounts.duplicates, "rejected": answers_rejected}
    remedy = "give each answer an id of its own, not that of its user" if accounts.duplicates else ""
    yield from _warning("answers", causes, accounts.used + sum(causes.values()), remedy)
    causes = {"unmatched": labels.unmatched, "rejected": labels_rejected.total()}
    remedies = []
    if labels.unmatched:
        remedies.append("labels join the answer with their id; `blindsight doctor` compares ids")
        if accounts.named:
            remedies.append(f"{accounts.named:,} name a model: answers without scores are read as labels")
    if labels_rejected[RejectReason.UNKNOWN_CLASS.value]:
        remedies.append("`blindsight doctor` proposes label_values for labels that are no classes")
    yield from _warning("labels", causes, labels.total + labels_rejected.total(), "; ".join(remedies))
    if labels.conflicting > FEW * labels.total:
        yield (
            f"Warning: {100 * labels.conflicting / labels.total:.0f} % of the labels contradict an earlier "
            "one of their id, and replaced it"
        )
    for task, model in accounts.certain:
        yield (
            f"Warning: each score of {task} {model} is exactly 0 or 1, so every answer gets the same "
            "confidence: send probabilities before rounding"
        )


def _warning(what: str, causes: Mapping[str, int], total: int, remedy: str) -> Iterator[str]:
    lost = sum(causes.values())
    if lost > FEW * total:
        names = ", ".join(name for name, count in causes.items() if count)
        share = f"{100 * lost / total:.0f} %"
        yield f"Warning: {share} of the {what} were not used ({names}){': ' if remedy else ''}{remedy}"
