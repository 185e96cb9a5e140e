"""Examples from the lectures: tokens and their ids, the output vocabulary, and a word as a one-hot vector."""

import numpy as np

from regard.text import END, UNK, Tokenizer, TokenizerSettings

WORDS = TokenizerSettings("word", bytes=False)


def test_a_sentence_is_a_row_of_tokens_and_a_row_of_ids() -> None:
    tokenizer = Tokenizer.learn(["I can go alone", "you can go"], 100, WORDS)
    tokens = tokenizer.tokens("I can go alone")
    assert [token.piece.removeprefix("▁") for token in tokens] == ["I", "can", "go", "alone"]
    assert [token.id for token in tokens] == [tokenizer.id(word) for word in ("I", "can", "go", "alone")]
    assert len({token.id for token in tokens}) == 4


def test_the_one_hot_vector_of_a_word_is_one_at_its_id() -> None:
    """The vocabulary is `a am I thanks student <eos>`; our `</s>` is the lecture's `<eos>`."""
    tokenizer = Tokenizer.learn(["I am a student", "thanks"], 100, WORDS)
    known = {tokenizer.piece(number).removeprefix("▁") for number in range(END, len(tokenizer))}
    assert known == {"a", "am", "I", "thanks", "student", "</s>"}
    one_hot = np.eye(len(tokenizer))[tokenizer.id("am")]
    assert one_hot.sum() == 1
    assert tokenizer.decode([int(one_hot.argmax())]) == "am"


def test_a_word_outside_the_vocabulary_is_unknown() -> None:
    tokenizer = Tokenizer.learn(["I am a student"], 100, WORDS)
    assert tokenizer.encode("I am a teacher")[-1] == UNK
