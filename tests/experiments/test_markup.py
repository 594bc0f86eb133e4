"""Settings as people read them."""

from tercet.experiments import markup
from tercet.experiments.stored import Records


def test_nested_settings_read_like_calls():
    sizes = {"class": "Fixed", "gradient": 0.05, "nested": False}
    assert markup.pairs({"class": "STM", "sizes": sizes, "subsolver": None}) == (
        "STM(sizes=Fixed(gradient=0.05, nested=False))"
    )
    assert markup.pairs(["a", "b"]) == "a, b"
    assert markup.pairs({"gamma": [1, 2]}) == "gamma=(1, 2)"


def test_what_says_nothing_is_left_out():
    assert markup.without({"a": None, "b": 0, "c": "", "d": {}, "e": False}) == {"b": 0, "e": False}


def test_the_subtitle_needs_no_versions():
    assert markup.subtitle(Records({}, [], [])) == "0 runs, 0 problems"


def test_a_table_row_is_escaped():
    assert "<b>" not in markup.text_table("<b>", ("<b>",), [("<b>", "<b>")])
