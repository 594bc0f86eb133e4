"""The documentation: its code runs, its links lead somewhere, every public name is in it, and it builds."""

import argparse
import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest

import tercet
from tercet.cli import parser
from tercet.experiments import methods, spec

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(p for p in DOCS.rglob("*.md") if "_build" not in p.parts)]
OTHERS = [ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "examples/README.md", ROOT / "benchopt/README.md"]
NEEDS = {
    "docs/get_started.md": ["jax"],
    "docs/certificate.md": ["jax"],
    "docs/statistics.md": ["jax"],
    "docs/many_starts.md": ["jax"],
    "docs/examples.md": ["jax"],
    "docs/fitting.md": ["jax", "sklearn"],
    "docs/networks.md": ["jax"],
    "docs/scale.md": ["distributed", "sklearn", "jax"],
    "docs/adaptors.md": ["sklearn", "jax", "optimistix", "torch"],
    "docs/jax.md": ["jax"],
    "docs/pytorch.md": ["torch"],
    "docs/status.md": ["jax"],
    "docs/gallery/table.md": ["sklearn", "pandas", "matplotlib"],
    "docs/gallery/outliers.md": ["matplotlib"],
    "docs/gallery/skew.md": ["jax", "matplotlib"],
    "docs/gallery/curve.md": ["jax", "matplotlib"],
    "docs/gallery/minima.md": ["jax", "matplotlib"],
}
LANGUAGES = {"python", "sh", "text", "toml", "math", "bibtex", "{toctree}", "{eval-rst}", "{include}"}
EXTERNAL = {"https://benchopt.github.io"}  # they cannot be followed in a test; here they are seen
PUBLIC = (
    "tercet",
    "tercet.theory",
    "tercet.datasets",
    "tercet.scipy",
    "tercet.sklearn",
    "tercet.optimistix",
    "tercet.torch",
    "tercet.dask",
)
LIBRARIES = {
    "tercet.sklearn": "sklearn",
    "tercet.optimistix": "optimistix",
    "tercet.torch": "torch",
    "tercet.dask": "distributed",
}


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def fences(path):
    """(language, text) of every fenced block."""
    text = path.read_text(encoding="utf-8")
    return re.findall(r"^```([^\n]*)\n(.*?)^```[ ]*$", text, flags=re.DOTALL | re.MULTILINE)


def blocks(path):
    return [text for language, text in fences(path) if language == "python"]


@pytest.fixture(scope="module")
def execute():
    return loaded("execute")


@pytest.fixture(scope="module")
def notebooks(execute):
    return loaded("notebooks")  # which takes that one


def loaded(name):
    """A script of the documentation as a module."""
    found = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(found)  # dataclasses look themselves up there
    found.loader.exec_module(module)
    return module


def public(module):
    """The public names of a module with what they stand for."""
    if module in LIBRARIES:
        pytest.importorskip(LIBRARIES[module])
    loaded = importlib.import_module(module)
    return {name: getattr(loaded, name) for name in loaded.__all__}


GALLERY = sorted(p for p in (DOCS / "gallery").glob("*.md") if blocks(p))


@pytest.mark.parametrize("path", [p for p in PAGES if blocks(p) and p not in GALLERY], ids=name_of)
def test_the_code_of_a_page_runs_from_its_top_and_prints_what_the_page_shows(path, execute):
    for library in NEEDS.get(name_of(path), []):
        pytest.importorskip(library)
    made = 0
    for block, output, _ in execute.run(path):
        made += 1
        if block["output"] is not None:
            assert execute.skeleton(output) == execute.skeleton(block["output"])
    assert made == len(blocks(path))


@pytest.mark.parametrize("path", GALLERY, ids=name_of)
def test_the_notebook_of_a_page_is_the_page_runs_prints_what_is_shown_and_draws(path, notebooks, execute):
    for library in NEEDS[name_of(path)]:
        pytest.importorskip(library)
    file = notebooks.target(path)
    assert file.read_text("utf-8") == notebooks.dump(path)  # else: python docs/notebooks.py
    assert file.name in path.read_text("utf-8")
    made = 0
    for cell, output, shown in notebooks.run(file):
        made += 1
        printed = ["".join(each["text"]) for each in cell["outputs"] if each["output_type"] == "stream"]
        assert [execute.skeleton(output)] == [*map(execute.skeleton, printed)] or not (output or printed)
        drawn = any("image/png" in each.get("data", {}) for each in cell["outputs"])
        assert drawn is (shown is not None)
    assert made == len(blocks(path))


