"""The paper's protocol as it is stated, and the two commands as a user meets them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tercet import cli
from tercet.datasets import about
from tercet.experiments import methods, reproduce, spec, store

SMALL = ["--data", "degenerate:256", "--l2", "0", "--seeds", "1", "--max-epochs", "10", "--jobs", "1"]


@pytest.fixture
def pages(monkeypatch):
    """The report's part, stood in for; it notes what it was asked for."""
    from tercet.experiments import report

    asked = []

    def write(folder):
        asked.append(Path(folder))
        return Path(folder) / "report.html"

    monkeypatch.setattr(report, "write", write)
    return asked


def call(capsys, *words):
    code = cli.main([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_full_protocol_is_the_papers():
    c = reproduce.protocol()
    assert set(c.data) == {"a9a", "covtype", "svmguide3"}
    assert [(about(name).n, about(name).d) for name in ("a9a", "covtype", "svmguide3")] == [
        (32561, 123),
        (581012, 54),
        (1243, 21),
    ]
    assert (c.seeds, c.starts) == (10, ("N",))
    assert set(c.l2) == {"0.001/n", "0.1/n", "0.001"}
    labels = [plan.label for plan in c.methods]
    assert {"STM", "SCR", "STM-paper", "SCR-paper", "SGD"} <= set(labels)
    assert c.loss == ""  # the data sets' own: the paper's
    assert c.max_seconds is None  # so that runs do not depend on the machine
    assert len(c.data) * len(c.l2) * c.seeds * len(labels) >= 300
    grids = {plan.label: len(list(plan.choices())) for plan in c.methods}
    assert (grids["SGD"], grids["STM-paper"], grids["SCR-paper"], grids["STM"]) == (15, 5, 5, 0)


def test_the_quick_protocol_is_the_same_on_less_data():
    full, quick = reproduce.protocol(), reproduce.protocol(quick=True)
    assert quick.data == ("svmguide3", "a9a:4000")
    less = {"data": (), "max_epochs": 0, "tune_seeds": 0, "title": ""}
    assert replace(quick, **less) == replace(full, **less)


def test_with_all_methods_it_is_the_same_protocol_for_every_one_of_the_catalogue():
    plain, everything = reproduce.protocol(), reproduce.protocol(everything=True)
    assert everything.methods[: len(plain.methods)] == plain.methods
    assert sorted(plan.label for plan in everything.methods) == sorted(methods.CATALOGUE)
    assert replace(everything, methods=plain.methods, title=plain.title) == plain


@pytest.mark.parametrize("flags", [["--quick"], [], ["--quick", "--all"], ["--all"]], ids=str)
def test_reproduce_runs_the_protocol_and_names_the_report(flags, pages, monkeypatch, tmp_path, capsys):
    small = spec.located(None, {"data": ["degenerate:256"], "l2": [0], "seeds": 1, "methods": ["STM"], "max_epochs": 5})
    asked = []
    monkeypatch.setattr(reproduce, "protocol", lambda *asks: (asked.append(asks), small)[1])
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capsys, "reproduce", *flags)
    folder = Path("".join(["reproduction", *(flag[1:] for flag in flags)]))
    assert (code, asked, pages, err) == (0, [("--quick" in flags, "--all" in flags)], [folder], "")
    assert out.splitlines() == [f"1 runs in {folder}", f"report: {folder / 'report.html'}"]


def test_reproduce_without_data_says_how_to_get_it(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("tercet.datasets.catalogue.folders", lambda data_dir: iter(()))
    code, out, err = call(capsys, "reproduce", "--quick", "--out", tmp_path / "out")
    assert (code, out) == (2, "")
    assert all(word in err for word in ("svmguide3", "--data-dir", "TERCET_DATA", "--download"))
    assert err.count("\n") == 1


def test_compare_by_flags_stores_runs_and_names_the_report(pages, tmp_path, capsys):
    code, out, err = call(capsys, "compare", *SMALL, "--methods", "STM,SCR", "--out", tmp_path / "out")
    assert (code, err) == (0, "")
    assert f"report: {tmp_path / 'out' / 'report.html'}" in out
    assert sorted(record["key"]["method"] for record in store.read(tmp_path / "out")) == ["SCR", "STM"]
    code, out, _ = call(capsys, "compare", "--report-only", "--out", tmp_path / "out")
    assert code == 0
    assert pages == [tmp_path / "out"] * 2


def test_compare_by_file_finds_methods_beside_it(pages, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.path", list(__import__("sys").path))
    (tmp_path / "beside_the_file.py").write_text("import tercet\nmine = tercet.SGD(batch=0.1, step=0.01)\n")
    path = tmp_path / "c.toml"
    path.write_text(
        'data = ["degenerate:256"]\nl2 = 0\nseeds = 1\nmax_epochs = 2\nmethods = ["STM"]\n'
        '[own."<script>"]\nuse = "beside_the_file:mine"\n'
    )
    code, _, err = call(capsys, "compare", path, "--out", tmp_path / "out", "--jobs", "1")
    assert (code, err) == (0, "")
    families = {record["key"]["method"]: record["family"] for record in store.read(tmp_path / "out")}
    assert families == {"STM": "STM", "<script>": "own"}


def test_compare_takes_a_file_of_the_users_own_by_a_flag(pages, tmp_path, capsys):
    path = tmp_path / "mine.txt"
    path.write_text("".join(f"{i % 2} 1:{i % 7} 2:{i % 5}\n" for i in range(40)))
    words = ["--l2", "1e-2", "--seeds", "1", "--methods", "STM", "--jobs", "1"]
    code, _, err = call(capsys, "compare", "--data", f"mine={path}", *words, "--out", tmp_path / "out")
    assert (code, err) == (0, "")
    assert store.read(tmp_path / "out")[0]["key"]["dataset"] == "mine"


def test_figures_are_written_when_asked_for(pages, tmp_path, capsys, monkeypatch):
    import sys
    import types

    figures = types.ModuleType("tercet.experiments.figures")
    figures.write = lambda folder: [Path(folder) / "gap.png"]
    monkeypatch.setitem(sys.modules, "tercet.experiments.figures", figures)
    monkeypatch.setattr("tercet.experiments.figures", figures, raising=False)
    code, out, _ = call(capsys, "compare", *SMALL, "--methods", "STM", "--out", tmp_path, "--figures")
    assert code == 0
    assert str(tmp_path / "gap.png") in out


BAD = {
    "nothing to compare": (["compare"], "--data"),
    "unknown data": (["compare", "--data", "a9b"], "a9a"),
    "unknown method": (["compare", "--data", "digits", "--methods", "STN"], "STM"),
    "no such file": (["compare", "nowhere.toml"], "nowhere.toml"),
    "broken file": (["compare", "BROKEN"], "broken.toml:2"),
    "no comparison there": (["compare", "--report-only", "--out", "NOWHERE"], "holds no comparison"),
    "no jobs": (["compare", *SMALL[:-1], "0"], "jobs=0"),
    "a file for a folder": (["compare", *SMALL, "--out", "BROKEN"], "not a folder"),
    "no data folder": (["compare", "--data", "a9a", "--data-dir", "NOWHERE"], "not a folder"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_exit_code_2(name, pages, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.toml").write_text('data = ["digits"]\nseeds = \n')
    words, named = BAD[name]
    places = {"BROKEN": tmp_path / "broken.toml", "NOWHERE": tmp_path / "nowhere"}
    code, out, err = call(capsys, *(places.get(word, word) for word in words))
    assert (code, out) == (2, "")
    assert named in err
    assert err.count("\n") == 1
    assert pages == []


def test_settings_are_kept_as_plain_json(pages, tmp_path, capsys):
    call(capsys, "compare", *SMALL, "--methods", "SGD", "--out", tmp_path / "out")
    settings = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert settings["format"] == 1
    assert settings["methods"][0]["grid"]["batch"] == [0.01, 0.05, 0.1]
    assert settings["data_info"]["degenerate:256"]["license"]
