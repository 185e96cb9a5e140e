"""Scores equal sacrebleu's to the last digit and obey the laws of such metrics."""

import gzip
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from regard.score import (
    METRICS,
    Score,
    bleu,
    bleu_lowercase_tokenised,
    chrf,
    exact_match,
    read_sentences,
    score,
    ter,
)

TEXT = "Der die das Hund , läuft über grüne Straße . nicht „ weil “ er 3,5 müde war ! weißt-du's & <b>"
WORDS = TEXT.split()
SENTENCE = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)
PAIRS = st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1, max_size=12)


def noisy(lines: list[str], rate: float, seed: int) -> list[str]:
    rng = random.Random(seed)
    pool = [word for line in lines for word in line.split()]
    return [
        " ".join(rng.choice(pool) if rng.random() < rate else word for word in line.split() if rng.random() > rate / 4)
        for line in lines
    ]


def generated(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(0, 14))) for _ in range(count)]


CASES: list[tuple[Callable[..., Score], Callable[[], sacrebleu.metrics.base.Metric]]] = [
    (bleu, sacrebleu.BLEU),
    (lambda h, r: bleu(h, r, tokenize="intl"), lambda: sacrebleu.BLEU(tokenize="intl")),
    (lambda h, r: bleu(h, r, tokenize="char"), lambda: sacrebleu.BLEU(tokenize="char")),
    (lambda h, r: bleu(h, r, tokenize="zh"), lambda: sacrebleu.BLEU(tokenize="zh")),
    (lambda h, r: bleu(h, r, tokenize="none"), lambda: sacrebleu.BLEU(tokenize="none")),
    (lambda h, r: bleu(h, r, lowercase=True), lambda: sacrebleu.BLEU(lowercase=True)),
    (chrf, sacrebleu.CHRF),
    (lambda h, r: chrf(h, r, word_order=2), lambda: sacrebleu.CHRF(word_order=2)),
    (lambda h, r: chrf(h, r, lowercase=True), lambda: sacrebleu.CHRF(lowercase=True)),
    (ter, sacrebleu.TER),
    (lambda h, r: ter(h, r, case_sensitive=True), lambda: sacrebleu.TER(case_sensitive=True)),
    (
        lambda h, r: ter(h, r, normalized=True, asian_support=True),
        lambda: sacrebleu.TER(normalized=True, asian_support=True),
    ),
    (
        bleu_lowercase_tokenised,
        lambda: sacrebleu.BLEU(lowercase=True, smooth_method="none"),
    ),
    (
        lambda h, r: bleu_lowercase_tokenised(h, r, tokenize="none"),
        lambda: sacrebleu.BLEU(lowercase=True, smooth_method="none", tokenize="none"),
    ),
]


@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize(("ours", "theirs"), CASES)
def test_value_and_signature_equal_sacrebleu_across_blocks_of_lines(
    ours: Callable[..., Score], theirs: Callable[[], sacrebleu.metrics.base.Metric], streams: int
) -> None:
    first = generated(1103, seed=0)
    references = [first, noisy(first, 0.1, seed=1), noisy(first, 0.2, seed=2)][:streams]
    hypotheses = noisy(first, 0.2, seed=9)
    metric = theirs()
    expected = metric.corpus_score(hypotheses, references)
    result = ours(hypotheses, references)
    assert result.value == expected.score
    assert result.signature == str(metric.get_signature())
    assert 0 < result.value < 100


@given(pairs=PAIRS)
def test_any_corpus_scores_as_sacrebleu_scores_it(pairs: list[tuple[str, str]]) -> None:
    hypotheses, references = (list(side) for side in zip(*pairs, strict=True))
    assert bleu(hypotheses, references).value == sacrebleu.BLEU().corpus_score(hypotheses, [references]).score
    assert chrf(hypotheses, references).value == sacrebleu.CHRF().corpus_score(hypotheses, [references]).score
    assert ter(hypotheses, references).value == sacrebleu.TER().corpus_score(hypotheses, [references]).score


def test_files_score_as_the_sacrebleu_command_scores_them(tmp_path: Path) -> None:
    references = generated(300, seed=1)
    hypotheses = [f"{line} \r" for line in noisy(references, 0.2, seed=2)]
    hypotheses[7] += "\u2028 mitten im Satz"
    (tmp_path / "out").write_text("\n".join(hypotheses) + "\n", encoding="utf-8", newline="\n")
    with gzip.open(tmp_path / "ref.gz", "wt", encoding="utf-8", newline="\n") as stream:
        stream.write("\n".join(references))
    command = [sys.executable, "-m", "sacrebleu", "ref.gz", "-i", "out", "-m", "bleu", "chrf", "ter", "-w", "17"]
    printed = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    expected = {entry["name"]: (entry["score"], entry["signature"]) for entry in json.loads(printed)}
    lines = read_sentences(tmp_path / "out"), read_sentences(tmp_path / "ref.gz")
    results = [bleu(*lines), chrf(*lines), ter(*lines)]
    assert {result.name: (result.value, result.signature) for result in results} == expected


