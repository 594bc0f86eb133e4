"""`tercet theory`: the inputs, the numbers and the formula, for people and for machines."""

import json

import pytest

from tercet import cli, theory


def call(capsys, *arguments):
    code = cli.main(["theory", *(str(argument) for argument in arguments)])
    out, err = capsys.readouterr()
    return code, out, err


SIZE = ("sample-size", "-d", 123, "-N", 32561, "--bound", 1.0)


def test_any_two_of_size_accuracy_and_failure_give_the_third(capsys):
    tail = theory.vector_tail(123, 1.0, 32561)
    code, out, _ = call(capsys, *SIZE, "-t", 0.05, "--delta", 0.05, "--json")
    assert code == 0
    n = json.loads(out)["n"]
    assert n == tail.size(0.05, 0.05)
    _, out, _ = call(capsys, *SIZE, "-t", 0.05, "-n", n, "--json")
    assert json.loads(out)["delta"] == tail.failure(n, 0.05)
    _, out, _ = call(capsys, *SIZE, "--delta", 0.05, "-n", n, "--json")
    answer = json.loads(out)
    assert answer["t"] == tail.accuracy(n, 0.05)
    assert answer["computed"] == "t"
    assert answer["inputs"]["d"] == 123
    assert answer["formula"] == tail.formula


def test_the_table_shows_inputs_numbers_and_formula(capsys):
    code, out, err = call(capsys, *SIZE, "-t", 0.05, "--delta", 0.05)
    assert (code, err) == (0, "")
    for part in ("32561", "delta", "formula", "exp(-n t^2", "5246"):
        assert part in out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--kind", "matrix", "--bound", 1), lambda: theory.matrix_tail(9, 1.0, 500)),
        (("--kind", "matrix", "--width", 1), lambda: theory.matrix_tail(9, N=500, width=1.0)),
        (("--kind", "tensor", "--width", 1), lambda: theory.tensor_tail(9, 1.0, 500)),
        (
            ("--kind", "tensor", "--width", 1, "--general", "--order", 4),
            lambda: theory.tensor_tail(9, 1.0, 500, symmetric=False, order=4),
        ),
        (("--bound", 1, "--paper"), lambda: theory.vector_tail(9, 1.0, 500, paper=True)),
        (("--bound", 1, "--statement", "corrected"), lambda: theory.vector_tail(9, 1.0, 500, statement="corrected")),
        (("--bound", 1, "--replacement"), lambda: theory.vector_tail(9, 1.0, 500, replacement=True)),
    ],
)
def test_every_kind_of_sample(capsys, arguments, expected):
    code, out, _ = call(capsys, "sample-size", "-d", 9, "-N", 500, *arguments, "-t", 0.3, "--delta", 0.1, "--json")
    assert code == 0
    assert json.loads(out)["n"] == expected().size(0.3, 0.1)


def test_an_observed_variance_asks_for_bernstein(capsys):
    _, out, _ = call(capsys, *SIZE, "-t", 0.05, "--delta", 0.05, "--variance", 0.01, "--json")
    assert json.loads(out)["n"] == theory.vector_bernstein(123, 1.0, 32561).size(0.05, 0.05, 0.01)


def test_sigma_max_is_the_example_of_the_notes_or_infinite_with_its_reason(capsys):
    code, out, _ = call(capsys, "sigma-max", "--lipschitz", 1, "--kappa", 0.01, 0.25, 0.5)
    assert code == 0
    assert "109.705" in out
    _, out, _ = call(capsys, "sigma-max", "--lipschitz", 1, "--json")
    answer = json.loads(out)
    assert answer["value"] is None
    assert "kappa_g is too large" in answer["reason"]
    _, out, _ = call(capsys, "sigma-max", "--lipschitz", 1, "--paper", "--eps", 1e-3)
    assert "empty" in out
    assert "inf" in out


def test_complexity_prints_both_counts_and_the_share_of_delta(capsys):
    arguments = ("complexity", "--lipschitz", 1, "--eps", 1e-2, "--gap", 1, "--kappa", 0.01, 0.25, 0.5)
    _, out, _ = call(capsys, *arguments, "--sigma-min", 0.1, "--json")
    answer = json.loads(out)
    bound = theory.complexity(1e-2, 1.0, 1.0, kappa=(0.01, 0.25, 0.5), sigma_min=0.1)
    assert (answer["successful"], answer["total"]) == (bound.successful, bound.total)
    assert answer["per_iteration"] == bound.per_iteration
    _, out, _ = call(capsys, *arguments[:4], 1e-2, 0.1, "--gap", 1, "--order", 2, "--relative")
    assert "successful" in out


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((*SIZE, "-t", 0.1), "two of -n, -t and --delta"),
        ((*SIZE, "-t", 0.1, "--delta", 2), "delta=2"),
        ((*SIZE, "-t", -1, "--delta", 0.1), "t=-1"),
        ((*SIZE, "-t", 0.1, "-n", 40000), "n=40000"),
        (("sample-size", "-d", 0, "-N", 5, "--bound", 1, "-t", 1, "--delta", 0.1), "d=0"),
        (("sample-size", "-d", 2, "-N", 5, "-t", 1, "--delta", 0.1), "give --bound"),
        (("sample-size", "--kind", "tensor", "-d", 2, "-N", 5, "-t", 1, "--delta", 0.1), "give --width"),
        ((*SIZE, "-t", 1, "--delta", 0.1, "--variance", 1, "--paper"), "no bound of this kind"),
        (("sigma-max", "--lipschitz", "nan"), "lipschitz=nan"),
        (("complexity", "--lipschitz", 1, "--eps", 0, "--gap", 1), "eps=0"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(capsys, arguments, match):
    code, out, err = call(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert match in err
    assert err.count("\n") == 1
