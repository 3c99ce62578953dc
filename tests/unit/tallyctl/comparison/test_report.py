"""The page: it needs nothing from anywhere, shows every figure, and is the same for the same figures."""

import copy
import re
import shlex
from html.parser import HTMLParser

import pytest

from tallyctl.comparison import rows
from tallyctl.comparison.report import LIMITS, page

SEEDED = {"round_trips": 4, "drift_after_faults": 0, "operations": 1000}
MEASURED = {
    "server": "PostgreSQL 15.18",
    "concurrency": 4,
    "operations_per_second": 1234,
    "latency_p50_ms": 1.25,
    "latency_p99_ms": 9.75,
    "conflicts": 17,
    "lock_waiters": None,
    "staleness_p99_s": 0.5,
}
CROSS_CHECK = {
    "requests": 1200,
    "same": 1180,
    "uncharged": 100,
    "differences": [
        {"path": "count", "operation": "GetItem", "ours": "0.5", "emulator": "1", "requests": 20},
    ],
    "measured": {"milliseconds_p50": {"PutItem": 2.0, "GetItem": 1.0}},
}


class Page(HTMLParser):
    """What a page is made of: its tags with their attributes, the text of its cells, and of all of it."""

    VOID = ("meta", "link")

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.tags, self.open, self.lines, self.text = [], [], [], ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        """Note an element, and begin a line or a cell of a table."""
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "tr":
            self.lines.append([])
        if tag in {"td", "th"}:
            self.lines[-1].append("")

    def handle_endtag(self, tag):
        """Hold the page to closing what it opened, in order."""
        assert self.open.pop() == tag

    def handle_data(self, data):
        """Add text to the cell that is open."""
        self.text += data
        if self.open and self.open[-1] in {"td", "th"}:
            self.lines[-1][-1] += data


@pytest.fixture
def figures(vote):
    """Give the figures of a small vote as the page gets them."""
    return copy.deepcopy(vote.figures())


def test_nothing_is_asked_of_any_other_place(figures):
    """No script, no import, no link that is followed by itself: the only addresses are text, or name a namespace."""
    html = page([figures], CROSS_CHECK)
    parsed = Page(html)
    assert not parsed.open
    assert {tag for tag, _ in parsed.tags}.isdisjoint({"script", "img", "iframe", "object", "use", "image", "base"})
    assert "@import" not in html
    assert "url(" not in html
    sources = {
        value
        for _, attrs in parsed.tags
        for name, value in attrs.items()
        if name in {"src", "href", "xlink:href", "srcset", "style"}
    }
    assert sources == {"data:,"}  # else browsers ask for an icon


def test_the_same_figures_give_the_same_bytes(figures):
    """No date and no id of a run is in it."""
    assert page([figures], CROSS_CHECK) == page([copy.deepcopy(figures)], copy.deepcopy(CROSS_CHECK))


def test_no_id_is_there_twice(figures):
    """Several charts are one document."""
    ids = [attrs["id"] for _, attrs in Page(page([figures])).tags if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_every_figure_of_the_table_is_on_the_page(figures):
    """A row a path, as in the terminal, and the headings above it."""
    lines = Page(page([figures])).lines
    assert list(rows.COLUMNS) in lines
    for row in rows.rows(figures):
        assert list(row) in lines


def test_the_drift_of_each_kind_of_fault_is_on_the_page(figures):
    """Which fault a path does not stand is what a reader looks for."""
    lines = Page(page([figures])).lines
    assert ["path", *figures["faults"]["planted"]] in lines
    for path, drift in figures["series"]["drift_by_fault"].items():
        assert [path, *(f"{wrong:,}" for wrong in drift.values())] in lines


def test_the_recommendation_comes_before_the_first_table(figures):
    """It is what the page is opened for."""
    html = page([figures])
    assert 0 < html.index(figures["recommendation"]) < html.index("<table")


def test_each_chart_has_its_title_and_its_points(figures):
    """Cost, staleness, ceiling and drift; a value can be read by pointing at it."""
    html = page([figures])
    charts = re.findall(r"<figure>.*?</figure>", html, re.DOTALL)
    titles = [re.search(r"<figcaption>(.*?)<p>", chart)[1] for chart in charts]
    assert titles == [
        "Cost against the rate, vote",
        "Drift under faults, vote",
        "Cost against concentration, 500 likes a second",
        "Staleness against the batch window",
        "How many likes a second one hot post takes",
    ]
    for chart, title in zip(charts, titles, strict=True):
        tags = Page(chart).tags
        label = next(attrs["aria-label"] for tag, attrs in tags if tag == "svg")
        assert label == title
        points = [tag for tag, attrs in tags if tag in {"circle", "rect"} and "reactive" in attrs.get("class", "")]
        assert len(points) >= 8


def test_a_value_is_shown_where_one_points(figures):
    """Browsers show an element's title by themselves, without a script."""
    html = page([figures])
    staleness = html[html.index("Staleness against the batch window") :]
    shown = re.findall(r"<title>([^<]*: [^<]*)</title>", staleness[: staleness.index("</figure>")])
    stale = figures["series"]["staleness_by_window"]
    assert shown == [
        f"{window:g}: {seconds:,.10g}"
        for name in ("p50_s", "p99_s")
        for window, seconds in zip(stale["window_s"], stale[name], strict=True)
    ]


@pytest.mark.parametrize(("highest", "last"), [(0, "1"), (430, "500"), (1000, "1,000"), (7, "7")])
def test_a_bar_s_axis_reaches_the_highest_value(figures, highest, last):
    """In round steps; where nothing drifts there is an axis all the same."""
    for path in figures["paths"].values():
        path["drift_after_faults"] = 0
    figures["paths"]["blind"]["drift_after_faults"] = highest
    html = page([figures])
    chart = html[html.index("Drift under faults") :]
    labels = re.findall(r"<text[^>]*>([\d,]+)</text>", chart[: chart.index("</figure>")])
    assert last == max(labels, key=lambda label: int(label.replace(",", "")))


def test_a_bar_s_value_stands_beside_its_name(figures):
    """A path that does not drift has no bar, but a nought."""
    html = page([figures])
    for name, path in figures["paths"].items():
        assert f"{name}: {path['drift_after_faults']:,}<" in html
        assert f"{name}: {path['ceiling_likes_per_second']:,.0f} ({path['ceiling_by']})<" in html


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (0.0092, "transaction is cheaper than stream below 0.0092 likes a second, and dearer above."),
        (None, "transaction is cheaper than stream throughout."),
    ],
)
def test_the_break_even_is_drawn_and_said(figures, where, said):
    """A line of its own in the chart, if there is one, and a sentence either way."""
    figures["series"]["cost_by_rate"]["break_even"] = where
    parsed = Page(page([figures]))
    assert said in parsed.text
    assert ("break-even" in parsed.text) is (where is not None)


