"""Documents of a language model: line breaks and all white space survive, in linear time."""

import gzip
import json
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.text.conftest import SYMBOLS, corpus, learned, text
from tests.text.test_spans import check

from regard.text import UNK, Tokenizer, Tokenizers, TokenizerSettings
from regard.text.learn import LONGEST
from regard.text.prepare import split_lines

KINDS = ("bpe", "unigram", "char")
DOCUMENT = "\n".join(corpus())
documents = st.lists(st.one_of(text, st.sampled_from(["\n", "\n\n", "\t", "   ", "\r\n", "▁▁"])), max_size=8).map(
    "".join
)


@cache
def multiline(kind: str, normalise: str = "identity", lowercase: bool = False, spelled: bool = True) -> Tokenizer:
    settings = TokenizerSettings(kind, normalise, lowercase, spelled, SYMBOLS, multiline=True)
    return Tokenizer.learn([DOCUMENT], 700 if spelled else 420, settings)


def without_surrogates(document: str) -> str:
    return "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in document)


@pytest.mark.parametrize("kind", KINDS)
@given(batch=st.lists(documents, max_size=4))
def test_documents_round_trip_exactly(kind: str, batch: list[str]) -> None:
    tokenizer = multiline(kind)
    ids, offsets = tokenizer.encode_batch(batch, threads=1)
    rows = [ids[start:end] for start, end in pairwise(offsets)]
    assert tokenizer.decode_batch(rows) == [without_surrogates(document) for document in batch]
    assert [row.tolist() for row in rows] == [tokenizer.encode(document) for document in batch]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("normalise", ["nfkc", "identity"])
@pytest.mark.parametrize("lowercase", [False, True])
@given(document=documents)
def test_decoding_gives_the_normalised_document(kind: str, normalise: str, lowercase: bool, document: str) -> None:
    tokenizer = multiline(kind, normalise, lowercase)
    assert tokenizer.decode(tokenizer.encode(document)) == tokenizer.normalise(document)
    assert tokenizer.normalise(document).count("\n") == document.count("\n")


@given(document=st.text(alphabet=sorted(set(DOCUMENT)), max_size=60))
def test_each_character_is_one_token(document: str) -> None:
    for spelled in (True, False):
        tokenizer = multiline("char", spelled=spelled)
        assert [tokenizer.piece(number) for number in tokenizer.encode(document)] == list(document.replace(" ", "▁"))


