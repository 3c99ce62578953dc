"""One page of HTML for a person: what to take, the figures behind it, and charts. It needs nothing from anywhere else.

Its Content-Security-Policy holds it to that: a browser would refuse to fetch anything, and would say so.

The page is made of the JSON objects of `tallyctl compare --json` and of nothing else, so that the same figures give the
same bytes. pygal draws the charts; report.html beside this file has the text around them and every colour.
"""

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any
from xml.etree import ElementTree as ET

import pygal  # type: ignore[import-untyped]
from pygal.etree import etree  # type: ignore[import-untyped]
from pygal.style import Style  # type: ignore[import-untyped]

from tallyctl.comparison import rows
from tallyctl.comparison.workloads import WORKLOADS

LIMITS = (
    (
        "How long DynamoDB, Lambda and API Gateway take on AWS, on a given day, from a given place: every time here is "
        "assumed or published by somebody else."
    ),
    (
        "How often transactions conflict: no emulator makes conflicts, and AWS publishes no figure. That they do under "
        "load on one item is certain; at how many likes a second, is the model's answer."
    ),
    (
        "How AWS throttles, splits a hot partition, or spends burst capacity. A ceiling here is where the published "
        "limits and the assumed times lead."
    ),
    "How often faults happen. The schedule shows what a path does with each of them, not how often you will see it.",
    (
        "Marks of earlier shards: a run is short, so that a post carries one mark. In service a busy post carries "
        "about seven of 90 bytes: a post of more than about 370 bytes then takes two write units a count instead of "
        "one, which `tallyctl plan` has in its figures. The remedy is a tally on an item of its own, which is small."
    ),
    "What prices are today, in your Region, under your contract.",
)

_TEMPLATE = Path(__file__).with_name("report.html")
_WIDTH, _HEIGHT = 480, 340
_FONT_SIZE = 14
_STEPS = (1, 2, 5)


def page(comparisons: Sequence[Mapping[str, Any]], cross_check: Mapping[str, Any] | None = None) -> str:
    """Return the page.

    Args:
        comparisons: the objects that `tallyctl compare --json` prints, one a workload, all with the same options.
        cross_check: what the cross-check found, if it was made.
    """
    first = comparisons[0]
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        settings=escape(
            f"{first['operations']:,} operations, {first['rate']:,g} a second, batch window "
            f"{first['batch_window_s']:g} s, seed {first['seed']}."
        ),
        command=escape(_command(comparisons, cross_check)),
        advice="\n".join(f'<p class="advice">{escape(figures["recommendation"])}</p>' for figures in comparisons),
        workloads="\n".join(_workload(figures) for figures in comparisons),
        common="\n".join((_cost_by_posts(first), _staleness(first), _ceiling(first))),
        cross_check="" if cross_check is None else _cross_check(cross_check),
        assumptions=_items(rows.assumptions(first)),
        published=_items(f"{name}: {what}" for name, what in first["assumptions"]["published"].items()),
        limits=_items(LIMITS),
    )


def _command(comparisons: Sequence[Mapping[str, Any]], cross_check: Mapping[str, Any] | None) -> str:
    first = comparisons[0]
    options = {
        "workload": first["workload"] if len(comparisons) == 1 else "all",
        "operations": first["operations"],
        "rate": f"{first['rate']:g}",
        "batch-window": f"{first['batch_window_s']:g}",
        "seed": first["seed"],
    }
    parts = ["tallyctl", "compare", *(part for name, value in options.items() for part in (f"--{name}", str(value)))]
    parts += [] if "postgres" in first else ["--no-postgres"]
    parts += [] if cross_check is None else ["--cross-check"]
    return shlex.join((*parts, "--report", "DIR"))


# ------------------------------------------------------------------------------------------------------------- parts


