"""The accounting identities hold in every scrape, and their helper detects a wrong count."""

from __future__ import annotations

import random

import numpy as np
import pytest

from monitor.base.records import Chunk
from monitor.reports.views import AgentView
from tests.accounting import Account, accounts, answers_account, assert_adds_up, labels_account
from tests.streams import Record, Rig, answers, task


def view(rig: Rig) -> AgentView:
    return AgentView(engine=rig.engine.view())


def mixture(seed: int) -> list[Record | bytes]:
    """Labels along with answers and alone, with and without ids, early, late, wrong, twice, in conflict."""
    rng, records = random.Random(seed), list[Record | bytes]()
    for record in answers(np.random.default_rng(seed), 400, labelled=True):
        if rng.random() < 0.6:
            del record["label"]
        if rng.random() < 0.2:
            del record["id"]
        record["model"] = rng.choice(["erm", "irm", "coral"])
        if rng.random() < 0.1:
            record = {**record, "models": {"erm": [0.1, 0.9], "irm": [0.3, 0.7]}}
            del record["model"], record["scores"]
        records += [record] * rng.choice([1, 1, 1, 2])
        if "id" in record and rng.random() < 0.3:
            label = {"id": record["id"], "label": rng.choice(["ok", "bad"]), "time": record["time"]}
            records.insert(rng.randrange(len(records) + 1), label)
        if rng.random() < 0.1:
            records.append({"id": f"never-{len(records)}", "label": rng.choice(["ok", "purple"])})
        if rng.random() < 0.05:
            records.append(b"{ broken")
        if rng.random() < 0.05:
            records.append({**record, "label": "purple", "time": record["time"] + 1})
    return records


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_every_label_and_answer_stands_in_one_place_after_every_step(seed: int) -> None:
    rig = Rig(task(max_series=2, labels={"max_answers": 1000}), event_time=False)
    records = mixture(seed)
    for start in range(0, len(records), 37):
        rig.feed(records[start : start + 37], now=1.8e9)
        if start % 3 == 0:
            rig.restart()
        metrics = assert_adds_up(view(rig))
    labels = labels_account(metrics)
    assert {name for name, count in labels.parts.items() if count} == {
        "matched", "waiting", "duplicate", "conflicting", "rejected", "shed",
    }  # fmt: skip
    parts = answers_account(metrics).parts
    assert {name for name, count in parts.items() if count} == {
        "used", "pending", "duplicate", "rejected", "shed",
    }  # fmt: skip
    rig.engine.finish()
    assert_adds_up(view(rig))


def test_what_a_source_shed_itself_was_received() -> None:
    rig = Rig()
    rig.feed([{"id": "1", "label": "ok"}])
    rig.engine.absorb(Chunk("http", shed=7, labels_shed={"t": 3, "u": 2}, ignored=4), 0.0)
    for _ in range(2):
        metrics = assert_adds_up(view(rig))
        assert labels_account(metrics).received == 6
        assert answers_account(metrics).received == 7
        assert metrics.total("events_ignored_total") == 4
        rig.restart()


@pytest.mark.parametrize(("waiting", "what"), [(2, "1 lost"), (4, "1 too many")])
def test_what_does_not_add_up_is_told_part_by_part(waiting: int, what: str) -> None:
    account = Account("labels", 1_003, {"matched": 1_000, "waiting": waiting})
    with pytest.raises(AssertionError) as caught:
        account.assert_adds_up()
    assert str(caught.value).startswith(
        f"labels: received 1,003, but matched 1,000 + waiting {waiting} = {1000 + waiting:,}: {what}"
    )
    Account("labels", 1_003, {"matched": 1_000, "waiting": 3}).assert_adds_up()


def test_the_accounts_of_several_daemons_are_summed_and_shown() -> None:
    rig = Rig()
    rig.feed([{"id": "1", "label": "ok", "time": 1.7e9}, *answers(np.random.default_rng(0), 3)])
    rig.engine.absorb(Chunk("http", ignored=1), 0.0)
    scrape = assert_adds_up(view(rig), sent=5)
    both = accounts(scrape) + accounts(scrape)
    assert str(both) == (
        "answers: received 6 = used 0 + pending 6 + duplicate 0 + rejected 0 + shed 0\n"
        "labels: received 2 = matched 0 + duplicate 0 + conflicting 0 + expired 0 + rejected 0 + "
        "ambiguous 0 + shed 0 + waiting 2; events ignored: 2"
    )
    with pytest.raises(AssertionError, match="6 records were sent, but: answers: received 3 = "):
        assert_adds_up(scrape, sent=6)
