"""Filling masks: what is accepted, which candidates come back and how they read, and pseudo-perplexity."""

import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.models.build import build_masked_language_model
from regard.nn.ragged import Ragged
from regard.predict import MaskFiller
from regard.recipe import Transformer
from regard.text import END, START, Tokenizer, TokenizerSettings

LINES = ["the animals crossed the street, slowly", "the animal was crossing streets.", "slow animals cross"] * 3


@pytest.fixture(scope="module")
def filler(masked_run: Path) -> MaskFiller:
    loaded = regard.load(masked_run, "cpu")
    assert isinstance(loaded, MaskFiller)
    return loaded


def untrained(kind: str = "bpe", **settings: Any) -> MaskFiller:
    size = {"bpe": 330, "word": 60, "char": 300}[kind]
    tokenizer = Tokenizer.learn(LINES, size, TokenizerSettings(kind=kind, bytes=kind != "word", symbols=("<mask>",)))
    torch.manual_seed(3)
    model = build_masked_language_model(
        Transformer(width=16, inner=32, heads=2, encoder_layers=1, **settings), len(tokenizer)
    )
    return MaskFiller(model.eval(), tokenizer)


@pytest.mark.parametrize("mask", ["[MASK]", "<mask>", "[mask]"])
def test_a_mask_is_filled_with_what_the_neighbours_determine(filler: MaskFiller, mask: str) -> None:
    result = filler(f"b {mask} x", top=3)
    assert result.filled == str(result) == "b s x"
    (candidates,) = result.masks
    assert candidates[0].word == "s"
    assert candidates[0].probability > 0.5
    assert candidates[0].probability > candidates[1].probability > candidates[2].probability


def test_probabilities_are_those_of_the_whole_vocabulary(filler: MaskFiller) -> None:
    (candidates,) = filler("b [MASK] x", top=1000).masks
    assert {candidate.word for candidate in candidates} == set("abcdepqrstvwxyz")
    total = sum(candidate.probability for candidate in candidates)
    assert 0.9 < total <= 1.0 + 1e-6  # the rest is that of <unk>, <mask> and other symbols


def test_texts_of_any_length_come_back_in_their_order_and_as_if_alone(filler: MaskFiller) -> None:
    texts = ["a [MASK] v", "[MASK] p v a p v a p v", "b q [MASK]", "<mask>"]
    together = filler(texts, top=2)
    assert [result.text for result in together] == texts
    for result, text in zip(together, texts, strict=True):
        alone = filler(text, top=2)
        assert alone.filled == result.filled
        probabilities = [[candidate.probability for candidate in row] for row in result.masks]
        expected = [[candidate.probability for candidate in row] for row in alone.masks]
        np.testing.assert_allclose(probabilities, expected, rtol=1e-4)
    assert filler([]) == []


def test_each_of_several_masks_has_its_own_distribution(filler: MaskFiller) -> None:
    result, mask = filler("[MASK] [MASK] x", top=15), filler.tokenizer.id("<mask>")
    with torch.no_grad():
        expected = filler.model(Ragged.from_list([[START, mask, mask, filler.tokenizer.id("x"), END]])).softmax(-1)
    assert len(result.masks) == 2
    for position, candidates in enumerate(result.masks, start=1):
        for candidate in candidates:
            found = float(expected[position, filler.tokenizer.id(candidate.token)])
            assert candidate.probability == pytest.approx(found, rel=1e-4)


def test_joint_candidates_are_chained_and_agree_with_each_other(filler: MaskFiller) -> None:
    result = filler("[MASK] [MASK] x", top=4, joint=True)
    best = result.joint[0]
    assert result.filled == best.text == f"{best.words[0]} {best.words[1]} x"
    assert "abcde".index(best.words[0]) == ("pqrst".index(best.words[1]) - 2) % 5
    alone = {candidate.word: candidate.probability for candidate in filler("[MASK] [MASK] x", top=15).masks[0]}
    after = {candidate.word: candidate.probability for candidate in filler(f"{best.words[0]} [MASK] x").masks[0]}
    assert best.probability == pytest.approx(alone[best.words[0]] * after[best.words[1]], rel=1e-3)
    probabilities = [candidate.probability for candidate in result.joint]
    assert probabilities == sorted(probabilities, reverse=True)
    assert len(probabilities) == 4


