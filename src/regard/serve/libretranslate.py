"""Requests and responses in the form of LibreTranslate, for the clients that are written for it.

A request is turned into one of this server's own, so that the same limits and the same search apply to it.
"""

import json
from collections.abc import Sequence
from typing import Any, Literal
from urllib.parse import parse_qs

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from regard.predict import Translation
from regard.serve.errors import FieldError
from regard.serve.languages import ModelLanguages, find_model
from regard.serve.requests import invalid_request
from regard.serve.settings import ServerLimits

FORM_TYPE = "application/x-www-form-urlencoded"


class LibreTranslateRequest(BaseModel):
    """A text to translate, in the form of LibreTranslate. Fields that are not listed are ignored."""

    model_config = ConfigDict(frozen=True, strict=True)

    q: str | list[str] = Field(description="A text, or a list of texts.", examples=["I can go alone"])
    source: str = Field(
        max_length=20,
        description="Language code of the text; `auto` if only one language can be translated to the target.",
        examples=["en"],
    )
    target: str = Field(max_length=20, description="Language code of the translation.", examples=["de"])
    format: Literal["text"] = Field("text", description="Only plain text is translated, not HTML.")
    alternatives: int = Field(0, ge=0, description="Number of alternative translations to return.")
    api_key: str | None = Field(
        None, max_length=1000, description="The token of the server, if it requires one and no header has it."
    )

    @property
    def texts(self) -> list[str]:
        """The texts as a list."""
        return [self.q] if isinstance(self.q, str) else self.q

    def own_request(self, languages: ModelLanguages) -> bytes:
        """Return the body of a request to this server's own `/translate`: all lines of all texts.

        Raises:
            FieldError: No model translates between these languages.
        """
        model, pair = find_model(languages, self.source, self.target)
        tag = f"{pair.tag} " if pair.tag else ""
        lines = [f"{tag}{line}" if line.strip() else "" for text in self.texts for line in text.split("\n")]
        fields: dict[str, Any] = {"model": model, "source": lines}
        if self.alternatives:
            fields["nbest"] = self.alternatives + 1
        return json.dumps(fields).encode()

    def response(self, translations: Sequence[Translation]) -> dict[str, Any]:
        """Return the response from the translations of all lines.

        Raises:
            ValueError: A line could not be translated.
        """
        if faults := [translation.fault for translation in translations if translation.fault]:
            raise ValueError(faults[0])
        lines = iter(translations)
        texts = [[next(lines) for _ in text.split("\n")] for text in self.texts]
        is_single = isinstance(self.q, str)
        translated = [_join(parts, 0) for parts in texts]
        content: dict[str, Any] = {"translatedText": translated[0] if is_single else translated}
        if self.alternatives:
            choices = [[_join(parts, rank) for rank in range(1, self.alternatives + 1)] for parts in texts]
            content["alternatives"] = choices[0] if is_single else choices
        return content


def _join(parts: Sequence[Translation], rank: int) -> str:
    """Join the lines of a text: of each the hypothesis of some rank, or its last one."""
    return "\n".join((part.nbest or (part,))[min(rank, max(0, len(part.nbest) - 1))].text for part in parts)


def parse_json(body: bytes) -> LibreTranslateRequest | None:
    """Parse a JSON body that has the field `q`; return None for any other.

    Raises:
        FieldError: A field is missing or invalid.
    """
    if b'"q"' not in body:
        return None
    try:
        fields = from_json(body)
    except ValueError:
        return None
    return _validate(fields) if isinstance(fields, dict) and "q" in fields else None


def parse_form(form: bytes) -> LibreTranslateRequest:
    """Parse URL-encoded fields, of a body or of a URL.

    Raises:
        FieldError: A field is missing or invalid.
    """
    try:
        lists = parse_qs(form.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=1000)
    except ValueError:
        raise FieldError("the form is not valid; send URL-encoded UTF-8", None) from None
    fields: dict[str, Any] = {name: values[-1] for name, values in lists.items()}
    if len(lists.get("q", ())) > 1:
        fields["q"] = lists["q"]
    count = fields.get("alternatives", "")
    if count.isascii() and count.isdigit() and len(count) < 10:
        fields["alternatives"] = int(count)
    return _validate(fields)


def request_schema(limits: ServerLimits) -> dict[str, Any]:
    """Return the JSON schema of a request, with the limits of this server in it."""
    schema = LibreTranslateRequest.model_json_schema()
    text, texts = schema["properties"]["q"]["anyOf"]
    text["maxLength"], texts["maxItems"] = limits.characters, limits.sentences
    schema["properties"]["alternatives"]["maximum"] = limits.beam - 1
    return schema


def _validate(fields: dict[str, Any]) -> LibreTranslateRequest:
    try:
        return LibreTranslateRequest.model_validate(fields)
    except ValidationError as error:
        raise invalid_request(error, LibreTranslateRequest) from None
