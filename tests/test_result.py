"""What comes back: the printed table, the trace as a frame and as a plot, and the logic of the certificate."""

from __future__ import annotations

from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest

import tercet
from tercet import Certificate, Counts, Info, Result, Status, Trace
from tercet.records import Sizes
from tercet.result import COLUMNS, Row

mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

RNG = np.random.default_rng(0)
X = RNG.standard_normal((300, 3))
Y = (X @ [1.0, -1.0, 0.5] + RNG.standard_normal(300) > 0).astype(float)
MODEL = tercet.LinearModel(X, Y, "logistic", l2=1e-2)
RESULT = tercet.minimize(MODEL)
CERTIFICATE = Certificate(1e-9, 1e-6, 1e-3, 1e-8, 1e-5, 1e-2, 1e-3, 3, 300, 300, "closed form", converged=True)


# printing -----------------------------------------------------------------------------------------------------------


def table(result):
    """The printed lines by their names; a line without one belongs to the name before."""
    lines, name = {}, ""
    for line in str(result).splitlines():
        name = line[:12].strip() or name
        lines[name] = [*lines.get(name, []), line[13:]]
    return lines


def test_a_result_prints_what_was_found_first_and_the_settings_last():
    lines, certificate = table(RESULT), RESULT.certificate
    assert list(lines) == ["success", "f", "certificate", "checked", "work"]
    assert len(str(RESULT).splitlines()) == 5
    assert lines["success"] == [
        f"True (certified): the only minimizer nearby, {certificate.digits:.1f} digits of x "
        "(order 3, over all 300 components)"
    ]
    assert lines["f"][0].startswith(f"{RESULT.fun:.12g}, within {certificate.error_f:.1e} of its minimum")
    (chi,) = lines["certificate"]
    assert chi.startswith(f"chi = {certificate.chi1:.3e}, {certificate.chi2:.3e}, {certificate.chi3:.3e}; asked: each")
    assert f"lowest curvature {certificate.lowest:.3e}, condition {certificate.condition:.1e}" in chi
    assert lines["checked"] == [certificate.how]
    assert lines["work"][0].startswith(f"{RESULT.nit} iterations")
    assert f", {RESULT.counts.epochs:.1f} epochs" in lines["work"][0]
    assert lines["work"][0].endswith(f"; method {RESULT.method}")
    assert repr(RESULT) == str(RESULT)


def test_a_result_that_is_no_success_prints_its_message():
    short = tercet.minimize(MODEL, max_iterations=1)
    assert table(short)["message"] == [short.message]
    assert "message" not in table(RESULT)
    assert len(str(short).splitlines()) == 5


def test_the_printed_epochs_of_each_order_add_up():
    total, parts = table(RESULT)["work"][0].split("; method")[0].split("=")
    numbers = [float(word) for word in parts.split()[1::2]]
    assert parts.split()[::2] == ["value", "gradient", "hessian", "third"]
    assert sum(numbers) == pytest.approx(float(total.split()[-2]), abs=0.26)


def test_the_message_begins_with_the_advice_of_the_status_and_says_what_was_checked():
    assert RESULT.message.startswith(Status.CERTIFIED.value)
    assert "order 3 over all 300 components" in RESULT.message
    short = tercet.minimize(MODEL, max_iterations=1)
    assert short.message.startswith(Status.MAX_ITERATIONS.value)


def test_a_result_without_iterations_prints_too():
    text = str(tercet.minimize(MODEL, max_iterations=0))
    assert "False (max_iterations): not known to be a minimizer" in text


def test_every_status_carries_a_sentence():
    for status in Status:
        assert status.value.endswith(".")
        assert len(status.value.split()) >= 5


