"""Captions as the released LlamaGen text models saw them in training (language/t5.py of FoundationVision/LlamaGen): its
rules, in its order, twice. Left out: of ftfy, the repair of wrongly decoded text, of C1 controls, lone surrogates and
terminal escapes; of BeautifulSoup, CDATA sections and its leniency with broken declarations."""

import html
import re
import unicodedata
from collections.abc import Sequence
from html.entities import html5
from html.parser import HTMLParser
from urllib.parse import unquote_plus

Rules = Sequence[tuple[re.Pattern[str], str]]

HOST = r"[a-z0-9.\-]+\.(?:com|co|ru|net|org|edu|gov|it)[\w/-]*\b/?(?!@)"  # with its path
MEDIA = r"(?:png|jpe?g|bmp|webp|eps|pdf|apk|mp4)"
DASHES = (
    r"[\-\u058a\u05be\u1400\u1806\u2010-\u2015\u2e17\u2e1a\u2e3a\u2e3b\u2e40\u301c\u3030\u30a0\ufe31\ufe32\ufe58\ufe63"
    r"\uff0d]+"
)
JOINTS = re.compile("[-_]")
MAX_JOINTS = 3  # more of them join words, as in this_is_my_cute_cat


def _rules(*pairs: tuple[str, str]) -> Rules:
    return [(re.compile(pattern), replacement) for pattern, replacement in pairs]


ADDRESSES = _rules(
    ("<person>", "person"),
    (rf"\bhttps?:(?:/{{1,3}}|[a-z0-9%])|\b{HOST}", ""),
    (rf"\bwww:(?:/{{1,3}}|[a-z0-9%])|\b{HOST}", ""),  # the colon is the released code's
)
SYMBOLS = _rules(
    (r"@\w+", ""),  # nicknames
    ("[\u31c0-\u9fff]+", ""),  # CJK strokes to unified ideographs
    (DASHES, "-"),
    ("[`´«»“”¨]", '"'),
    ("[‘’]", "'"),
    ("&quot;?", ""),
    ("&amp", ""),
    (r"\d{1,3}(?:\.\d{1,3}){3}", " "),  # IP addresses
    (r"\d:\d\d\s+$", ""),  # article numbers
    (r"\\n", " "),
    (r"#(?:\d{1,3}|\d{5,})\b", ""),
    (r"\b\d{6,}\b", ""),
    (rf"\S+\.{MEDIA}", ""),  # file names
    ("[\"']{2,}", '"'),
    (r"\.{2,}", " "),
    (r"[#®•©™&@·º½¾¿¡§~()\[\]{}|\\/*]+", " "),  # bullets, brackets and the like
    (r"\s+\.\s+", " "),
)
LISTINGS = _rules(
    (r"\b[a-zA-Z]{1,3}\d{3,15}\b", ""),  # article numbers: jc6640, then jc6640vc, then 6640vc231
    (r"\b[a-zA-Z]+\d+[a-zA-Z]+\b", ""),
    (r"\b\d+[a-zA-Z]+\d+\b", ""),
    (r"(?:worldwide\s+)?(?:free\s+)?shipping", ""),
    (r"(?:free\s)?download(?:\sfree)?", ""),
    (r"\bclick\s(?:for|on)\s\w+", ""),
    (rf"\b{MEDIA}(?:\simages?)?", ""),
    (r"\bpage\s+\d+\b", ""),
    (r"\b\d*[a-zA-Z]+\d+[a-zA-Z]+\d+[a-zA-Z\d]*\b", " "),  # j2d1a2a
    (r"\b\d+\.?\d*[x\u0445×]\d+\.?\d*\b", ""),  # 3x4, with a Latin x, a Cyrillic one or a sign
    (r"\b\s+:\s+", ": "),
    (r"(\D[,./])\b", r"\1 "),
    (r"\s+", " "),
    (r"""^["'](.+)["']$""", r"\1"),
    ("^['_,\\-:;]", ""),
    ("['_,\\-:+]$", ""),
    (r"^\.\S+$", ""),
)
COMPATIBLE = {  # ligatures, and letters of full or half width, to plain ones
    code: unicodedata.normalize("NFKC", chr(code))
    for first, last in ((0x132, 0x133), (0x149, 0x149), (0x1C4, 0x1CC), (0x1F1, 0x1F3), (0x3000, 0x3000),
                        (0xFB00, 0xFB06), (0xFF01, 0xFFEF))
    for code in range(first, last + 1)
}  # fmt: skip
FTFY = _rules(
    ("[\u02bc\u2018-\u201b]", "'"),
    ("[\u201c-\u201f]", '"'),
    ("[\x00-\x08\x0b\x0e-\x1f\x7f\u206a-\u206f\ufeff\ufff9-\ufffb]", ""),  # controls
)


def cleaned(caption: str) -> str:
    """The caption as T5 read it in the released models' training: lower case, without addresses, markup, symbols and
    what shop listings add."""
    return _once(_once(caption))


def _once(caption: str) -> str:
    text = _text_of(_applied(ADDRESSES, unquote_plus(caption).strip().lower()))
    text = _applied(SYMBOLS, text)
    if len(JOINTS.findall(text)) > MAX_JOINTS:
        text = JOINTS.sub(" ", text)
    text = _applied(FTFY, unicodedata.normalize("NFC", text.translate(COMPATIBLE)))
    text = html.unescape(html.unescape(text)).strip()
    return _applied(LISTINGS, text).strip()


def _applied(rules: Rules, text: str) -> str:
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text


def _text_of(markup: str) -> str:
    """What stands between tags."""
    parser = _Text()
    parser.feed(markup)
    parser.close()
    return "".join(parser.parts)


class _Text(HTMLParser):
    """Collects text as BeautifulSoup does over the same parser: unknown entities stay, scripts and styles do not."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.parts: list[str] = []

    def handle_data(self, data: str) -> None:
        if self.cdata_elem is None:
            self.parts.append(data)

    def handle_entityref(self, name: str) -> None:
        self.parts.append(html5.get(f"{name};", f"&{name}"))

    def handle_charref(self, name: str) -> None:
        self.parts.append(html.unescape(f"&#{name};"))
