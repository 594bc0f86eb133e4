"""The command line, as a user meets it: exit codes, files, JSON, interruption."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

from tercet import cli

RNG = np.random.default_rng(0)
X = np.round(RNG.standard_normal((400, 5)), 3)
Y = np.where(X @ np.ones(5) + RNG.standard_normal(400) > 0, 3.0, -2.0)


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "train.txt"
    dump_svmlight_file(X, Y, str(path), zero_based=False)
    return str(path)


def call(capsys, *arguments):
    code = cli.main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_fit_shows_a_table_and_says_certified_by_its_exit_code(data, capsys):
    code, out, err = call(capsys, "fit", data, "--l2", "1e-3")
    assert code == 0
    assert "True (certified): the only minimizer nearby" in out
    assert err == ""


def test_fit_predict_and_certify_agree_through_a_model_file(data, tmp_path, capsys):
    model = tmp_path / "model.npz"
    code, out, _ = call(
        capsys, "fit", data, "--l2", "1e-3", "--loss", "logistic", "--intercept", "--out", model, "--json"
    )
    assert code == 0
    fitted = json.loads(out)
    assert fitted["labels"] == {"-2.0": 0, "3.0": 1}
    code, out, _ = call(capsys, "predict", model, data)
    predictions = np.array([float(line) for line in out.split()])
    x = np.array(fitted["x"])
    assert np.array_equal(predictions, np.where(X @ x[:-1] + x[-1] > 0, 3.0, -2.0))
    assert np.mean(predictions == Y) > 0.8
    code, out, _ = call(capsys, "certify", model, data, "--json")
    assert code == 0
    again = json.loads(out)
    assert again["fun"] == fitted["fun"]
    assert again["certificate"]["chi1"] == pytest.approx(fitted["certificate"]["chi1"], abs=1e-14)


def test_probabilities_and_metrics_go_together_and_the_metrics_stay_out_of_a_pipe(data, tmp_path, capsys):
    model = tmp_path / "model.npz"
    assert call(capsys, "fit", data, "--l2", "1e-3", "--loss", "logistic", "--out", model)[0] == 0
    code, out, err = call(capsys, "predict", model, data, "--proba", "--metrics")
    assert code == 0
    p, larger = np.array([float(line) for line in out.split()]), Y == 3.0
    told = {name: float(value) for name, value in map(str.split, err.splitlines())}
    assert told["accuracy"] == pytest.approx(np.mean((p > 0.5) == larger), rel=1e-5)
    assert told["log_loss"] == pytest.approx(-np.mean(np.log(np.where(larger, p, 1 - p))), rel=1e-5)
    both = json.loads(call(capsys, "predict", model, data, "--metrics", "--json")[1])
    assert both["metrics"]["accuracy"] == pytest.approx(told["accuracy"], rel=1e-5)
    other = tmp_path / "other.txt"
    dump_svmlight_file(X, np.where(Y > 0, 7.0, -2.0), str(other), zero_based=False)
    code, _, err = call(capsys, "predict", model, other, "--metrics")
    assert code == 2
    assert "label 7 is none of those of the model" in err


def test_metrics_of_a_regression_are_its_errors(data, tmp_path, capsys):
    model = tmp_path / "model.npz"
    assert call(capsys, "fit", data, "--loss", "squares", "--l2", "1e-3", "--out", model)[0] == 0
    _, out, err = call(capsys, "predict", model, data, "--metrics")
    off = np.array([float(line) for line in out.split()]) - Y
    told = {name: float(value) for name, value in map(str.split, err.splitlines())}
    assert told["rmse"] == pytest.approx(np.sqrt(np.mean(off**2)), rel=1e-5)
    assert told["mae"] == pytest.approx(np.mean(np.abs(off)), rel=1e-5)
    code, _, err = call(capsys, "predict", model, data, "--proba")
    assert code == 2
    assert "squares" in err


def test_a_regression_predicts_numbers(data, tmp_path, capsys):
    model = tmp_path / "model.npz"
    code, _, _ = call(capsys, "fit", data, "--loss", "cauchy", "--scale", "2", "--l2", "1e-3", "--out", model)
    assert code == 0
    _, out, _ = call(capsys, "predict", model, data)
    assert len({float(line) for line in out.split()}) > 100


@pytest.mark.parametrize(
    ("loss", "more"),
    [("poisson", ()), ("negative_binomial", ("--dispersion", "0.3")), ("gamma", ())],
)
def test_a_generalized_linear_model_predicts_means(loss, more, tmp_path, capsys):
    counts = np.floor(np.exp(0.3 * X @ np.ones(5) + 1.0)) + 1.0
    path, model = tmp_path / "counts.txt", tmp_path / "model.npz"
    dump_svmlight_file(X, counts, str(path), zero_based=False)
    code, out, _ = call(capsys, "fit", path, "--loss", loss, "--intercept", *more, "--out", model, "--json")
    assert code == 0
    x = np.array(json.loads(out)["x"])
    _, out, _ = call(capsys, "predict", model, path)
    np.testing.assert_allclose([float(line) for line in out.split()], np.exp(X @ x[:-1] + x[-1]), rtol=1e-12)
    assert call(capsys, "certify", model, path)[0] == 0


def test_a_quantile_from_the_command_line(data, tmp_path, capsys):
    model = tmp_path / "model.npz"
    flags = ("--loss", "smooth_quantile", "--quantile", "0.9", "--scale", "0.1", "--intercept", "--out", model)
    assert call(capsys, "fit", data, *flags)[0] == 0
    _, out, _ = call(capsys, "predict", model, data)
    assert np.mean(np.array([float(line) for line in out.split()]) > Y) == pytest.approx(0.9, abs=0.03)
    code, _, err = call(capsys, "fit", data, "--loss", "logistic", "--quantile", "0.9")
    assert (code, "--quantile 0.9" in err) == (2, True)


@pytest.mark.parametrize("form", ["txt", "npy"])
def test_coefficients_of_another_program_are_certified(form, data, tmp_path, capsys):
    from sklearn.linear_model import LogisticRegression

    other = LogisticRegression(C=1 / (400 * 1e-3), tol=1e-12, max_iter=1000).fit(X, Y > 0)
    x = np.append(other.coef_[0], other.intercept_)
    path = tmp_path / f"theirs.{form}"
    np.save(path, x) if form == "npy" else np.savetxt(path, x)
    flags = ("--loss", "logistic", "--l2", "1e-3", "--intercept")
    code, out, _ = call(capsys, "certify", path, data, *flags, "--json")
    found = json.loads(out)["certificate"]
    assert (code, found["holds"]) == (0, True)
    np.savetxt(tmp_path / "off.txt", 1.1 * x)
    code, out, _ = call(capsys, "certify", tmp_path / "off.txt", data, *flags)
    assert (code, "falls by" in out) == (1, True)


@pytest.mark.parametrize(
    ("text", "said"), [("1 2 x", "no coefficients"), ("1\n2", "holds 2 coefficients"), ("nan", "finite")]
)
def test_what_are_no_coefficients_is_refused(text, said, data, tmp_path, capsys):
    (tmp_path / "x.txt").write_text(text)
    code, _, err = call(capsys, "certify", tmp_path / "x.txt", data, "--loss", "logistic")
    assert (code, said in err) == (2, True)


def test_fit_prints_the_table_of_standard_errors(data, capsys):
    code, out, _ = call(capsys, "fit", data, "--loss", "logistic", "--intercept", "--summary", "--kind", "sandwich")
    assert code == 0
    assert "std err" in out
    assert "covariance:      sandwich" in out


def test_a_reader_who_has_read_enough_is_no_error(data, tmp_path, capsys):
    model = tmp_path / "model.npz"
    call(capsys, "fit", data, "--l2", "1e-3", "--out", model)
    command = f"{sys.executable} -m tercet.cli predict {model} {data} | head -n 1"
    run = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert len(run.stdout.split()) == 1


def test_a_run_that_is_cut_short_is_not_certified(data, capsys):
    code, out, _ = call(capsys, "fit", data, "--max-iterations", "1", "--json")
    assert code == 1
    assert json.loads(out)["status"] == "MAX_ITERATIONS"


def test_certify_on_other_data_does_not_hold(data, tmp_path, capsys):
    model, other = tmp_path / "model.npz", tmp_path / "other.txt"
    call(capsys, "fit", data, "--l2", "1e-3", "--out", model)
    dump_svmlight_file(X[::-1], Y, str(other), zero_based=False)
    assert call(capsys, "certify", model, other)[0] == 1


def test_resume_goes_on_where_the_budget_ended_and_equals_one_run(data, tmp_path, capsys):
    path = tmp_path / "run.ckpt"
    whole = json.loads(call(capsys, "fit", data, "--l2", "1e-3", "--json")[1])
    assert call(capsys, "fit", data, "--l2", "1e-3", "--checkpoint", path, "--max-iterations", "3")[0] == 1
    code, out, _ = call(
        capsys, "fit", data, "--l2", "1e-3", "--checkpoint", path, "--resume", "--max-iterations", "1000", "--json"
    )
    assert code == 0
    again = json.loads(out)
    assert again["x"] == whole["x"]
    assert again["counts"] == whole["counts"]


@pytest.mark.parametrize("method", ["stm", "scr", "sgd"])
def test_every_method_can_be_asked_for(method, data, capsys):
    code, out, _ = call(capsys, "fit", data, "--method", method, "--l2", "1e-2", "--max-iterations", "200", "--json")
    assert code in (0, 1)
    assert json.loads(out)["method"].lower().startswith(method)


BAD = {
    "no file": (["fit", "nowhere.txt"], "tercet: nowhere.txt: No such file"),
    "bad data": (["fit", "BAD"], "bad.txt:2:"),
    "a data set where a file is expected": (["fit", "a9a"], "name of a data set"),
    "a data set where a comparison is expected": (["compare", "a9a"], "--data a9a"),
    "numbers where labels are expected": (["fit", "NUMBERS"], "--loss squares"),
    "bad penalty": (["fit", "DATA", "--l2", "-1"], "l2=-1"),
    "resume without a checkpoint": (["fit", "DATA", "--resume"], "--checkpoint"),
    "folder that is not there": (["fit", "DATA", "--out", "no/where/model.npz"], "folder"),
    "no model": (["predict", "DATA", "DATA"], "not a model"),
    "scale of a loss without one": (["fit", "DATA", "--scale", "2"], "scale"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_exit_code_2(name, data, tmp_path, capsys):
    (tmp_path / "bad.txt").write_text("1 1:0.5\n-1 1:x\n")
    words, named = BAD[name]
    (tmp_path / "numbers.txt").write_text("1 1:0.5\n2 1:1\n3 1:2\n")
    files = {"DATA": data, "BAD": str(tmp_path / "bad.txt"), "NUMBERS": str(tmp_path / "numbers.txt")}
    words = [files.get(word, word) for word in words]
    code, out, err = call(capsys, *words)
    assert code == 2
    assert out == ""
    assert named in err
    assert err.count("\n") == 1


@pytest.mark.skipif(os.name != "posix", reason="signals are sent the POSIX way")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_fit_saves_the_best_point_and_exits_with_130(sent, data, tmp_path):
    model, path = tmp_path / "model.npz", tmp_path / "run.ckpt"
    words = ["fit", data, "--method", "sgd", "--max-iterations", "100000000", "--out", str(model), "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tercet.cli", *words, "--checkpoint", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a background job of a shell ignores interrupts, and so would what it starts
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        started = time.monotonic()
        while not path.exists() and time.monotonic() < started + 60:  # until the first iteration is over
            time.sleep(0.05)
        process.send_signal(sent)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()  # nothing is left running when the test fails
    assert process.returncode == 130, err
    assert json.loads(out)["status"] == "INTERRUPTED"
    assert cli.load_model(model)[1].shape == (5,)