def test_the_space_before_a_mask_is_part_of_the_masked_token() -> None:
    filler = untrained()
    mask = filler.tokenizer.id("<mask>")
    tokens = filler.tokenizer.encode("the animals crossed")
    for text in ("the [MASK] crossed", "the  [MASK] crossed"):
        assert filler._encode(text) == [START, tokens[0], mask, *filler.tokenizer.encode("crossed"), END]
    assert filler._encode("[MASK], slowly")[1:3] == [mask, filler.tokenizer.id(",")]


def test_candidates_read_as_words_and_a_continuation_is_marked() -> None:
    filler = untrained()
    pieces = {filler.tokenizer.piece(number): filler.word(number) for number in range(len(filler.tokenizer))}
    assert pieces["▁the"] == "the"
    assert pieces[","] == ","
    continuing = [piece for piece in pieces if piece.isalpha() and len(piece) > 1]
    assert continuing
    assert all(pieces[piece] == f"##{piece}" for piece in continuing)
    assert filler._replace_masks("x [MASK].", [filler.tokenizer.id("▁the")]) == "x the."
    assert filler._replace_masks("x[MASK] y", [filler.tokenizer.id("▁the")]) == "x the y"
    assert filler._replace_masks("slow [MASK] y", [filler.tokenizer.id(continuing[0])]) == f"slow{continuing[0]} y"


@pytest.mark.parametrize("kind", ["bpe", "word", "char"])
def test_every_kind_of_tokens_can_be_filled(kind: str) -> None:
    filler = untrained(kind)
    result = filler("the [MASK] was [MASK].", top=3, joint=True)
    assert [len(row) for row in result.masks] == [3, 3]
    assert not {"<mask>", "<pad>", "<s>", "</s>", "<unk>"} & {c.token for row in result.masks for c in row}
    assert "[MASK]" not in result.filled


def test_a_text_without_a_mask_is_refused(filler: MaskFiller) -> None:
    with pytest.raises(ValueError, match=r"there is no mask in 'a p v'; write \[MASK\] in place of the word"):
        filler("a p v")
    with pytest.raises(ValueError, match="top = 0 asks for no candidates"):
        filler("a [MASK] v", top=0)


def test_a_text_beyond_the_positions_is_cut_with_a_warning_or_refused(caplog: pytest.LogCaptureFixture) -> None:
    filler = untrained(position="learned", positions=8)
    with caplog.at_level(logging.WARNING):
        result = filler("the [MASK] was crossing the streets slowly the animal was slow")
    assert len(result.masks) == 1
    assert "is cut to the 6 that the model can read" in caplog.text
    with pytest.raises(ValueError, match="a mask is behind the first 6 tokens"):
        filler("the animal was crossing the streets slowly the animal was [MASK]")


def test_int8_is_refused_and_bfloat16_is_close(masked_run: Path) -> None:
    with pytest.raises(ValueError, match="no precision 'int8'; choose auto, float32 or bfloat16"):
        regard.load(masked_run, "cpu", "int8")
    assert regard.load(masked_run, "cpu", "bfloat16")("b [MASK] x").filled == "b s x"


def test_pseudo_perplexity_masks_each_token_once() -> None:
    """Compared with the definition of Salazar et al. 2020: one pass for each token, the logits of all positions."""
    filler, text = untrained(), "the animals crossed the street"
    ids, mask = filler.tokenizer.encode(text), filler.tokenizer.id("<mask>")
    expected = 0.0
    with torch.no_grad():
        for at, token in enumerate(ids):
            tokens = Ragged.from_list([[START, *ids[:at], mask, *ids[at + 1 :], END]])
            expected -= float(filler.model(tokens).log_softmax(-1)[at + 1, token])
    found = filler.perplexity([text, text])
    assert found.nats == pytest.approx(2 * expected, rel=1e-5)
    table = found.to_json()
    assert table["tokens"] == 2 * len(ids)
    assert table["pseudo_perplexity"] == pytest.approx(math.exp(expected / len(ids)), rel=1e-5)
    assert "perplexity" not in table


def test_a_long_document_is_scored_in_windows_and_an_empty_one_has_no_tokens() -> None:
    filler = untrained(position="learned", positions=8)
    found = filler.perplexity([" ".join(LINES), ""])
    assert found.tokens == len(filler.tokenizer.encode(" ".join(LINES)))
    assert math.isfinite(found.nats)


def test_probable_text_has_a_lower_pseudo_perplexity(filler: MaskFiller) -> None:
    right, wrong = (filler.perplexity([text]).to_json()["pseudo_perplexity"] for text in ("b s x", "b p x"))
    assert right < 2 < wrong
