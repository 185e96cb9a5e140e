"""The languages of a corpus, as far as a recipe says them."""

from regard.recipe.data import Corpus, PhrasebookCorpus


def corpus_languages(corpus: Corpus) -> tuple[str | None, str | None]:
    """Return the language codes of source and target: of the phrasebook, or the suffixes of two files.

    A language is None if it is not known.

    >>> corpus_languages(TextCorpus(files={"source": "train.en.gz", "target": "train.de.gz"}))
    ('en', 'de')
    """
    if isinstance(corpus, PhrasebookCorpus):
        return "en", corpus.to
    suffixes = [path.removesuffix(".gz").rpartition(".")[2] for path in corpus.paths]
    if len(suffixes) != 2:
        return None, None
    source, target = (
        suffix if 2 <= len(suffix) <= 3 and suffix.isalpha() and suffix != "txt" else None for suffix in suffixes
    )
    return source, target
