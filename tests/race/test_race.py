"""A race is fair, can be gone on with, and tells what it found."""

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

from regard.race.board import Leaderboard
from regard.race.budget import Budget
from regard.race.contest import Failed, Happening, Judged, contend, race
from regard.race.course import lengthened
from regard.race.entrants import FAMILIES, Contender, check_fair, lectures_contenders, named_contenders, with_seeds
from regard.race.judging import RESULT, Result, by_length, linked_pairs
from regard.race.picture import sheet
from regard.race.report import write_race
from regard.race.summary import beside_published, markdown, rows_of
from regard.race.summary import by_length as lengths_table
from regard.recipe import parse
from regard.train.events import Finished, Started

Run = tuple[Path, list[Contender], dict[str, list[Happening]]]
Entrants = Callable[..., list[Contender]]


def results_of(run: Run) -> list[Result]:
    last = [told[-1] for told in run[2].values()]
    return [each.result for each in last if isinstance(each, Judged)]


def test_a_budget_is_read_as_it_is_written() -> None:
    assert Budget.parse("tokens=2e6") == Budget("tokens", 2_000_000)
    assert Budget.parse("seconds=1_00") == Budget("seconds", 100)


@pytest.mark.parametrize("text", ["", "100", "tokens", "tokens=", "tokens=-3", "tokens=nan", "hours=2", "flops=inf"])
def test_a_budget_that_is_none_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="write tokens=2e6, seconds=120 or flops=1e13"):
        Budget.parse(text)


def test_equal_tokens_are_equal_steps_and_about_what_was_asked(run_race: Run) -> None:
    assert len({each.recipe.train.steps for each in run_race[1]}) == 1
    spent = [each.tokens for each in results_of(run_race)]
    assert len(set(spent)) == 1
    assert spent[0] == pytest.approx(900, rel=0.25)


def test_equal_operations_give_the_cheaper_model_more_steps(entrants: Entrants) -> None:
    small = entrants()[2].recipe
    wide = small.model.model_copy(update={"width": 64, "inner": 256})
    large = small.model_copy(update={"model": wide})
    steps = [Budget("flops", 1e10).spent_by(each).train.steps for each in (small, large)]
    assert steps[0] > 2 * steps[1]


def test_equal_seconds_end_by_the_clock(entrants: Entrants) -> None:
    told = Budget("seconds", 90).spent_by(entrants("train.patience=3")[0].recipe).train
    assert (told.minutes, told.patience) == (1.5, 0)


def test_a_rate_that_must_know_the_end_is_refused_under_a_clock(entrants: Entrants) -> None:
    with pytest.raises(ValueError, match=r"budget of tokens or flops, or train\.schedule=inverse-root"):
        Budget("seconds", 90).spent_by(entrants("train.schedule=cosine")[0].recipe)


def test_contenders_on_different_text_are_refused_by_the_setting_that_differs(entrants: Entrants) -> None:
    one, other = entrants()[0], entrants("text.size=400")[1]
    with pytest.raises(ValueError, match=r"soft and vector differ in text\.size \(400 and 320\)"):
        check_fair([one, other])
    with pytest.raises(ValueError, match="at least two"):
        check_fair([one])


def test_the_lectures_families_all_run_on_the_same_text() -> None:
    found = lectures_contenders(["train.steps=5"])
    check_fair(found)
    assert [each.name for each in found] == list(FAMILIES)
    assert {each.recipe.train.steps for each in found} == {5}


def test_recipes_of_one_name_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    path.write_text('[data]\ntrain = [{ to = "de" }]\n')
    assert [each.name for each in named_contenders([str(path), str(path)])] == ["one", "one-2"]


def test_each_seed_is_a_contender_and_one_row(run_race: Run) -> None:
    twice = with_seeds(run_race[1][:1], 2)
    assert [(each.name, each.recipe.seed) for each in twice] == [("vector.1", 1), ("vector.2", 2)]
    first = results_of(run_race)[0]
    both = [replace(first, name=f"a.{n}", scores={**first.scores, "BLEU": 10.0 * n}) for n in (1, 2)]
    (row,) = rows_of(both)
    assert row.cells()[1] == "15.0 ± 7.1"


def test_joined_sentences_keep_their_links(run_race: Run) -> None:
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


def test_only_the_phrasebook_is_joined(tmp_path: Path) -> None:
    recipe = parse('[data]\ntrain = [{ source = "a", target = "b" }]\n')
    with pytest.raises(ValueError, match="only the phrasebook"):
        lengthened([Contender("a", recipe)], 2, tmp_path)


