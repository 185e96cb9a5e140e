"""Every token has its span and its word in the original line."""

import gzip
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.text.conftest import LOSSLESS, LOSSY, learned, text

from regard.text import Token, Tokenizer, TokenizerSettings, words

Choice = tuple[str, str, bool, bool]


@pytest.mark.parametrize("choice", [*LOSSLESS, *LOSSY])
@given(line=text)
def test_spans_run_forward_cover_the_line_and_agree_with_the_words(choice: Choice, line: str) -> None:
    tokenizer = learned(*choice)
    tokens = tokenizer.tokens(line)
    assert [token.id for token in tokens] == tokenizer.encode(line)
    check(tokens, line)
    for token in tokens:
        assert token.piece == tokenizer.piece(token.id)


def check(tokens: list[Token], line: str) -> None:
    """Check the laws of spans; `▁` is left out, because it is a space only to the tokenizer."""
    for before, after in pairwise(tokens):
        assert before.start <= after.start
        assert before.end <= after.end
    covered = {at for token in tokens for at in range(token.start, token.end)}
    assert covered >= {at for at, character in enumerate(line) if not character.isspace() and character != "▁"}
    spans = words(line)
    for token in tokens:
        assert 0 <= token.start <= token.end <= len(line)
        inside = line[token.start : token.end]
        assert inside == inside.strip() or not inside.strip()
        if token.word is None:
            assert not spans
        elif inside.strip():
            assert spans[token.word][0] <= token.start < spans[token.word][1]


@pytest.mark.parametrize("choice", [*LOSSLESS, *LOSSY])
@given(line=text)
def test_tokens_of_ids_have_the_words_of_the_tokens_of_their_text(choice: Choice, line: str) -> None:
    tokenizer = learned(*choice)
    decoded = tokenizer.decode(tokenizer.encode(line))
    ids = tokenizer.encode(decoded)
    tokens, expected = tokenizer.tokens_of(ids), tokenizer.tokens(decoded)
    check(tokens, tokenizer.decode(ids))
    if tokenizer.decode(ids) == decoded and "▁" not in decoded:
        assert [(token.id, token.word) for token in tokens] == [(token.id, token.word) for token in expected]


@given(st.lists(st.integers(0, 599)))
def test_tokens_of_any_ids_lie_inside_their_text(ids: list[int]) -> None:
    tokenizer = learned("bpe")
    decoded = tokenizer.decode(ids)
    tokens = tokenizer.tokens_of(ids)
    assert [token.id for token in tokens] == ids
    assert all(0 <= token.start <= token.end <= len(decoded) for token in tokens)
    assert [token.start for token in tokens] == sorted(token.start for token in tokens)
    assert {at for token in tokens for at in range(token.start, token.end)} >= {
        at for at, character in enumerate(decoded) if not character.isspace()
    }


@pytest.mark.parametrize("kind", ["bpe", "unigram", "char"])
@given(line=text)
def test_with_identity_the_text_of_a_span_is_its_piece(kind: str, line: str) -> None:
    tokenizer = learned(kind, "identity")
    for token in tokenizer.tokens(line.replace("▁", "")):
        inside = line.replace("▁", "")[token.start : token.end]
        if token.piece.startswith("<0x") and len(token.piece) == 6:
            assert int(token.piece[3:5], 16) in inside.encode(errors="surrogatepass") or inside in "\ud800\udfff"
        else:
            assert inside.strip() == token.piece.replace("▁", " ").strip()


def pieces_and_spans(tokenizer: Tokenizer, line: str) -> list[tuple[str, str, int | None]]:
    return [(token.piece, line[token.start : token.end], token.word) for token in tokenizer.tokens(line)]


def test_all_bytes_of_a_character_have_the_span_of_the_character() -> None:
    line = "the Ж🦓"
    assert pieces_and_spans(learned("char"), line)[-6:] == [
        ("<0xD0>", "Ж", 1),
        ("<0x96>", "Ж", 1),
        ("<0xF0>", "🦓", 1),
        ("<0x9F>", "🦓", 1),
        ("<0xA6>", "🦓", 1),
        ("<0x93>", "🦓", 1),
    ]


def test_characters_that_are_normalised_together_have_one_span() -> None:
    assert pieces_and_spans(learned("char"), "ﬆ e\u0301") == [
        ("▁", "", 0),
        ("s", "ﬆ", 0),
        ("t", "ﬆ", 0),
        ("▁", " ", 1),
        ("<0xC3>", "e\u0301", 1),
        ("<0xA9>", "e\u0301", 1),
    ]


def test_a_letter_with_two_lower_case_characters_has_one_span() -> None:
    tokens = pieces_and_spans(learned("char", "identity", True), "İİ a")
    assert [inside for piece, inside, _ in tokens if piece == "i"] == ["İ", "İ"]
    assert tokens[-1] == ("a", "a", 1)


def test_words_are_those_of_the_original_line() -> None:
    assert pieces_and_spans(learned("word"), " \t the\u3000 cat▁dog ") == [
        ("▁the", "the", 0),
        ("▁cat", "cat", 1),
        ("▁dog", "dog", 1),
    ]


def test_a_symbol_has_its_own_span() -> None:
    for kind in ("bpe", "unigram", "word", "char"):
        assert ("<2de>", "<2de>", 0) in pieces_and_spans(learned(kind), "<2de> the cat")


def test_every_part_of_a_joined_emoji_is_covered() -> None:
    line = "👩‍👩‍👧"
    tokens = learned("bpe").tokens(line)
    assert {at for token in tokens for at in range(token.start, token.end)} == set(range(len(line)))
    assert {token.word for token in tokens} == {0}


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("tatoeba-en-ar/dev.ar.gz", "bpe"),
        ("tatoeba-en-ar/dev.ar.gz", "unigram"),
        ("small_parallel_enja/dev.ja.gz", "unigram"),
        ("kftt/dev.ja.gz", "bpe"),
        ("multi30k/val.de.gz", "word"),
    ],
)
@pytest.mark.parametrize("lowercase", [False, True])
def test_the_laws_hold_for_real_text(shared_data: Path, file: str, kind: str, lowercase: bool) -> None:
    path = shared_data / file
    if not path.is_file():
        pytest.skip(f"{file} is not among the real corpora here")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        real = [line.rstrip("\n") for line in lines][:300]
    tokenizer = Tokenizer.learn(real, 2500, TokenizerSettings(kind, lowercase=lowercase))
    for line in [*real, *(line.replace(" ", "") for line in real[:100])]:
        tokens = tokenizer.tokens(line)
        assert [token.id for token in tokens] == tokenizer.encode(line)
        assert tokenizer.decode([token.id for token in tokens]) == tokenizer.normalise(line)
        check(tokens, line)
        if " " in line:
            assert {token.word for token in tokens} == set(range(len(line.split())))
