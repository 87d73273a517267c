"""Rows drawn one after another, from the labels that say so to the estimate that rests on them."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from monitor.base.records import Floats, id_keys
from monitor.base.results import Estimate, Reason, Unknown
from monitor.base.state_changes import assemble
from monitor.config.root import Task
from monitor.engine.labels.draws import FEWEST_DRAWS
from monitor.engine.refit.fit import refit
from monitor.engine.refit.job import RefitJob
from monitor.stats.estimate.hajek import hajek, weighted_counts
from monitor.stats.labelled.active_testing import ActiveTesting, expected_error
from monitor.stats.sampling.acquisition import as_if_at_once, draw_in_turn, expected_turn_widths
from monitor.store import Store
from tests.engine.turns import BEGIN, MODELS, N, lure, requests, wrong
from tests.nearly import nearly
from tests.streams import Record, Rig, task


def drawing(**more: Any) -> Task:
    """Return a task that refits nothing but `active_testing`, and nothing before it is asked."""
    settings: dict[str, Any] = {
        "estimators": ["average_confidence", "active_testing"],
        "calibration": {"refit_labels": None},
        "ssme": {"models": list(MODELS), "every_windows": 1},
    }
    return task(**(settings | more))


def draw_labels(
    rng: np.random.Generator, records: list[Record], truth: dict[str, str], n: int, name: str = "first"
) -> list[Record]:
    """Return labels of n rows, drawn by the errors that the scores expect."""
    scores = np.array([[r["models"][m] for m in MODELS] for r in records])
    mean = scores.mean(axis=1)
    chance = sum(expected_error(mean, scores[:, m].argmax(axis=1)) for m in range(2))
    turns = draw_in_turn(chance, n, rng)
    picked = as_if_at_once(turns.probability, len(records))
    return [
        {
            "id": records[row]["id"],
            "label": truth[records[row]["id"]],
            "time": BEGIN + N + m,
            "probability": float(picked[m]),
            "draw": {"round": name, "number": m + 1, "pool": len(records), "probability": float(q)},
        }
        for m, (row, q) in enumerate(zip(turns.row.tolist(), turns.probability.tolist(), strict=True))
    ]


def job_of(rig: Rig) -> RefitJob:
    [job] = rig.engine.refits()
    assert isinstance(job, RefitJob)
    return job


def estimate(job: RefitJob, model: str = "erm") -> Any:
    outcome = refit(job)
    return outcome.refused or outcome.models[model].estimates[0].result


@pytest.mark.parametrize("model", MODELS)
def test_labels_with_their_draws_become_the_papers_estimate_of_every_model(model: str) -> None:
    rng = np.random.default_rng(1)
    records, truth = requests(rng)
    labels = draw_labels(rng, records, truth, 40)
    rig = Rig(drawing())
    rig.feed([*records, *labels])
    job = job_of(rig)
    result = estimate(job, model)
    assert isinstance(result, Estimate)
    assert result.value == pytest.approx(lure(labels, wrong(records, truth, model), records), abs=1e-9)
    assert result.n == 40
    assert (refit(job).labelled_draws, refit(job).missing_draws) == (40, 0)


def test_labels_that_were_not_drawn_are_counted_and_left_alone() -> None:
    rng = np.random.default_rng(2)
    records, truth = requests(rng)
    labels = draw_labels(rng, records, truth, 40)
    drawn_ids = {label["id"] for label in labels}
    others = [{"id": i, "label": t, "time": BEGIN} for i, t in truth.items() if i not in drawn_ids][:100]
    alone, mixed = Rig(drawing()), Rig(drawing())
    alone.feed([*records, *labels])
    mixed.feed([*records, *others[:50], *labels, *others[50:]])
    assert estimate(job_of(mixed)) == nearly(estimate(job_of(alone)))
    mixed.restart()  # a refit under way is lost, and due again
    done = refit(job_of(mixed))
    assert (done.labelled, done.labelled_draws) == (140, 40)
    none = Rig(drawing())
    none.feed([*records, *others])
    assert estimate(job_of(none)) == f"active_testing: {Reason.NO_DRAWS}"


@pytest.mark.slow
@pytest.mark.parametrize("cuts", [[1], [150, 399, 420], range(1, 440)])
def test_neither_cuts_nor_restarts_nor_the_order_of_arrival_change_what_is_drawn(cuts: Any) -> None:
    rng = np.random.default_rng(3)
    records, truth = requests(rng)
    labels = draw_labels(rng, records, truth, 40)
    whole, other = Rig(drawing()), Rig(drawing())
    whole.feed([*records, *labels])
    other.feed_in_pieces([*labels[:20], *records, *labels[20:]], list(cuts))
    other.restart()
    assert estimate(job_of(other)) == estimate(job_of(whole))


def test_draws_rest_in_the_store_and_a_store_that_has_none_is_gone_on_with(tmp_path: Any) -> None:
    rng = np.random.default_rng(4)
    records, truth = requests(rng)
    labels = draw_labels(rng, records, truth, 40)
    rig = Rig(drawing())
    store = Store(tmp_path)
    for piece in (records, labels[:25], labels[25:]):
        rig.feed(piece)
        store.commit(rig.engine.changes())
        rig.engine.confirm()
    saved = store.load()
    store.close()
    [job] = rig.settings.build(assemble(saved.parts, saved.rings)).refits()
    assert estimate(job) == estimate(job_of(rig))
    older = {name: ring for name, ring in saved.rings.items() if name != "draws/t"}
    assert len(older) == len(saved.rings) - 1
    [job] = rig.settings.build(assemble(saved.parts, older)).refits()
    assert estimate(job) == f"active_testing: {Reason.NO_DRAWS}"


def test_a_newer_round_takes_over_once_it_has_as_many_labels_as_an_estimate_needs() -> None:
    rng = np.random.default_rng(5)
    records, truth = requests(rng)
    first = draw_labels(rng, records, truth, 50)
    left = [r for r in records if r["id"] not in {label["id"] for label in first}]
    second = draw_labels(rng, left, truth, 50, "second")
    rig = Rig(drawing())
    rig.feed([*records, *first, *second[: FEWEST_DRAWS - 1]])
    assert job_of(rig).draw_pool == N
    rig.restart()
    rig.feed(second[FEWEST_DRAWS - 1 : FEWEST_DRAWS])
    job = job_of(rig)
    assert (job.draw_pool, int((job.acquisition > 0).sum())) == (N - 50, FEWEST_DRAWS)
    rig.restart()
    rig.feed([first[0] | {"draw": first[0]["draw"] | {"round": "late", "number": 9}}])
    assert job_of(rig).draw_pool == N - 50, "one label of another round changes nothing"


def test_numbers_of_two_pools_are_of_two_rounds_and_a_number_counts_once() -> None:
    rng = np.random.default_rng(6)
    records, truth = requests(rng)
    labels = draw_labels(rng, records, truth, 40)
    other = [
        label | {"draw": label["draw"] | {"pool": N + 1}} for label in draw_labels(rng, records, truth, 35)
    ]
    twice = {
        "id": records[-1]["id"],
        "label": "ok",
        "time": BEGIN,
        "probability": 1.0,
        "draw": labels[0]["draw"],
    }
    rig = Rig(drawing())
    rig.feed([*records, *other, *labels, twice])
    job = job_of(rig)
    assert job.draw_pool == N
    assert sorted(job.acquisition[job.acquisition > 0]) == list(range(1, 41))


def test_a_drawn_row_that_had_a_label_already_counts_as_drawn() -> None:
    rng = np.random.default_rng(7)
    records, truth = requests(rng)
    labels = draw_labels(rng, records, truth, 40)
    rig = Rig(drawing())
    before = [{"id": label["id"], "label": label["label"], "time": BEGIN} for label in labels[:5]]
    rig.feed([*records, *before, *labels])
    assert refit(job_of(rig)).labelled_draws == 40


def test_an_id_that_is_used_again_is_drawn_no_more_and_a_wiped_one_neither() -> None:
    rng = np.random.default_rng(8)
    records, truth = requests(rng)
    labels = draw_labels(rng, records, truth, 40)
    rig = Rig(drawing(labels={"horizon_days": 1}))
    rig.feed([*records, *labels])
    late = BEGIN + 9e5
    rig.feed([records[0] | {"id": "z", "time": late}])
    rig.feed([records[0] | {"id": labels[3]["id"], "time": late}])
    rig.feed([{"id": labels[3]["id"], "label": "ok", "time": late}])
    rig.engine.forget(id_keys([labels[7]["id"]]))
    done = refit(job_of(rig))
    assert (done.labelled_draws, done.missing_draws) == (38, 2)
    left = rig.engine.snapshot().tasks["t"].refits.draws
    assert id_keys([labels[7]["id"]])[0] not in left.columns["id"]


@pytest.mark.slow
def test_draws_in_turn_have_the_chances_that_one_draw_after_another_has() -> None:
    """The slow witness: every order in which 3 of 4 rows are drawn. 20,000 trials: five binomial errors."""
    chance, trials = np.array([0.5, 0.3, 0.15, 0.05]), 20_000
    rng = np.random.default_rng(9)
    seen: dict[tuple[int, ...], list[Floats]] = {order: [] for order in permutations(range(4), 3)}
    for _ in range(trials):
        turns = draw_in_turn(chance, 3, rng)
        seen[tuple(turns.row.tolist())].append(turns.probability)
    for order, chances in seen.items():
        left = [chance[row] / (1 - chance[list(order[:m])].sum()) for m, row in enumerate(order)]
        np.testing.assert_allclose(chances, np.tile(left, (len(chances), 1)))
        p = np.prod(left)
        assert len(chances) / trials == pytest.approx(p, abs=5 * np.sqrt(p * (1 - p) / trials))


def test_more_draws_begin_with_the_same_ones_and_end_with_all() -> None:
    chance = np.random.default_rng(10).random(500)
    few, all_ = (draw_in_turn(chance, n, np.random.default_rng(11)) for n in (20, 999))
    np.testing.assert_array_equal(few.row, all_.row[:20])
    assert few.probability == nearly(all_.probability[:20])
    assert sorted(all_.row.tolist()) == list(range(500))
    assert all_.probability[-1] == 1.0
    np.testing.assert_allclose(as_if_at_once(all_.probability, 500), 1.0)


@pytest.mark.parametrize(
    ("chance", "n", "message"),
    [
        ([0.5, -0.1], 1, "chance must be a list of numbers of 0 or more, one for each row"),
        ([0.5, np.nan], 1, "chance must be a list of numbers of 0 or more, one for each row"),
        ([0.5], 0, "n must be at least 1, got 0"),
    ],
)
def test_wrong_chances_are_told(chance: list[float], n: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw_in_turn(chance, n, np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"chance must be above 0 and have the shape of error, \(2,\), got"):
        expected_turn_widths([0.1, 0.2], [0.0, 1.0], 5)


TRIALS = 100


def trial(seed: int, unanswered: float) -> tuple[list[float], list[bool]]:
    """Return, by model, the estimate's error, and whether its interval holds the truth of rows that get
    labels.
    """
    rng = np.random.default_rng([44, seed])
    records, truth = requests(rng)
    answered = rng.random(N) >= unanswered  # of every row, whether its label would ever come
    known = {r["id"] for r, yes in zip(records, answered.tolist(), strict=True) if yes}
    rig = Rig(drawing())
    rig.feed([*records, *(each for each in draw_labels(rng, records, truth, 60) if each["id"] in known)])
    job, errors, held = job_of(rig), [], []
    for model in MODELS:
        result, right = estimate(job, model), 1 - wrong(records, truth, model)[answered].mean()
        assert isinstance(result, Estimate)
        errors.append(result.value - right)
        held.append(result.lower <= right <= result.upper)
    return errors, held


@pytest.mark.simulation
@pytest.mark.parametrize("unanswered", [0.0, 0.3])
def test_through_the_engine_the_estimate_has_no_bias_and_its_interval_holds(unanswered: float) -> None:
    """100 trials of 60 draws out of 400, two models each; with 0.3 of the labels that never come.

    The mean error may be four of its standard errors off; the coverage of 95 % three binomial ones, 6.5
    points, below (an interval that holds more often is no fault here: few draws, and Wilson's form).
    """
    errors, held = zip(*(trial(seed, unanswered) for seed in range(TRIALS)), strict=True)
    for each in np.array(errors).T:
        assert abs(each.mean()) <= 4 * each.std() / np.sqrt(TRIALS)
    assert (np.array(held).mean(axis=0) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / TRIALS)).all()


@pytest.mark.simulation
def test_estimators_that_know_of_no_draws_are_right_by_the_probability_beside() -> None:
    """150 trials of 60 draws: the mean error may be four of its standard errors off."""
    errors, unweighted = [], []
    for seed in range(150):
        rng = np.random.default_rng([45, seed])
        records, truth = requests(rng)
        labels = draw_labels(rng, records, truth, 60)
        off = wrong(records, truth, "erm")
        right = ~off[[int(label["id"][1:]) for label in labels]]
        weight = 1 / np.array([label["probability"] for label in labels])
        estimate = hajek(weighted_counts(right, weight))
        assert isinstance(estimate, Estimate)
        errors.append(estimate.value - (1 - off.mean()))
        unweighted.append(right.mean() - (1 - off.mean()))
    assert abs(np.mean(errors)) <= 4 * np.std(errors) / np.sqrt(150)
    assert np.mean(unweighted) < -0.05, "the weights do count"


def test_gaps_make_it_the_ratio_of_those_that_came() -> None:
    rng = np.random.default_rng(12)
    records, truth = requests(rng)
    labels = [
        label for label in draw_labels(rng, records, truth, 40) if label["draw"]["number"] not in (2, 17)
    ]
    rig = Rig(drawing())
    rig.feed([*records, *labels])
    job = job_of(rig)
    result, off = estimate(job), wrong(records, truth, "erm")
    assert isinstance(result, Estimate)
    errors = 1 - lure(labels, off, records)
    share = 1 - lure(labels, np.ones(N), records)
    assert result.value == pytest.approx(1 - errors / share, abs=1e-9)
    assert (result.n, refit(job).missing_draws) == (38, 2)


def test_a_number_out_of_turn_or_a_pool_too_small_is_told() -> None:
    scores = np.full((3, 1, 2), 0.5)
    inputs = {"weights": np.ones(3), "acquisition": [2, 2, -1]}
    with pytest.raises(
        ValueError, match=r"numbers must rise from 1 or more, one for each of 2 draws, got \[2, 2\]"
    ):
        ActiveTesting(pool=9).fit(scores, [0, 1, -1], **inputs)
    with pytest.raises(ValueError, match="pool must be a number of rows, at least 1, got 0"):
        ActiveTesting(pool=0)
    with pytest.raises(ValueError, match="rows must be at least the number of draws, 7, got 5"):
        ActiveTesting(pool=5).fit(scores, [0, 1, -1], weights=np.ones(3), acquisition=[6, 7, -1])
    assert isinstance(ActiveTesting().fit(scores, [0, 1, -1]).estimate("accuracy"), Unknown)
