"""The page as somebody uses it, in a real browser."""

import json
import time

import pytest

pytestmark = pytest.mark.full

ENDED = "!!document.querySelector('#verdict b') || !document.querySelector('#message').hidden"
COUNT = "[...document.querySelectorAll('.side')].map(side => parseInt(side.querySelector('dd').textContent))"
SECONDS = "[...document.querySelectorAll('.side')].map(side => side.querySelectorAll('dd')[2].textContent)"
RECORD = """(() => { window.seen = [[], []];
  document.querySelectorAll('.side').forEach((side, index) => new MutationObserver(
    () => seen[index].push(parseInt(side.querySelector('dd').textContent))
  ).observe(side.querySelector('dd'), { childList: true, characterData: true, subtree: true })) })()"""


@pytest.fixture
def page(chromium, server):
    chromium.problems.clear()
    show(chromium, server)
    yield chromium
    assert chromium.problems == []


def show(page, server, **options) -> None:
    page.open(server.url, **options)
    wait(page, "document.querySelectorAll('#examples button').length > 0")


def wait(page, condition: str) -> None:
    started = time.monotonic()
    while not page.ask(condition):
        assert time.monotonic() - started < 60, (condition, page.ask("document.body.innerText"))
        time.sleep(0.02)


def choose(page, side: int, method: str) -> None:
    pick(page, f"document.querySelectorAll('.side select')[{side}]", method)


def pick(page, select: str, option: str) -> None:
    page.ask(f"(() => {{ const s = {select}; s.value = '{option}'; s.dispatchEvent(new Event('change')) }})()")


def text(page, selector: str) -> str:
    return page.ask(f"document.querySelector({selector!r}).innerText")


def picture(page, side: int) -> list[int]:
    """Of an image: how many colours it has, and their sum."""
    return page.ask(
        "(() => { const copy = new OffscreenCanvas(64, 64).getContext('2d', { willReadFrequently: true });"
        f"copy.drawImage(document.querySelectorAll('canvas')[{side}], 0, 0, 64, 64);"
        "const colours = new Uint32Array(copy.getImageData(0, 0, 64, 64).data.buffer);"
        "return [new Set(colours).size, colours.reduce((sum, colour) => sum + colour, 0)] })()"
    )


def test_two_methods_are_compared_from_the_keyboard_and_both_images_grow(page, slow_rounds):
    choose(page, 1, "static_shared")
    page.ask(RECORD)
    page.ask("document.querySelector('#prompt').value = 'a blue ring on sand'")
    page.ask("document.querySelector('#prompt').focus()")
    page.press("Enter")
    wait(page, ENDED)
    assert text(page, "#verdict b") == "The two images are the same, token for token."
    assert page.ask(COUNT) == [256, 256]
    for counts in page.ask("seen"):
        grown = [count for count in counts if count is not None]
        assert grown == sorted(grown)
        assert len(set(grown)) > 10
    assert min(picture(page, 0)[0], picture(page, 1)[0]) > 100
    assert picture(page, 0) == picture(page, 1)
    assert page.ask("document.querySelectorAll('canvas')[1].ariaLabel") == "the finished image of EAGLE"


def test_images_that_differ_can_be_compared_token_by_token(page):
    choose(page, 1, "refined_lantern_pp")
    page.click("#run")
    wait(page, ENDED)
    assert "tokens differ" in text(page, "#verdict")
    assert "is lossy" in text(page, "#verdict")
    assert all(float(seconds.removesuffix(" s")) > 0 for seconds in page.ask(SECONDS))
    before = picture(page, 1)
    page.click("#mark input")
    assert picture(page, 1) != before


def verdict_of(page, left: str, right: str, seconds: tuple, different: int, lossless=True, coupled=True) -> str:
    """What the page says of two finished images."""
    choose(page, 0, left)
    choose(page, 1, right)
    events = [{"event": "start", "side": side, "lossless": lossless, "coupled": coupled} for side in (0, 1)]
    figures = {"event": "round", "committed": 256, "accepted": 0, "drafted": {}, "steps": 9, "tokens_per_step": 1.0}
    events += [{**figures, "side": side, "seconds": taken} for side, taken in enumerate(seconds)]
    events.append({"event": "verdict", "total": 256, "different": list(range(different))})
    body = "\n".join(map(json.dumps, events)) + "\n"
    page.ask("document.querySelector('#verdict').replaceChildren()")
    answer = f"window.fetch = asked; return new Response({body!r})"
    page.ask(f"(() => {{ const asked = fetch; window.fetch = async () => {{ {answer} }} }})()")
    page.click("#run")
    wait(page, ENDED)
    return text(page, "#verdict")


def test_a_slower_method_is_called_slower_and_rounding_rounding(page):
    """Catches "2.06×" of a method at half the speed, and a lossless method in red for what bfloat16 has rounded."""
    assert "Jacobi (1.00 s) is 2.00 times as fast as Plain decoding (2.00 s)" in verdict_of(
        page, "plain", "jacobi", (2, 1), 0
    )
    slow = verdict_of(page, "plain", "eagle2_shared", (1, 2), 99)
    assert "EAGLE-2 (2.00 s) is slower, with 50 % of the speed of Plain decoding" in slow
    assert slow.startswith("Both methods are lossless, and float")
    assert page.ask("document.querySelector('#verdict .differ')") is None
    drawn = verdict_of(page, "plain", "eagle2_shared", (1, 2), 99, coupled=False)
    assert drawn.startswith("Both methods are lossless, and their images are two draws from one law. 99 of 256")


def test_a_stopped_comparison_stops_decoding_and_the_next_one_runs(page, server, slow_rounds):
    page.ask("document.querySelector('#run').focus()")
    page.press("Enter")
    wait(page, f"({COUNT})[0] > 3")
    assert page.ask("document.querySelectorAll('.side.running').length") == 1
    page.press("Enter")  # the focus has gone to the button that stops
    wait(page, ENDED)
    assert page.ask("document.activeElement.id") == "run"
    assert text(page, "#message") == "Stopped."
    page.click("#run")
    wait(page, "!!document.querySelector('#verdict b')")
    assert not server.busy.locked()


def test_the_models_own_sentence_is_shown_as_text(page):
    """Catches markup of a prompt that becomes part of the page."""
    page.ask("document.querySelector('#prompt').value = 'a tiger on <img src=x>'")
    page.click("#run")
    wait(page, ENDED)
    assert text(page, "#message").startswith(
        "unknown word 'tiger' in 'a tiger on <img src=x>'; did you mean water? Else this model"
    )
    assert page.ask("document.querySelectorAll('#message *').length") == 0


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_scrolls_nothing_sideways_and_dark_mode_is_dark(page, server, dark):
    show(page, server, width=390, height=844, dark=dark, phone=True)
    page.click("#run")
    wait(page, ENDED)
    assert page.ask("document.documentElement.scrollWidth") == 390
    red = page.ask("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]")
    assert (int(red) < 60) == dark
    small = "e => e.checkVisibility() && e.offsetHeight < 30 && e.type !== 'checkbox'"
    assert page.ask(f"[...document.querySelectorAll('button, select, input')].filter({small}).length") == 0
    measure = (
        "(() => { const pen = document.createElement('canvas').getContext('2d'), cut = [];"
        "for (const select of document.querySelectorAll('.method select')) { const look = getComputedStyle(select);"
        "pen.font = look.font; const room = select.clientWidth - 2 * parseFloat(look.paddingLeft) - 18;"
        "for (const option of select.options) if (pen.measureText(option.text).width > room) cut.push(option.text) }"
        "return cut })()"
    )
    assert page.ask(measure) == []
