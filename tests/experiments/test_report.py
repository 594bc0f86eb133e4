"""The page holds the stored numbers, escapes every name, and asks the network for nothing."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from tercet.experiments import report, stored
from tercet.experiments.summary import GAPS, cost_table
from tests.experiments.stores import BASE, many_runs, record, small_store, write_store

EVIL = "</script><img src=x onerror=alert(1)>\u2028&amp;'\"$title"


def data_of(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))


class Tags(HTMLParser):
    """Every tag with its attributes, and open tags that were never closed."""

    def __init__(self, page):
        super().__init__()
        self.found, self.open = [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag not in ("meta", "input", "br", "link", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_costs_in_the_page_are_those_of_the_runs_in_full_precision(tmp_path):
    folder = small_store(tmp_path)
    data = data_of(report.write(folder).read_text())
    for problem, shown in zip(stored.read(folder).problems, data["problems"], strict=True):
        for axis in (a["id"] for a in data["axes"]):
            table = cost_table(problem, axis)
            for method in shown["views"][0]["methods"]:
                for gap, s, cell in zip(GAPS, table[method["label"]], method["costs"][axis], strict=True):
                    assert cell[:2] == [s.runs, s.reached], gap
                    assert (cell[2] is None) == (s.reached == 0)
                    assert cell[2] is None or cell[2] == s.mean


def test_the_orders_add_up_to_the_whole(tmp_path):
    data = data_of(report.write(small_store(tmp_path)).read_text())
    for method in data["problems"][0]["views"][0]["methods"]:
        for counting in ("ours", "paper"):
            for orders, cost in zip(method["orders"][counting], method["costs"][counting], strict=True):
                assert cost[2] is None or sum(orders) == pytest.approx(cost[2])


def test_names_from_files_are_escaped_everywhere(tmp_path):
    runs = [record(EVIL, 1e-3, "N", seed, method) for seed in (0, 1) for method in ("STM", "SCR", EVIL)]
    runs.append(record(EVIL, 1e-3, "N", 2, "SCR", error=EVIL, trace=None, fun=None, certificate=None))
    runs[0]["settings"] = {EVIL: EVIL, "tuned": EVIL}
    reference = {"dataset": EVIL, "l2": 1e-3, "minima": [{"f": BASE}], "text": EVIL}
    settings = {"format": 1, "title": EVIL, "versions": {EVIL: EVIL}, "data_info": {EVIL: {"source": EVIL}}}
    page = report.write(write_store(tmp_path, runs, [reference], settings)).read_text()
    tags = Tags(page)
    assert tags.open == []
    assert {"img"}.isdisjoint(tag for tag, _ in tags.found)
    assert not [name for _, attributes in tags.found for name in attributes if name.startswith("on")]
    assert sum(tag == "script" for tag, _ in tags.found) == 2
    assert data_of(page)["problems"][0]["name"].startswith(EVIL)


def test_nothing_is_fetched_and_only_our_script_may_run(tmp_path):
    page = report.write(small_store(tmp_path)).read_text()
    tags = Tags(page)
    assert not [a for _, a in tags.found if "src" in a or a.get("href", "#")[0] != "#"]
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest|eval\(|innerHTML", page)
    policy = next(a["content"] for tag, a in tags.found if a.get("http-equiv") == "Content-Security-Policy")
    script = re.search(r"<script>(.*?)</script>", page, re.S).group(1)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy


def test_every_table_has_a_caption_and_every_control_a_label(tmp_path):
    page = report.write(small_store(tmp_path)).read_text()
    static = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    tables = re.findall(r"<table[^>]*>(.{0,8})", static)
    assert all(start.startswith("<caption") or start.startswith("</table") for start in tables)  # empty: by the script
    assert static.count("<select") == len(re.findall(r"<label[^>]*>[^<]+<select", static))


def test_curves_are_thin_and_a_large_store_stays_small(tmp_path):
    runs = many_runs(l2s=(1e-3, 1e-6, 3e-8), seeds=2, sgd=15, starts=("0", "N", "3N"))
    path = report.write(write_store(tmp_path, runs))
    assert path.stat().st_size < 5_000_000
    data = data_of(path.read_text())
    views = data["problems"][0]["views"]
    assert [v["label"] for v in views] == ["all", "zero", "far, 3 N(0, I)", "normal, N(0, I)"]
    for method in views[0]["methods"]:
        for c in method["curves"].values():
            assert 2 <= len(c["x"]) == len(c["y"]) == len(c["low"]) == len(c["high"]) <= 200
            assert c["x"] == sorted(c["x"])


def test_of_a_tuned_method_one_choice_is_shown_and_the_others_are_at_hand(tmp_path):
    data = data_of(report.write(small_store(tmp_path)).read_text())
    extra = {m["label"]: m["extra"] for m in data["problems"][0]["views"][0]["methods"]}
    assert sorted(extra[label] for label in extra if label.startswith("SGD")) == [False, True]
    assert not any(extra[label] for label in extra if not label.startswith("SGD"))


def test_runs_that_failed_and_odd_numbers_do_no_harm(tmp_path):
    runs = many_runs(datasets=("a",), seeds=2, sgd=1)
    runs[0].update(error="ValueError: bad", trace=None, fun=None, certificate=None)
    runs[1]["trace"]["f"] = [None] * len(runs[1]["trace"]["f"])
    runs[2]["trace"] = {"f": [BASE + 1.0], "iteration": [0]}
    page = report.write(write_store(tmp_path, runs)).read_text()
    assert "ValueError: bad" in page
    assert "1 run failed" in page
    assert "NaN" not in json.dumps(data_of(page))


def test_an_empty_store_gives_a_page_that_says_so(tmp_path):
    page = report.write(write_store(tmp_path, [])).read_text()
    assert "0 runs of 0 methods" in page
    assert data_of(page)["problems"] == []


def test_the_old_report_stays_when_the_new_one_cannot_be_written(tmp_path, monkeypatch):
    folder = small_store(tmp_path)
    before = report.write(folder).read_text()
    monkeypatch.setattr(report.store.os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        report.write(folder)
    assert (folder / "report.html").read_text() == before
    assert [p.name for p in folder.iterdir() if p.suffix == ".tmp"] == []


def test_the_same_store_gives_the_same_page(tmp_path):
    folder = small_store(tmp_path)
    assert report.write(folder).read_bytes() == report.write(folder).read_bytes()
