"""Recipes are loaded, written and checked, and errors name the setting and a remedy."""

import contextlib
import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.recipe import (
    Bahdanau,
    ConvS2S,
    Corpus,
    Data,
    JsonlCorpus,
    Luong,
    PhrasebookCorpus,
    Recipe,
    Sutskever,
    Text,
    TextCorpus,
    Train,
    Transformer,
    TsvCorpus,
    dump,
    load,
    parse,
    render,
    shipped_recipe,
    shipped_recipes,
    starter,
)

ROOT = Path(__file__).resolve().parents[2]

SMALL = """
[data]
train = [{ source = "a.en", target = "a.de" }, { path = "b.tsv.gz", weight = 2.0 }]
"""

# Any text TOML can hold: no lone surrogates.
lines = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
shares = st.floats(0, 0.99)
weights = st.floats(0.01, 1000)
corpora = st.one_of(
    st.builds(TextCorpus, files=st.fixed_dictionaries({"source": lines, "target": lines}), weight=weights),
    st.builds(TsvCorpus, path=lines, columns=st.tuples(st.integers(1, 9), st.integers(1, 9)), weight=weights),
    st.builds(JsonlCorpus, path=lines, keys=st.tuples(lines, lines)),
    st.builds(PhrasebookCorpus, to=st.sampled_from(["de", "fr", "it", "ar"]), pairs=st.integers(1, 10**9)),
)
transformers = st.builds(
    lambda heads, size, dropout, window: Transformer(
        width=16 * heads, heads=heads, size=size, dropout=dropout, window=window
    ),
    heads=st.integers(1, 64),
    size=st.sampled_from(["tiny", "small", "base", "big"]),
    dropout=shares,
    window=st.none() | st.integers(1, 99),
)
presets = {"size": st.sampled_from(["tiny", "small", "base"]), "dropout": shares, "width": st.integers(1, 999)}
models = st.one_of(
    transformers,
    st.builds(Sutskever, tied=st.just("all"), layers=st.integers(1, 9), backwards=st.booleans(), **presets),
    st.builds(Bahdanau, tied=st.just("none"), embedding=st.integers(1, 99), **presets),
    st.builds(
        Luong, tied=st.just("embeddings"), reach=st.none() | st.integers(1, 99), feeding=st.booleans(), **presets
    ),
    st.builds(ConvS2S, kernel=st.sampled_from([1, 3, 5]), positions=st.integers(1, 99), **presets),
)
recipes = st.builds(
    Recipe,
    name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True),
    seed=st.integers(0, 2**32 - 1),
    data=st.builds(
        Data,
        root=lines,
        train=st.lists(corpora, min_size=1, max_size=3).map(tuple),
        valid=st.none() | corpora,
        drop=st.lists(st.sampled_from(["empty", "long", "ratio", "copy", "duplicate"]), unique=True).map(tuple),
        ratio=st.floats(1.1, 1e6),
    ),
    text=st.builds(Text, size=st.integers(8, 10**6), symbols=st.lists(lines, max_size=3).map(tuple), sampling=shares),
    model=models,
    train=st.builds(
        Train,
        steps=st.integers(1, 10**9),
        tokens=st.just("auto") | st.integers(1, 10**6),
        rate=st.floats(1e-12, 1e3),
    ),
)


@given(recipes)
def test_a_dumped_recipe_loads_to_itself(recipe: Recipe) -> None:
    assert parse(dump(recipe)) == recipe


@given(recipes)
def test_a_shown_recipe_loads_to_itself(recipe: Recipe) -> None:
    assert parse(render(recipe)) == recipe


def test_a_file_names_its_run_and_overrides_win(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(SMALL + "[train]\nsteps = 7\n", encoding="utf-8")
    recipe = load(file, ["train.steps=500", "model.size=base", "data.train.1.weight=0.5"])
    assert (recipe.name, recipe.train.steps, recipe.model.width) == ("mine", 500, 512)
    assert recipe.data.train[1].weight == 0.5


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        ({"source": "a", "target": "b"}, TextCorpus),
        ({"path": "a.tsv.gz"}, TsvCorpus),
        ({"path": "a.jsonl"}, JsonlCorpus),
        ({"path": "a.txt", "kind": "jsonl"}, JsonlCorpus),
        ({"to": "ar"}, PhrasebookCorpus),
    ],
)
def test_the_keys_of_a_corpus_imply_its_kind(table: dict[str, Any], kind: type[Corpus]) -> None:
    assert type(Data.model_validate({"train": [table]}).train[0]) is kind


