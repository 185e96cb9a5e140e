"""A race is fair, resumes, and reports its results."""

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from PIL import Image
from rich.console import Console

from regard.race.contenders import (
    FAMILIES,
    Budget,
    Contender,
    check_fair,
    family_contenders,
    named_contenders,
    with_joined_phrases,
    with_seeds,
)
from regard.race.leaderboard import Leaderboard
from regard.race.report import sheet, write_race
from regard.race.result import RESULT
from regard.race.runner import Evaluated, Failed, RaceEvent, race, ranking_scores, run_contender
from regard.race.summary import result_rows, results_markdown, table_cells
from regard.race.translation import TranslationResult, linked_pairs, scores_by_length
from regard.race.translation_report import COLUMNS, lengths_markdown, with_published
from regard.recipe import parse
from regard.train.events import Finished, Started

RaceRun = tuple[Path, list[Contender], dict[str, list[RaceEvent]]]
MakeContenders = Callable[..., list[Contender]]
SCORES = ("BLEU", "exact match", "AER")


def results_of(run: RaceRun) -> list[TranslationResult]:
    last = [events[-1] for events in run[2].values()]
    return [
        event.result for event in last if isinstance(event, Evaluated) and isinstance(event.result, TranslationResult)
    ]


def test_a_budget_is_parsed() -> None:
    assert Budget.parse("tokens=2e6") == Budget("tokens", 2_000_000)
    assert Budget.parse("seconds=1_00") == Budget("seconds", 100)


@pytest.mark.parametrize("text", ["", "100", "tokens", "tokens=", "tokens=-3", "tokens=nan", "hours=2", "flops=inf"])
def test_an_invalid_budget_is_an_error_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="write tokens=2e6, seconds=120 or flops=1e13"):
        Budget.parse(text)


def test_a_budget_of_tokens_gives_equal_steps_and_about_the_requested_tokens(run_race: RaceRun) -> None:
    assert len({contender.recipe.train.steps for contender in run_race[1]}) == 1
    spent = [result.tokens for result in results_of(run_race)]
    assert len(set(spent)) == 1
    assert spent[0] == pytest.approx(900, rel=0.25)


def test_a_budget_of_flops_gives_the_cheaper_model_more_steps(make_contenders: MakeContenders) -> None:
    small = make_contenders()[2].recipe
    wide = small.model.model_copy(update={"width": 64, "inner": 256})
    large = small.model_copy(update={"model": wide})
    steps = [Budget("flops", 1e10).limit(recipe).train.steps or 0 for recipe in (small, large)]
    assert steps[0] > 2 * steps[1]


def test_a_budget_of_seconds_limits_the_time(make_contenders: MakeContenders) -> None:
    settings = Budget("seconds", 90).limit(make_contenders("train.patience=3")[0].recipe).train
    assert (settings.minutes, settings.patience) == (1.5, 0)


def test_a_schedule_follows_a_budget_of_seconds(make_contenders: MakeContenders) -> None:
    settings = Budget("seconds", 90).limit(make_contenders("train.schedule=cosine")[0].recipe).train
    assert (settings.schedule, settings.steps, settings.minutes) == ("cosine", None, 1.5)


def test_contenders_with_different_text_are_an_error_that_names_the_setting(make_contenders: MakeContenders) -> None:
    one, other = make_contenders()[0], make_contenders("text.size=400")[1]
    with pytest.raises(ValueError, match=r"soft and vector differ in text\.size \(400 and 320\)"):
        check_fair([one, other])
    with pytest.raises(ValueError, match="at least two"):
        check_fair([one])


def test_the_lecture_families_share_their_text() -> None:
    contenders = family_contenders(overrides=["train.steps=5"])
    check_fair(contenders)
    assert [contender.name for contender in contenders] == list(FAMILIES)
    assert {contender.recipe.train.steps for contender in contenders} == {5}