# success and the certificate ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        ({}, True),
        ({"chi1": 1e-8, "chi2": 1e-5, "chi3": 1e-2}, True),
        ({"chi1": 1.1e-8}, False),
        ({"chi2": 1.1e-5}, False),
        ({"chi3": 1.1e-2}, False),
        ({"chi1": np.nan}, False),
        ({"chi2": np.nan}, False),
        ({"chi3": np.nan}, False),
        ({"chi1": np.inf}, False),
        ({"order": 2, "chi3": np.nan}, True),
        ({"order": 2, "chi3": 1.0}, True),
        ({"order": 2, "chi2": np.nan}, False),
        ({"order": 1, "chi2": np.nan, "chi3": np.nan}, True),
        ({"order": 1, "chi2": 1.0}, True),
        ({"order": 1, "chi1": np.nan}, False),
    ],
    ids=str,
)
def test_a_certificate_holds_when_every_chi_up_to_its_order_is_known_and_within_its_tolerance(change, holds):
    certificate = replace(CERTIFICATE, **change)
    assert certificate.holds is holds
    assert ("not known to be a minimizer" in str(certificate)) is not holds


def test_a_certificate_says_over_which_data_and_how():
    assert CERTIFICATE.over == "all 300 components"
    assert replace(CERTIFICATE, terms=30).over == "30 of 300 components"
    assert "closed form" in str(CERTIFICATE)
    assert "asked: chi <= 1.0e-08, 1.0e-05, 1.0e-02\n" in str(CERTIFICATE)
    assert "asked: chi <= 1.0e-08\n" in str(replace(CERTIFICATE, order=1))
    assert "asked: each x[j] to 1.5e-08 of its size" in str(replace(CERTIFICATE, relative=1.5e-8))


RELATIVE = replace(CERTIFICATE, relative=1.5e-8, chi1=1.0, chi3=1.0)


@pytest.mark.parametrize(
    ("certificate", "verdict"),
    [
        (CERTIFICATE, "a minimizer"),
        (replace(CERTIFICATE, strict=True, digits=7.96), "the only minimizer nearby, 8.0 digits of x"),
        (
            replace(CERTIFICATE, strict=False, kernel=((1.0, 0.0),), involved=(0, 2)),
            "a minimizer, one of many; not identified: 1 combination of x[0], x[2]",
        ),
        (
            replace(CERTIFICATE, kernel=((1.0,),) * 2, involved=tuple(range(9)), digits=3.0),
            "a minimizer, one of many, 3.0 digits of x; not identified: 2 combinations of "
            "x[0], x[1], x[2], x[3], x[4], x[5], ...",
        ),
        (replace(CERTIFICATE, converged=False), "not known to be a minimizer"),
        (replace(CERTIFICATE, chi3=1.0, rises=True), "a minimizer"),
        (
            replace(CERTIFICATE, way_down=(1.0, 0.0), fall=0.25),
            "not a minimizer: f falls by 0.25 along certificate.way_down",
        ),
        (
            replace(CERTIFICATE, ray=(1.0, 0.0)),
            "no minimizer is near: f is flat along certificate.ray, as far as it can be seen",
        ),
        (RELATIVE, "a minimizer"),
        (replace(RELATIVE, converged=False), "not known to be a minimizer"),
        (replace(RELATIVE, chi2=np.nan), "not known to be a minimizer"),
        (replace(RELATIVE, chi2=np.nan, order=1), "a minimizer"),
    ],
)
def test_the_verdict_says_in_a_sentence_what_was_found_and_success_is_a_minimizer(certificate, verdict):
    assert certificate.verdict == verdict
    assert str(certificate).startswith(verdict + " (order")
    assert certificate.holds is ("minimizer" in verdict and not verdict.startswith("no"))


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize("holds", [True, False])
def test_success_is_a_certified_status_with_a_certificate_that_holds(status, holds):
    certificate = CERTIFICATE if holds else replace(CERTIFICATE, chi1=1.0)
    result = Result(np.zeros(2), 0.0, status, "text", 0, certificate, Counts(), Trace(), 0.0, "STM()")
    assert result.success is (holds and status is Status.CERTIFIED)


def test_epochs_are_all_counts_over_n():
    counts = Counts(value=10, gradient=20, hessian=30, third=40, n=50)
    assert counts.epochs == 2.0
    assert counts.as_dict() == {"value": 10, "gradient": 20, "hessian": 30, "third": 40, "n": 50, "epochs": 2.0}


# the trace ----------------------------------------------------------------------------------------------------------


def test_the_trace_turns_into_a_frame_with_one_row_per_iteration():
    frame = RESULT.trace.frame()
    assert tuple(frame.columns) == COLUMNS
    assert len(frame) == RESULT.nit == len(RESULT.trace) == len(list(RESULT.trace))
    assert list(frame["iteration"]) == list(range(RESULT.nit))
    for name in ("f", "sigma", "epochs", "size_third", "accepted"):
        assert np.array_equal(frame[name].to_numpy(), RESULT.trace[name])