@pytest.mark.parametrize("kind", KINDS)
@given(lines=st.lists(documents, max_size=5))
def test_a_document_is_its_lines_end_to_end(kind: str, lines: list[str]) -> None:
    tokenizer = multiline(kind)
    lines = [line + "\n" for line in lines]
    assert tokenizer.encode("".join(lines)) == [number for line in lines for number in tokenizer.encode(line)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spelled", [True, False])
@given(document=documents)
def test_tokens_of_a_document_have_spans_and_words(kind: str, spelled: bool, document: str) -> None:
    tokenizer = multiline(kind, spelled=spelled)
    tokens = tokenizer.tokens(document)
    assert [token.id for token in tokens] == tokenizer.encode(document)
    check(tokens, document)
    check(tokenizer.tokens_of(tokenizer.encode(document)), tokenizer.decode(tokenizer.encode(document)))


@given(ids=st.lists(st.integers(0, 699)))
def test_generated_ids_have_spans_inside_their_text(ids: list[int]) -> None:
    tokenizer = multiline("bpe")
    document = tokenizer.decode(ids)
    tokens = tokenizer.tokens_of(ids)
    assert [token.id for token in tokens] == ids
    assert all(0 <= token.start <= token.end <= len(document) for token in tokens)
    for token in tokens:
        if token.piece == "\n":
            assert document[token.start : token.end] == "\n"


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@given(document=documents, amount=st.floats(0, 1), seed=st.integers(0, 9))
def test_a_sampled_document_spells_the_same_text(kind: str, document: str, amount: float, seed: int) -> None:
    tokenizer = multiline(kind)
    ids, _ = tokenizer.sample_batch([document], amount, seed)
    assert tokenizer.decode(ids) == without_surrogates(document)


@given(document=documents, longest=st.integers(8, 20))
def test_parts_of_a_document_are_short_and_split_no_symbol(document: str, longest: int) -> None:
    parts = split_lines(document, longest, SYMBOLS)
    assert "".join(parts) == document
    assert all(0 < len(part) <= longest for part in parts)
    assert not any("\n" in part[:-1] for part in parts)
    for symbol in SYMBOLS:
        assert sum(part.count(symbol) for part in parts) == document.count(symbol)


@pytest.mark.parametrize("kind", ["bpe", "char"])
def test_cutting_a_long_line_changes_no_token(kind: str) -> None:
    """The whole line, encoded by SentencePiece itself, has the same tokens as its parts."""
    tokenizer = multiline(kind)
    line = " ".join(corpus()[:180])
    assert len(split_lines(line, LONGEST)) > 2
    assert tokenizer.encode(line) == tokenizer._processor.encode(line)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unit", ["the cat ", "x", "cat\n", "猫"], ids=["words", "letters", "lines", "han"])
def test_a_megabyte_round_trips(kind: str, unit: str) -> None:
    tokenizer = multiline(kind)
    document = unit * (1_000_000 // len(unit.encode()))
    ids, _ = tokenizer.encode_batch([document, "cat"])
    assert tokenizer.decode(ids) == document + "cat"


@pytest.mark.parametrize("kind", KINDS)
def test_every_line_of_a_document_is_learned_from(kind: str) -> None:
    document = "a b " * LONGEST + "\n" + "\n".join(["c d"] * LONGEST) + "\nžluť" * 100
    tokenizer = Tokenizer.learn([document], 300, TokenizerSettings(kind, "identity", multiline=True))
    assert tokenizer.id("ž") > UNK
    assert [piece for piece in map(tokenizer.piece, range(len(tokenizer))) if "\n" in piece] == ["\n"]


def test_learning_from_a_document_is_learning_from_its_lines() -> None:
    settings = TokenizerSettings("bpe", "identity", multiline=True)
    whole = Tokenizer.learn([DOCUMENT], 400, settings)
    assert whole == Tokenizer.learn(DOCUMENT.split("\n"), 400, settings)
    assert Tokenizers.learn([(DOCUMENT,)], ["text"], normalise="identity", size=400, multiline=True) == {"text": whole}


def test_a_single_line_tokenizer_is_what_it_was(tmp_path: Path) -> None:
    """The new setting is neither in the model file nor in the index of tokenizers without it."""
    tokenizer = learned("bpe", "identity")
    assert tokenizer.settings == TokenizerSettings("bpe", "identity", symbols=SYMBOLS)
    Tokenizers({"source": tokenizer, "target": tokenizer}).save(tmp_path)
    assert "multiline" not in json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))["joint"]
    assert [tokenizer.piece(number) for number in tokenizer.encode("\n")] == ["▁", "<0x0A>"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_tokenizer_keeps_its_settings(kind: str, tmp_path: Path) -> None:
    tokenizers = Tokenizers({"text": multiline(kind)})
    tokenizers.save(tmp_path)
    loaded = Tokenizers.load(tmp_path, ["text"])
    assert loaded == tokenizers
    assert loaded["text"].settings == TokenizerSettings(kind, "identity", symbols=SYMBOLS, multiline=True)
    more = loaded.extended(["<new>"], ["text"])["text"]
    assert more.settings.multiline
    assert more.encode("a\n<new>")[-1] == len(loaded["text"])


def test_documents_of_words_raise() -> None:
    with pytest.raises(ValueError, match="use kind bpe, unigram or char"):
        TokenizerSettings("word", multiline=True)


@pytest.mark.parametrize("kind", KINDS)
def test_tiny_shakespeare_round_trips(kind: str, shared_data: Path) -> None:
    path = shared_data / "shakespeare" / "train.txt.gz"
    if not path.is_file():
        pytest.skip("Tiny Shakespeare is not among the real corpora here")
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        document = file.read()
    tokenizer = Tokenizer.learn([document], 500, TokenizerSettings(kind, "identity", multiline=True))
    ids, offsets = tokenizer.encode_batch([document])
    assert tokenizer.decode(ids) == document
    assert np.array_equal(offsets, [0, len(ids)])
    if kind == "char":
        assert len(ids) == len(document) == 1_003_854
        assert len(set(ids.tolist())) == 65
