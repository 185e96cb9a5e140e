"""SentencePiece model files are parsed and written, and their reserved ids moved."""

import io
from functools import cache
from typing import Any

import pytest
import sentencepiece
from hypothesis import given
from tests.text.conftest import corpus, learned, text

from regard.text import Tokenizer, proto


def trained(**options: Any) -> bytes:
    """Train a model with SentencePiece itself."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus()), model_writer=model, vocab_size=120, minloglevel=3, **options
    )
    return model.getvalue()


FOREIGN: dict[str, dict[str, Any]] = {
    "default": {},
    "bpe": {"model_type": "bpe", "user_defined_symbols": ["<tag>"]},
    "padded": {"pad_id": 3, "bos_id": -1, "unk_id": 2, "eos_id": 1, "unk_piece": "[UNK]"},
    "no-prefix": {"add_dummy_prefix": False, "normalization_rule_name": "identity"},
}


@cache
def foreign(name: str) -> bytes:
    return trained(**FOREIGN[name])


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word", "char"])
def test_a_model_that_is_parsed_and_written_is_unchanged(kind: str) -> None:
    model = learned(kind, "nfkc", True).model
    assert proto.read(model).write() == model


@pytest.mark.parametrize("name", FOREIGN)
def test_a_model_trained_elsewhere_gets_our_reserved_ids(name: str) -> None:
    tokenizer = Tokenizer(foreign(name))
    assert [tokenizer.id(piece) for piece in ("<pad>", tokenizer.piece(1), "<s>", "</s>")] == [0, 1, 2, 3]
    assert Tokenizer(tokenizer.model) == tokenizer


@pytest.mark.parametrize("name", FOREIGN)
@given(line=text)
def test_a_model_trained_elsewhere_segments_lines_as_before(name: str, line: str) -> None:
    tokenizer = Tokenizer(foreign(name))
    theirs = sentencepiece.SentencePieceProcessor(model_proto=foreign(name))
    plain = " ".join(
        "".join(character for character in line if character.isprintable() and character != "▁").split(" ")
    )
    pieces = [theirs.id_to_piece(number) for number in theirs.encode(plain)]
    assert [tokenizer.piece(number) for number in tokenizer.encode(plain)] == pieces


@pytest.mark.parametrize("name", FOREIGN)
def test_a_model_trained_elsewhere_decodes_what_it_encodes(name: str) -> None:
    tokenizer = Tokenizer(foreign(name))
    for line in corpus()[::9]:
        assert tokenizer.decode(tokenizer.encode(line)) == tokenizer.normalise(line) == line


def test_a_model_that_writes_the_space_after_a_word_raises() -> None:
    with pytest.raises(ValueError, match="only ▁ before a word"):
        Tokenizer(trained(treat_whitespace_as_suffix=True))


def test_a_model_whose_reserved_names_are_ordinary_pieces_raises() -> None:
    with pytest.raises(ValueError, match="cannot be mapped"):
        Tokenizer(trained(user_defined_symbols=["<pad>"]))
