"""Sentences of each language that show its grammar, as grammar books have them."""

import pytest

from regard.data.phrasebook import look_up

SENTENCES = {
    "de": {
        "Anna gave a book to the child": "Anna gab dem Kind ein Buch",  # the dative comes first
        "the teacher opened the door": "Der Lehrer machte die Tür auf",  # a separable verb
        "you opened the door": "Du hast die Tür aufgemacht",  # "du machtest auf" is unusual
        "Anna knows that the teacher opens the door": "Anna weiß, dass der Lehrer die Tür aufmacht",
        "Anna met the student": "Anna traf den Studenten",  # a weak noun
        "the cat sleeps in the house": "Die Katze schläft im Haus",  # in dem
        "Tom drinks cold milk": "Tom trinkt kalte Milch",  # strong
        "Tom drinks the cold milk": "Tom trinkt die kalte Milch",  # weak
        "Tom bought an old car": "Tom kaufte ein altes Auto",  # mixed
        "Anna sold an expensive table": "Anna verkaufte einen teuren Tisch",  # teuer loses an e
        "the girl is a teacher": "Das Mädchen ist Lehrerin",
        "yesterday Anna bought a car": "Gestern kaufte Anna ein Auto",  # the verb stays second
        "he dances with the children": "Er tanzt mit den Kindern",  # dative plural
    },
    "fr": {
        "I read the letter": "J'ai lu la lettre",
        "the letter that Anna read is long": "La lettre qu'Anna a lue est longue",  # agreement with a preceding object
        "she arrived": "Elle est arrivée",
        "Anna bought an old computer": "Anna a acheté un vieil ordinateur",  # vieux before a vowel
        "Anna bought old computers": "Anna a acheté de vieux ordinateurs",  # des becomes de
        "Tom drinks water": "Tom boit de l'eau",
        "the child played near the river": "L'enfant a joué près de la rivière",
        "Anna gave a book to the boys": "Anna a donné un livre aux garçons",
        "he does not see the horses": "Il ne voit pas les chevaux",
        "Anna was born on the eleventh of May": "Anna est née le onze mai",  # no elision before onze
        "this man is very rich": "Cet homme est très riche",
        "he loves her": "Il l'aime",
        "her school is very big": "Son école est très grande",  # not "sa école"
    },
    "it": {
        "the student sleeps": "Lo studente dorme",
        "the students sleep": "Gli studenti dormono",
        "she is a student": "È una studentessa",
        "the cat sleeps in the house": "Il gatto dorme nella casa",
        "my mother works": "Mia madre lavora",  # no article
        "my friend works": "Il mio amico lavora",
        "the bird sleeps near the tree": "L'uccello dorme vicino all'albero",
        "she arrived": "È arrivata",
        "Tom saw her": "Tom l'ha vista",
        "we are very tired": "Siamo molto stanchi",
        "I bought oranges": "Ho comprato delle arance",
    },
    "ar": {
        "Tom saw a dog": "رأى توم كلباً",  # the indefinite accusative is written
        "Tom saw a cat": "رأى توم قطة",
        "the teachers sleep": "ينام المعلمون",  # the verb before its subject stays singular
        "Anna met the teachers": "قابلت آنا المعلمين",
        "Anna bought two books": "اشترت آنا كتابين",  # the dual
        "Anna bought three books": "اشترت آنا ثلاثة كتب",
        "Anna bought three cars": "اشترت آنا ثلاث سيارات",
        "the streets are very long": "الشوارع طويلة جداً",  # plurals of things are feminine singular
        "the women who read the book are tired": "النساء اللواتي قرأن الكتاب متعبات",
        "he saw her": "رآها",
        "we were sad": "كنا حزينين",
        "Anna gave a book to the boy": "أعطت آنا كتاباً للولد",  # ل and the article fuse
        "the book that Anna read is long": "الكتاب الذي قرأته آنا طويل",  # with a resumptive pronoun
        "my friends sleep": "ينام أصدقائي",
        "his friends sleep": "ينام أصدقاؤه",
        "he met his friends": "قابل أصدقاءه",
    },
}


@pytest.mark.parametrize(
    ("to", "sentence", "expected"), [(to, s, w) for to, group in SENTENCES.items() for s, w in group.items()]
)
def test_a_translation_is_grammatical(to: str, sentence: str, expected: str) -> None:
    phrase = look_up(sentence, to)
    assert phrase is not None
    assert phrase.target == expected


def test_a_dropped_pronoun_aligns_with_its_verb() -> None:
    for to in ("it", "ar"):
        phrase = look_up("we sleep", to)
        assert phrase is not None
        assert phrase.pharaoh() == "0p0 1-0"


def test_one_word_may_align_with_two() -> None:
    phrase = look_up("I closed the windows", "ar")
    assert phrase is not None
    assert phrase.pharaoh() == "0p0 1-0 2-1 3-1"  # both "the" and "windows" are النوافذ
