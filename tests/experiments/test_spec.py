"""A comparison from TOML or flags: what is right is read, what is wrong is refused with its line and key."""

import pytest

from tercet.experiments import spec

WHOLE = """\
title = "mine"
data = ["digits", "a9a:4000", "own data"]
l2 = [1e-3, "1e-3/n", 0]
starts = ["0", "N", "3N"]
seeds = 4
methods = ["STM", "Mine", "SGD"]
max_epochs = 50
max_seconds = 2.5

[files]
"own data" = "own.txt"

[own.Mine]
use = "SGD"
settings = { batch = 0.5 }
grid = { step = [0.1, 1.0] }

[own.Fixed]
use = "tercet:SCR"
"""


def write(folder, text):
    (folder / "own.txt").write_text("1 1:1\n2 1:2\n")
    path = folder / "compare.toml"
    path.write_text(text)
    return path


def test_a_whole_file_is_read(tmp_path):
    c = spec.read(write(tmp_path, WHOLE))
    assert c.data == ("digits", "a9a:4000", "own data")
    assert c.l2 == ("0.001", "0.001/n", "0.0")
    assert c.starts == ("0", "N", "3N")
    assert (c.seeds, c.max_epochs, c.max_seconds, c.title) == (4, 50.0, 2.5, "mine")
    assert [plan.label for plan in c.methods] == ["STM", "Mine", "SGD", "Fixed"]
    mine = c.methods[1]
    assert [choice.settings for choice in mine.choices()] == [
        {"batch": 0.5, "step": 0.1},
        {"batch": 0.5, "step": 1.0},
    ]
    assert c.files == (("own data", str(tmp_path / "own.txt")),)
    assert str(tmp_path) not in str(c.as_json())  # what is stored does not depend on where the files lie


def test_defaults_are_ten_seeds_of_random_starts():
    c = spec.located(None, {"data": ["digits"]})
    assert (c.seeds, c.starts, c.l2, c.max_seconds) == (10, ("N",), ("0.001",), None)
    assert "STM" in [plan.label for plan in c.methods]


def test_flags_go_before_the_file(tmp_path):
    c = spec.located(write(tmp_path, WHOLE), {"seeds": 2, "l2": ["1e-2"]})
    assert (c.seeds, c.l2, c.max_epochs) == (2, ("0.01",), 50.0)


@pytest.mark.parametrize(("text", "n", "l2"), [("0.001", 10, 1e-3), ("0.001/n", 32561, 1e-3 / 32561), ("0/n", 5, 0.0)])
def test_lambda_beside_the_sum_is_lambda_over_n_beside_the_mean(text, n, l2):
    value, note = spec.penalty(text, n)
    assert value == l2
    assert (note == "") == ("/" not in text)
    if text == "0.001/n":
        assert note == "0.001 on the sum = 3.07e-08 on the mean"


def test_the_conversion_of_lambda_is_exact_on_the_papers_objective():
    import numpy as np

    import tercet

    rng = np.random.default_rng(0)
    X, y, x, lam = rng.standard_normal((50, 4)), np.arange(50) % 2.0, rng.standard_normal(4), 0.1
    total = 0.5 * np.sum((1 / (1 + np.exp(-X @ x)) - y) ** 2) + lam / 2 * x @ x  # as the paper prints it
    l2, _ = spec.penalty("0.1/n", 50)
    assert 50 * tercet.LinearModel(X, y, l2=l2).over(None).at(x).value() == pytest.approx(total, rel=1e-14)


