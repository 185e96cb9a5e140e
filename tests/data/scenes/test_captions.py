"""Captions are grammatical in all languages."""

from collections.abc import Mapping

import pytest

from regard.data.scenes import COLOURS, KINDS, LANGUAGES, SIZES
from regard.data.scenes.captions import caption, dual
from regard.data.scenes.description import ASIDE, OVERLAPPING, Description, Group

# Description: English, German, French, Italian, Arabic. Written by hand from the grammars of the languages.
EXPECTED: Mapping[Description, tuple[str, str, str, str, str]] = {
    Description(Group("circle", "red", "small")): (
        "a small red circle",
        "ein kleiner roter Kreis",
        "un petit cercle rouge",
        "un piccolo cerchio rosso",
        "دائرة حمراء صغيرة",
    ),
    Description(Group("square", "blue", "large", 2)): (
        "two large blue squares",
        "zwei große blaue Quadrate",
        "deux grands carrés bleus",
        "due grandi quadrati blu",
        "مربعان أزرقان كبيران",
    ),
    Description(Group("star", "black", "small", 3)): (
        "three small black stars",
        "drei kleine schwarze Sterne",
        "trois petites étoiles noires",
        "tre piccole stelle nere",
        "ثلاث نجمات سوداء صغيرة",
    ),
    Description(Group("cross", "purple", "large", 4)): (
        "four large purple crosses",
        "vier große violette Kreuze",
        "quatre grandes croix violettes",
        "quattro grandi croci viola",
        "أربعة صلبان بنفسجية كبيرة",
    ),
    Description(Group("triangle", "green", "small"), "above", Group("diamond", "yellow", "large")): (
        "a small green triangle above a large yellow diamond",
        "ein kleines grünes Dreieck über einer großen gelben Raute",
        "un petit triangle vert au-dessus d'un grand losange jaune",
        "un piccolo triangolo verde sopra un grande rombo giallo",
        "مثلث أخضر صغير فوق معين أصفر كبير",
    ),
    Description(Group("circle", "yellow", "large"), "below", Group("square", "black", "small", 2)): (
        "a large yellow circle below two small black squares",
        "ein großer gelber Kreis unter zwei kleinen schwarzen Quadraten",
        "un grand cercle jaune au-dessous de deux petits carrés noirs",
        "un grande cerchio giallo sotto due piccoli quadrati neri",
        "دائرة صفراء كبيرة تحت مربعين أسودين صغيرين",
    ),
    Description(Group("circle", "blue", "small", 2), "to_the_left_of", Group("star", "red", "large")): (
        "two small blue circles to the left of a large red star",
        "zwei kleine blaue Kreise links von einem großen roten Stern",
        "deux petits cercles bleus à gauche d'une grande étoile rouge",
        "due piccoli cerchi blu a sinistra di una grande stella rossa",
        "دائرتان زرقاوان صغيرتان على يسار نجمة حمراء كبيرة",
    ),
    Description(Group("triangle", "purple", "large"), "to_the_right_of", Group("star", "purple", "small", 2)): (
        "a large purple triangle to the right of two small purple stars",
        "ein großes violettes Dreieck rechts von zwei kleinen violetten Sternen",
        "un grand triangle violet à droite de deux petites étoiles violettes",
        "un grande triangolo viola a destra di due piccole stelle viola",
        "مثلث بنفسجي كبير على يمين نجمتين بنفسجيتين صغيرتين",
    ),
    Description(Group("star", "green", "large"), "in_front_of", Group("cross", "black", "large")): (
        "a large green star in front of a large black cross",
        "ein großer grüner Stern vor einem großen schwarzen Kreuz",
        "une grande étoile verte devant une grande croix noire",
        "una grande stella verde davanti a una grande croce nera",
        "نجمة خضراء كبيرة أمام صليب أسود كبير",
    ),
    Description(Group("square", "red", "large"), "behind", Group("diamond", "green", "small")): (
        "a large red square behind a small green diamond",
        "ein großes rotes Quadrat hinter einer kleinen grünen Raute",
        "un grand carré rouge derrière un petit losange vert",
        "un grande quadrato rosso dietro un piccolo rombo verde",
        "مربع أحمر كبير خلف معين أخضر صغير",
    ),
    Description(Group("square", "green", "small", 3), "above", Group("cross", "yellow", "large")): (
        "three small green squares above a large yellow cross",
        "drei kleine grüne Quadrate über einem großen gelben Kreuz",
        "trois petits carrés verts au-dessus d'une grande croix jaune",
        "tre piccoli quadrati verdi sopra una grande croce gialla",
        "ثلاثة مربعات خضراء صغيرة فوق صليب أصفر كبير",
    ),
    Description(Group("square", "red", "small"), "below", Group("diamond", "yellow", "small", 3)): (
        "a small red square below three small yellow diamonds",
        "ein kleines rotes Quadrat unter drei kleinen gelben Rauten",
        "un petit carré rouge au-dessous de trois petits losanges jaunes",
        "un piccolo quadrato rosso sotto tre piccoli rombi gialli",
        "مربع أحمر صغير تحت ثلاثة معينات صفراء صغيرة",
    ),
}


@pytest.mark.parametrize("description", EXPECTED)
def test_a_caption_is_as_its_language_wants_it(description: Description) -> None:
    captions = tuple(" ".join(text for text, _ in caption(description, code)) for code in LANGUAGES)
    assert captions == EXPECTED[description]


def test_the_expected_captions_have_every_word() -> None:
    groups = [group for description in EXPECTED for group in description.groups]
    assert {group.kind for group in groups} == set(KINDS)
    assert {group.colour for group in groups} == set(COLOURS)
    assert {group.size for group in groups} == set(SIZES)
    assert {description.relation for description in EXPECTED} == {"", *ASIDE, *OVERLAPPING}


@pytest.mark.parametrize("code", LANGUAGES)
def test_no_two_things_are_called_the_same(code: str) -> None:
    groups = [Group(kind, colour, size, amount) for kind in KINDS for colour in COLOURS for size in SIZES
              for amount in (1, 2, 3, 4)]  # fmt: skip
    captions = {caption(Description(group), code) for group in groups}
    assert len(captions) == len(groups)


@pytest.mark.parametrize(
    ("singular", "nominative", "genitive"),
    [("أحمر", "أحمران", "أحمرين"), ("حمراء", "حمراوان", "حمراوين"), ("صغيرة", "صغيرتان", "صغيرتين")],
)
def test_an_adjective_has_an_arabic_dual(singular: str, nominative: str, genitive: str) -> None:
    assert (dual(singular, "nom"), dual(singular, "gen")) == (nominative, genitive)
