"""chrF between all pairs of texts is that of sacreBLEU."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from regard.score import chrf
from regard.score.pairwise import BLOCK, pairwise_chrf

texts = st.text(st.sampled_from("ab cé漢\u0301 \t"), max_size=30)


@given(st.lists(texts, max_size=6))
@example(["", " ", "a", "abc", "abcdefgh abcdefgh", "the same", "the same"])
def test_each_value_is_the_chrf_of_its_pair(lines: list[str]) -> None:
    values = pairwise_chrf(lines)
    expected = [[chrf([candidate], [reference]).value for reference in lines] for candidate in lines]
    np.testing.assert_allclose(values, np.array(expected).reshape(len(lines), len(lines)), rtol=1e-12, atol=1e-12)


def test_texts_with_more_ngrams_than_a_block_are_compared_in_parts() -> None:
    characters = "".join(chr(0x4E00 + number) for number in range(BLOCK + 1000))
    values = pairwise_chrf([characters, characters[500:], characters[::-1]])
    assert values[0, 1] == pytest.approx(chrf([characters], [characters[500:]]).value)
    assert values[1, 2] == pytest.approx(chrf([characters[500:]], [characters[::-1]]).value)
