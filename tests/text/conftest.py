"""Small tokenizers of every kind, and a hypothesis strategy for text."""

import random
from functools import cache

import pytest
from hypothesis import strategies as st

from regard.text import Tokenizer, TokenizerSettings


def _split(words: str) -> list[str]:
    return words.split(" ")


ENGLISH = _split(
    "i you we the a cat dog street window can go alone saw love very much new old tired wide student am is"
)
GERMAN = _split("ich du wir die der das Katze Hund Straße Fenster kann gehen allein sah liebe sehr neu alt müde breit")
ARABIC = _split("أستطيع الذهاب وحيداً أنا طالب القطة الشارع متعب")
JAPANESE = ["私は学生です。", "猫がマットの上にいる。", "一人で行ける。", "コンピューターを買った。"]


def corpus() -> list[str]:
    """Return nonsense sentences in four scripts, always the same."""
    draw = random.Random(7)
    lines = [" ".join(draw.choices(words, k=7)) for words in (ENGLISH, GERMAN, ARABIC) for _ in range(60)]
    return lines + JAPANESE * 10


SYMBOLS = ("<2de>", "<2FR>")


@cache
def learned(kind: str, normalise: str = "nfkc", lowercase: bool = False, spelled: bool = True) -> Tokenizer:
    """Learn a tokenizer with two symbols."""
    settings = TokenizerSettings(kind, normalise, lowercase, spelled, SYMBOLS)
    return Tokenizer.learn(corpus(), 700 if spelled else 420, settings)


LOSSLESS = [
    pytest.param((kind, normalise, lowercase, True), id=f"{kind}-{normalise}{'-lower' if lowercase else ''}")
    for kind in ("bpe", "unigram", "word", "char")
    for normalise in ("nfkc", "identity")
    for lowercase in (False, True)
]
LOSSY = [
    pytest.param((kind, normalise, False, False), id=f"{kind}-{normalise}-without-bytes")
    for kind in ("bpe", "unigram", "word", "char")
    for normalise in ("nfkc", "identity")
]

ODD = [
    *_split("<s> </s> <pad> <unk> <0x41> <0x3C> <2de> <2FR> <2fr> ▁ ▁▁"),
    *_split("\0 \t \u3000 \u00a0 \u2028 \x85 ﬁ ½ ﷺ ™ İ ß ẞ Σ ¨"),
    *_split("e\u0301 \u1112\u1161\u11ab \ud800 \udfff 👩‍👩‍👧 🇩🇪 ー だ \r\n \ufeff \u202e"),
    " ",
    "  ",
]
USUAL = [*ENGLISH, *GERMAN, *ARABIC, *JAPANESE]
text = st.lists(
    st.one_of(
        st.sampled_from(ODD),
        st.text(max_size=5),
        st.sampled_from(USUAL),
        st.just(" "),
    ),
    max_size=12,
).map("".join)
