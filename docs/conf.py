"""Settings of the documentation site: `sphinx-build -W --keep-going -b html docs docs/_build/html`."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

import tercet

project = "tercet"
author = "The tercet developers"
copyright = author  # Sphinx's name for it
version = release = tercet.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build", "decisions/README.md"]  # included by decisions.md
smartquotes = False  # a prime is a prime
html_theme = "furo"
html_math_renderer = "mathml"
html_title = f"tercet {release}"
html_static_path = ["_static"]
html_css_files = ["narrow.css"]
html_copy_source = False

myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = ["math"]  # the fence of a plain Git host
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
# The pages of the adaptors are also built where their libraries are not installed.
autodoc_mock_imports = [name for name in ("torch", "optimistix", "equinox") if find_spec(name) is None]


def marked_up(text: str) -> str:
    """A paragraph of plain text with `code` as reStructuredText, to which |x|, x_i and *args would be markup."""
    words = re.split(r"`([^`]+)`", " ".join(text.split()))
    words[::2] = [re.sub(r"([\\*|_`])", r"\\\1", word) for word in words[::2]]
    words[1::2] = [rf"\ ``{word}``\ " for word in words[1::2]]
    return "".join(words)


def paragraphs(lines: list[str]) -> list[str]:
    """The docstring's paragraphs; one that is indented is a formula or code and stays as it is."""
    found = []
    for text in re.split(r"\n\s*\n", "\n".join(lines).strip("\n")):
        found += ["::", "", *text.split("\n"), ""] if text.startswith(" ") else [marked_up(text), ""]
    return found


def process_docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text for `help`; here they become reStructuredText. Pages introduce modules themselves."""
    lines[:] = [] if what == "module" else paragraphs(lines)


def visit_math(writer: Any, node: Any) -> None:
    """A formula as MathML, which browsers show by themselves: the pages need no network."""
    formula, warn = node.astext(), logging.getLogger(__name__).warning
    if re.search(r"(\\frac|\\sqrt|[\^_])\d\d", formula):  # TeX takes one digit, the converter all of them
        warn("formula %r: put the digits of a fraction or an index in braces", formula, location=node)
    try:
        text = tex2mathml(formula, as_block=isinstance(node, nodes.math_block))
        # Bars are the sides of a norm; browsers take them for operators between two things, and space them so.
        writer.body.append(re.sub(r"<mo[^>]*>([|‖])</mo>", r'<mo lspace="0" rspace="0" stretchy="false">\1</mo>', text))
    except MathError as error:
        warn("formula %r: %s", formula, error, location=node)
    raise nodes.SkipNode


def setup(app: Any) -> None:
    """Tell Sphinx."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math, None))
    app.connect("autodoc-process-docstring", process_docstring)
