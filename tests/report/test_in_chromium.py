"""The page in a real browser, opened from disk."""

import html
import json
import re
import shutil
import subprocess
from itertools import groupby
from pathlib import Path

import pytest

from rmtbase.results.scores import summarize_scores
from rmtbase.statistics import SPECTRAL_STATISTICS

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-logging=stderr",
    "--v=0", "--virtual-time-budget=5000", "--dump-dom",
)  # fmt: skip
LIGHT, DARK = "--blink-settings=preferredColorScheme=1", "--blink-settings=preferredColorScheme=0"
pytestmark = pytest.mark.exhaustive
PROBE = (Path(__file__).parent / "probe.js").read_text()


def opened(path, folder, *flags):
    """The page's DOM after it ran, and what was written to the console."""
    browser = next(filter(None, map(shutil.which, NAMES)), None)
    if browser is None:
        pytest.fail(
            f"the report is checked in Chromium, and none of {', '.join(NAMES)} is installed: apt install chromium"
        )
    done = subprocess.run(
        [browser, *FLAGS, f"--user-data-dir={folder / 'profile'}", *flags, path.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.fixture(scope="module")
def seen(page, tmp_path_factory):
    """What the probe saw in copies of the page whose policy admits it; a phone is a frame as narrow as the smallest."""
    folder, looks = tmp_path_factory.mktemp("looks"), {}
    admitted = re.sub(r"script-src 'sha256-[^']*'", "script-src 'unsafe-inline'", page)
    copy = admitted.replace("</body>", f"<script>{PROBE}</script></body>")
    framed = (
        '<!DOCTYPE html><meta charset="utf-8"><body><pre id="probe"></pre>'
        f'<iframe style="width: 320px; height: 800px; border: 0" srcdoc="{html.escape(copy)}"></iframe><script>'
        "window.addEventListener('load', () => setTimeout(() => { document.querySelector('#probe').textContent ="
        " document.querySelector('iframe').contentDocument.querySelector('#probe').textContent; }, 500));</script>"
    )
    for look, text, *flags in (
        ("light", copy, LIGHT, "--window-size=1280,1000"), ("dark", copy, DARK, "--window-size=500,900"),
        ("phone", framed),
    ):  # fmt: skip
        (folder / f"{look}.html").write_text(text, encoding="utf-8")
        dom, console = opened(folder / f"{look}.html", folder, *flags)
        assert look == "phone" or console == []
        probe = re.search(r'<pre id="probe">(.*?)</pre>', dom, re.DOTALL).group(1)
        looks[look] = json.loads(html.unescape(probe))
    return looks


@pytest.fixture
def light(seen):
    return seen["light"]


def test_the_page_opens_from_disk_without_a_word_on_the_console_where_an_error_would_be_seen(page, tmp_path):
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    dom, console = opened(tmp_path / "report.html", tmp_path)
    assert console == []
    assert 'aria-sort="none"' in dom  # the page's own script ran under its policy
    broken = page.replace("</body>", "<script>window.hacked = 1</script><img src='http://127.0.0.1:9/x.png'></body>")
    (tmp_path / "report.html").write_text(broken, encoding="utf-8")
    _, console = opened(tmp_path / "report.html", tmp_path)
    assert len([line for line in console if "Content Security Policy" in line]) == 2


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_every_figure_is_visible_nothing_overflows_and_tables_that_scroll_say_so(look, seen):
    shown = seen[look]
    assert shown["overflow"] <= 0 and len(shown["figures"]) == 10
    for figure in shown["figures"]:
        assert min(300, shown["width"] - 50) < figure["width"] <= shown["width"] - 32
        assert figure["height"] > 150 and figure["marks"] > 30
    assert len(shown["tables"]) == 2
    assert all(scrolls == hinted for scrolls, hinted in shown["tables"])
    assert look == "light" or all(scrolls for scrolls, _ in shown["tables"])
    assert look == "dark" or (shown["whole"]["pressed"] == "true" and shown["whole"]["hidden"] <= 1)


def test_the_page_and_its_figures_follow_light_and_dark(seen):
    light, dark = seen["light"], seen["dark"]
    assert (light["dark"], dark["dark"]) == (False, True)
    assert light["background"] == "rgb(255, 255, 255)" != dark["background"]
    for look in (light, dark):
        assert look["text_colour"] in look["figure_colours"]
    assert light["text_colour"] not in dark["figure_colours"]


def numbers(cells):
    return [float(cell.replace("−", "-")) for cell in cells if cell != "–"]


def test_a_column_sorts_both_ways_by_value_with_missing_last_and_words_as_words(light):
    up, down = light["ascending"], light["descending"]
    assert (up["sort"], down["sort"]) == ("ascending", "descending") and up["focused"]
    assert numbers(up["column"]) == sorted(numbers(up["column"]))
    assert numbers(down["column"]) == sorted(numbers(up["column"]), reverse=True)
    assert up["column"][-1] == down["column"][-1] == "–" and len(set(up["column"])) > 5
    words = light["text"]["column"]
    assert light["text"]["sort"] == "ascending" and len(set(words)) > 1
    assert [word for word, _ in groupby(words)] == list(dict.fromkeys(words))  # equal words stand together


def test_a_picked_statistic_is_shown_the_filter_keeps_findings_and_headers_stay(light, tree):
    assert light["chosen"] == SPECTRAL_STATISTICS["stable_rank"].long_name
    observed = tree["heads"]["observed"].sel(statistic="stable_rank").values.ravel()
    assert numbers(light["observed"]) == pytest.approx(sorted(observed[observed == observed]), rel=1e-3)
    n = len(summarize_scores(tree).findings)
    assert light["filtered"] == n and light["status"].startswith(f"{n} of ")
    assert abs(light["sticky"]) <= 2 and light["on_paper"] == light["titles"]


def test_hostile_texts_run_nothing_and_make_no_element(light, harmless):
    assert not light["hacked"]
    counts = {"meta": 5, "img": 0, "script": 4, "link": 1, "iframe": 0, "object": 0, "base": 0, "form": 0}
    assert light["counts"] == counts  # scripts: of each of the two tables, the page's own, and the probe
    assert all(link.startswith(("#", "data:,")) for link in light["links"])
    assert light["title"] == f"{harmless}: how far from random?" and len(light["cells"]) > 10
    for layer, component in light["cells"]:
        assert layer.startswith(harmless) and component.startswith(harmless)