def test_what_the_page_rests_on_is_on_it(figures):
    """Assumptions, published figures with who published them, and what no simulation shows."""
    text = Page(page([figures])).text
    for line in (*rows.assumptions(figures), *LIMITS):
        assert line in text
    for name, what in figures["assumptions"]["published"].items():
        assert f"{name}: {what}" in text


def test_what_was_measured_is_called_so(figures):
    """PostgreSQL's rows under a caption that says where they are from; a figure that there is none of is a dash."""
    figures["postgres"] = {"update": {"seeded": SEEDED, "measured": MEASURED}}
    parsed = Page(page([figures]))
    assert ["update", "4", "0", "1,234", "1.2, 9.8", "17", "-", "0.50"] in parsed.lines
    assert "Measured on this machine" in parsed.text


def test_without_postgresql_the_page_says_how_to_get_it(figures):
    """One sentence, and no empty table."""
    figures["postgres"] = {name: {"unavailable": "PostgreSQL is not installed."} for name in ("update", "queue")}
    parsed = Page(page([figures]))
    assert parsed.text.count("PostgreSQL is not installed.") == 1
    assert list(rows.POSTGRES_COLUMNS) not in parsed.lines


def test_the_cross_check_lists_each_difference(figures):
    """And how many requests were charged alike; without a difference there is no table, without a check no heading."""
    parsed = Page(page([figures], CROSS_CHECK))
    assert ["count", "GetItem", "0.5", "1", "20"] in parsed.lines
    assert "Of 1200 requests, the emulator charged or refused 1180 as we do" in parsed.text
    assert "GetItem 0.5." in parsed.text
    same = Page(page([figures], CROSS_CHECK | {"differences": []}))
    assert list(rows.CROSS_CHECK_COLUMNS) not in same.lines
    assert "an emulator's" not in Page(page([figures])).text


@pytest.mark.parametrize(
    ("workloads", "checked", "expected"),
    [
        (["vote"], None, "--workload vote --operations 1000 --rate 500 --batch-window 2 --seed 1 --no-postgres"),
        (
            ["vote"],
            CROSS_CHECK,
            "--workload vote --operations 1000 --rate 500 --batch-window 2 --seed 1 --no-postgres --cross-check",
        ),
        (
            ["vote", "social"],
            None,
            "--workload all --operations 1000 --rate 500 --batch-window 2 --seed 1 --no-postgres",
        ),
    ],
)
def test_the_page_says_which_command_made_it(figures, workloads, checked, expected):
    """Whoever has the page can have it again."""
    shown = page([figures | {"workload": name} for name in workloads], checked)
    command = re.search(r"<code>(tallyctl compare .*?)</code>", shown, re.DOTALL)[1]
    assert shlex.split(command) == ["tallyctl", "compare", *expected.split(), "--report", "DIR"]


def test_text_from_outside_is_text(figures):
    """A server's message is shown, not run."""
    figures["postgres"] = {"update": {"unavailable": "<script>alert(1)</script> & more"}}
    html = page([figures])
    assert "<script>" not in html
    assert "<script>alert(1)</script> & more" in Page(html).text