def test_a_size_sets_what_the_recipe_does_not() -> None:
    model = parse(SMALL, ["model.size=big", "model.dropout=0.2"]).model
    assert isinstance(model, Transformer)
    assert (model.width, model.inner, model.heads, model.encoder_layers) == (1024, 4096, 16, 6)
    assert model.dropout == 0.2


def test_a_recipe_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        parse(SMALL).train.steps = 3


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.stepz=3", "train.stepz: no such setting; did you mean train.steps?"),
        ("steps=3", "steps: no such setting; did you mean train.steps?"),
        ("train.size=3", "train.size: no such setting; did you mean text.size or image.size or model.size?"),
        ("layers=3", "layers: no such setting; did you mean model.turn_layers?"),
        ("data.train.0.sorce=x", "data.train.0.sorce: no such setting; did you mean data.train.source?"),
        ("data.valid={path='x.tsv', colums=[1, 2]}", "did you mean data.train.columns?"),
        ("train.steps=abc", "train.steps = 'abc': must be a whole number > 0"),
        ("train.steps=1.0", "train.steps = 1.0: must be a whole number > 0"),
        ("train.tokens=-3", "train.tokens = -3: must be a whole number > 0 or 'auto'"),
        ("text.lowercase=1", "text.lowercase = 1: must be true or false"),
        ("train.rate=nan", "train.rate = nan: must be a number > 0.0"),
        ("model.size=bas", "model.size = 'bas': must be one of tiny, small, base, big; did you mean 'base'?"),
        (
            "data.drop=['emty']",
            "data.drop.0 = 'emty': must be one of empty, long, ratio, copy, duplicate; did you mean",
        ),
        ("data.train=[]", "data.train = (): must be a list, each a table"),
        (
            "data.train.0.kind=foo",
            "data.train.0.kind = 'foo': must be one of 'text', 'tsv', 'jsonl', 'conllu', 'conll', 'phrasebook', '"
            "documents'",
        ),
        ("data.train=[{kind='phrasebook'}]", "data.train.0.to: missing; Target language"),
        (
            "model.kind=luongs",
            "must be one of 'transformer', 'sutskever', 'bahdanau', 'luong', 'convs2s', 'hran', 'hierarchical', 'rnn', "
            "'han'; did you mean",
        ),
        (
            "model={kind='luong', heads=7}",
            "model.heads: no such setting of 'luong'; transformer and hierarchical have it",
        ),
        ("model={kind='luong', layer=7}", "model.layer: no such setting; did you mean model.layers?"),
        ("model={kind='luong', cell='lst'}", "model.cell = 'lst': must be one of lstm, gru; did you mean 'lstm'?"),
        (
            "model={kind='luong', embedding=7}",
            "model: tied = 'all' shares the embedding of width 7 with the output",
        ),
        ("model={kind='bahdanau', readout_width=7}", "whose input has readout_width = 7; make them equal, or set tied"),
        ("model={kind='convs2s', kernel=4}", "kernel = 4 must be odd, to have a middle; use 5"),
        ("model={kind='convs2s', size='big'}", "model.size = 'big': must be one of tiny, small, base"),
        ("model=3", "model = 3: must be a section"),
        ("model.heads=7", "width = 256 does not divide into heads = 7"),
        ("model={position='rotary', word_dropout=0.1}", "word_dropout = 0.1 sets token vectors to zero"),
        ("text.joint=false", "model.tied = 'all' shares the embedding of the source"),
        ("data.train.0.tag='<2de>'", "which text.symbols does not list"),
        ("data.train.7.weight=2", "'7' is not an index of an array of 2"),
        ("steps", "'steps' is not an override; write key=value"),
        ("data.root.x=1", "must be a string"),
        ("name='a b'", "name = 'a b'"),
        ("name='../../etc'", "name = '../../etc'"),
    ],
)
def test_an_invalid_setting_is_an_error_with_path_value_and_remedy(override: str, message: str) -> None:
    with pytest.raises(ValueError) as raised:
        parse(SMALL, [override])
    assert message in str(raised.value)


def test_sampling_without_subwords_is_an_error() -> None:
    with pytest.raises(ValueError, match="use 'bpe' or 'unigram'"):
        parse(SMALL, ["text.kind=word", "text.sampling=0.1"])


