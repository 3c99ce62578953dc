"""Prints the verdicts of the model checker as a table, after the tests that reached them."""


def pytest_terminal_summary(terminalreporter):
    """Print one line for each search: the variant, what was found, and how much was searched."""
    rows = [
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, value in report.user_properties
        if name == "model"
    ]
    if not rows:
        return
    terminalreporter.section("model of the counting algorithm (Spin)")
    line = "{:<57} {:<27} {:>10} {:>6} {:>4} {:>5}"
    terminalreporter.write_line(line.format("variant", "verdict", "states", "depth", "MB", "s"))
    for variant, words, states, depth, megabytes, seconds in sorted(rows, key=lambda row: -row[2]):
        figures = (f"{states:,}", depth, f"{megabytes:.0f}", f"{seconds:.1f}")
        terminalreporter.write_line(line.format(variant, words, *figures))
