import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from tests.train.story import REFERENCES, SOURCES, progress, recipe, started, story, validated

from regard.bundle import save_scores
from regard.recipe import dump
from regard.score import Alignment, exact_match
from regard.tasks import AttentionMap, Sample
from regard.train.report.curves import learning_curves
from regard.train.report.html_report import write_report
from regard.train.report.log import LogWriter, TrainingLog

EVIL = "<script>alert('x')</script> & \"co\""
EMPTY = {"meta", "br"}


class Page(HTMLParser):
    """The tags of a page with their attributes; checks that each is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def attention() -> list[AttentionMap]:
    gold = Alignment(frozenset({(1, 0), (2, 1), (3, 2)}), frozenset({(0, 0)}))
    weights = np.array([[0.1, 0.8, 0.05, 0.05], [0.0, 0.1, 0.9, 0.0], [0.1, 0.1, 0.2, 0.6]])
    return [AttentionMap(SOURCES[1].split(), REFERENCES[1].split(), weights, gold)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "story"
    with LogWriter(folder) as log:
        for event in story(folder):
            log.write(event)
    (folder / "recipe.toml").write_text(dump(recipe()), encoding="utf-8")
    measured = exact_match(["a", "b"], ["a", "c"])
    save_scores(folder, {"weights": "best, step 100", "scores": {"test": [{**vars(measured)}]}})
    return folder


@pytest.fixture(scope="module")
def page(run: Path) -> Page:
    html, _ = write_report(run, attention=attention())
    return Page(html.read_text(encoding="utf-8"))


def test_the_page_is_well_formed_and_needs_no_other_file(page: Page) -> None:
    assert page.open == []
    for tag, attributes in page.tags:
        assert tag not in {"script", "link", "iframe", "object"}
        for name in ("src", "href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))


def test_ids_on_the_page_are_unique_and_all_references_resolve(run: Path, page: Page) -> None:
    names = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(names) == len(set(names))
    text = (run / "report.html").read_text(encoding="utf-8")
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', text)) <= set(names)


def test_the_page_has_scores_recipe_samples_and_facts(page: Page) -> None:
    for part in (
        "exact match", "nrefs:1|case:mixed|space:trimmed", "50.00", "best, step 100", "1,234,567",
        *REFERENCES, *SOURCES, "pairs = 1000", "90.0 k tokens", "6.66e+11",
    ):  # fmt: skip
        assert part in page.words, part


def test_without_final_scores_those_of_the_best_validation_are_shown(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as log:
        log.write(started(tmp_path))
        log.write(validated(50))
    html, _ = write_report(tmp_path)
    assert "validation, step 50" in html.read_text(encoding="utf-8")


def test_sentences_have_a_text_direction(run: Path, page: Page) -> None:
    text = (run / "report.html").read_text(encoding="utf-8")
    assert f'<span dir="rtl"><bdi>{REFERENCES[1]}</bdi></span>' in text
    assert f'<span dir="ltr"><bdi>{SOURCES[1]}</bdi></span>' in text


def test_every_figure_has_a_text_alternative(page: Page) -> None:
    pictures = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert len(pictures) == 2
    assert all(picture["role"] == "img" and picture["aria-label"] for picture in pictures)


def test_the_history_of_an_output_can_be_opened(run: Path) -> None:
    text = (run / "report.html").read_text(encoding="utf-8")
    history = text[text.index("output during training") :]
    assert history.index("step 50") < history.index("أستطيع</bdi>") < history.index("step 100")


def test_all_text_is_escaped(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as log:
        log.write(started(tmp_path))
        log.write(progress(10))
    weird = AttentionMap([EVIL], ["-->", "$x"], [[1.0], [0.5]])
    html, _ = write_report(tmp_path, attention=[weird], samples=[Sample(EVIL, EVIL, f"{EVIL} <b>")], scores={EVIL: []})
    text = html.read_text(encoding="utf-8")
    assert "<script" not in text
    assert "<b>" not in text
    assert Page(text).open == []
    assert EVIL in Page(text).words


def test_words_that_differ_are_marked(run: Path, tmp_path: Path) -> None:
    with LogWriter(tmp_path) as log:
        log.write(started(tmp_path))
    html, _ = write_report(tmp_path, samples=[Sample("I saw a cat", "Ich sah eine Katze", "Ich sah ein Katze")])
    assert "Ich sah <mark>ein</mark> Katze" in html.read_text(encoding="utf-8")


def test_a_run_that_has_just_started_has_a_report(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as log:
        log.write(started(tmp_path))
    html, png = write_report(tmp_path)
    assert "Training has not finished." in html.read_text(encoding="utf-8")
    assert imread(png).ndim == 3


def test_the_same_run_gives_the_same_report(run: Path, page: Page) -> None:
    assert page.tags
    first = [(run / name).read_bytes() for name in ("report.html", "report.png")]
    assert first == [path.read_bytes() for path in write_report(run, attention=attention())]


def test_curves_of_a_long_run_are_thinned_out(tmp_path: Path) -> None:
    events = tuple(progress(step) for step in range(1, 5001))
    figure = learning_curves(TrainingLog(events))
    assert figure is not None
    drawn = figure.axes[0].lines[0]
    assert np.size(drawn.get_xdata()) <= 400
    assert np.asarray(drawn.get_xdata())[-1] == 5000
    assert np.asarray(drawn.get_ydata()).mean() == pytest.approx(np.mean([event.loss for event in events]), rel=0.01)


def test_very_long_words_are_cut_in_figures(tmp_path: Path) -> None:
    endless = Sample("a b", "c d", "o" * 400)
    with LogWriter(tmp_path) as log:
        for event in story(tmp_path):
            log.write(event)
    shown = AttentionMap(("a", "b"), ("o" * 400,), np.array([[0.5, 0.5]]))
    html, png = write_report(tmp_path, attention=[shown], samples=[endless])  # a warning would be an error
    assert imread(png).shape[1] < 2000
    assert "o" * 400 in html.read_text(encoding="utf-8")


def test_a_report_needs_a_log(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no log\.jsonl"):
        write_report(tmp_path)