def test_choosing_by_bleu_without_translations_is_an_error() -> None:
    with pytest.raises(ValueError, match="use translate = 'auto' or choose = 'loss'"):
        parse(SMALL, ["train.choose=bleu", "train.translate=0"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "train.tokens=auto2",
            "train.tokens = 'auto2': must be a whole number > 0 or 'auto' or unset; did you mean 'auto'?",
        ),
        ("train.compile=yes", "train.compile = 'yes': must be true or false or 'auto'"),
    ],
)
def test_a_setting_of_two_types_gives_one_error(override: str, message: str) -> None:
    with pytest.raises(ValueError, match="must be") as raised:
        parse(SMALL, [override])
    assert str(raised.value) == f"recipe: {message}"


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(ValueError) as raised:
        parse(SMALL, ["train.stepz=3", "model.widht=4"])
    assert all(text in str(raised.value) for text in ("2 problems", "train.steps?", "model.width?"))


def test_the_error_of_a_missing_file_names_the_recipes_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "there.toml").write_text(SMALL, encoding="utf-8")
    with pytest.raises(ValueError, match=r"no such recipe; there are .*there\.toml"):
        load(tmp_path / "their.toml")


@pytest.mark.parametrize("name", shipped_recipes())
def test_a_shipped_recipe_is_found_by_its_name_in_any_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load(name) == load(ROOT / "recipes" / f"{name}.toml")
    assert parse(shipped_recipe(name)).name == load(name).name
    assert "#:schema" not in shipped_recipe(name)


def test_a_file_of_the_user_comes_before_a_shipped_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "phrasebook").write_text(SMALL, encoding="utf-8")
    (tmp_path / "luong").mkdir()
    assert len(load("phrasebook").data.train) == 2
    assert load("luong").model.kind == "luong"
    with pytest.raises(ValueError, match=r"no such recipe; regard ships 20news, bahdanau, .*, wmt14-big$"):
        load("phrasebok")


@pytest.mark.parametrize(
    ("names", "task", "corpus"),
    [
        (["a.en", "a.de.gz"], "translation", TextCorpus(files={"source": "a.en", "target": "a.de.gz"})),
        (["a.tsv"], "translation", TsvCorpus(path="a.tsv")),
        (["a.jsonl.gz"], "translation", JsonlCorpus(path="a.jsonl.gz")),
        (["a.txt"], "language_model", TextCorpus(files={"text": "a.txt"})),
        ([], "translation", TextCorpus(files={"source": "train.en", "target": "train.de"})),
    ],
)
def test_a_starter_recipe_names_the_files_of_the_user(
    names: list[str], task: str, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in names:
        data = b"a line\n" * 5000
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    text = starter(names, name="first")
    recipe = parse(text)
    assert (recipe.name, recipe.task, recipe.data.train) == ("first", task, (corpus,))
    assert recipe.text.size == (2000 if names else 8000)
    assert recipe.data.valid is None
    with_valid = parse(text.replace("# valid", "valid").replace("# test", "test"))
    assert type(with_valid.data.valid) is type(corpus)


def test_a_starter_recipe_for_missing_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no\.en does not exist; name your training files"):
        starter([str(tmp_path / "no.en")])
    with pytest.raises(ValueError, match="3 files: name two text files"):
        starter(["a", "b", "c"])


def test_the_error_of_a_missing_file_names_only_recipes(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'other'\n", encoding="utf-8")
    (tmp_path / "broken.toml").write_bytes(b"\xff[")
    with pytest.raises(ValueError, match=r"no such recipe$"):
        load(tmp_path / "nosuch")
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "here.toml").write_text(SMALL, encoding="utf-8")
    with pytest.raises(ValueError, match=r"no such recipe; there are \S*recipes/here\.toml$"):
        load(tmp_path / "nosuch")


def test_the_error_of_a_folder_says_how_to_resume_its_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a folder, not a recipe$"):
        load(tmp_path)
    (tmp_path / "one.toml").write_text(SMALL, encoding="utf-8")
    with pytest.raises(ValueError, match=r"a folder, not a recipe; it has \S*one\.toml$"):
        load(tmp_path)
    (tmp_path / "recipe.toml").write_text(SMALL, encoding="utf-8")
    with pytest.raises(ValueError, match=r"resume the run in it: regard train \S*recipe\.toml --run \S+$"):
        load(tmp_path)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"train = = 3", b"[data", b""])
def test_a_broken_file_is_an_error_that_names_it(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "broken.toml"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"broken\.toml: "):
        load(file)


def test_a_coverage_penalty_needs_a_family_with_attention() -> None:
    with pytest.raises(ValueError, match=r"use decode\.coverage_penalty = 0, or another family"):
        parse(SMALL, ["model={kind='sutskever'}", "decode.coverage_penalty=0.2"])


@given(st.text(max_size=60), st.lists(st.text(max_size=30), max_size=3))
def test_any_text_gives_a_recipe_or_a_value_error(text: str, overrides: list[str]) -> None:
    with contextlib.suppress(ValueError):  # anything else would reach a user as a traceback
        parse(text, overrides)
