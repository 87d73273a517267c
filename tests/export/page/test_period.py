"""The report of a period: what a store or a replay says, in one file that asks for nothing."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe

from monitor.base.results import Estimate
from monitor.base.state_changes import Changes
from monitor.cli.reporting import report
from monitor.export.charts.pictures import MOST_KEPT
from monitor.export.page.addresses import external_address
from monitor.export.page.period import Period
from monitor.export.page.words import format_result, percent
from monitor.reports.attribution import sentence
from monitor.reports.features import BrokenFeature
from monitor.reports.views import ChartView
from monitor.reports.window_report import WindowReport, rfc3339
from monitor.reports.window_view import leading_estimate
from monitor.store import Store
from tests.daemon import command_here, configuration, ndjson, write_configuration
from tests.engine.test_covariates import flights
from tests.engine.test_features import reference, watched
from tests.numbers import predictions, reference_of_numbers, regression
from tests.services.browser import Browser
from tests.streams import Rig, answers, newest_wrong, task

WORSE = (0.5, 0.4, 0.1)


def shifted() -> list[WindowReport]:
    """Return ten windows as in the baseline from 2023-11-14 22:13 on, then ten worse ones, each also of a
    group.
    """
    settings = task(
        reference={"first_windows": 5},
        chart={"sigmas": 3},
        objective={"accuracy": {"min": 0.9}},
        groups=["region"],
    )
    rig, rng = Rig(settings), np.random.default_rng(11)
    more = {"labelled": True, "groups": {"region": "eu"}}
    good = rig.feed(answers(rng, 1000, **more))
    return good + rig.feed(answers(rng, 1000, weights=WORSE, start=1.7e9 + 1000, **more))


@pytest.fixture(scope="module")
def reports() -> list[WindowReport]:
    return shifted()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, reports: list[WindowReport]) -> Path:
    folder = tmp_path_factory.mktemp("store")
    opened = Store(folder)
    opened.commit(Changes({}, []), reports)
    opened.close()
    return folder


def page_of(reports: list[WindowReport], **period: float) -> str:
    report = Period({}, **period)
    report.add(reports)
    return report.html({})


@pytest.mark.slow
def test_the_names_lead_to_the_pages_of_the_models_where_the_address_is_known(
    store: Path, tmp_path: Path, reports: list[WindowReport]
) -> None:
    assert "models?task=" not in page_of(reports)
    done = command_here(
        "report", store, "--out", tmp_path / "r.html", "--external-url", "https://m.example/b/"
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    for group in ("", "region=eu"):
        link = external_address("https://m.example/b", "t", "erm", group).replace("&", "&amp;")
        assert f'<a href="{link}">' in page
    done = command_here("report", store, "--out", tmp_path / "r.html", "--external-url", "m.example")
    assert done.returncode == 2
    assert done.stderr == (
        "blindsight: --external-url: expected an address such as 'https://models.example/blindsight', "
        "without a user, a query, spaces, quotes and braces, got 'm.example'\n"
    )


def words(page: str) -> str:
    """Return the text of a page, without the charts and the style."""
    page = re.sub(r"<svg xmlns.*?</figure>|<style>.*?</style>", "", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def test_a_report_says_how_the_models_stood_at_the_end(reports: list[WindowReport]) -> None:
    text = words(page_of(reports))
    assert "40 windows from 2023-11-14 22:13:20 UTC until 2023-11-14 22:46:39 UTC." in text
    assert "1 model misses its objective." in text
    assert "erm objective breached , out of control since 2023-11-14 22:34:59 UTC" in text
    assert "20 windows, 2023-11-14 22:13:20 UTC to 2023-11-14 22:46:39 UTC · alarms of accuracy: 1 · " in text
    assert "Groups of erm: 1, 1 out of control" in text
    assert "not answer" not in text


def of_models(reports: list[WindowReport], *models: str, apart: float = 0.0) -> list[WindowReport]:
    """Return the same windows of several models, each ended `apart` later than the one before."""
    return [
        replace(each, model=model, end_time=each.end_time + place * apart, start_time=each.start_time)
        for place, each in enumerate(reports)
        for model in models
    ]


def raised(reports: list[WindowReport]) -> WindowReport:
    """Return the first window of the model at which the alarm was on."""
    return next(r for r in reports if not r.group and any(c.verdict.out_of_control for c in r.charts))


def test_alarms_are_a_timeline_the_newest_first(reports: list[WindowReport]) -> None:
    text = words(page_of(reports)).partition("Alarms, the newest first")[2]
    where = sentence(raised(reports).attributions[0])
    standing = "erm accuracy 2023-11-14 22:34:59 UTC still on "
    assert f"{standing}{where}" in text, "and where the change is"
    whole = [report for report in reports if not report.group]
    calm = [
        replace(
            whole[-1],
            window=20 + n,
            end_time=whole[-1].end_time + 100 * (n + 1),
            charts=tuple(_released(chart) for chart in whole[-1].charts),
        )
        for n in range(2)
    ]
    over = words(page_of([*reports, *calm]))
    past = f"erm accuracy 2023-11-14 22:34:59 UTC 2023-11-14 22:48:19 UTC 8 {where}"
    assert past in over, "where it was is kept when the alarm is over"
    bars = re.findall(r'class="timeline".*?</svg>', page_of([*reports, *calm]))
    assert [bar.count("<rect") for bar in bars] == [2, 2], (
        "a bar on its ground, of the model and of its group"
    )
    (x, width) = map(float, re.findall(r'<rect x="([\d.]+)".*? width="([\d.]+)"', bars[0])[0])
    start, length = whole[0].start_time, calm[-1].end_time - whole[0].start_time
    assert x == pytest.approx(600 * (whole[12].end_time - start) / length, abs=0.01)
    assert x + width == pytest.approx(600 * (calm[0].end_time - start) / length, abs=0.01)
    assert "No chart raised an alarm." in words(page_of(reports[:20]))


def test_estimates_stand_by_day_and_of_a_longer_period_by_month(reports: list[WindowReport]) -> None:
    whole = [report for report in reports if not report.group]
    values = [first_shown(report).value for report in whole]
    day = f"2023-11-14 {percent(sum(values) / 20)} % in 20 windows, 8 out of control"
    assert day in words(page_of(reports))
    twice = [*whole, *(replace(report, window=20 + report.window) for report in whole)]
    long = words(page_of(of_models(twice, "erm", "irm", apart=3 * 86_400.0)))
    first = f"2023-11 {percent(sum(values[:6]) / 6)} % in 6 windows"
    assert f"{first} {first.removeprefix('2023-11 ')}" in long, "a column a model"


def test_labels_stand_beside_the_estimates_of_the_same_windows(reports: list[WindowReport]) -> None:
    pairs = [
        (by["average_confidence"].value, by["realised"].value)
        for report in reports
        for by in [{each.estimator: each.result for each in report.estimates if each.metric == "accuracy"}]
        if not report.group and isinstance(by.get("realised"), Estimate)
    ]
    own, labels = np.mean(pairs, axis=0)
    assert len(pairs) == 20
    text = words(page_of(reports)).partition("what labels said")[2]
    shown = re.search(r"erm accuracy 20 ([\d.]+) % ([\d.]+) % ([+-][\d.]+) ", text)
    assert shown
    assert [float(each) for each in shown.groups()] == pytest.approx(
        [100 * own, 100 * labels, 100 * (own - labels)], abs=0.051
    )
    silent = [
        replace(each, estimates=tuple(e for e in each.estimates if e.estimator != "realised"))
        for each in reports
    ]
    assert "What labels said No window has labels." in words(page_of(silent))


def test_of_many_models_tables_have_the_worst_and_say_how_many_more_there_are(
    reports: list[WindowReport],
) -> None:
    good, whole = reports[:20], [report for report in reports if not report.group]
    names = [f"m{n:02}" for n in range(59)]
    renamed = of_models([report for report in good if not report.group], *names)
    page = page_of([*renamed, *(replace(each, model="bad") for each in whole)])
    text = words(page)
    rows = re.findall(r'<tr><th scope="row"><a href="#m[0-9a-f]+">(\w+)</a>', page)
    assert rows == ["bad", *names]
    assert page.index("m48</a>") < page.index("<summary>10 more models</summary>") < page.index("m49</a>")
    assert "Mean accuracy of bad Mean accuracy of m00" in text
    assert text.count("52 more models in the charts.") == 2, "of eight there are months and worst windows"
    assert "36 more models with smaller differences." in text
    table = text.partition("what labels said")[2].partition("more models")[0]
    points = [abs(float(each)) for each in re.findall(r"% ([+-]?[\d.]+) (?:m|bad|36)", table)]
    assert len(points) == 24
    assert points == sorted(points, reverse=True)


def test_of_an_untrusted_model_the_chart_says_that_it_means_nothing() -> None:
    page = page_of(Rig(task()).feed(newest_wrong(answers(np.random.default_rng(4), 2000))))
    assert "1 model is untrusted" in page
    assert (
        '<figure class="untrusted"><figcaption>Control chart of erm: accuracy; not meaningful until' in page
    )
    overview = page.partition("<h2>Alarms")[0]
    assert '<tr class="untrusted">' in overview
    assert 'class="good"' not in overview


def test_broken_features_are_listed_with_their_first_and_worst_window(reports: list[WindowReport]) -> None:
    whole = [report for report in reports if not report.group]
    broken = [
        replace(report, broken_features=(BrokenFeature("hour", "missing", 0.1 * number, 0.002),))
        if number in (3, 4)
        else report
        for number, report in enumerate(whole)
    ]
    page = page_of(broken)
    assert "feature hour is missing in 40 % of rows, 0.2 % in the reference" in page
    assert "Broken features in the period" in page
    assert "Broken features" not in page_of(whole)
    period = Period({})
    period.add(broken)
    [fault] = period.faults()["t", "erm", ""]
    assert (fault.window, fault.windows) == (3, 2)
    assert (fault.time, fault.last_time) == (broken[3].end_time, broken[4].end_time)


def test_features_of_all_models_are_listed_with_the_broken_and_the_farthest_first() -> None:
    known = reference()["erm"]
    one, period = Rig(watched(), {"t": {"erm": known, "irm": known}}), Period({})
    period.add(one.feed(flights(2, 250, 0.9, labelled=False)))
    lost = [
        {**row, "model": "irm", "features": {"carrier": "A"}} for row in flights(3, 250, 0.3, labelled=False)
    ]
    period.add(one.feed(lost))
    assert "<h2>Features" not in period.html({})
    page = period.html({}, [one.engine.view()])
    text = words(page).partition("Features in the newest window")[2]
    rows = re.findall(
        r"(hour|carrier) (erm|irm) [\d.]+ % [\d.]+ % [\d.]+ [\d.]+ (broken: \w+|has drifted|as in)", text
    )
    assert rows == [
        ("hour", "irm", "broken: missing"),
        ("carrier", "irm", "broken: constant"),
        ("carrier", "erm", "has drifted"),
        ("hour", "erm", "as in"),
    ]
    assert page.count('aria-label="Distribution of') == 4


@pytest.mark.parametrize("first_windows", [0, 5])
def test_the_report_of_a_store_has_the_features_of_the_newest_windows(
    tmp_path: Path, first_windows: int
) -> None:
    """They are those of the engine, although the store has no reference."""
    settings = watched(reference={"first_windows": first_windows}) if first_windows else watched()
    one, period = Rig(settings, {} if first_windows else {"t": reference()}), Period({})
    reports = one.feed(flights(2, 1500, 0.3, labelled=False) + flights(3, 250, 0.9, labelled=False))
    period.add(reports)
    with closing(Store(tmp_path)) as store:
        store.commit(one.engine.changes(), reports)
    report(tmp_path, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    section = page.partition("<h2>Features")[2].partition("<h2>")[0]
    expected = period.html({}, [one.engine.view()]).partition("<h2>Features")[2]
    assert section == expected.partition("<h2>")[0]
    assert section.count('aria-label="Distribution of') == 2
    report(tmp_path, tmp_path / "report.html", until=rfc3339(reports[-1].end_time))
    assert "<h2>Features" not in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_models_of_one_name_in_two_tasks_are_told_apart(reports: list[WindowReport]) -> None:
    both = [replace(each, task=name) for each in reports for name in ("spam", "toxicity")]
    text = words(page_of(both))
    for caption in ("Models, the worst first", "Alarms over the period", "Alarms, the newest first",
                    "The worst windows", "what labels said"):  # fmt: skip
        table = text.partition(caption)[2]
        assert 0 < table.find("spam erm") < 1200, caption
        assert 0 < table.find("toxicity erm") < 1200, caption
    assert "Mean accuracy of spam erm Mean accuracy of toxicity erm" in text
    assert "spam" not in words(page_of(reports))


def test_a_name_keeps_its_number_sign(reports: list[WindowReport]) -> None:
    text = words(page_of([replace(each, model="#1") for each in reports]))
    assert "Mean accuracy of #1" in text
    assert text.count("#1") > 5


def test_of_windows_of_groups_alone_the_groups_are_shown(reports: list[WindowReport]) -> None:
    text = words(page_of([report for report in reports if report.group]))
    assert "Groups of erm: 1, 1 out of control" in text
    assert "No window closed in this period." not in text


def first_shown(report: WindowReport) -> Estimate:
    """Return the accuracy that labels correct, once there are any."""
    estimate = leading_estimate(report.estimates, "accuracy")
    assert estimate is not None
    assert isinstance(estimate.result, Estimate)
    return estimate.result


def test_the_worst_windows_are_named(reports: list[WindowReport]) -> None:
    whole = [report for report in reports if not report.group]
    worst = sorted(whole, key=lambda report: (first_shown(report).value, -report.window))[:3]
    text = words(page_of(reports)).partition("The worst windows")[2]
    places = [
        text.index(f"to {100 * first_shown(report).upper:.1f}) {report.window} 2023-") for report in worst
    ]
    assert places == sorted(places)


def test_of_many_models_figures_and_charts_are_folded_and_printed(
    browser: Browser, reports: list[WindowReport], tmp_path: Path
) -> None:
    """Seven models take less than ten screens; on paper everything is there."""
    (tmp_path / "report.html").write_text(page_of(of_models(reports, *"abcdefg")), encoding="utf-8")
    with browser.tab("file://", viewport={"width": 1400, "height": 900}) as tab:
        tab.page.goto((tmp_path / "report.html").as_uri())
        height = "document.documentElement.scrollHeight"
        folded = tab.page.evaluate(height)
        assert folded < 10 * 900
        tab.page.emulate_media(media="print")
        assert tab.page.evaluate(height) > 2 * folded


def test_a_report_says_where_the_change_of_an_alarm_is(reports: list[WindowReport]) -> None:
    broken = [report for report in reports if report.attributions and not report.group]
    assert sentence(broken[-1].attributions[0]) in words(page_of(reports))
    calm = replace(broken[-1], window=20, charts=broken[-1].charts, attributions=())
    assert sentence(broken[-1].attributions[0]) in words(page_of([*reports, calm])), "while it is latched"
    released = replace(calm, charts=tuple(_released(chart) for chart in calm.charts))
    assert [each.state for each in released.objectives] == ["breached"]
    for last, is_said in ((released, True), (replace(released, objectives=()), False)):
        figures = words(page_of([*reports, last])).partition("Figures and charts")[2]
        assert (" points" in figures.partition("Groups of erm")[0]) == is_said


def _released(chart: ChartView) -> ChartView:
    return replace(chart, by_labels=None, verdict=replace(chart.verdict, rules=(), out_of_control=False))


def test_a_period_is_cut_by_the_ends_of_its_windows(reports: list[WindowReport]) -> None:
    good = words(page_of(reports, until=1.7e9 + 1000))
    assert "20 windows from 2023-11-14 22:13:20 UTC until 2023-11-14 22:30:00 UTC." in good
    assert "1 model is fine: nothing has changed, objective met." in good
    late = words(page_of(reports, since=1.7e9 + 1399))
    assert "14 windows from 2023-11-14 22:36:39 UTC until" in late, (
        "the window that ends at this moment counts"
    )
    unknown = "objective breached , out of control 1 of 1 group"
    assert unknown in late, "since when is not known: it may be older"
    assert "No window closed in this period." in words(page_of(reports, since=2e9))


def test_periods_by_series_together_are_the_period_of_all(reports: list[WindowReport]) -> None:
    """The processes of a replay keep them so; the model begins again, so that its group comes first then."""
    again = [replace(r, window=r.window - 15) for r in reports if r.window >= 15 and not r.group]
    written = [*reports, *again]
    apart = [Period({}) for _ in range(2)]
    for period, group in zip(apart, ("region=eu", ""), strict=True):
        period.add([r for r in written if r.group == group])

    joined = Period({})
    joined.join(apart, [("t", "erm", "region=eu"), ("t", "erm", "")])

    assert joined.html({}) == page_of(written)
    assert list(joined.histories.alarms()) == [("t", "erm", "region=eu"), ("t", "erm", "")]


def test_windows_from_before_a_new_beginning_are_left_out_and_counted(reports: list[WindowReport]) -> None:
    again = [*reports, *(replace(report, version="2") for report in reports[:6])]
    text = words(page_of(again))
    assert "version 2 · 3 windows," in text
    assert "20 from before a new start of the numbers are left out" in text


def test_a_revision_counts_instead_of_its_window(reports: list[WindowReport]) -> None:
    last = [report for report in reports if not report.group][-1]
    text = words(page_of([*reports, replace(last, revision=1, version="late")]))
    assert "version late · 20 windows" in text


@pytest.mark.slow
def test_a_long_history_is_thinned_and_says_so(reports: list[WindowReport]) -> None:
    sample = next(report for report in reports if not report.group)
    few = page_of([replace(sample, window=n, end_time=sample.end_time + n) for n in range(MOST_KEPT)])
    many = page_of([replace(sample, window=n, end_time=sample.end_time + n) for n in range(3 * MOST_KEPT)])
    sentence = "There are more windows than pixels: the chart shows the lowest and the highest of each"
    assert sentence in many
    assert sentence not in few
    assert len(many) < 1.5 * len(few)


def test_the_file_asks_for_nothing_and_runs_nothing(reports: list[WindowReport]) -> None:
    evil = replace(reports[0], model="<script>alert(1)</script>", version="<img src=x>")
    page = page_of([*reports, evil])
    assert re.findall(r"<(script|img|link rel=.stylesheet|iframe|object)", page) == []
    assert {target for target in re.findall(r'(?:href|src)="([^"]*)"', page) if target[0] != "#"} == {
        "data:,"
    }
    assert "default-src 'none'" in page
    assert page.count("<svg xmlns") == 3


def test_the_command_writes_it_from_a_store_that_is_in_use(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    holder = Store(store)
    try:
        done = command_here("report", store, "--out", out, "--until", "2023-11-14T23:00:00+01:00")
        assert (done.returncode, done.stderr) == (0, "")
        assert "No window closed in this period." in out.read_text()
        done = command_here("report", store, "--out", out, "--since", "2023-11-14", "--until", "2023-11-15")
        assert done.stdout.split() == [str(out) + ":", "from", "40", "lines", "of", "the", "store."]
    finally:
        holder.close()
    assert "40 windows from 2023-11-14 00:00:00 UTC until 2023-11-15 00:00:00 UTC." in words(out.read_text())


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--since", "yesterday"], 2, "--since: expected a date or a time such as 2026-11-20 or"),
        (["--since", "2026-11-20", "--until", "2026-11-20"], 2, "--until: '2026-11-20' is not after --since"),
    ],
)
def test_a_period_that_is_none_is_refused(
    store: Path, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    done = command_here("report", store, "--out", tmp_path / "report.html", *arguments)
    assert done.returncode == code
    assert message in done.stderr
    assert not (tmp_path / "report.html").exists()


def test_a_store_that_is_not_there_and_a_file_that_cannot_be_written_are_said(
    store: Path, tmp_path: Path
) -> None:
    done = command_here("report", tmp_path / "nowhere", "--out", tmp_path / "report.html")
    assert (done.returncode, "there is no store" in done.stderr) == (1, True)
    done = command_here("report", store, "--out", tmp_path)
    assert (done.returncode, str(tmp_path) in done.stderr) == (1, True)


def test_a_replay_writes_it_too_with_what_its_labels_said(tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").write_bytes(ndjson(answers(np.random.default_rng(1), 1200, labelled=True)))
    config = write_configuration(tmp_path, configuration())
    done = command_here("replay", config, tmp_path / "in.ndjson", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "12 windows from 2023-11-14 22:13:20 UTC" in words(page)
    (chart,) = re.findall(r"<svg xmlns.*?</figure>", page, flags=re.DOTALL)
    assert (tmp_path / "out" / "t-erm.svg").read_text(encoding="utf-8") in chart
    assert "realised, 95 % interval" in chart


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("models", ["a", "abcdefg"])
def test_axe_finds_nothing_in_a_report(
    browser: Browser, reports: list[WindowReport], tmp_path: Path, models: str, scheme: str
) -> None:
    (tmp_path / "report.html").write_text(page_of(of_models(reports, *models)), encoding="utf-8")
    with browser.tab("file://", color_scheme=scheme) as tab:
        tab.page.goto((tmp_path / "report.html").as_uri())
        folded = Axe().run(tab.page)
        tab.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        results = Axe().run(tab.page)
    assert (folded.violations_count, results.violations_count) == (0, 0), results.generate_report()
    assert len(results.response["passes"]) > 15, "it looked"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_the_features_and_they_fit_a_phone(
    browser: Browser, tmp_path: Path, scheme: str
) -> None:
    one, period = Rig(watched(), {"t": reference()}), Period({})
    period.add(one.feed(flights(2, 250, 0.9, labelled=False)))
    page = period.html({}, [one.engine.view()])
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    with browser.tab("file://", color_scheme=scheme, viewport={"width": 360, "height": 740}) as tab:
        tab.page.goto((tmp_path / "report.html").as_uri())
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= 360
        results = Axe().run(tab.page)
        pictures = tab.page.locator('svg[aria-label^="Distribution of"]')
        assert [pictures.nth(k).is_visible() for k in range(pictures.count())] == [True, True]
        filled = tab.page.evaluate(
            "getComputedStyle(document.querySelector('svg.pairs path[fill=\"#0072b2\"]')).fill"
        )
    assert results.violations_count == 0, results.generate_report()
    assert filled == {"light": "rgb(0, 114, 178)", "dark": "rgb(86, 180, 233)"}[scheme]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_opens_the_file_alone_and_its_charts_follow_the_scheme(
    browser: Browser, reports: list[WindowReport], tmp_path: Path, scheme: str
) -> None:
    (tmp_path / "report.html").write_text(page_of(reports), encoding="utf-8")
    with browser.tab("file://", color_scheme=scheme, viewport={"width": 360, "height": 740}) as tab:
        tab.page.goto((tmp_path / "report.html").as_uri())
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= 360
        fill = "getComputedStyle(document.querySelector('figure svg > rect')).fill"
        paper = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 29)"}[scheme]
        assert tab.page.evaluate(fill) == paper
        assert (tab.complaints, tab.elsewhere) == ([], [])


def test_errors_of_predicted_numbers_stand_in_their_unit_beside_the_errors_by_labels() -> None:
    own = regression(unit="minutes")
    rig = Rig({"t": own}, {"t": reference_of_numbers(own, predictions(1, 600, start=1.6e9))})
    reports = rig.feed(predictions(2, 300)) + rig.feed(predictions(3, 100, start=1.71e9, labelled=0.0))
    page = page_of(reports)
    text = words(page).partition("the errors by labels in the same windows")[2]
    estimates = [report.known("mae", "doubly_robust") for report in reports]
    labels = [report.known("mae", "realised") for report in reports if report.window < 3]
    means = [
        f"{np.mean([each.value for each in some if each is not None]):.3f} minutes"
        for some in (estimates, estimates[:3], labels)
    ]
    newest = format_result(reports[-1].values[0].result, "minutes")
    assert f"gbm mae {newest} {means[0]} {means[1]} in 3 windows {means[2]} gbm rmse" in text
    (picture,) = re.findall(r"Control chart of gbm: mae.*?</figure>", page, flags=re.DOTALL)
    assert ">task t, 4 windows, in minutes</text>" in picture
    assert "realised, 95 % interval" in picture
    assert " %</text>" not in picture


def test_a_report_of_classes_has_no_errors(reports: list[WindowReport]) -> None:
    assert "Errors of predicted numbers" not in page_of(reports)