def test_groups_of_lengths_hold_every_sentence_once_and_score_their_own() -> None:
    sources = [" ".join("x" * n) for n in range(1, 13)]
    meant = [f"y {n} of these words" for n in range(12)]
    said = [*meant[:6], *(["wrong"] * 6)]
    groups = by_length(sources, said, meant, most=4)
    assert [(each.least, each.most, each.sentences) for each in groups] == [
        (1, 3, 3),
        (4, 6, 3),
        (7, 9, 3),
        (10, 12, 3),
    ]
    assert [each.exact for each in groups] == [100, 100, 0, 0]


def test_every_family_is_judged_and_only_the_one_vector_has_no_alignment(run_race: Run) -> None:
    found = {each.name: each for each in results_of(run_race)}
    assert {name for name, each in found.items() if each.aer is None} == {"vector"}
    assert {name for name, each in found.items() if each.map is None} == {"vector"}
    for each in found.values():
        assert each.points
        assert min(each.flops, each.decoding_speed, each.training_speed, each.memory or 0) > 0
    same = {tuple(each.map.source) for each in found.values() if each.map}
    assert len(same) == 1


def test_a_model_that_writes_lower_case_is_judged_regardless_of_case(entrants: Entrants, tmp_path: Path) -> None:
    told = ("text.lowercase=true", "train.translate=4", "train.every=2")
    (recipe,) = (each.recipe for each in entrants(*told) if each.name == "attention")
    board = Leaderboard(["attention"], Budget("tokens", 300), io.StringIO(), live=False)
    for each in contend(Contender("attention", Budget("tokens", 300).spent_by(recipe)), tmp_path / "run", "cpu"):
        board.show("attention", each)
    result = board.lanes["attention"].result
    assert result is not None
    assert set(result.scores) == {"BLEU", "chrF", "exact match"}
    assert all("lc" in each for name, each in result.signatures.items() if name.startswith("BLEU"))
    assert all(each.bleu is not None for each in result.points)
    write_race(tmp_path, Budget("tokens", 300), [result])


def test_groups_of_lengths_are_scored_regardless_of_case_where_asked() -> None:
    said, meant = ["the cat sat there today"], ["The cat sat there today"]
    assert [each.exact for each in by_length(["x"], said, meant)] == [0]
    assert [each.exact for each in by_length(["x"], said, meant, lowercase=True)] == [100]


def test_what_is_finished_is_not_done_again(run_race: Run) -> None:
    folder, contenders, _ = run_race
    again = list(contend(contenders[0], folder / "vector", "cpu"))
    assert [type(each).__name__ for each in again] == ["Judged"]
    assert isinstance(again[0], Judged)
    assert not again[0].fresh


def test_what_is_trained_but_not_judged_is_judged_only(run_race: Run) -> None:
    folder, contenders, _ = run_race
    before = (folder / "vector" / RESULT).read_text()
    (folder / "vector" / RESULT).unlink()
    again = list(contend(contenders[0], folder / "vector", "cpu"))
    assert [type(each).__name__ for each in again] == ["Judged"]
    after = json.loads((folder / "vector" / RESULT).read_text())
    assert {**after, "decoding_speed": 0} == {**json.loads(before), "decoding_speed": 0}


def test_a_larger_budget_goes_on_from_the_smaller_one(run_race: Run, tmp_path: Path) -> None:
    folder, contenders, _ = run_race
    shutil.copytree(folder / "vector", tmp_path / "vector")
    more = contenders[0].recipe.train.steps + 2
    recipe = contenders[0].recipe
    longer = recipe.model_copy(update={"train": recipe.train.model_copy(update={"steps": more})})
    again = list(contend(Contender("vector", longer), tmp_path / "vector", "cpu"))
    finished = next(each for each in again if isinstance(each, Finished))
    assert finished.step == more
    assert next(each.step for each in again if isinstance(each, Started)) == more - 2


def test_processes_run_the_race_and_one_that_fails_takes_nobody_with_it(run_race: Run, tmp_path: Path) -> None:
    _, contenders, _ = run_race
    broken = contenders[0].recipe
    broken = broken.model_copy(update={"train": broken.train.model_copy(update={"start": str(tmp_path / "nothing")})})
    field = [Contender("broken", broken), contenders[2], Contender("broken too", broken)]
    told = list(race(field, tmp_path, "cpu", abreast=2))
    for name in ("broken", "broken too"):
        assert [type(each) for who, each in told if who == name] == [Failed]
    last = [each for name, each in told if name == "attention"][-1]
    assert isinstance(last, Judged)
    assert last.fresh