def test_the_columns_promised_are_there():
    promised = ("seconds", "value", "gradient", "hessian", "third", "f", "gradient_norm", "sigma", "ratio", "accepted")
    promised += ("step_norm", "size_gradient", "size_hessian", "size_third", "inner")
    assert set(promised) <= set(COLUMNS)


def test_an_empty_trace_has_its_columns_too():
    assert tuple(Trace().frame().columns) == COLUMNS
    assert len(Trace()["f"]) == 0


def test_an_unknown_column_is_refused_with_the_names_of_all():
    with pytest.raises(KeyError, match="nonsense") as caught:
        RESULT.trace["nonsense"]
    assert all(name in str(caught.value) for name in COLUMNS)
    with pytest.raises(KeyError, match="nonsense"):
        RESULT.trace.plot(against="nonsense")
    plt.close("all")


@pytest.mark.parametrize("against", ["epochs", "seconds", "iteration"])
def test_the_trace_plots_the_gradient_and_the_gap_on_a_logarithmic_axis(against):
    ax = RESULT.trace.plot(against=against)
    assert ax.get_yscale() == "log"
    assert ax.get_xlabel() == against
    gradient, gap = ax.get_lines()
    assert np.array_equal(gradient.get_xdata(), RESULT.trace[against])
    assert np.array_equal(gradient.get_ydata(), RESULT.trace["gradient_norm"])
    f = RESULT.trace["f"]
    assert np.array_equal(gap.get_ydata(), np.maximum(f - np.min(f), 1e-17))
    ax.figure.canvas.draw()
    plt.close("all")


def test_the_plot_uses_the_axes_it_is_given():
    _, ax = plt.subplots()
    assert RESULT.trace.plot(ax=ax) is ax
    assert RESULT.trace.plot(ax=ax) is ax
    assert len(ax.get_lines()) == 4
    plt.close("all")


def test_a_trace_without_function_values_and_an_empty_one_plot_too():
    sgd = tercet.minimize(MODEL, method=tercet.SGD(), max_iterations=5).trace
    assert np.all(np.isnan(sgd["f"]))
    assert len(sgd.plot().get_lines()) == 1
    assert len(Trace().plot().get_lines()) == 1
    plt.close("all")


def test_a_row_under_the_names_of_the_columns():
    counts = Counts(1, 2, 3, 4, 5)
    row = Row(
        7,
        0.5,
        0.25,
        2.0,
        0.9,
        True,
        0.1,
        Sizes(10, 20, 30, 40),
        6,
        True,
        3,
        (True, False, None),
        1.5,
        counts,
        0.01,
        (True, True, False),
        1e-3,
    )
    got = row.as_dict()
    assert tuple(got) == COLUMNS
    assert got == {
        "iteration": 7, "seconds": 1.5, "value": 1, "gradient": 2, "hessian": 3, "third": 4, "epochs": 2.0, "f": 0.5,
        "gradient_norm": 0.25, "sigma": 2.0, "ratio": 0.9, "accepted": True, "step_norm": 0.1, "size_value": 10,
        "size_gradient": 20, "size_hessian": 30, "size_third": 40, "inner": 6, "third_bought": True, "escape": 3,
        "meets_1": True, "meets_2": False, "meets_3": None, "predicted": 0.01,
        "guaranteed_1": True, "guaranteed_2": True, "guaranteed_3": False, "failure": 1e-3,
    }  # fmt: skip
    info = Info(np.zeros(2), 0.5, row)
    assert all(getattr(info, name) == got[name] for name in COLUMNS)
    with pytest.raises(AttributeError, match="nonsense"):
        info.nonsense  # noqa: B018 - the look-up itself is the test


def test_the_former_name_of_a_row_warns_and_says_the_same():
    row = RESULT.trace.rows[0]
    with pytest.warns(DeprecationWarning, match="third_bought"):
        assert row.third is row.third_bought
    with pytest.warns(DeprecationWarning, match="third_bought"):
        assert replace(row, third_bought=not row.third_bought).third is not row.third_bought
