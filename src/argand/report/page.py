"""report.page: the HTML of a report, rendered from its JSON alone. One file: no network, no other files."""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Mapping
from typing import Any, Final

_FOLDER: Final = "template"


def milliseconds(value: float | None) -> str:
    """A time as people say it."""
    if value is None:
        return "–"
    if value >= 1000:
        return f"{value / 1000:.2f} s"
    return (
        f"{value:.0f} ms"
        if value >= 100
        else f"{value:.2f} ms"
        if value >= 0.1
        else f"{value * 1000:.1f} µs"
    )


def bytes_text(value: float | None) -> str:
    """A number of bytes as people say it."""
    if not value:
        return "–"
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return ""


def percent(value: float | None) -> str:
    """A share."""
    return "–" if value is None else f"{value:.0%}" if value >= 0.01 else f"{value:.1%}"


def embedded(value: Any) -> str:
    """JSON that can stand inside of a script element."""
    return (
        json.dumps(value, separators=(",", ":"))
        .replace("<", "\\u003c")
        .replace("\u2028", "\\u2028")
    )


def _read(name: str) -> str:
    return (importlib.resources.files("argand.report") / _FOLDER / name).read_text(encoding="utf-8")


def render(data: Mapping[str, Any]) -> str:
    """The page."""
    import jinja2  # noqa: PLC0415  # torch needs it as well; only who renders pays for it

    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {"ms": milliseconds, "bytes": bytes_text, "percent": percent}
    drawn = {key: data[key] for key in ("texts", "timeline", "memory", "program")}
    template = environment.from_string(_read("page.html.j2"))
    return template.render(
        data, style=_read("style.css"), script=_read("page.js"), embedded=embedded(drawn)
    )
