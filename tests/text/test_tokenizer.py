"""Laws of every kind of tokenizer, for any text."""

import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.text.conftest import GERMAN, LOSSLESS, LOSSY, SYMBOLS, corpus, learned, text

from regard.text import END, PAD, START, UNK, Tokenizer, TokenizerSettings

KINDS = ("bpe", "unigram", "word", "char")
Choice = tuple[str, str, bool, bool]


@pytest.mark.parametrize("choice", LOSSLESS)
@given(line=text)
def test_decoding_gives_the_normalised_line(choice: Choice, line: str) -> None:
    tokenizer = learned(*choice)
    assert tokenizer.decode(tokenizer.encode(line)) == tokenizer.normalise(line)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "char"])
@given(line=text)
def test_identity_loses_nothing_but_lone_surrogates_and_the_space_mark(kind: str, line: str) -> None:
    tokenizer = learned(kind, "identity")
    expected = "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in line)
    assert tokenizer.decode(tokenizer.encode(line)) == expected.replace("▁", " ")


@pytest.mark.parametrize("choice", [*LOSSLESS, *LOSSY])
@given(lines=st.lists(text, max_size=5), threads=st.sampled_from([1, 2, 3]))
def test_a_batch_is_its_lines_end_to_end(choice: Choice, lines: list[str], threads: int) -> None:
    tokenizer = learned(*choice)
    ids, offsets = tokenizer.encode_batch(lines, threads=threads)
    assert ids.dtype == np.int32
    assert offsets.dtype == np.int64
    rows = [ids[start:end].tolist() for start, end in pairwise(offsets)]
    assert rows == [tokenizer.encode(line) for line in lines]
    assert tokenizer.decode_batch(rows) == [tokenizer.decode(row) for row in rows]


@pytest.mark.parametrize("choice", [*LOSSLESS, *LOSSY])
@given(line=text)
def test_text_never_becomes_a_control_id(choice: Choice, line: str) -> None:
    tokenizer = learned(*choice)
    ids = tokenizer.encode(f"{line}<s>{line} <pad> </s><unk> <s>")
    assert not {PAD, START, END} & set(ids)
    if choice[-1]:
        assert UNK not in ids


@pytest.mark.parametrize("choice", [*LOSSLESS, *LOSSY])
def test_a_symbol_is_one_id_everywhere(choice: Choice) -> None:
    tokenizer = learned(*choice)
    for symbol in SYMBOLS:
        number = tokenizer.id(symbol)
        assert tokenizer.piece(number) == symbol
        assert tokenizer.encode(symbol).count(number) == 1
        assert tokenizer.encode(f"{symbol} cat{symbol}dog {symbol}{symbol}").count(number) == 4
        assert sum(piece.endswith(symbol) for piece in map(tokenizer.piece, range(len(tokenizer)))) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_four_ids_are_reserved(kind: str) -> None:
    tokenizer = learned(kind)
    assert [tokenizer.piece(number) for number in (PAD, UNK, START, END)] == ["<pad>", "<unk>", "<s>", "</s>"]
    assert [tokenizer.id(piece) for piece in ("<pad>", "<unk>", "<s>", "</s>")] == [0, 1, 2, 3]


@pytest.mark.parametrize("choice", [*LOSSLESS, *LOSSY])
def test_piece_and_id_are_inverse(choice: Choice) -> None:
    tokenizer = learned(*choice)
    assert [tokenizer.id(tokenizer.piece(number)) for number in range(len(tokenizer))] == list(range(len(tokenizer)))


@pytest.mark.parametrize("normalise", ["nfkc", "identity"])
def test_each_unknown_word_is_one_token(normalise: str) -> None:
    tokenizer = learned("word", normalise, False, False)
    assert tokenizer.encode("zebra yak the quagga") == [UNK, UNK, tokenizer.id("the"), UNK]
    assert tokenizer.decode(tokenizer.encode("the zebra")) == "the ⁇"


def test_each_unknown_character_is_one_token() -> None:
    tokenizer = learned("char", "nfkc", False, False)
    assert tokenizer.encode("ЖЩ")[1:] == [UNK, UNK]


def test_an_unknown_word_is_spelled_in_bytes() -> None:
    tokenizer = learned("word")
    pieces = [tokenizer.piece(number) for number in tokenizer.encode("the yak")]
    assert pieces == ["▁the", "<0x20>", "<0x79>", "<0x61>", "<0x6B>"]


def test_lower_casing_keeps_the_sharp_s_and_final_sigma() -> None:
    tokenizer = learned("bpe", "nfkc", True)
    assert tokenizer.normalise("Die STRAßE, ΟΔΟΣ") == "die straße, οδος"
    assert tokenizer.encode("Die Straße") == tokenizer.encode("DIE STRAßE")


