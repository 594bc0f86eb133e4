"""docs/reproduction.md comes from the stored runs alone, with the verdict first."""

import re

import pytest

from tercet.experiments import document, stored, words
from tercet.experiments.summary import cost_table
from tests.experiments.stores import record, small_store, write_store

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("document")
    return small_store(folder), document.write(folder / "store", folder / "docs" / "reproduction.md")


def test_the_first_paragraph_is_the_verdict(made):
    folder, page = made
    first = page.read_text().split("\n\n")[1]
    assert first == words.story(stored.read(folder)).lead
    assert first.startswith("The claim that STM needs fewer oracle calls than SCR and SGD")


def test_its_figures_are_beside_it(made):
    _, page = made
    images = re.findall(r"!\[[^]]+\]\(([^)]+)\)", page.read_text())
    assert len(images) == 2
    assert all((page.parent / image).is_file() for image in images)


def test_its_tables_hold_the_stored_costs(made):
    folder, page = made
    text = page.read_text()
    for problem in stored.read(folder).problems:
        section = text.split(f"### {problem.name}")[1].split("\n### ")[0]
        cells = cost_table(problem, "seconds")["SCR"]
        rows = [line for line in section.splitlines() if line.startswith("| SCR |")]
        assert [words.plus_minus(s) for s in cells] == [cell.strip(" *★") for cell in rows[2].split("|")[2:-1]]


def test_it_can_be_written_again_to_the_same_bytes(made):
    folder, page = made
    before = page.read_bytes()
    assert document.write(folder, page).read_bytes() == before


def test_where_stm_needs_more_the_reason_is_given(tmp_path):
    runs = [record("a", 1e-3, "N", s, m) for s in range(2) for m in ("STM", "SCR", "SGD")]
    for run in runs:
        if run["family"] == "STM":
            run["trace"]["third"] = [50 * t for t in run["trace"]["third"]]
    text = document.text(stored.read(write_store(tmp_path, runs)), {})
    assert "### Where it does not, and why" in text
    assert re.search(
        r"STM takes [\d.]+ iterations and [\d.]+ epochs, [\d.]+ of them third derivatives; SCR takes", text
    )
    assert "benchmarks.degenerate" in text


def test_names_cannot_break_the_tables():
    assert document.clean("a|b\n<script>[x](y)`") == "a\\|b &lt;script>\\[x](y)\\`"


def test_the_command_writes_and_refuses(made, tmp_path, capsys):
    folder, _ = made
    assert document.main([str(folder), str(tmp_path / "page.md")]) == 0
    assert document.main([str(tmp_path / "nothing"), str(tmp_path / "page.md")]) == 2
    assert "comparison.json" in capsys.readouterr().err
