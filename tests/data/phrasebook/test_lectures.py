"""The sentences of the lectures in all four languages, and the phenomena that they show."""

import pytest

from regard.data.phrasebook import LANGUAGES, Phrase, default_phrasebook, lectures, look_up, phrases

ENGLISH = [
    "I can go alone",
    "I love you very much",
    "I am a student",
    "I saw a cat on a mat",
    "the animal did not cross the street because it was too tired",
    "the animal did not cross the street because it was too wide",
    "I closed the windows",
    "I bought a new Windows for my computer",
]
TRANSLATIONS = {
    "de": [
        "Ich kann allein gehen",
        "Ich liebe dich sehr",
        "Ich bin Student",
        "Ich sah eine Katze auf einer Matte",
        "Das Tier überquerte die Straße nicht, weil es zu müde war",
        "Das Tier überquerte die Straße nicht, weil sie zu breit war",
        "Ich schloss die Fenster",
        "Ich kaufte ein neues Windows für meinen Computer",
    ],
    "fr": [
        "Je peux y aller seul",
        "Je t'aime beaucoup",
        "Je suis étudiant",
        "J'ai vu un chat sur un tapis",
        "L'animal n'a pas traversé la rue parce qu'il était trop fatigué",
        "L'animal n'a pas traversé la rue parce qu'elle était trop large",
        "J'ai fermé les fenêtres",
        "J'ai acheté un nouveau Windows pour mon ordinateur",
    ],
    "it": [
        "Posso andare da solo",
        "Ti amo molto",
        "Sono uno studente",
        "Ho visto un gatto su una stuoia",
        "L'animale non ha attraversato la strada perché era troppo stanco",
        "L'animale non ha attraversato la strada perché era troppo larga",
        "Ho chiuso le finestre",
        "Ho comprato un nuovo Windows per il mio computer",
    ],
    "ar": [
        "أستطيع الذهاب وحيداً",
        "أحبك كثيراً",
        "أنا طالب",
        "رأيت قطة على حصيرة",
        "لم يعبر الحيوان الشارع لأنه كان متعباً جداً",
        "لم يعبر الحيوان الشارع لأنه كان عريضاً جداً",
        "أغلقت النوافذ",
        "اشتريت ويندوز جديداً لحاسوبي",
    ],
}


@pytest.mark.parametrize("to", LANGUAGES)
def test_the_grammar_derives_every_lecture_sentence(to: str) -> None:
    assert [phrase.source for phrase in lectures(to)] == ENGLISH
    assert [phrase.target for phrase in lectures(to)] == TRANSLATIONS[to]


def translated(sentence: str, to: str) -> str:
    phrase = look_up(sentence, to)
    assert phrase is not None, sentence
    return phrase.target


def related(phrase: Phrase, kind: str) -> tuple[str, str]:
    words = phrase.source.split()
    relation = next(r for r in phrase.relations if r.kind == kind)
    return words[relation.start], words[relation.end]


@pytest.mark.parametrize(("reason", "noun"), [("tired", "animal"), ("wide", "street")])
def test_the_adjective_decides_the_antecedent(reason: str, noun: str) -> None:
    phrase = look_up(f"the animal did not cross the street because it was too {reason}", "de")
    assert phrase is not None
    assert related(phrase, "pronoun-antecedent") == ("it", noun)
    assert related(phrase, "subject-verb") == ("animal", "cross")
    assert related(phrase, "verb-object") == ("cross", "street")


PRONOUN = {"m": "er", "f": "sie", "n": "es"}


def test_a_german_pronoun_has_the_gender_of_its_antecedent() -> None:
    genders = {lexeme.key: lexeme.forms["de"]["gender"] for lexeme in default_phrasebook().grammar.lexemes["noun"]}
    checked = set()
    for phrase in phrases("de", "train", 4000, seed=4):
        if "because it " not in phrase.source:
            continue
        pronoun, noun = related(phrase, "pronoun-antecedent")
        words = phrase.target.split()
        weil = words.index("weil")
        assert pronoun == "it"
        assert words[weil + 1] == PRONOUN[genders[noun]], phrase
        checked.add(genders[noun])
    assert checked == {"m", "f", "n"}


def test_pronouns_have_the_genders_of_their_own_language() -> None:
    # Street is masculine in Arabic and feminine in French and German.
    sentence = "the dog did not cross the street because it was too wide"
    assert "لأنه كان عريضاً" in translated(sentence, "ar")
    assert "qu'elle était trop large" in translated(sentence, "fr")
    assert "weil sie zu breit war" in translated(sentence, "de")


def test_one_english_verb_may_have_two_translations() -> None:
    assert translated("the man eats", "de") == "Der Mann isst"
    assert translated("the dog eats", "de") == "Der Hund frisst"


def test_windows_has_two_meanings() -> None:
    for to, panes, system in (("de", "Fenster", "Windows"), ("fr", "fenêtres", "Windows"), ("ar", "النوافذ", "ويندوز")):
        assert panes in translated("I closed the windows", to)
        assert system in translated("I bought a new Windows for my computer", to)


def test_a_sentence_outside_the_grammar_is_not_found() -> None:
    assert look_up("colourless green ideas sleep furiously", "de") is None


def test_a_sentence_with_a_number_is_found() -> None:
    assert translated("the number is twenty-four", "de") == "Die Zahl ist vierundzwanzig"
    assert translated("Anna is forty-two years old", "fr") == "Anna a quarante-deux ans"
