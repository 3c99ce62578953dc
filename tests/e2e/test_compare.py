"""`tallyctl compare` as a process of its own, its page in a real browser, and the figures that the documents state."""

import html
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tallyctl import emulator
from tallyctl.comparison import rows

ROOT = Path(__file__).parents[2]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no browser: install Debian's package chromium")

# A copy of the page with this in it says of itself, in its title, what a person would see of it.
MEASURE = """<script>
const WIDTH = %d;
const PAGE = getComputedStyle(document.body).backgroundColor;
document.documentElement.style.width = WIDTH + "px";
const inside = (inner, outer) => inner.left >= outer.left - 1 && inner.right <= outer.right + 1
  && inner.top >= outer.top - 1 && inner.bottom <= outer.bottom + 1;
const box = element => element.getBoundingClientRect();
document.title = JSON.stringify({
  asked: performance.getEntriesByType("resource").map(entry => entry.name),
  wider: [...document.querySelectorAll("body *")]
    .filter(element => !element.closest(".table > *"))  // tables scroll by themselves
    .filter(element => box(element).right > WIDTH + 1)
    .map(element => element.outerHTML.slice(0, 80)),
  charts: [...document.querySelectorAll("figure svg")].map(svg => ({
    title: svg.getAttribute("aria-label"),
    width: box(svg).width,
    points: [...svg.querySelectorAll(".reactive")].filter(mark => box(mark).height > 1).length,
    invisible: [...svg.querySelectorAll("circle.reactive, rect.reactive")]
      .filter(mark => ["none", PAGE].includes(getComputedStyle(mark).fill)).length,
    cut: [...svg.querySelectorAll("text")].filter(text => text.textContent && !inside(box(text), box(svg)))
      .map(text => text.textContent),
  })),
});
</script></body>"""


@dataclass(frozen=True)
class Compared:
    """What the command printed, and where the page is."""

    workloads: dict
    page: Path


@pytest.fixture(scope="session")
def compared(tallyctl, tmp_path_factory):
    """Compare all workloads at their default size. PostgreSQL's figures are left out: they are of this machine."""
    folder = tmp_path_factory.mktemp("report")
    done = tallyctl(["compare", "--workload", "all", "--no-postgres", "--json", "--report", str(folder)])
    assert done.returncode == 0, done.stderr
    return Compared(json.loads(done.stdout)["workloads"], folder / "index.html")


