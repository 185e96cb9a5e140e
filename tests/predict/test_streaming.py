"""Text that is streamed is never taken back."""

from hypothesis import given
from hypothesis import strategies as st

from regard.predict.streaming import final_text, text_before_stop

letters = st.text("ab\ufffd", max_size=12)
stops = st.lists(st.text("ab", min_size=1, max_size=6), max_size=3)


@given(letters, stops)
def test_final_text_is_the_beginning_of_the_text_that_ends_at_the_first_stop_string(text: str, stop: list[str]) -> None:
    until = [text[:end] for end in range(len(text) + 1)]
    ended = next((part for part in until if any(string in part for string in stop)), text)
    for part in until[: len(ended) + 1]:
        # A replacement character at the end stands for bytes that may become any character.
        assert text_before_stop(ended, stop).startswith(final_text(part, stop))


@given(letters)
def test_without_stop_strings_only_incomplete_characters_are_held_back(text: str) -> None:
    assert final_text(text, ()) == text.rstrip("\ufffd")
