"""The report in a real browser: it renders in time, reacts to clicks and keys, and shows the stored numbers."""

import shutil
import time

import numpy as np
import pytest

from tercet.experiments import report, stored
from tercet.experiments.summary import GAPS, cost_table
from tests.experiments.stores import BASE, many_runs, record, write_store

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed (extra `browser`)")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no Chromium with its driver on this machine"),
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning"
    ),  # sockets of the driver's client, closed when it is collected
]
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1280,900",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with pytest.MonkeyPatch.context() as patch:
        for name in ("no_proxy", "NO_PROXY"):  # the driver is on this machine, whatever proxy the environment names
            patch.setenv(name, "localhost,127.0.0.1")
        driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        yield driver
        driver.quit()


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """330 runs: three data sets, eleven methods, ten starts."""
    runs = many_runs(seeds=10, sgd=3)
    assert len(runs) == 330
    return write_store(tmp_path_factory.mktemp("large"), runs)


@pytest.fixture(scope="module")
def path(large):
    return report.write(large)


@pytest.fixture
def page(browser, path):
    """The page, freshly opened on a desktop in light mode; no test may leave a message on the console."""
    screen(browser, 1280, 900)
    media(browser, "light")
    browser.get(path.as_uri())
    yield browser
    assert browser.get_log("browser") == []


def screen(browser, width, height):
    how = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", how)


def media(browser, scheme, kind=""):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": kind, "features": features})


def js(browser, code, *arguments):
    return browser.execute_script(f"return {code}", *arguments)


def choose(browser, select, text):
    code = """const s = document.getElementById(arguments[0]);
    s.value = [...s.options].find((o) => o.text.includes(arguments[1])).value; s.dispatchEvent(new Event("change"))"""
    browser.execute_script(code, select, text)


def curves(browser):
    return js(browser, 'document.querySelectorAll("#main-chart .curve").length')


def button(browser, label):
    return js(
        browser,
        '[...document.querySelectorAll("#legend button")].find((b) => b.dataset.method === arguments[0])',
        label,
    )


def cells(browser):
    """label -> means in the cost table, as numbers."""
    code = """Object.fromEntries([...document.querySelectorAll("#costs tbody tr")].map((row) => [
    row.cells[0].textContent, [...row.querySelectorAll("td[data-gap]")].map((c) =>
    [c.dataset.mean, c.dataset.reached, c.className, c.textContent])]))"""
    return js(browser, code)


def test_it_is_small_and_ready_within_two_seconds(page, path):
    assert path.stat().st_size < 5_000_000
    assert float(js(page, "document.documentElement.dataset.ready")) < 2000
    assert curves(page) == 9  # eight methods and the best of three choices of SGD


def test_a_click_on_a_method_hides_and_shows_it(page):
    before = curves(page)
    button(page, "ARC").click()
    assert button(page, "ARC").get_attribute("aria-pressed") == "false"
    assert curves(page) == before - 1
    button(page, "ARC").click()
    assert curves(page) == before
    page.find_element("id", "none").click()
    assert curves(page) == 0
    assert "no method is shown" in js(page, 'document.querySelector("#main-chart").textContent')
    page.find_element("id", "all").click()
    assert curves(page) == 11


def test_a_method_can_be_toggled_by_the_keyboard(page):
    node, before = button(page, "SCR"), curves(page)
    node.send_keys(" ")
    assert (node.get_attribute("aria-pressed"), curves(page)) == ("false", before - 1)
    node.send_keys("\ue007")  # Enter
    assert (node.get_attribute("aria-pressed"), curves(page)) == ("true", before)


@pytest.mark.parametrize(
    ("text", "cost"),
    [("ours", "ours"), ("the paper's", "paper"), ("left out", "paper_derivatives"), ("seconds", "seconds"),
     ("iterations", "iteration")],
)  # fmt: skip
def test_the_table_shows_the_stored_costs_under_every_counting(page, large, text, cost):
    problem = stored.read(large).problems[1]
    choose(page, "problem", problem.name)
    choose(page, "axis", text)
    shown, table = cells(page), cost_table(problem, cost)
    assert set(shown) == set(problem.methods)
    for method, row in shown.items():
        for (mean, reached, _, _), s in zip(row, table[method], strict=True):
            assert int(reached) == s.reached
            assert (float(mean) if mean else np.nan) == pytest.approx(s.mean, rel=1e-15, nan_ok=True)
    for j in range(len(GAPS)):
        best = [method for method, row in shown.items() if row[j][2] == "best"]
        assert len(best) == 1
        assert "★" in shown[best[0]][j][3]
        assert table[best[0]][j].mean == min(row[j].mean for row in table.values() if row[j].complete)


def test_switching_the_counting_redraws_the_curves(page):
    def first():
        return js(page, 'document.querySelector("#main-chart .curve").getAttribute("d")')

    before = first()
    choose(page, "axis", "the paper's")
    assert first() != before
    assert "sample counted once" in js(page, 'document.querySelector("#main-chart").textContent')


def test_the_curve_under_the_pointer_is_the_step_function_of_the_runs(page, large):
    """The value in the legend at the right end is the geometric mean of the last gaps, to its digits."""
    problem = stored.read(large).problems[0]
    ends = [run.gap[-1] for run in problem.of("L-BFGS")]
    chart = page.find_element("css selector", "#main-chart svg")
    chart.send_keys("\ue010")  # End
    assert js(page, 'document.getElementById("cursor").textContent').startswith("Gap after")
    value = button(page, "L-BFGS").find_element("class name", "value").text
    assert float(value) == pytest.approx(np.exp(np.log(ends).mean()), rel=0.06)
    chart.send_keys("\ue011")  # Home: before all but the first step, at the gap of the start
    starts = [run.gap[0] for run in problem.of("L-BFGS")]
    value = button(page, "L-BFGS").find_element("class name", "value").text
    assert float(value) == pytest.approx(np.exp(np.log(starts).mean()), rel=0.06)