def browse(page, folder, *options):
    """Open a page in a browser of its own; return the document that it made of it, and what its console says."""
    quiet = ("--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update")
    done = subprocess.run(
        [
            str(CHROMIUM),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-sync",
            *quiet,
            "--enable-logging=stderr",
            f"--user-data-dir={folder / 'profile'}",
            *options,
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def measured(page, folder, width):
    """Return what a person sees of a page that is so wide, and what its console says."""
    policy = re.compile(r"<meta http-equiv=.*?>")
    copy = folder / "measured.html"
    copy.write_text(policy.sub("", page.read_text()).replace("</body>", MEASURE % width))
    document, console = browse(copy, folder, f"--window-size={max(width, 500)},900")
    return json.loads(html.unescape(re.search(r"<title>(.*?)</title>", document)[1])), console


@pytest.mark.e2e
@needs_browser
def test_a_browser_shows_the_page_without_a_complaint(compared, tmp_path):
    """Its own policy forbids it to fetch anything, and the console would say if it tried."""
    document, console = browse(compared.page, tmp_path)
    assert console == []
    assert "<svg" in document


@pytest.mark.e2e
@needs_browser
def test_a_page_that_fetches_something_would_be_found(compared, tmp_path):
    """The same page with a picture from elsewhere: the browser refuses it and says so."""
    fetching = tmp_path / "fetching.html"
    fetching.write_text(compared.page.read_text().replace("</body>", '<img src="http://127.0.0.1:9/x.png"></body>'))
    _, console = browse(fetching, tmp_path)
    assert any("Content Security Policy" in line for line in console)


@pytest.mark.e2e
@needs_browser
@pytest.mark.parametrize("width", [1200, 360])
def test_every_chart_is_drawn_and_no_word_is_cut(compared, tmp_path, width):
    """On a desk and on a phone: points that can be seen, legends and axes inside the picture, nothing to scroll to."""
    seen, console = measured(compared.page, tmp_path, width)
    assert console == []
    assert seen["asked"] == []
    assert seen["wider"] == []
    assert [chart["title"] for chart in seen["charts"]] == [
        *(f"{what}, {name}" for name in compared.workloads for what in ("Cost against the rate", "Drift under faults")),
        "Cost against concentration, 1,000 likes a second",
        "Staleness against the batch window",
        "How many likes a second one hot post takes",
    ]
    for chart in seen["charts"]:
        assert chart["width"] > 0.75 * min(width, 600), chart
        assert chart["points"] >= 4, chart
        assert chart["invisible"] == 0, chart
        assert chart["cut"] == [], chart


@pytest.mark.e2e
def test_a_second_process_gives_the_same_figures(compared, tallyctl):
    """Strings hash otherwise in each process, and clocks tell another time: no figure depends on either."""
    again = tallyctl(["compare", "--workload", "social", "--no-postgres", "--json"])
    assert json.loads(again.stdout) == compared.workloads["social"]


@pytest.mark.e2e
def test_the_write_units_are_within_their_bounds(compared):
    """A vote is nearly one unit a like, a long tail under two, a transaction four, on a run without faults."""
    units = {
        name: {path: of["write_units_per_like"] for path, of in figures["paths"].items()}
        for name, figures in compared.workloads.items()
    }
    assert units["vote"]["stream"] <= 1.02
    assert units["social"]["stream"] <= 2.0
    assert {of["transaction"] for of in units.values()} == {4.0}


@pytest.mark.e2e
def test_exactness_costs_no_write(compared):
    """On a run without faults the product writes what a blind `ADD` writes; after faults only one is right."""
    for figures in compared.workloads.values():
        stream, blind = figures["paths"]["stream"], figures["paths"]["blind"]
        assert stream["write_units"] == blind["write_units"]
        assert stream["requests"] == blind["requests"]
        assert stream["drift"] == stream["drift_after_faults"] == 0
        assert blind["drift_after_faults"] > 0


def table(columns, lines):
    """Return a table as the documents have it, a line a row."""
    return [f"| {' | '.join(cells)} |" for cells in (columns, *lines)]


def tables(workloads):
    """Return the tables of docs/comparison.md whose figures have a seed."""
    for figures in workloads.values():
        yield table(rows.COLUMNS, rows.rows(figures))
    social = workloads["social"]
    by_fault = social["series"]["drift_by_fault"]
    drift = [(path, *(f"{wrong:,}" for wrong in of.values())) for path, of in by_fault.items()]
    yield table(("path", *social["faults"]["planted"]), drift)
    for name, x in (("cost_by_rate", "likes a second"), ("cost_by_posts", "posts")):
        series = social["series"][name]
        usd = series["usd_per_million_likes"]
        yield table(
            (x, *(f"{value:,g}" for value in series["x"])),
            [(path, *(f"{value:.2f}" for value in values)) for path, values in usd.items()],
        )
    stale = social["series"]["staleness_by_window"]
    yield table(
        ("batch window (s)", *(f"{value:g}" for value in stale["window_s"])),
        [(f"staleness {name} (s)", *(f"{value:.1f}" for value in stale[f"{name}_s"])) for name in ("p50", "p99")],
    )


@pytest.mark.e2e
def test_the_document_states_the_figures_that_the_command_gives(compared):
    """Cell by cell: whoever changes a rule, a price or a path reads here what docs/comparison.md must say."""
    document = (ROOT / "docs" / "comparison.md").read_text()
    stated = [line for line in document.splitlines() if line.startswith("| ")]
    for lines in tables(compared.workloads):
        assert [line for line in lines if line not in stated] == []
    for figures in compared.workloads.values():
        assert figures["recommendation"] in document.replace("\n", " ")


@pytest.mark.e2e
def test_an_emulator_charges_as_we_do(tallyctl):
    """Request by request, on every path; it knows no difference but the size of what is read, which it ignores."""
    port = emulator.free_port()
    with emulator.running(port):
        endpoint = f"http://127.0.0.1:{port}"
        done = tallyctl(
            ["compare", "--operations", "200", "--no-postgres", "--json", "--cross-check", "--endpoint-url", endpoint]
        )
    assert done.returncode == 0, done.stderr
    checked = json.loads(done.stdout)["cross_check"]
    assert checked["same"] > 0.95 * checked["requests"] > 500
    assert f"{checked['same']} of {checked['requests']} requests" in (ROOT / "docs" / "comparison.md").read_text()
    assert {difference["operation"] for difference in checked["differences"]} == {"GetItem"}
    assert checked["measured"]["milliseconds_p50"]["TransactWriteItems"] > 0
