"""The rows of refits, against a witness that keeps a dictionary of each request."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.base.codec import plain
from monitor.config.root import Task
from monitor.engine.engine import Engine
from monitor.engine.refit.fit import refit
from tests.examples import examples
from tests.streams import CLASSES, Record, Rig, confidences, task

MODELS = ["erm", "irm", "coral"]
FOR_GOOD = {"refit_labels": None}  # a calibration that labels never move: nothing else than refits falls due


def pooled(max_rows: int = 5000, max_labelled: int = 5000, fit_rows: int = 20_000, **more: object) -> Task:
    """Return a task that refits nothing before it is asked."""
    ssme = {"models": MODELS, "every_windows": 1, "max_rows": max_rows, "max_labelled": max_labelled}
    return task(
        estimators=["average_confidence", "ensemble"],
        ssme=ssme | {"fit_rows": fit_rows},
        calibration=FOR_GOOD,
        **{"labels": {"max_replaced": 1}, **more},
    )


@dataclass
class Witness:
    """Every request by its id, in the order of its first label, or of its newest answer."""

    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    newest: list[str] = field(default_factory=list)

    def take(self, record: Record) -> None:
        name = record["id"]
        if "label" in record:
            self.early[name] = record["label"]
        for model, score in record.get("models", {}).items():
            if model in self.scores.setdefault(name, {}):
                continue
            self.scores[name][model] = score[1]
            if model in MODELS:
                self.newest = [one for one in self.newest if one != name] + [name]
        if name in self.early and set(self.scores.get(name, {})) & set(MODELS):
            self.labels[name] = self.early[name]

    def __post_init__(self) -> None:
        self.early: dict[str, str] = {}

    def rows(self, max_rows: int, max_labelled: int) -> list[tuple[str, int, list[float | None]]]:
        labelled = list(self.labels)[-max_labelled:]
        unlabelled = [name for name in self.newest if name not in labelled][-max_rows:]
        return [
            (name, CLASSES.index(self.labels[name]) if name in labelled else -1, self._scores(name))
            for name in [*labelled, *unlabelled]
        ]

    def _scores(self, name: str) -> list[float | None]:
        return [self.scores[name].get(model) for model in MODELS]


def job_rows(engine: Engine) -> list[tuple[int, list[float | None]]]:
    [job] = engine.refits()
    present = ~np.isnan(job.scores).any(axis=2)
    assert np.array_equal(present, job.predicted >= 0)
    assert np.array_equal(present, ~np.isnan(job.scores).all(axis=2)), "a model's scores are there, or none"
    return [
        (label, [float(score) if known else None for score, known in zip(scores, there, strict=True)])
        for label, scores, there in zip(
            job.labels.tolist(), job.scores[:, :, 1].tolist(), present.tolist(), strict=True
        )
    ]


def stream(seed: int, n: int = 300) -> list[Record]:
    """Return answers of some models to some requests, now or later, with labels at any time; one changes."""
    rng = np.random.default_rng(seed)
    timed: list[tuple[float, Record]] = []
    for i, score in enumerate(np.float32(confidences(rng, n)).astype(float).tolist()):
        head = {"id": f"r{i}", "time": 1.7e9 + i}
        for model in [*MODELS, "stranger"]:
            if rng.random() < 0.7:
                at = i + float(rng.exponential(5))
                timed.append((at, head | {"models": {model: [1 - score, score]}}))
        if rng.random() < 0.4:
            label = head | {"label": CLASSES[int(rng.random() < score)]}
            timed.append((i + float(rng.normal(5, 10)), label))
            if rng.random() < 0.1:
                timed.append((i + 40.0, label | {"label": CLASSES[0]}))
    return [record for _, record in sorted(timed, key=lambda one: one[0])]


def expected(records: list[Record], max_rows: int, max_labelled: int) -> list[tuple[int, list[float | None]]]:
    witness = Witness()
    for record in records:
        witness.take(record)
    return [(label, scores) for _, label, scores in witness.rows(max_rows, max_labelled)]


def near(rows: list[tuple[int, list[float | None]]]) -> list[tuple[int, list[float | None]]]:
    return [(label, [score and round(score, 5) for score in scores]) for label, scores in rows]


def replaced_labels(records: list[Record]) -> int:
    """Return requests with a label and an answer, of which a label replaced another label."""
    classes: dict[str, set[str]] = {}
    for record in records:
        if "label" in record:
            classes.setdefault(record["id"], set()).add(record["label"])
    answered = {record["id"] for record in records if set(record.get("models", ())) & set(MODELS)}
    return sum(len(values) > 1 for name, values in classes.items() if name in answered)


@pytest.mark.slow
@examples(20)
@given(
    seed=st.integers(0, 50),
    cuts=st.lists(st.integers(0, 900), max_size=6),
    bounds=st.sampled_from([(5000, 5000), (100, 5000), (5000, 100)]),
)
def test_it_holds_the_rows_of_a_witness_however_the_stream_is_cut(
    seed: int, cuts: list[int], bounds: tuple[int, int]
) -> None:
    records = stream(seed)
    rig = Rig(pooled(*bounds))
    rig.feed_in_pieces(records, [min(cut, len(records)) for cut in cuts])
    if bounds == (5000, 5000):
        assert near(job_rows(rig.engine)) == near(expected(records, *bounds))
        assert int(rig.engine._tasks["t"].fits[0].pool.replaced.sum()) == replaced_labels(records)
    else:
        [job] = rig.engine.refits()
        labelled = int((job.labels >= 0).sum())
        assert (labelled, len(job.labels) - labelled) <= (bounds[1], bounds[0])


@pytest.mark.slow
@pytest.mark.parametrize("pieces", [1, 7, 400])
def test_bounds_keep_the_newest_labels_and_the_newest_answers(pieces: int) -> None:
    records = [
        {"id": f"r{i}", "time": 1.7e9 + i, "models": {m: [0.5, 0.5] for m in MODELS}}
        | ({"label": CLASSES[i % 2]} if i % 2 else {})
        for i in range(400)
    ]  # fmt: skip
    rig = Rig(pooled(max_rows=120, max_labelled=150))
    rig.feed_in_pieces(records, range(0, 400, 400 // pieces))
    keys = rig.engine.snapshot().tasks["t"].refits.pool.keys
    [job] = rig.engine.refits()
    assert (len(keys), int((job.labels >= 0).sum()), int((job.labels < 0).sum())) == (150, 150, 120)
    assert (job.time, job.sequence) == (1.7e9 + 399, 1199)


def test_a_request_is_one_row_whole_or_not_weighed_by_its_first_label() -> None:
    one = {"id": "a", "time": 1.7e9, "models": {"erm": [0.2, 0.8]}}
    fill = [{"id": f"f{i}", "time": 1.7e9, "models": {"irm": [0.5, 0.5]}} for i in range(200)]
    rig = Rig(pooled())
    rig.feed([one, {"id": "a", "label": "bad", "time": 1.7e9, "probability": 0.1}])
    rig.feed([{"id": "a", "label": "ok", "time": 1.7e9, "probability": 0.5}])
    rig.feed([*fill, {"id": "a", "time": 1.7e9, "model": "coral", "scores": [0.9, 0.1], "prediction": "bad"}])
    [job] = rig.engine.refits()
    assert (len(job.labels), job.labels[0], round(job.weights[0])) == (201, 0, 10)
    assert np.allclose(job.scores[0], [[0.2, 0.8], [np.nan, np.nan], [0.9, 0.1]], equal_nan=True)
    assert job.predicted[0].tolist() == [1, -1, 1], "the class acted on, not the argmax"
    assert set(job.weights[1:]) == {1.0}


def test_a_label_that_names_one_model_brings_the_others_answers_along() -> None:
    rig = Rig(pooled())
    fill = [{"id": f"f{i}", "time": 1.7e9, "models": {"irm": [0.5, 0.5]}} for i in range(200)]
    whole = {"id": "a", "time": 1.7e9, "models": {m: [0.2, 0.8] for m in MODELS}}
    rig.feed([whole, *fill, {"id": "a", "label": "bad", "time": 1.7e9, "model": "irm"}])
    [job] = rig.engine.refits()
    assert job.labels[0] == 1
    assert not np.isnan(job.scores[0]).any()


def test_an_id_that_is_used_again_after_the_horizon_begins_a_row_of_its_own() -> None:
    rig = Rig(pooled(labels={"horizon_days": 1}))
    fill = [{"id": f"f{i}", "time": 1.7e9, "models": {"irm": [0.5, 0.5]}} for i in range(200)]
    first = {"id": "a", "time": 1.7e9, "models": {m: [0.2, 0.8] for m in MODELS}, "label": "bad"}
    later = {"id": "a", "time": 1.7e9 + 9e5, "models": {"irm": [0.6, 0.4]}, "label": "ok"}
    rig.feed([first, *fill])
    rig.feed([r | {"id": f"later-{r['id']}", "time": later["time"]} for r in fill[:2]])  # time has passed
    rig.feed([later])
    [job] = rig.engine.refits()
    assert job.labels[0] == 0
    assert np.isnan(job.scores[0]).any(axis=1).tolist() == [True, False, True]


def test_a_model_that_joins_or_leaves_the_list_leaves_the_others_labelled_rows() -> None:
    rig = Rig(pooled())
    records = [
        {"id": f"r{i}", "time": 1.7e9 + i, "models": {m: [0.2, 0.8] for m in MODELS}, "label": "bad"}
        for i in range(150)
    ]
    rig.feed(records)
    fewer = pooled().model_copy(update={"ssme": pooled().ssme.model_copy(update={"models": ("erm", "new")})})
    rig.settings = Rig(fewer).settings
    rig.restart()
    [job] = rig.engine.refits()
    assert (job.models, int((job.labels == 1).sum())) == (("erm", "new"), 150)
    assert (job.predicted == [1, -1]).all()


def test_the_pool_takes_nothing_where_nothing_is_refitted() -> None:
    rig = Rig(task(calibration=FOR_GOOD))
    rig.feed(stream(1))
    state = rig.engine.snapshot().tasks["t"]
    assert "refits" not in plain(state)
    assert not {"id", "scores"} & set(state.join.answers.columns)
    assert rig.engine.refits() == []
    assert rig.engine.view().refits == {}


def test_an_answer_from_before_refits_were_asked_for_has_no_scores_also_where_another_model_came_after() -> (
    None
):
    """One row of zeros instead would have every fit refused for as long as the join holds the answer."""
    rig = Rig(task(calibration=FOR_GOOD))
    score = {"scores": [0.2, 0.8]}
    rig.feed([{"id": "a", "time": 1.7e9, "model": "erm", **score}])
    rig.settings = Rig(pooled()).settings
    rig.restart()
    rig.feed([{"id": "a", "time": 1.7e9 + 1, "model": "irm", **score}, {"id": "a", "label": "bad"}])
    rig.feed([{"id": f"r{i}", "time": 1.7e9 + 2 + i, "model": "irm", **score} for i in range(200)])
    [job] = rig.engine.refits()
    assert job.labels[0] == 1
    assert np.isnan(job.scores[0]).any(axis=1).tolist() == [True, False, True]
    assert job.predicted[0].tolist() == [-1, 1, -1]


def test_scores_that_the_decoder_takes_are_none_that_a_fit_refuses() -> None:
    """Rounded to three places they are off by up to 0.001, and a little more in single precision."""
    rng = np.random.default_rng(0)
    three = pooled(classes=["x", "y", "z"])
    rig = Rig(three)
    whole = rng.dirichlet([1, 1, 1], 600)
    rig.feed(
        [
            {"id": f"r{i}", "time": 1.7e9 + i, "models": dict.fromkeys(MODELS, row), "label": "xyz"[i % 3]}
            for i, row in enumerate(whole.round(3).tolist())
        ]
    )
    [job] = rig.engine.refits()
    off = np.abs(job.scores.astype(np.float64).sum(axis=2) - 1.0)
    assert (off > 0.001).any(), "without that this test shows nothing"
    assert not rig.engine.view().rejected
    assert refit(job).refused is None


def flood(n: int, models: list[str]) -> list[Record]:
    """Return requests in turn, each answered by all of these models."""
    score = confidences(np.random.default_rng(7), n)
    return [
        {"id": f"q{i}", "time": 1.7e9 + i, "models": {m: [1 - s, s] for m in models}}
        for i, s in enumerate(score.tolist())
    ]


@pytest.mark.parametrize("others", [[], ["another", "one more"]])
def test_of_a_large_pool_a_sample_is_fitted_on_that_is_spread_over_all_of_it(others: list[str]) -> None:
    """3,000 requests; 100 are taken of those among 600 places that are looked at."""
    rig = Rig(pooled(max_rows=1_000_000, fit_rows=100))
    labels = [{"id": f"q{i}", "time": 1.7e9 + 3000, "label": "ok"} for i in range(0, 3000, 60)]
    rig.feed([*flood(3000, MODELS + others), *labels])
    [job] = rig.engine.refits()
    assert (int((job.labels >= 0).sum()), int((job.labels < 0).sum())) == (50, 100)
    share = 1 / (len(MODELS) + len(others))
    assert job.pool_rows == pytest.approx(3000, abs=50 + 4 * 3000 * np.sqrt((1 / share - 1) / 600))
    score = confidences(np.random.default_rng(7), 3000).astype(np.float32)
    sampled = np.flatnonzero(np.isin(score, job.scores[job.labels < 0, 0, 1]))
    assert abs((sampled < 1500).mean() - 0.5) < 4 * np.sqrt(0.25 / len(sampled))
    assert not np.isnan(job.scores[:, : len(MODELS)]).any(), "requests are put together whole"


def test_only_the_newest_requests_of_a_large_pool_are_stood_for() -> None:
    rig = Rig(pooled(max_rows=600, fit_rows=100))
    rig.feed(flood(3000, MODELS))
    [job] = rig.engine.refits()
    assert len(job.labels) == 100
    assert job.pool_rows == pytest.approx(600, abs=4 * 600 * np.sqrt(2 / 600))
    score = confidences(np.random.default_rng(7), 3000).astype(np.float32)
    old = np.setdiff1d(score[:2100], score[2100:])
    assert not np.isin(job.scores[:, 0, 1], old).any()


def test_a_pool_that_is_no_larger_than_a_fit_is_taken_whole() -> None:
    rig = Rig(pooled(max_rows=1_000_000, fit_rows=400))
    rig.feed(flood(400, MODELS))
    [job] = rig.engine.refits()
    assert (len(job.labels), job.pool_rows) == (400, 400)