def _workload(figures: Mapping[str, Any]) -> str:
    name = figures["workload"]
    parts = [
        f"<h2>Workload {escape(name)}</h2>",
        f"<p>{escape(WORKLOADS[name].__doc__ or '')}</p>",
        _table("Every figure but the ceiling is of the whole workload.", rows.COLUMNS, rows.rows(figures)),
        f"<ul>\n{_items(_paths(figures))}\n</ul>",
        '<div class="charts">',
        _cost_by_rate(figures),
        _drift(figures),
        "</div>",
        _table(
            f"Drift after {figures['faults']['operations']:,} operations with faults of one kind each",
            ("path", *figures["faults"]["planted"]),
            [
                (path, *(f"{drift:,}" for drift in by.values()))
                for path, by in figures["series"]["drift_by_fault"].items()
            ],
        ),
    ]
    if "postgres" in figures:
        parts.append("<h3>The same likes on PostgreSQL</h3>")
        parts.append(f'<p class="soft">{escape(rows.postgres_caption(figures["postgres"]))}</p>')
        lines = rows.postgres_rows(figures["postgres"])
        if lines:
            parts.append(_table("Measured here, but for the first two figures", rows.POSTGRES_COLUMNS, lines))
    return "\n".join(parts)


def _paths(figures: Mapping[str, Any]) -> Iterable[str]:
    for name, path in figures["paths"].items():
        against = f". It {' and '.join(path['objections'])}" if path["objections"] else ""
        yield f"{name}: {path['title']}{against}."


def _cross_check(cross_check: Mapping[str, Any]) -> str:
    caption, lines = rows.cross_check_caption(cross_check), rows.cross_check_rows(cross_check)
    table = _table("Where they differ", rows.CROSS_CHECK_COLUMNS, lines) if lines else ""
    return f"<h2>Our units against an emulator's</h2>\n<p>{escape(caption)}</p>\n{table}"


def _items(lines: Iterable[str]) -> str:
    return "\n".join(f"<li>{escape(line)}</li>" for line in lines)


def _table(caption: str, columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    heads = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "\n".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'
        for name, *cells in lines
    )
    return (
        f'<div class="table" tabindex="0"><table>\n<caption>{escape(caption)}</caption>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>"
    )


# ------------------------------------------------------------------------------------------------------------ charts


def _cost_by_posts(figures: Mapping[str, Any]) -> str:
    title = f"Cost against concentration, {figures['rate']:,g} likes a second"
    return _costs(title, "posts that share the likes evenly", "cost_by_posts", figures)


def _cost_by_rate(figures: Mapping[str, Any]) -> str:
    return _costs(f"Cost against the rate, {figures['workload']}", "likes a second", "cost_by_rate", figures)


def _costs(title: str, x_title: str, name: str, figures: Mapping[str, Any]) -> str:
    series = figures["series"][name]
    costs = series["usd_per_million_likes"]
    y_labels = _scale(value for values in costs.values() for value in values)
    chart = pygal.XY(
        logarithmic=True,
        x_title=x_title,
        y_title="$ a million likes",
        x_labels=[10.0**power for power in _powers(series["x"])],
        x_value_formatter=_number,
        y_labels=y_labels,
        value_formatter=_number,
        **_LOOK,
    )
    for path, values in costs.items():
        chart.add(path, list(zip(series["x"], values, strict=True)))
    if series["break_even"] is not None:
        mark = series["break_even"]
        chart.add("break-even", [(mark, y_labels[0]), (mark, y_labels[-1])])
    return _figure(chart, title, rows.break_even(figures, name))


def _staleness(figures: Mapping[str, Any]) -> str:
    series = figures["series"]["staleness_by_window"]
    chart = pygal.XY(
        x_title="batch window (s)",
        y_title="staleness (s)",
        y_labels=range(0, math.ceil(max(series["p99_s"]) / 10) * 10 + 1, 10),
        x_value_formatter=_number,
        value_formatter=_number,
        **_LOOK,
    )
    for name in ("p50", "p99"):
        chart.add(name, list(zip(series["window_s"], series[f"{name}_s"], strict=True)))
    about = "Stream path: from a like's answer to the tally that has it, while the aggregator keeps up."
    return _figure(chart, "Staleness against the batch window", about)