@pytest.mark.parametrize("language", ["de", "fr", "cs"])
def test_real_captions_score_as_sacrebleu_scores_them(language: str, shared_data: Path) -> None:
    references = read_sentences(shared_data / "multi30k" / f"test_2016_flickr.{language}.gz")
    hypotheses = noisy(references, 0.25, seed=5)
    assert bleu(hypotheses, references).value == sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert chrf(hypotheses, references).value == sacrebleu.corpus_chrf(hypotheses, [references]).score
    assert ter(hypotheses, references).value == sacrebleu.corpus_ter(hypotheses, [references]).score


@given(lines=st.lists(st.lists(st.sampled_from(WORDS), min_size=4, max_size=12).map(" ".join), min_size=1, max_size=9))
def test_a_text_compared_with_itself_is_perfect(lines: list[str]) -> None:
    assert bleu(lines, lines).value == pytest.approx(100, abs=1e-9)
    assert chrf(lines, lines).value == pytest.approx(100, abs=1e-9)
    assert exact_match(lines, lines).value == 100
    assert ter(lines, lines).value == 0


@given(pairs=PAIRS, rng=st.randoms(use_true_random=False))
@pytest.mark.parametrize("metric", METRICS)
def test_the_order_of_sentences_changes_nothing(metric: str, pairs: list[tuple[str, str]], rng: random.Random) -> None:
    shuffled = rng.sample(pairs, len(pairs))
    before, after = (
        score(metric, *(list(side) for side in zip(*some, strict=True)), tokenize="13a") for some in (pairs, shuffled)
    )
    assert before == after


def test_a_second_reference_that_matches_lifts_every_score() -> None:
    hypotheses, wrong = ["der Hund läuft über die Straße"], ["ein Mann steht neben dem großen Haus"]
    for metric in METRICS:
        single = score(metric, hypotheses, wrong)
        double = score(metric, hypotheses, [wrong, hypotheses])
        assert "nrefs:2" in double.signature
        assert double.value > single.value if single.higher_is_better else double.value < single.value


def test_exact_match_counts_whole_lines_and_trims_only_their_ends() -> None:
    result = exact_match(["Ja .", " nein", "ja  so", "JA"], ["Ja .", "nein ", "ja so", "ja"])
    assert (result.value, result.detail, result.signature) == (50.0, "(2 of 4)", "nrefs:1|case:mixed|space:trimmed")
    assert exact_match(["JA"], ["ja"], lowercase=True).value == 100


def test_the_compatibility_bleu_has_another_name_and_signature() -> None:
    lines = ["Der Hund läuft ."], ["der hund läuft ."]
    standard, compatible, caseless = bleu(*lines), bleu_lowercase_tokenised(*lines), bleu(*lines, lowercase=True)
    assert len({standard.name, compatible.name, caseless.name}) == 3
    assert compatible.name == "BLEU (lower-cased, tokenised)"
    assert "case:lc" in compatible.signature
    assert "case:mixed" in standard.signature
    assert standard.value < compatible.value == pytest.approx(100)


def test_the_compatibility_bleu_without_a_common_4_gram_is_0_as_multi_bleu_has_it() -> None:
    lines = ["der Hund läuft heute sehr schnell"], ["der Hund läuft morgen nicht schnell"]
    assert bleu_lowercase_tokenised(*lines).value == 0
    assert bleu(*lines).value > 0


def test_a_printed_score_shows_name_signature_and_number() -> None:
    printed = str(bleu(["a b c d e"], ["a b c d f"]))
    assert printed.startswith("BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert " = 66.87 80.0/75.0/66.7/50.0 (BP = 1.000 ratio = 1.000)" in printed


def test_unequal_lengths_name_both_counts() -> None:
    with pytest.raises(ValueError, match="2 hypotheses but 3 sentences in reference 2"):
        bleu(["a", "b"], [["a", "b"], ["a", "b", "c"]])


@pytest.mark.parametrize(("hypotheses", "references"), [([], []), (["a"], []), ([], ["a"])])
def test_nothing_to_score_is_an_error(hypotheses: list[str], references: list[str]) -> None:
    with pytest.raises(ValueError, match="there is no"):
        chrf(hypotheses, references)


def test_a_single_string_is_an_error() -> None:
    with pytest.raises(TypeError, match="put a single sentence into a list"):
        bleu("ab", "ab")


def test_a_sentence_that_is_not_a_string_is_named_by_number() -> None:
    with pytest.raises(TypeError, match="sentence 2 is not a string"):
        bleu(["a", None], ["a", "b"])  # type: ignore[list-item]


def test_an_unknown_tokenizer_or_metric_is_an_error_with_the_choices() -> None:
    with pytest.raises(ValueError, match=r"no tokenizer 'moses'; choose from .*13a"):
        bleu(["a"], ["a"], tokenize="moses")
    with pytest.raises(ValueError, match="unknown metric 'meteor'; choose from bleu, chrf"):
        score("meteor", ["a"], ["a"])


@pytest.mark.parametrize(("tokenize", "extra"), [("ja-mecab", "ja"), ("ko-mecab", "ko")])
def test_a_tokenizer_that_is_not_installed_says_how_to_install_it(tokenize: str, extra: str) -> None:
    try:
        sacrebleu.BLEU(tokenize=tokenize)
    except RuntimeError:
        with pytest.raises(ValueError, match=rf"install sacrebleu\[{extra}\]"):
            bleu(["a"], ["a"], tokenize=tokenize)
    else:
        assert f"tok:{tokenize}" in bleu(["a b c d"], ["a b c d"], tokenize=tokenize).signature