def test_lower_casing_leaves_symbols_alone() -> None:
    tokenizer = learned("bpe", "identity", True)
    assert tokenizer.normalise("<2FR> The CAT") == "<2FR> the cat"


@pytest.mark.parametrize("kind", KINDS)
def test_nfkc_collapses_all_kinds_of_white_space(kind: str) -> None:
    tokenizer = learned(kind)
    assert tokenizer.normalise(" \t the\u3000\u00a0cat\n▁dog \r\n") == "the cat dog"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unit", ["cat ", "猫", "x", "\0", "ab "], ids=["words", "han", "letters", "nul", "unknown"])
def test_a_line_of_a_megabyte_round_trips(kind: str, unit: str) -> None:
    tokenizer = learned(kind)
    line = unit * (1_000_000 // len(unit.encode()))
    ids, _ = tokenizer.encode_batch([line, "cat"])
    assert tokenizer.decode(ids[: -len(tokenizer.encode("cat"))]) == tokenizer.normalise(line)


def test_decoding_drops_control_ids_and_accepts_any_integer_sequence() -> None:
    tokenizer = learned("bpe")
    ids = tokenizer.encode("the cat")
    padded = [START, *ids, END, PAD, PAD]
    for row in (padded, tuple(padded), np.array(padded, dtype=np.int32), np.array(padded, dtype=np.uint16)):
        assert tokenizer.decode(row) == "the cat"
    assert tokenizer.decode([]) == ""


@pytest.mark.parametrize("ids", [[-1], [10**6], [1.5], [[4, 5]], ["the"]])
def test_decoding_anything_but_a_row_of_ids_raises(ids: list[object]) -> None:
    with pytest.raises(ValueError, match="id"):
        learned("bpe").decode(np.array(ids))


def test_the_piece_of_an_id_out_of_range_raises() -> None:
    with pytest.raises(ValueError, match="ids of this vocabulary are 0 to"):
        learned("bpe").piece(-1)


def test_encoding_with_no_threads_raises() -> None:
    with pytest.raises(ValueError, match="at least one"):
        learned("bpe").encode_batch(["a"], threads=0)


@pytest.mark.parametrize("choice", [*LOSSLESS, *LOSSY])
def test_a_loaded_tokenizer_equals_the_saved_one(choice: Choice, tmp_path: Path) -> None:
    tokenizer = learned(*choice)
    tokenizer.save(tmp_path / "some.model")
    loaded = Tokenizer.load(tmp_path / "some.model")
    assert loaded == tokenizer
    assert loaded.settings == tokenizer.settings == TokenizerSettings(*choice, SYMBOLS)
    assert loaded.fingerprint == tokenizer.fingerprint
    lines = [*corpus(), "Ünseen <2FR> ÀÉ"]
    assert np.array_equal(loaded.encode_batch(lines)[0], tokenizer.encode_batch(lines)[0])
    assert [path.name for path in tmp_path.iterdir()] == ["some.model"]


def test_a_tokenizer_can_be_pickled() -> None:
    tokenizer = learned("bpe", "nfkc", True)
    assert pickle.loads(pickle.dumps(tokenizer)) == tokenizer
    assert hash(pickle.loads(pickle.dumps(tokenizer))) == hash(tokenizer)


def test_settings_change_the_fingerprint() -> None:
    choices = [
        (kind, normalise, lowercase) for kind in KINDS for normalise in ("nfkc", "identity") for lowercase in (0, 1)
    ]
    fingerprints = {learned(kind, normalise, bool(lowercase)).fingerprint for kind, normalise, lowercase in choices}
    assert len(fingerprints) == len(choices)


@given(cut=st.floats(0, 1, exclude_max=True))
def test_the_error_of_a_truncated_file_names_it(cut: float, tmp_path_factory: pytest.TempPathFactory) -> None:
    whole = learned("bpe").model
    file = tmp_path_factory.mktemp("cut") / "cut.model"
    file.write_bytes(whole[: int(cut * len(whole))])
    with pytest.raises(ValueError, match=r"cut\.model is damaged.*learn it again"):
        Tokenizer.load(file)


@given(junk=st.binary(max_size=200))
def test_the_error_of_a_file_that_is_no_model_names_it(junk: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("junk") / "junk.model"
    file.write_bytes(junk)
    with pytest.raises(ValueError, match=r"junk\.model"):
        Tokenizer.load(file)


def test_the_error_of_a_missing_file_names_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.model does not exist"):
        Tokenizer.load(tmp_path / "none.model")


def test_german_words_round_trip() -> None:
    tokenizer = learned("bpe", "identity")
    assert tokenizer.decode(tokenizer.encode(" ".join(GERMAN))) == " ".join(GERMAN)