def test_hovering_shows_values_in_the_panels(page):
    from selenium.webdriver.common.action_chains import ActionChains

    panel = page.find_elements("css selector", "#panels svg")[0]
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", panel)
    ActionChains(page).move_to_element(panel).perform()
    tip = page.find_elements("css selector", "#panels .tip")[0]
    assert tip.is_displayed()
    assert "STM" in tip.text
    panel.send_keys("\ue00c")  # Escape
    assert not tip.is_displayed()


def test_every_panel_is_drawn(page):
    code = """[...document.querySelectorAll("#panels > div")].map((p) => [p.querySelector("h3").textContent,
    p.querySelectorAll(".curve, .mark").length])"""
    panels = js(page, code)
    assert len(panels) == 8
    assert all(drawn > 0 for _, drawn in panels)


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_no_screen_is_too_narrow(page, path, width):
    screen(page, width, 800)
    page.get(path.as_uri())
    assert js(page, "document.documentElement.scrollWidth") <= width


# the lowest contrast of any text with its ground, of any curve, and the ground itself
CONTRAST = """(() => {
  const light = (c) => {
    const parts = c.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255);
    const [r, g, b] = parts.map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (n) => {
    for (; n; n = n.parentElement) {
      const c = getComputedStyle(n).backgroundColor;
      if (!/rgba\\(.*, 0\\)|transparent/.test(c)) return c;
    }
    return "rgb(255, 255, 255)";
  };
  const ratio = (a, b) => {
    const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  const tags = "h1,h2,h3,p,li,td,th,label,button,select,summary,figcaption,dd,dt,small,.spread,.value";
  const texts = [...document.querySelectorAll(tags)].map((n) => ratio(getComputedStyle(n).color, ground(n)));
  const marks = [...document.querySelectorAll("#main-chart .curve, #main-chart text")].map((n) => {
    const s = getComputedStyle(n);
    return ratio(n.tagName === "text" ? s.fill : s.stroke, ground(n.closest("div")));
  });
  return [Math.min(...texts), Math.min(...marks), getComputedStyle(document.body).backgroundColor];
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_is_enough_in_light_and_dark(page, path, scheme):
    media(page, scheme)
    page.get(path.as_uri())
    page.find_element("id", "all").click()
    texts, marks, ground = js(page, CONTRAST)
    assert texts >= 4.5
    assert marks >= 4.5
    assert (ground == "rgb(255, 255, 255)") == (scheme == "light")


def test_methods_differ_by_more_than_color(page):
    page.find_element("id", "all").click()
    code = """[...document.querySelectorAll(".legend button svg")].map((s) =>
    s.children[0].getAttribute("stroke-dasharray") + "/" + s.children[1].getAttribute("d"))"""
    looks = js(page, code)
    assert len(looks) == len(set(looks)) == 11


def test_print_is_black_on_white_without_controls(page):
    media(page, "dark", "print")
    assert js(page, "getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.find_element("id", "all").is_displayed()
    media(page, "light")


def test_a_screen_reader_finds_names(page):
    tags = "button, select, input, svg[role=img], [role=region], [role=group]"
    unnamed = f"""[...document.querySelectorAll("{tags}")].filter((n) => !(n.labels?.length || n.textContent.trim()
    || n.getAttribute("aria-label") || n.getAttribute("aria-labelledby"))).length"""
    assert js(page, unnamed) == 0
    assert js(page, '[...document.querySelectorAll("table")].filter((t) => !t.caption?.textContent).length') == 0
    assert js(page, 'document.querySelectorAll("h1").length') == 1


def test_it_asks_for_nothing_but_itself(page):
    assert js(page, 'performance.getEntriesByType("resource").length') == 0


def test_starts_can_be_told_apart_and_odd_stores_are_shown(browser, tmp_path):
    evil = "<b onclick=alert(1)>x</b></script>"
    runs = [
        record(evil, 1e-3, start, seed, method) for start in ("0", "N") for seed in (0, 1) for method in ("STM", evil)
    ]
    runs[0].update(error="ValueError: bad", trace=None, fun=None, certificate=None)
    runs[2]["trace"]["f"][7] = None
    runs[4]["trace"] = {"f": [BASE + 1.0], "iteration": [0]}
    browser.get(report.write(write_store(tmp_path, runs)).as_uri())
    assert js(browser, 'document.querySelectorAll("main b").length') == 0
    assert evil in js(browser, 'document.getElementById("legend").textContent')
    choose(browser, "start", "zero")
    assert "start: zero" in js(browser, 'document.querySelector("#costs caption").textContent')
    assert browser.get_log("browser") == []


def test_an_empty_store_opens_without_an_error(browser, tmp_path):
    browser.get(report.write(write_store(tmp_path, [])).as_uri())
    assert js(browser, "document.documentElement.dataset.ready")
    assert browser.get_log("browser") == []


def test_changing_everything_stays_fast(page):
    began = time.perf_counter()
    for k in range(10):
        choose(page, "axis", ("ours", "seconds")[k % 2])
        choose(page, "problem", ("a9a", "covtype")[k % 2])
    assert time.perf_counter() - began < 10
