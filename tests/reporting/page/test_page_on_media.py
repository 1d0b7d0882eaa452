"""The page on laptop, phone and paper, light and dark, in a real browser."""

import pytest
from support.made_sweep import record_overrides
from support.pages import visible

from lantern.evaluation.rows import SUMMARY, encode
from lantern.figures import FIGURES
from lantern.reporting.page.write import write_page

pytestmark = pytest.mark.full


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_scrolls_no_page_sideways_and_dark_mode_is_dark(page, sweep, dark):
    page.open(sweep / "report.html", 390, 844, dark=dark, phone=True)
    assert page.ask("document.documentElement.scrollWidth") == 390
    red = page.ask("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]")
    assert (int(red) < 60) == dark
    small = "e => e.checkVisibility() && e.offsetHeight < 30"
    assert page.ask(f"[...document.querySelectorAll('button, select')].filter({small}).length") == 0


@pytest.fixture
def crowded(tmp_path):
    """A page with every column that is shown at first, four kinds of right prompts, a score, and long names."""
    keys = [one.key for one in FIGURES.values() if one.shown or FIGURES.get(one.beside, one).shown] + ["clip_score"]
    keys += [f"{name}_accuracy" for name in ("texture", "shape", "colour", "all")]
    names = ("none", "eagle", "refined_jacobi", "refined_branches")
    values = {key + end: value for key in keys for end, value in (("", 0.0123), ("_low", 0.0119), ("_high", 0.0127))}
    values |= {"model": "llamagen", "acceptance": "lantern_pp_released", "tree": "naive_extend_57"}
    rows = [values | {"drafter": name, "method": f"{name}_lantern"} for name in names]
    for number, row in enumerate(rows):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / SUMMARY).write_text(encode({"row": row}))
        (folder / "prompts.jsonl").touch()
        record_overrides(folder, [f"seed={number}"], "RUN")
    write_page(tmp_path / "crowded.html", "crowded", rows, sorted(tmp_path.glob("?")), {})
    return tmp_path / "crowded.html"


@pytest.mark.parametrize("width", [1280, 390])
def test_a_crowded_table_fits_a_laptop_and_the_page_fits_both(page, crowded, width):
    page.open(crowded, width)
    assert page.ask("document.documentElement.scrollWidth") <= width
    table = page.ask("(w => [w.scrollWidth, w.clientWidth])(document.querySelector('#settings .wide'))")
    assert page.ask("document.querySelectorAll('#table .copy').length") == 4
    assert (table[0] <= table[1]) == (width == 1280), table


def test_on_paper_nothing_is_cut_hidden_or_dark(page, sweep, crowded):
    """Catches scrolled parts, sticky parts and closed records, which paper cannot open."""
    for path in (sweep / "report.html", crowded):
        page.open(path, 718, 1000, dark=True)  # A4 less its margins
        features = [{"name": "prefers-color-scheme", "value": "dark"}]
        page.send("Emulation.setEmulatedMedia", media="print", features=features)
        page.ask("dispatchEvent(new Event('beforeprint'))")
        assert page.ask("document.documentElement.scrollWidth") <= 718
        cut = "e => getComputedStyle(e).overflowX !== 'visible' && e.scrollWidth > e.clientWidth"
        assert page.ask(f"[...document.querySelectorAll('.wide, .tree, td, th')].filter({cut}).length") == 0
        assert page.ask("[...document.querySelectorAll('details')].every(record => record.open)")
        style = "[...document.querySelectorAll('body, #table th')].map(e => getComputedStyle(e))"
        look = page.ask(f"(([body, head]) => [head.position, body.backgroundColor, body.color])({style})")
        assert look == ["static", "rgb(255, 255, 255)", "rgb(0, 0, 0)"]
        assert not any(visible(page, control) for control in ("nav", ".copy", "#all-columns"))
        page.ask("dispatchEvent(new Event('afterprint'))")
        assert page.ask("document.querySelectorAll('details:not([open])').length") > 0
        page.send("Emulation.setEmulatedMedia", media="", features=features)
