"""The catalogue of methods: every name makes a method, grids are the paper's, own methods are found."""

import math

import pytest

import tercet
from tercet.experiments import methods
from tercet.experiments.methods import Plan
from tercet.experiments.stored import FAMILIES


@pytest.mark.parametrize("name", methods.CATALOGUE)
def test_every_name_makes_a_method_with_printable_settings(name):
    plan = methods.plan(name)
    for choice in list(plan.choices()) or [plan]:
        method = methods.make(choice)
        assert isinstance(method, methods.SciPyMethod) or hasattr(method, "kernel")
        import json

        json.dumps(methods.printable(choice, method), allow_nan=False)
    assert methods.family(plan) in FAMILIES
    assert methods.counting(plan)


def test_the_grids_are_the_papers():
    steps = [1e-4, 1e-3, 1e-2, 1e-1, 1.0]
    assert methods.plan("SGD").grid == {"batch": [0.01, 0.05, 0.10], "step": steps}
    assert len(list(methods.plan("SGD").choices())) == 15
    for name in ("STM-paper", "SCR-paper"):
        assert methods.plan(name).grid == {"step": steps}
    assert methods.plan("STM").grid == {}


def test_the_papers_settings_are_made_with_the_step_of_the_grid():
    choice = list(methods.plan("STM-paper").choices())[2]
    assert choice.label == "STM-paper step=0.01"
    assert methods.make(choice) == tercet.STM.paper(0.01)


def test_full_samples_make_the_deterministic_methods():
    assert methods.make(methods.plan("AR3")) == tercet.STM(tercet.Full())
    assert methods.make(methods.plan("ARC")) == tercet.SCR(tercet.Full())


def test_an_unknown_name_lists_the_nearest():
    with pytest.raises(ValueError, match=r"unknown method 'stm-papper': the nearest are STM-paper"):
        methods.plan("stm-papper")
    with pytest.raises(ValueError, match="none is near"):
        methods.plan("zzzzzz")


def test_own_methods_are_objects_classes_or_functions():
    assert methods.make(Plan("a", "tercet:SGD", {"step": 0.5})) == tercet.SGD(step=0.5)
    assert methods.make(Plan("b", "tercet:STM.paper", {"step": 0.5})) == tercet.STM.paper(0.5)
    assert methods.family(Plan("a", "tercet:SGD")) == "own"
    own = methods.make(Plan("c", "math:hypot", {"gtol": 1.0}, kind="scipy"))
    assert own.name is math.hypot
    assert own.options == {"gtol": 1.0}


def test_infinity_is_told_in_words_as_json_has_none():
    settings = methods.printable(Plan("x", "STM-paper"), tercet.STM.paper())
    assert settings["worth"] == "unbounded"