def test_every_page_of_the_gallery_has_a_notebook_and_nothing_else_has(notebooks):
    assert notebooks.pages() == GALLERY
    assert sorted((DOCS / "_static" / "gallery").glob("*.ipynb")) == [notebooks.target(page) for page in GALLERY]


def test_a_notebook_has_the_fields_that_jupyter_asks_for(notebooks):
    for page in GALLERY:
        made = notebooks.notebook(page)
        assert (made["nbformat"], made["nbformat_minor"]) == (4, 4)
        for cell in made["cells"]:
            outside = {"outputs", "execution_count"} if cell["cell_type"] == "code" else set()
            assert set(cell) == {"cell_type", "metadata", "source", *outside}
            assert "".join(cell["source"]).strip()
            assert ".md" not in "".join(cell["source"]) or cell["cell_type"] == "code"


def test_what_is_compared_of_output_is_words_not_digits(execute):
    assert execute.skeleton("f  -1.5e-08,\n---\nx [nan 2.]") == execute.skeleton("f 3.25,\n-----\nx [0.5 1.]")
    assert execute.skeleton("certified 3") != execute.skeleton("failed 3")
    assert [page.name for page in execute.pages() if page.name == "verdicts.md"] == ["verdicts.md"]


def test_every_status_has_a_row_that_says_what_to_do():
    rows = re.findall(r"^\| `([A-Z_]+)` \|(.+)\|(.+)\|$", (DOCS / "status.md").read_text("utf-8"), flags=re.MULTILINE)
    assert [name for name, _, _ in rows] == [status.name for status in tercet.Status]
    assert all(happened.strip() and advice.strip() for _, happened, advice in rows)


def test_the_file_of_compare_is_one_and_names_every_key(tmp_path):
    text = (DOCS / "compare.md").read_text("utf-8")
    (shown,) = [block for language, block in fences(DOCS / "compare.md") if language == "toml"]
    (tmp_path / "train.txt").write_text("1 1:0.5\n0 1:0.25\n")
    without_module = shown.replace('use = "mine:Theirs"', 'use = "SCR"').replace('kind = "method" ', "")
    (tmp_path / "comparison.toml").write_text(without_module)
    comparison = spec.read(tmp_path / "comparison.toml")
    assert [plan.label for plan in comparison.methods][-2:] == ["Wide", "Theirs"]
    assert set(spec.KEYS) == set(re.findall(r"^(\w+) =", shown.partition("\n[files]")[0], flags=re.MULTILINE)) | {
        "files",
        "own",
    }
    for name in (*spec.KEYS, *methods.CATALOGUE, *spec.OWN_KEYS):
        assert re.search(rf"(?<![\w-]){name}(?![\w-])", text), name


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_no_code_hides_under_another_language(path):
    assert {language.split()[0] if language else "" for language, _ in fences(path)} <= LANGUAGES


@pytest.mark.parametrize("path", [*PAGES, *OTHERS], ids=name_of)
def test_links_in_markdown_lead_to_files_that_are_there(path):
    prose = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "`code`", prose)):
        link = urlsplit(target)
        if link.scheme:
            assert target in EXTERNAL
            assert link.scheme == "https"
            assert "." in link.netloc
        elif link.path:
            assert (path.parent / unquote(link.path)).exists(), target


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_says_what_it_is(module):
    for name, thing in public(module).items():
        assert inspect.getdoc(thing), name
        assert inspect.getdoc(thing) != inspect.getdoc(object), name


def options(command):
    """All commands below a parser, each with its options."""
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield name, [s for a in below._actions for s in a.option_strings if s not in ("-h", "--help")]
                yield from options(below)


