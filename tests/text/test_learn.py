"""Learning a vocabulary is reproducible, bounded in memory, and reports errors clearly."""

import logging
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.text.conftest import corpus

from regard.text import Tokenizer, TokenizerSettings
from regard.text.learn import limit_text, reservoir

KINDS = ("bpe", "unigram", "word", "char")


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_lines_give_the_same_model_bit_for_bit(kind: str) -> None:
    settings = TokenizerSettings(kind, symbols=("<2de>",))
    assert Tokenizer.learn(iter(corpus()), 500, settings).model == Tokenizer.learn(corpus(), 500, settings).model


@pytest.mark.parametrize("kind", KINDS)
def test_a_vocabulary_has_the_size_asked_for(kind: str) -> None:
    size = {"bpe": 400, "unigram": 380, "word": 300, "char": 300}[kind]
    for symbols in ((), ("<2de>", "<2fr>")):
        assert len(Tokenizer.learn(corpus(), size, TokenizerSettings(kind, symbols=symbols))) == size


@pytest.mark.parametrize("kind", KINDS)
def test_a_size_that_the_text_cannot_fill_is_lowered_with_a_warning(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "regard.text"):
        tokenizer = Tokenizer.learn(["the cat saw the dog"], 5000, TokenizerSettings(kind))
    assert len(tokenizer) < 5000
    assert f"vocabulary of {len(tokenizer)} pieces, fewer than the 5000" in caplog.text
    assert tokenizer.decode(tokenizer.encode("the dog")) == "the dog"


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("size", [1, 200, 270])
def test_the_error_of_a_size_too_small_names_the_smallest_possible(kind: str, size: int) -> None:
    smallest = size
    for _ in range(2):  # once for the reserved ids, once for the characters
        try:
            Tokenizer.learn(corpus(), smallest, TokenizerSettings(kind))
            break
        except ValueError as error:
            smallest = int(str(error).split("at least ")[1].split(",")[0])
    assert smallest > size
    assert len(Tokenizer.learn(corpus(), smallest, TokenizerSettings(kind))) == smallest
    with pytest.raises(ValueError, match="too small"):
        Tokenizer.learn(corpus(), smallest - 1, TokenizerSettings(kind))


@pytest.mark.parametrize("kind", ["word", "char"])
def test_words_and_characters_need_one_id_beyond_the_reserved_ones(kind: str) -> None:
    with pytest.raises(ValueError, match="at least 5"):
        Tokenizer.learn(["the cat"], 4, TokenizerSettings(kind, bytes=False))
    assert len(Tokenizer.learn(["the the cat"], 5, TokenizerSettings(kind, bytes=False))) == 5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lines", [[], [""], [" ", "\t", "\u3000"]])
def test_learning_from_no_text_raises(kind: str, lines: list[str]) -> None:
    with pytest.raises(ValueError, match="no text to learn"):
        Tokenizer.learn(lines, 500, TokenizerSettings(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_reserved_names_in_the_text_do_not_become_reserved_ids(kind: str) -> None:
    lines = [*corpus(), *["<s> a<s>b <pad> </s>", "x\0y \ud800 \r\n", "a" * 100_000, "<0x41> ▁<s>"] * 30]
    tokenizer = Tokenizer.learn(lines, 600, TokenizerSettings(kind))
    assert not {0, 2, 3} & set(tokenizer.encode("<s> <pad> </s>x<s>"))
    assert tokenizer.decode(tokenizer.encode("a<s>b <pad>")) == "a<s>b <pad>"


def test_learning_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    Tokenizer.learn(corpus(), 500)
    with pytest.raises(ValueError, match="too small"):
        Tokenizer.learn(corpus(), 262)
    with pytest.raises(ValueError, match="not a complete SentencePiece model"):
        Tokenizer(b"nothing")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_the_text_is_limited_to_a_number_of_characters(kind: str) -> None:
    lines = [f"{at} {'x' * 20}{at:04}" for at in range(1000)]
    kept = limit_text(lines, 5000, kind, seed=1)
    assert kept == [line for line in lines if line in set(kept)]
    assert 4500 < sum(map(len, kept)) < 5500
    assert kept == limit_text(lines, 5000, kind, seed=1)
    assert limit_text(lines, 10**6, kind, seed=1) == lines
    assert abs(sum(int(line.split()[0]) for line in kept) / len(kept) - 500) < 100


def test_repeated_words_do_not_count_for_bpe() -> None:
    lines = ["the cat saw the dog"] * 1000
    assert limit_text(lines, 100, "bpe", seed=1) == lines
    assert len(limit_text(lines, 100, "unigram", seed=1)) == 5


def test_a_sample_of_a_short_stream_is_the_stream_in_order() -> None:
    assert reservoir(range(10), 10, seed=1) == list(range(10))
    assert reservoir(range(0), 10, seed=1) == []


def test_a_sample_has_the_size_asked_for_and_depends_on_the_seed() -> None:
    kept = reservoir(range(5000), 100, seed=3)
    assert len(set(kept)) == 100
    assert kept == reservoir(range(5000), 100, seed=3)
    assert kept != reservoir(range(5000), 100, seed=4)


def test_a_sample_is_uniform() -> None:
    """Each of 50 items is drawn with probability 1/5: 2000 draws, standard deviation 18."""
    counts = Counter(item for seed in range(2000) for item in reservoir(range(50), 10, seed))
    assert all(abs(counts[item] - 400) < 90 for item in range(50))


def test_sampling_reads_the_stream_once() -> None:
    def stream() -> Iterator[int]:
        yield from range(1000)

    items = stream()
    assert len(reservoir(items, 10, seed=0)) == 10
    assert list(items) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "bytes"}, "choose one of bpe, unigram, word, char"),
        ({"normalise": "nfc"}, "choose one of nfkc, identity"),
        ({"symbols": ("<s>",)}, "reserved"),
        ({"symbols": ("<0x0A>",)}, "reserved"),
        ({"symbols": ("<2de>", "<2de>")}, "twice"),
        ({"symbols": ("",)}, "empty"),
        ({"symbols": ("to german",)}, "white space"),
        ({"symbols": ("▁x",)}, "white space"),
    ],
)
def test_invalid_settings_raise(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TokenizerSettings(**settings)  # type: ignore[arg-type]
