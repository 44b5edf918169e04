"""The page: header, figures at the head, sections, all in one text that needs nothing else.

Two scripts run in it, the plotting library and ours; a policy in the page allows those two by
their hashes, so no other would run even if it found its way in, and nothing may be loaded.
"""

from __future__ import annotations

import os
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from tempfile import mkstemp
from typing import Any

from chasquimq.errors import ConfigError
from chasquimq.spark.report.data import ReportData
from chasquimq.spark.report.headline import differences, tiles
from chasquimq.spark.report.palette import variables
from chasquimq.spark.report.section import Section, sections_of
from chasquimq.spark.report.show import count, duration, moment, script_json, text
from chasquimq.spark.report.view import MOST_VIEWS, View, views_of


def page(data: ReportData) -> str:
    """The whole HTML text of a report."""
    library, version = _library()
    views = views_of(data)
    sections = sections_of(data, views)
    script = _asset("page.js")
    model = {
        "plots": {
            plot.key: [figure and figure.packed() for figure in plot.figures]
            for section in sections
            for plot in section.plots
        }
    }
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        _head(data, _policy(library, script)),
        "<body>",
        _header(data, views, sections),
        "<main>",
        _warnings(data),
        *(_tiles(data, view, place) for place, view in enumerate(views)),
        *map(_section, sections),
        "</main>",
        _foot(data, views, version),
        f'<script type="application/json" id="model">{script_json(model)}</script>',
        f"<script>{library}</script>",
        f"<script>{script}</script>",
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def write_page(data: ReportData, path: str | os.PathLike[str]) -> Path:
    """Write the page and return where it is. Whoever opens the path sees all of a page, the old
    one or the new one: it is written beside it and renamed. A device or a named pipe, which no file
    can replace, is written to. An OSError names the path."""
    whole, target = page(data), Path(path)
    try:
        if target.exists() and not target.is_file():
            target.write_text(whole, encoding="utf-8")
        else:
            _write_whole(whole, target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from error
    return target


def _write_whole(text: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(handle)
            os.chmod(draft, 0o644)  # as any other file: a temporary one is its owner's alone
        os.replace(draft, target)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def _library() -> tuple[str, str]:
    try:
        from plotly.offline import get_plotlyjs, get_plotlyjs_version
    except ImportError as error:
        raise ConfigError(
            "a report needs its plotting library: pip install 'chasquimq-py[report]'"
        ) from error
    # In a string or an expression of a script this is the same; in a page it would end it.
    return get_plotlyjs().replace("</script", "<\\/script"), get_plotlyjs_version()


def _asset(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _policy(*scripts: str) -> str:
    hashes = [b64encode(sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{one}'" for one in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _head(data: ReportData, policy: str) -> str:
    return (
        '<head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<meta name="referrer" content="no-referrer">'
        f'<title>{text(data.title)}</title><link rel="icon" href="data:,">'
        f"<style>{variables()}{_asset('page.css')}</style></head>"
    )


def _header(data: ReportData, views: list[View], sections: list[Section]) -> str:
    options = "".join(
        f'<option value="{place}">{text(view.title, 60)}</option>'
        for place, view in enumerate(views)
    )
    choice = f'<label>Show <select id="choice">{options}</select></label>' if len(views) > 1 else ""
    links = "".join(f'<a href="#{section.key}">{section.title}</a>' for section in sections)
    span = duration((data.end - data.begin).total_seconds() * 1000)
    return (
        f"<header><div><h1>{text(data.title)}</h1><p>{moment(data.begin)[:16]} to "
        f"{moment(data.end)[:16]}, {span}. All times are UTC.</p></div>"
        f'<div class="controls">{choice}<button type="button" id="theme" hidden></button></div>'
        f'<nav aria-label="Sections">{links}</nav></header>'
    )


def _warnings(data: ReportData) -> str:
    said = [*data.warnings, *differences(data)]
    if not said:
        return ""
    lines = "".join(f"<li>{text(one)}</li>" for one in said)
    return (
        f'<section class="warnings" role="alert"><h2>Look here first</h2><ul>{lines}</ul></section>'
    )


def _tiles(data: ReportData, view: View, place: int) -> str:
    made = "".join(
        f'<div class="tile{" bad" if tile.is_bad else ""}"><dt>{tile.title}</dt>'
        f"<dd><b>{tile.value}</b><span>{tile.said}</span></dd></div>"
        for tile in tiles(data, view)
    )
    hidden = " hidden" if place else ""
    return f'<dl class="tiles" data-view="{place}"{hidden}>{made}</dl>'


def _section(section: Section) -> str:
    plots = "".join(
        _plot(plot.key, plot.title, plot.figures[0], section.empty) for plot in section.plots
    )
    pair = " pair" if len(section.plots) > 1 else ""
    return (
        f'<section id="{section.key}" class="panel"><h2>{section.title}</h2>'
        f'<p class="how">{section.how}</p><div class="plots{pair}">{plots}</div>'
        f"{section.table}</section>"
    )


def _plot(key: str, title: str, figure: Any, empty: str) -> str:
    heading = f"<h3>{title}</h3>" if title else ""
    drawn, words = ("", " hidden") if figure else (" hidden", "")
    alt = text(figure.alt) if figure else ""
    height = f' style="height:{figure.height}px"' if figure else ""
    rows = '<details class="rows"><summary>As a table</summary></details>'
    return (
        f'<figure data-plot="{key}">{heading}'
        f'<p class="empty"{words}>{empty}</p><div class="drawn"{drawn}>'
        f'<div class="canvas" role="img" aria-label="{alt}"{height}></div>'
        f"<figcaption>{alt}</figcaption>{rows if figure and figure.columns else ''}</div></figure>"
    )


def _foot(data: ReportData, views: list[View], version: str) -> str:
    facts = {**data.facts, "made": f"{moment(data.made_at)} UTC", "plots": f"plotly.js {version}"}
    lines = "".join(
        f"<div><dt>{text(key)}</dt><dd>{text(value)}</dd></div>" for key, value in facts.items()
    )
    left = len(views[0].queues) - MOST_VIEWS
    note = f"<p>{count(left)} queues have no view of their own.</p>" if left > 0 else ""
    return (
        "<footer><noscript><p>The plots need JavaScript; the tables do not.</p></noscript>"
        f"{note}<dl>{lines}</dl></footer>"
    )