def _ceiling(figures: Mapping[str, Any]) -> str:
    values = [(name, path["ceiling_likes_per_second"], path["ceiling_by"]) for name, path in figures["paths"].items()]
    return _figure(
        _bars("likes a second", [(name, value, f"{value:,.0f} ({by})") for name, value, by in values]),
        "How many likes a second one hot post takes",
        "In brackets what stops it: its partition's write units, conflicts, or one aggregator at a time. Modelled.",
    )


def _drift(figures: Mapping[str, Any]) -> str:
    values = [(name, path["drift_after_faults"]) for name, path in figures["paths"].items()]
    return _figure(
        _bars("likes that tallies are wrong by", [(name, value, f"{value:,}") for name, value in values]),
        f"Drift under faults, {figures['workload']}",
        f"After {figures['faults']['operations']:,} operations and one schedule of faults for all paths.",
    )


def _bars(x_title: str, values: Sequence[tuple[str, float, str]]) -> Any:  # noqa: ANN401 - pygal has no types
    """Return a bar chart of names, values and how each value is written: beside its name, where nothing hides it."""
    highest = max(value for _, value, _ in values)
    step = 10.0 ** math.floor(math.log10(highest or 1))
    chart = pygal.HorizontalBar(
        x_title=x_title,
        x_labels=[f"{name}: {text}" for name, _, text in reversed(values)],
        y_labels=[step * number for number in range(math.ceil((highest or 1) / step) + 1)],
        value_formatter=_number,
        show_legend=False,
        **_LOOK,
    )
    chart.add("", [value for _, value, _ in reversed(values)])
    return chart


_LOOK = {
    "width": _WIDTH,
    "height": _HEIGHT,
    "margin": 8,
    "margin_right": 32,
    "spacing": 12,
    "legend_at_bottom": True,
    "margin_bottom": 20,
    "truncate_legend": -1,
    "truncate_label": -1,
    "max_scale": 6,
    "dots_size": 3.5,
    "js": (),
    "css": (),
    # The colours are those of report.html; what pygal makes room for is these.
    "style": Style(
        **{f"{part}_font_size": _FONT_SIZE for part in ("label", "major_label", "value", "title", "legend")}
    ),
}


def _figure(chart: Any, title: str, about: str) -> str:  # noqa: ANN401 - pygal has no types
    """Return a chart as a figure that is part of the page.

    pygal makes documents that stand alone: with a script, a style, today's date, and ids that would be there twice.
    """
    etree.to_etree()  # with lxml it would be another kind of tree
    chart.legend_at_bottom_columns = len(chart.raw_series)
    root = chart.render_tree()
    root.attrib.clear()
    root.attrib |= {"viewBox": f"0 0 {_WIDTH} {_HEIGHT}", "role": "img", "aria-label": title}
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag == "desc" and child.get("class") == "value":
                child.tag, child.attrib = "title", {}  # what browsers show of a point by themselves
            elif child.tag in {ET.Comment, "defs", "desc"} or "tooltip-overlay" in child.get("class", ""):
                parent.remove(child)
            child.attrib.pop("id", None)
            if child.tag == "rect":
                child.attrib.setdefault("width", "0")  # pygal leaves it out of a bar that has none
    root.remove(root.find("title"))  # the caption says it
    svg = ET.tostring(root, encoding="unicode", short_empty_elements=False)
    return f"<figure><figcaption>{escape(title)}<p>{escape(about)}</p></figcaption>\n{svg}</figure>"


def _powers(values: Iterable[float]) -> range:
    """Return the powers of ten that are among or around these values."""
    found = sorted(math.log10(value) for value in values)
    return range(math.floor(found[0]), math.ceil(found[-1]) + 1)


def _scale(values: Iterable[float]) -> list[float]:
    """Return what to write on a logarithmic axis: 1, 2, 5 and so on, from below the values to above them."""
    known = list(values)
    steps = [step * 10.0**power for power in _powers(known) for step in _STEPS]
    low = max(step for step in steps if step <= min(known))
    high = min(step for step in steps if step >= max(known))
    return [step for step in steps if low <= step <= high]


def _number(value: float) -> str:
    return f"{value:,.10g}"