def test_recipes_of_the_same_name_are_numbered(tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    path.write_text('[data]\ntrain = [{ to = "de" }]\n')
    assert [contender.name for contender in named_contenders([str(path), str(path)])] == ["one", "one-2"]


def test_each_seed_is_a_contender_and_all_seeds_are_one_row(run_race: RaceRun) -> None:
    twice = with_seeds(run_race[1][:1], 2)
    assert [(contender.name, contender.recipe.seed) for contender in twice] == [("vector.1", 1), ("vector.2", 2)]
    first = results_of(run_race)[0]
    results = [replace(first, name=f"a.{n}", scores={**first.scores, "BLEU": 10.0 * n}) for n in (1, 2)]
    (cells,) = table_cells(result_rows(results), COLUMNS)
    assert cells[1] == "15.0 ± 7.1"


def test_joined_sentences_keep_their_links(run_race: RaceRun) -> None:
    recipe = run_race[1][0].recipe
    assert recipe.data.test is not None
    pairs, gold = linked_pairs(recipe.data.test, recipe)
    assert gold is not None
    stops = 0
    for (source, target), links in zip(pairs, gold, strict=True):
        one, other = source.split(), target.split()
        for at, to in links.possible:
            assert (one[at] == ".") == (other[to] == ".")
            stops += one[at] == "."
    assert stops > 0


def test_only_the_phrasebook_can_be_joined(tmp_path: Path) -> None:
    recipe = parse('[data]\ntrain = [{ source = "a", target = "b" }]\n')
    with pytest.raises(ValueError, match="only sentences of the phrasebook"):
        with_joined_phrases([Contender("a", recipe)], 2, tmp_path)


def test_length_groups_hold_every_sentence_once() -> None:
    sources = [" ".join("x" * n) for n in range(1, 13)]
    references = [f"y {n} of these words" for n in range(12)]
    hypotheses = [*references[:6], *(["wrong"] * 6)]
    groups = scores_by_length(sources, hypotheses, references, max_groups=4)
    assert [(group.min_words, group.max_words, group.sentences) for group in groups] == [
        (1, 3, 3),
        (4, 6, 3),
        (7, 9, 3),
        (10, 12, 3),
    ]
    assert [group.exact for group in groups] == [100, 100, 0, 0]


def test_every_family_is_evaluated_and_only_the_one_without_attention_has_no_alignment(run_race: RaceRun) -> None:
    results = {result.name: result for result in results_of(run_race)}
    assert {name for name, result in results.items() if result.aer is None} == {"vector"}
    assert {name for name, result in results.items() if result.attention is None} == {"vector"}
    for result in results.values():
        assert result.points
        assert min(result.flops, result.decoding_speed, result.training_speed, result.memory or 0) > 0
    same = {tuple(result.attention.source) for result in results.values() if result.attention}
    assert len(same) == 1


def test_a_model_of_lower_cased_text_is_scored_without_case(make_contenders: MakeContenders, tmp_path: Path) -> None:
    overrides = ("text.lowercase=true", "train.translate=4", "train.every=2")
    (recipe,) = (contender.recipe for contender in make_contenders(*overrides) if contender.name == "attention")
    board = Leaderboard(["attention"], Budget("tokens", 300), ranking_scores(recipe), io.StringIO(), live=False)
    for event in run_contender(Contender("attention", Budget("tokens", 300).limit(recipe)), tmp_path / "run", "cpu"):
        board.show("attention", event)
    result = board.contenders["attention"].result
    assert result is not None
    assert set(result.scores) == {"BLEU", "chrF", "exact match"}
    assert all("lc" in signature for name, signature in result.signatures.items() if name.startswith("BLEU"))
    assert all(point.bleu is not None for point in result.points)
    write_race(tmp_path, Budget("tokens", 300), [result])


def test_length_groups_can_be_scored_without_case() -> None:
    hypotheses, references = ["the cat sat there today"], ["The cat sat there today"]
    assert [group.exact for group in scores_by_length(["x"], hypotheses, references)] == [0]
    assert [group.exact for group in scores_by_length(["x"], hypotheses, references, lowercase=True)] == [100]


def test_a_finished_contender_is_not_run_again(run_race: RaceRun) -> None:
    folder, contenders, _ = run_race
    again = list(run_contender(contenders[0], folder / "vector", "cpu"))
    assert [type(event).__name__ for event in again] == ["Evaluated"]
    assert isinstance(again[0], Evaluated)
    assert not again[0].fresh


def test_a_trained_contender_is_only_evaluated(run_race: RaceRun) -> None:
    folder, contenders, _ = run_race
    before = (folder / "vector" / RESULT).read_text()
    (folder / "vector" / RESULT).unlink()
    again = list(run_contender(contenders[0], folder / "vector", "cpu"))
    assert [type(event).__name__ for event in again] == ["Evaluated"]
    after = json.loads((folder / "vector" / RESULT).read_text())
    assert {**after, "decoding_speed": 0} == {**json.loads(before), "decoding_speed": 0}


def test_a_larger_budget_resumes_from_a_smaller_one(run_race: RaceRun, tmp_path: Path) -> None:
    folder, contenders, _ = run_race
    shutil.copytree(folder / "vector", tmp_path / "vector")
    more = (contenders[0].recipe.train.steps or 0) + 2
    recipe = contenders[0].recipe
    longer = recipe.model_copy(update={"train": recipe.train.model_copy(update={"steps": more})})
    again = list(run_contender(Contender("vector", longer), tmp_path / "vector", "cpu"))
    finished = next(event for event in again if isinstance(event, Finished))
    assert finished.step == more
    assert next(event.step for event in again if isinstance(event, Started)) == more - 2


def test_a_failing_process_does_not_stop_the_others(run_race: RaceRun, tmp_path: Path) -> None:
    _, contenders, _ = run_race
    broken = contenders[0].recipe
    broken = broken.model_copy(update={"train": broken.train.model_copy(update={"start": str(tmp_path / "nothing")})})
    field = [Contender("broken", broken), contenders[2], Contender("broken too", broken)]
    events = list(race(field, tmp_path, "cpu", parallel=2))
    for name in ("broken", "broken too"):
        assert [type(event) for owner, event in events if owner == name] == [Failed]
    last = [event for name, event in events if name == "attention"][-1]
    assert isinstance(last, Evaluated)
    assert last.fresh


def test_published_models_are_listed_before_the_contenders(run_race: RaceRun) -> None:
    rows = with_published(result_rows(results_of(run_race)))
    assert ["Transformer (base)", "WMT14 en-de", "27.3", "3.3e+18"] in rows
    assert [row[0] for row in rows[-3:]] == ["vector", "soft", "attention"]


def test_a_sheet_has_the_given_width_and_shows_whole_figures() -> None:
    wide, high = (Figure(figsize=size) for size in ((4, 2), (2, 2)))
    picture = Image.open(io.BytesIO(sheet([[wide, high], [high, high, high], [high]], width=600)))
    assert picture.width == 600
    row = (600 - 4 * 24) // 3
    assert picture.height == pytest.approx((600 - 3 * 24) / 3 + 2 * row + 4 * 24, abs=6)


def test_the_report_has_every_contender_and_needs_no_network(run_race: RaceRun, tmp_path: Path) -> None:
    results = results_of(run_race)
    html, png, data, table = write_race(tmp_path, Budget("tokens", 900), results)
    page = html.read_text(encoding="utf-8")
    assert all(result.name in page for result in results)
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert png.read_bytes()[:4] == b"\x89PNG"
    assert [result["name"] for result in json.loads(data.read_text())["results"]] == [result.name for result in results]
    assert (
        table.read_text()
        == f"{results_markdown(result_rows(results), COLUMNS)}\n\n{lengths_markdown(result_rows(results))}\n"
    )
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {"lengths.svg", "learning.svg", "map-soft.svg", "map-attention.svg"} <= names


def test_markdown_tables_mark_the_best_and_list_all_lengths(run_race: RaceRun) -> None:
    results = results_of(run_race)
    good, bad = (
        replace(results[0], name=name, aer=aer, scores=dict.fromkeys(results[0].scores, score))
        for name, aer, score in (("good", 0.5, 80.0), ("bad", 0.25, 20.0))
    )
    table = results_markdown(result_rows([bad, good]), COLUMNS).splitlines()
    assert table[2].startswith("| bad | 20.0 | 20.0 | 20.0 | **0.250** |")
    assert table[3].startswith("| good | **80.0** | **80.0** | **80.0** | 0.500 |")
    head, _, row = lengths_markdown(result_rows([good])).splitlines()
    assert head.startswith("| source words | ")
    assert row.split(" | ")[1:] == [
        *(f"{group.exact:.1f}" for group in good.groups[:-1]),
        f"{good.groups[-1].exact:.1f} |",
    ]


def test_thin_lines_keep_their_colour_in_the_sheet() -> None:
    """The many colours of a heat map would leave none for them in a palette."""
    many, line = Figure(figsize=(2, 2)), Figure(figsize=(2, 2))
    many.add_axes((0, 0, 1, 1)).imshow([[x * y for x in range(40)] for y in range(40)])
    line.add_axes((0, 0, 1, 1)).plot([0, 1], [0, 1], color="#ff00ff", linewidth=3)
    picture = Image.open(io.BytesIO(sheet([[many, line]], width=600))).convert("RGB")
    assert any(colour == (255, 0, 255) for _, colour in picture.getcolors(maxcolors=10**6) or [])


def test_the_leaderboard_ranks_by_score_and_prints_changes_of_state(run_race: RaceRun) -> None:
    stream = io.StringIO()
    board = Leaderboard([*run_race[2], "late"], Budget("tokens", 900), SCORES, stream, live=False)
    for name, events in run_race[2].items():
        for event in events:
            board.show(name, event)
    board.show("late", Failed("no room"))
    output = stream.getvalue()
    assert "vector training  budget" in output
    assert "late failed: no room" in output
    scores = [state.result.scores["BLEU"] for state in board.ranked() if state.result]
    assert scores == sorted(scores, reverse=True)
    assert board.ranked()[-1].name == "late"
    assert board.table().row_count == 4


def test_a_long_reason_does_not_squeeze_the_columns_of_the_leaderboard(run_race: RaceRun) -> None:
    board = Leaderboard([*run_race[2], "late"], Budget("tokens", 900), SCORES, io.StringIO(), live=False)
    for name, events in run_race[2].items():
        board.show(name, events[-1])
    board.show("late", Failed("no room, " * 40 + "at all"))
    console = Console(file=io.StringIO(), width=100)
    console.print(board.table())
    assert isinstance(console.file, io.StringIO)
    output = console.file.getvalue()
    assert all(heading in output for heading in board.headings)
    assert "late failed: no room" in output
    assert "at all" in output