def test_the_lectures_table_stands_above_our_rows(run_race: Run) -> None:
    rows = beside_published(rows_of(results_of(run_race)))
    assert ["Transformer (base)", "WMT14 en-de", "27.3", "3.3e+18"] in rows
    assert [row[0] for row in rows[-3:]] == ["vector", "soft", "attention"]


def test_a_picture_is_as_wide_as_told_and_its_figures_are_not_cut() -> None:
    wide, high = (Figure(figsize=size) for size in ((4, 2), (2, 2)))
    picture = Image.open(io.BytesIO(sheet([[wide, high], [high, high, high], [high]], width=600)))
    assert picture.width == 600
    row = (600 - 4 * 24) // 3
    assert picture.height == pytest.approx((600 - 3 * 24) / 3 + 2 * row + 4 * 24, abs=6)


def test_the_report_holds_every_contender_and_needs_no_network(run_race: Run, tmp_path: Path) -> None:
    results = results_of(run_race)
    html, png, told, table = write_race(tmp_path, Budget("tokens", 900), results)
    page = html.read_text(encoding="utf-8")
    assert all(each.name in page for each in results)
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert png.read_bytes()[:4] == b"\x89PNG"
    assert [each["name"] for each in json.loads(told.read_text())["results"]] == [each.name for each in results]
    assert table.read_text() == f"{markdown(rows_of(results))}\n\n{lengths_table(rows_of(results))}\n"
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {"lengths.svg", "learning.svg", "map-soft.svg", "map-attention.svg"} <= names


def test_the_tables_of_a_document_mark_the_best_and_tell_every_length(run_race: Run) -> None:
    results = results_of(run_race)
    good, bad = (
        replace(results[0], name=name, aer=aer, scores=dict.fromkeys(results[0].scores, score))
        for name, aer, score in (("good", 0.5, 80.0), ("bad", 0.25, 20.0))
    )
    table = markdown(rows_of([bad, good])).splitlines()
    assert table[2].startswith("| bad | 20.0 | 20.0 | 20.0 | **0.250** |")
    assert table[3].startswith("| good | **80.0** | **80.0** | **80.0** | 0.500 |")
    head, _, row = lengths_table(rows_of([good])).splitlines()
    assert head.startswith("| source words | ")
    assert row.split(" | ")[1:] == [
        *(f"{each.exact:.1f}" for each in good.groups[:-1]),
        f"{good.groups[-1].exact:.1f} |",
    ]


def test_thin_lines_keep_their_colour_in_the_picture() -> None:
    """A heat map's hundreds of colours leave none in a palette for them."""
    many, line = Figure(figsize=(2, 2)), Figure(figsize=(2, 2))
    many.add_axes((0, 0, 1, 1)).imshow([[x * y for x in range(40)] for y in range(40)])
    line.add_axes((0, 0, 1, 1)).plot([0, 1], [0, 1], color="#ff00ff", linewidth=3)
    picture = Image.open(io.BytesIO(sheet([[many, line]], width=600))).convert("RGB")
    assert any(colour == (255, 0, 255) for _, colour in picture.getcolors(maxcolors=10**6) or [])


def test_the_board_ranks_by_score_and_says_in_lines_what_lasts(run_race: Run) -> None:
    stream = io.StringIO()
    board = Leaderboard([*run_race[2], "late"], Budget("tokens", 900), stream, live=False)
    for name, told in run_race[2].items():
        for each in told:
            board.show(name, each)
    board.show("late", Failed("no room"))
    said = stream.getvalue()
    assert "vector trains  budget" in said
    assert "late out: no room" in said
    scores = [lane.result.scores["BLEU"] for lane in board.ranked() if lane.result]
    assert scores == sorted(scores, reverse=True)
    assert board.ranked()[-1].name == "late"
    assert board.table().row_count == 4


def test_a_long_reason_leaves_the_columns_of_the_board_theirs(run_race: Run) -> None:
    board = Leaderboard([*run_race[2], "late"], Budget("tokens", 900), io.StringIO(), live=False)
    for name, told in run_race[2].items():
        board.show(name, told[-1])
    board.show("late", Failed("no room, " * 40 + "at all"))
    console = Console(file=io.StringIO(), width=100)
    console.print(board.table())
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue()
    assert all(head in said for head in Leaderboard.HEADS)
    assert "late is out: no room" in said
    assert "at all" in said
