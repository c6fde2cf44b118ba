"""Templates of the committed pages."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined


def render(template: str, **values: object) -> str:
    """A template of this package. Raises jinja2.UndefinedError for a name that has no value."""
    templates = Environment(
        loader=PackageLoader("racegate.report"),
        autoescape=template.endswith(".html.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return templates.get_template(template).render(**values)
