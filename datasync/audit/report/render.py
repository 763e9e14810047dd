"""A report as JSON, or as one HTML page that loads nothing and prints."""

from html import escape
from typing import Any

from datasync.audit.export.html import STYLE
from datasync.audit.export.plain import printable
from datasync.audit.report.model import Cell, Report, Section
from datasync.audit.report.words import FRAME, said


def as_json(report: Report, language: str, generated: str) -> dict[str, Any]:
    """Return the report as a JSON document."""
    return {
        "kind": "datasync audit report",
        "language": language,
        "generated": generated,
        "title": said(report.title, language),
        "about": {str(said(name, language)): said(value, language) for name, value in report.about},
        "sections": [
            {
                "heading": said(item.heading, language),
                "note": said(item.note, language),
                "columns": [said(name, language) for name in item.columns],
                "rows": [[said(cell, language) for cell in row] for row in item.rows],
            }
            for item in report.sections
        ],
    }


def as_html(report: Report, language: str, generated: str) -> str:
    """Return the report as a page."""
    frame = FRAME[language]

    def text(value: Cell) -> str:
        return escape(printable(str(said(value, language))).replace("\\n", "\n")).replace("\n", "<br>")

    about = [*((text(name), text(value)) for name, value in report.about), (frame["generated"], escape(generated))]
    head = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in about)
    body = "".join(_section(item, frame["empty"], text) for item in report.sections)
    return (
        f'<!doctype html><html lang="{language}"><head><meta charset="utf-8"><title>{text(report.title)}</title>'
        f"<style>{STYLE}</style></head><body><h1>{text(report.title)}</h1><table>{head}</table>{body}"
        f"<p>{frame['foot']}</p></body></html>\n"
    )


def _section(item: Section, empty: str, text: Any) -> str:
    title = f"<h2>{text(item.heading)}</h2><p>{text(item.note)}</p>"
    if not item.rows:
        return f"{title}<p>{empty}</p>"
    head = "".join(f"<th>{text(name)}</th>" for name in item.columns)
    rows = "".join("<tr>" + "".join(f"<td>{text(cell)}</td>" for cell in row) + "</tr>" for row in item.rows)
    return f"{title}<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
