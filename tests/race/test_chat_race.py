"""A race of chatbots: replies, the use of earlier turns, and attention of all contenders in one table."""

import json
from pathlib import Path

import pytest

from regard.race.chat import ChatResult, evaluate_bm25
from regard.race.contenders import CHAT_FAMILIES, Budget, Contender, check_fair, family_contenders
from regard.race.report import write_race
from regard.race.runner import Evaluated, ranking_scores, run_contender
from regard.recipe import parse

SHARED = """
task = "chat"
decode = { beam = 1 }
text = { kind = "word", size = 900, lowercase = true }
train = { tokens = 256, every = 100, warmup = 1, precision = "float32", translate = 0 }
[data]
train = [{ kind = "smalltalk", count = 60 }]
valid = { kind = "smalltalk", count = 4, split = "valid" }
test = { kind = "smalltalk", count = 8, split = "test" }
turns = 4
order = "length"
"""
MODELS = {
    "flat": ("model={width=16, inner=32, heads=2, encoder_layers=1, decoder_layers=1}",),
    "hran": ('model={kind="hran", width=16, embedding=16}',),
    "dual": ("chat.objective=retrieve", "model={width=16, inner=32, heads=2, encoder_layers=1, decoder_layers=1}"),
}


@pytest.fixture(scope="module")
def results(cache: str, tmp_path_factory: pytest.TempPathFactory) -> list[ChatResult]:
    """Train tiny contenders for a few steps, and evaluate them."""
    folder, found = tmp_path_factory.mktemp("chat-race"), list[ChatResult]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", cache)
        for name, settings in MODELS.items():
            recipe = Budget("tokens", 200).limit(parse(SHARED, [f"name={name}", *settings]))
            assert recipe.train.steps == Budget("tokens", 200).limit(parse(SHARED, MODELS["flat"])).train.steps
            last = list(run_contender(Contender(name, recipe), folder / name, "cpu"))[-1]
            assert isinstance(last, Evaluated)
            assert isinstance(last.result, ChatResult)
            assert ChatResult.load(folder / name, recipe) == last.result
            found.append(last.result)
        found.append(evaluate_bm25(recipe))
    return found


def test_every_contender_has_the_scores_that_its_kind_of_model_has(results: list[ChatResult]) -> None:
    scores = {result.name: set(result.scores) for result in results}
    of_all = {"recalled", "BLEU", "exact match", "distinct-1", "distinct-2"}
    assert all(of_all < names for names in (scores["flat"], scores["hran"], scores["dual"]))
    assert scores["bm25"] == of_all
    assert {"perplexity", "shuffled", "last turn", "gold turn", "gold word"} < scores["flat"] & scores["hran"]
    assert {"recall@1 of 10", "recall@1 of 1,000"} < scores["dual"]
    assert "perplexity" not in scores["dual"]
    shown = [[(reply.history, reply.reference) for reply in result.shown] for result in results]
    assert all(questions == shown[0] for questions in shown)
    assert len(shown[0][0][0]) <= 4


def test_the_report_has_one_table_of_all_contenders(results: list[ChatResult], tmp_path: Path) -> None:
    html, png, data, table = write_race(tmp_path, Budget("tokens", 200), results)
    lines = table.read_text().splitlines()
    assert lines[0].startswith("| contender | recalled % | gold turn % |")
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| flat", "| hran", "| dual", "| bm25"]
    assert " | – | " in lines[-1], "BM25 has no attention"
    text = html.read_text(encoding="utf-8")
    assert all(reply.reference.replace("'", "&#x27;") in text for reply in results[0].shown)
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"recalled.svg", "history.svg", "learning.svg"}
    assert png.read_bytes()[:4] == b"\x89PNG"
    assert [row["kind"] for row in json.loads(data.read_text())["results"]][-1] == "bm25"


def test_the_families_of_chatbots_share_their_dialogues() -> None:
    contenders = family_contenders("chat", ["train.steps=5"])
    check_fair(contenders)
    assert [contender.name for contender in contenders] == list(CHAT_FAMILIES)
    assert ranking_scores(contenders[0].recipe)[0] == "recalled"