def test_every_command_and_option_is_on_its_page():
    text = (DOCS / "api" / "command.md").read_text(encoding="utf-8")
    for command, names in options(parser()):
        assert re.search(rf"`tercet (theory )?{command}\b|tercet {command} ", text), command
        rows = [row for row in text.splitlines() if re.match(r"\| `-", row)]
        for name in names:
            assert any(f"`{name}`" in row for row in rows), f"{command} {name}"


class Links(HTMLParser):
    """The targets and anchors of one page."""

    def __init__(self, path):
        super().__init__()
        self.hrefs, self.ids = [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if found.get("id"):
            self.ids.add(found["id"])
        if tag == "a" and found.get("href"):
            self.hrefs.append(found["href"])


def missing_targets(site):
    """Links of the built site to files or anchors that are not there."""
    pages = {path: Links(path) for path in site.rglob("*.html")}
    for path, page in pages.items():
        for href in page.hrefs:
            link = urlsplit(href)
            target = (path.parent / unquote(link.path)).resolve() if link.path else path
            if link.scheme:
                if link.scheme != "https" or "." not in link.netloc:
                    yield f"{path.name}: {href}"
            elif not target.exists() or (link.fragment and target in pages and link.fragment not in pages[target].ids):
                yield f"{path.name}: {href}"


def test_the_site_builds_without_a_warning_and_has_every_public_name(tmp_path):
    """One build serves all questions: it takes some seconds."""
    for library in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(library)
    from sphinx.util.inventory import InventoryFile

    site = tmp_path / "html"
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", str(tmp_path / "trees")]
    run = subprocess.run([*command, str(DOCS), str(site)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    assert list(missing_targets(site.resolve())) == []

    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="").data
    documented = {name for kind, names in inventory.items() if kind.startswith("py:") for name in names}
    for module in PUBLIC:
        if module in LIBRARIES and importlib.util.find_spec(LIBRARIES[module]) is None:
            continue
        for name, thing in public(module).items():
            home = f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', '')}"
            assert {f"{module}.{name}", home} & documented, f"{module}.{name}"


def test_the_check_of_links_sees_what_is_missing(tmp_path):
    (tmp_path / "a.html").write_text('<a href="b.html#here">x</a><a href="b.html#gone">x</a><a href="c.html">x</a>')
    (tmp_path / "b.html").write_text('<p id="here"></p><a href="https://nowhere">x</a>')
    found = sorted(missing_targets(tmp_path.resolve()))
    assert found == ["a.html: b.html#gone", "a.html: c.html", "b.html: https://nowhere"]


def test_the_citation_names_paper_and_version():
    yaml = pytest.importorskip("yaml")
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(found["version"]) == tercet.__version__
    assert found["authors"] == [{"name": "The tercet developers"}]
    assert [person["family-names"] for person in found["preferred-citation"]["authors"]] == ["Lucchi", "Kohler"]
    assert f"{{{tercet.__version__}}}" in (DOCS / "cite.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def cases():
    pytest.importorskip("matplotlib")
    return {case.title: case for case in loaded("figures").CASES}


def test_derivatives_of_the_pictured_functions(cases):
    for case in cases.values():
        tercet.minimize(
            case.fun, np.array([0.7, -0.4]), grad=case.grad, hess=case.hess, third=case.third,
            max_iterations=0, check_derivatives=True,
        )  # fmt: skip


@pytest.mark.parametrize("title", ["saddle", "degenerate saddle"])
def test_what_the_certificate_page_says_of_saddles(cases, title):
    case = cases[title]
    for peer in case.peers().values():
        assert peer.success
        np.testing.assert_allclose(peer.x, 0, atol=1e-6)
    there = case.run(np.zeros(2), max_iterations=0).certificate
    assert (there.chi1, there.chi2) == ((0, 1) if title == "saddle" else (0, 0))
    assert title == "saddle" or there.chi3 == pytest.approx(2)
    assert not there.holds
    assert case.run(case.start).success
    np.testing.assert_allclose(case.path[-1], [0, -1], atol=1e-6)


def test_what_the_certificate_page_says_of_the_degenerate_minimum(cases):
    case = cases["degenerate minimum"]
    last = case.run(case.start).certificate
    assert last.holds
    assert last.rises
    assert last.strict
    for peer in case.peers().values():
        assert abs(peer.x[1]) > 10 * abs(case.path[-1][1])
