"""Recipes of chat: files are dialogues, speakers have symbols, and settings without a meaning are errors."""

from pathlib import Path

import pytest

from regard.recipe import (
    ME,
    YOU,
    Corpus,
    DialogueCorpus,
    JsonlCorpus,
    Recipe,
    SmallTalkCorpus,
    TextCorpus,
    TsvCorpus,
    dump,
    parse,
    render,
    starter,
)


def recipe(corpus: str = "{ path = 'talk.txt' }", *overrides: str, task: str = "chat") -> Recipe:
    return parse(f"task = '{task}'\n[data]\ntrain = [{corpus}]\n", overrides)


@pytest.mark.parametrize(
    ("table", "corpus"),
    [
        ("{ path = 'talk.txt' }", DialogueCorpus(path="talk.txt")),
        ("{ path = 'talk.jsonl.gz' }", DialogueCorpus(path="talk.jsonl.gz")),
        ("{ path = 'talk', speaker = 'bot', key = 'x' }", DialogueCorpus(path="talk", speaker="bot", key="x")),
        ("{ path = 'talk.tsv.gz' }", TsvCorpus(path="talk.tsv.gz")),
        ("{ path = 'talk.csv', columns = [3, 1], kind = 'tsv' }", TsvCorpus(path="talk.csv", columns=(3, 1))),
        ("{ path = 'talk.jsonl', keys = ['q', 'a'] }", JsonlCorpus(path="talk.jsonl", keys=("q", "a"))),
        ("{ history = 'q.txt', reply = 'a.txt' }", TextCorpus(files={"history": "q.txt", "reply": "a.txt"})),
        ("{ kind = 'smalltalk', count = 9 }", SmallTalkCorpus(count=9)),
    ],
)
def test_a_file_of_chat_is_read_as_dialogues_unless_it_has_columns_or_keys(table: str, corpus: Corpus) -> None:
    chat = recipe(table, f"data.valid={table}", f"data.test={table}")
    assert chat.data.train == (corpus,)
    assert chat.data.valid == chat.data.test == corpus


def test_a_recipe_of_chat_written_and_read_again_is_the_same() -> None:
    for chat in (recipe(), recipe("{ path = 'a.tsv' }", "data.valid={path='b.jsonl'}", "data.reverse=true")):
        assert parse(dump(chat)) == parse(render(chat)) == chat
        assert Recipe.model_validate(chat.model_dump()) == chat
    assert "# valid is unset" in render(recipe())


def test_a_recipe_can_be_made_of_objects() -> None:
    corpus = DialogueCorpus(path="talk.txt")
    assert Recipe(task="chat", data={"train": [corpus], "valid": corpus}).data.valid == corpus  # type: ignore[arg-type]
    assert Recipe(task="chat", data=recipe().data).data.train == (corpus,)


def test_the_symbols_of_speakers_are_added_once() -> None:
    assert recipe().text.symbols == (YOU, ME)
    assert recipe("{ path = 'a' }", f"text.symbols=['<x>', '{ME}']").text.symbols == ("<x>", ME, YOU)
    assert recipe("{ path = 'a.tsv' }", task="translation").text.symbols == ()


def test_another_file_is_read_like_the_training_data() -> None:
    data = recipe("{ path = 'talk.jsonl', key = 'x', speaker = 'bot' }").data
    assert data.dialogues("more.jsonl") == DialogueCorpus(path="more.jsonl", key="x", speaker="bot")
    assert data.dialogues("more.tsv") == TsvCorpus(path="more.tsv")
    assert recipe("{ kind = 'smalltalk' }").data.dialogues("more.txt") == DialogueCorpus(path="more.txt")


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (("data.longest=2",), "data.longest = 2 is too short for a turn, .* use at least 3"),
        (("data.block=64",), "block"),
        (("decode.coverage_penalty=0.2",), "decode.coverage_penalty = 0.2 is for task = 'translation'"),
        (("text.joint=false",), "model.tied = 'all' shares the embedding of the history, which needs text.joint"),
        (("model={kind='rnn'}",), "model.kind = 'rnn' is an encoder without a decoder; set chat.objective"),
        (("model={kind='han'}",), "model.kind = 'han' is not a model for task = 'chat'"),
        (("data.turns=0",), "data.turns"),
        (
            ("classification.pooling=mean", "classification.weights=balanced"),
            r"\[classification\] has settings of task",
        ),
    ],
)
def test_settings_that_do_not_fit_chat_are_errors(overrides: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        recipe("{ path = 'talk.txt' }", *overrides)


@pytest.mark.parametrize(
    ("table", "task", "complaint"),
    [
        ("{ to = 'de' }", "chat", "fields history, reply: use a file with them all"),
        ("{ kind = 'documents', label = 'topic' }", "chat", "fields history, reply"),
        ("{ path = 'talk.txt', kind = 'dialogues' }", "translation", "set task = 'chat', or name another file"),
        ("{ kind = 'smalltalk' }", "translation", "'smalltalk' has histories and replies"),
        ("{ text = 'talk.txt' }", "chat", "needs a file for history and reply"),
        ("{ path = 'talk.tsv', columns = [1] }", "chat", "names 1 columns"),
        ("{ path = 'talk.txt', tag = '<x>' }", "chat", "tag"),
    ],
)
def test_corpora_of_other_tasks_are_errors(table: str, task: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        recipe(table, task=task)


def test_a_starter_recipe_for_dialogues_is_one_of_chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.jsonl").write_text('\n{"turns": ["Hi.", "Hello.", "So."]}\n' + '{"turns": []}\n' * 998)
    (tmp_path / "a.txt").write_text("Hi.\nHello.\n\n")
    text = starter(["a.jsonl"], name="talk")
    assert parse(text).data.train == (DialogueCorpus(path="a.jsonl"),)
    assert "3,000 turns." in text
    assert parse(text).text.size == 2000
    plain = starter(["a.txt"], task="chat").replace("# valid", "valid")
    assert (parse(plain).task, parse(plain).data.valid) == ("chat", DialogueCorpus(path="valid.txt"))
    assert parse(starter(task="chat")).data.train == (DialogueCorpus(path="train.jsonl"),)
    assert parse(starter(["a.txt"])).task == "language_model"
    (tmp_path / "b.jsonl").write_text("[" * 9 + "\n")
    assert parse(starter(["b.jsonl"])).task == "translation"
    with pytest.raises(
        ValueError, match="there is no starter recipe for task 'tagging', but for translation, language"
    ):
        starter(["a.txt"], task="tagging")
    with pytest.raises(ValueError, match="2 files: name one file for task 'chat'; add others by hand"):
        starter(["a.txt", "a.jsonl"], task="chat")