# text with one thing wrong: the line and the key that the refusal has to name, and a word of it
WRONG = {
    "syntax": ('data = ["digits"]\nseeds = = 3\n', 2, "seeds", "Invalid value"),
    "unclosed": ('seeds = 3\ndata = ["digits"\n', 2, "data", "nclosed"),
    "duplicate": ('data = ["digits"]\nseeds = 1\nseeds = 2\n', 3, "seeds", "overwrite"),
    "unknown key": ('data = ["digits"]\nsedes = 3\n', 2, "sedes", "seeds"),
    "unknown data": ('seeds = 1\ndata = ["digit"]\n', 2, "data", "digits"),
    "a file where a name is expected": ('seeds = 1\ndata = ["mine.txt"]\n', 2, "data", "--data NAME=FILE"),
    "unknown method": ('data = ["digits"]\n\n# a comment\nmethods = ["SMT"]\n', 4, "methods", "STM"),
    "unknown loss": ('data = ["digits"]\nloss = "logistik"\n', 2, "loss", "logistic"),
    "bad penalty": ('data = ["digits"]\nl2 = [1e-3, "x/n"]\n', 2, "l2", "number/n"),
    "negative penalty": ('data = ["digits"]\nl2 = -1\n', 2, "l2", "at least 0"),
    "bad start": ('data = ["digits"]\nstarts = ["U"]\n', 2, "starts", "3N"),
    "no seeds": ('data = ["digits"]\nseeds = 0\n', 2, "seeds", "at least 1"),
    "seeds of another kind": ('data = ["digits"]\nseeds = true\n', 2, "seeds", "whole number"),
    "bad budget": ('data = ["digits"]\nmax_epochs = -3\n', 2, "max_epochs", "positive"),
    "infinite budget": ('data = ["digits"]\nmax_seconds = inf\n', 2, "max_seconds", "positive"),
    "twice": ('data = ["digits", "digits"]\n', 1, "data", "twice"),
    "no data": ("seeds = 3\n", 1, "data", "at least one"),
    "data of another kind": ("data = [3]\n", 1, "data", "quotes"),
    "file that is not there": ('data = ["m"]\n[files]\nm = "no.txt"\n', 3, "files.m", "no file"),
    "name of the catalogue": ('data = ["a9a"]\n[files]\na9a = "own.txt"\n', 3, "files.a9a", "another name"),
    "files of another kind": ('data = ["digits"]\nfiles = 3\n', 2, "files", "table"),
    "own without use": ('data = ["digits"]\n[own.A]\nsettings = {}\n', 2, "own.A.use", "module:attribute"),
    "own key": ('data = ["digits"]\n[own.A]\nuse = "SGD"\nsetings = {}\n', 4, "own.A.setings", "settings"),
    "own of another kind": ('data = ["digits"]\n[own]\nA = 3\n', 3, "own.A", "table"),
    "own settings": ('data = ["digits"]\n[own.A]\nuse = "SGD"\nsettings = 3\n', 4, "own.A.settings", "table"),
    "own grid": ('data = ["digits"]\n[own.A]\nuse = "SGD"\ngrid = { step = 3 }\n', 4, "own.A.grid.step", "list"),
    "own kind": ('data = ["digits"]\n[own.A]\nuse = "SGD"\nkind = "scipi"\n', 4, "own.A.kind", "scipy"),
    "module": ('data = ["digits"]\n[own.A]\nuse = "no_such_module:f"\n', 3, "own.A.use", "cannot be imported"),
    "attribute": ('data = ["digits"]\n[own.A]\nuse = "tercet:STN"\n', 3, "own.A.use", "STM"),
    "bad settings": ('data = ["digits"]\n[own.A]\nuse = "SGD"\nsettings = { stp = 1 }\n', 3, "own.A.use", "stp"),
    "bad value": ('data = ["digits"]\n[own.A]\nuse = "SGD"\nsettings = { step = -1 }\n', 3, "own.A.use", "positive"),
    "not a method": ('data = ["digits"]\n[own.A]\nuse = "tercet:Full"\n', 3, "own.A.use", "no kernel"),
    "huge grid": (
        f'data = ["digits"]\n[own.A]\nuse = "SGD"\ngrid = {{ step = {[0.1] * 40}, batch = {[0.1] * 40} }}\n',
        4, "own.A.grid", "1000",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused_with_line_and_key(name, tmp_path):
    text, line, key, word = WRONG[name]
    path = write(tmp_path, text)
    with pytest.raises(ValueError, match=r"\w") as caught:
        spec.read(path)
    told = str(caught.value)
    assert told.startswith(f"{path}:{line}")
    assert f"{key}:" in told
    assert word in told
    assert "\n" not in told


def test_a_file_that_is_no_text_is_refused_with_its_line(tmp_path):
    path = tmp_path / "x.toml"
    path.write_bytes(b"seeds = 3\ntitle = '\xff'\n")
    with pytest.raises(ValueError, match=r"x\.toml:2: not UTF-8"):
        spec.read(path)


def test_a_wrong_flag_is_named_as_a_flag(tmp_path):
    with pytest.raises(ValueError, match=r"^--methods: unknown method 'SRC'.*SCR"):
        spec.located(write(tmp_path, WHOLE), {"methods": ["SRC"]})
    with pytest.raises(ValueError, match=r"^--max-epochs: -1"):
        spec.located(None, {"data": ["digits"], "max_epochs": -1})


def test_lines_are_found_through_tables_and_inline_tables():
    text = 'a = 1\n[own.X]\nuse = "1"\n\n[own."Y z"]\nuse = "2"\ngrid = { step = [1] }\n'
    assert spec.line_of(text, ("own", "X", "use")) == 3
    assert spec.line_of(text, ("own", "Y z", "use")) == 6
    assert spec.line_of(text, ("own", "Y z", "grid", "step")) == 7
    assert spec.line_of(text, ("own", "Y z", "kind")) == 5
    assert spec.line_of(text, ("nothing",)) == 1
