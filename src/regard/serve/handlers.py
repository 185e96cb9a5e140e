"""What the handlers of all routes share: the table of models, the size of a request, and the form of a response."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from fastapi.responses import Response

from regard.serve.errors import FieldError, RequestError
from regard.serve.request_context import current_request
from regard.serve.requests import ModelRequest, check_normalised
from regard.serve.services import Service
from regard.serve.settings import ServerLimits
from regard.text import Tokenizer

Result = TypeVar("Result")


class ModelHandlers:
    """Handlers of routes that use the models of a server."""

    def __init__(self, models: Mapping[str, Service], limits: ServerLimits) -> None:
        """Handle requests to some models within limits."""
        self.models, self.limits = models, limits

    def note(self, asked: ModelRequest, service: Service, tokenizers: Iterable[Tokenizer]) -> None:
        """Note model and lines of a request for metrics and log, and check its size after normalisation."""
        context = current_request()
        context.model, context.lines = service.name, asked.count()
        or_422(lambda: check_normalised(asked, tokenizers, self.limits))

    def find_service(self, name: str | None, route: str | None = None) -> Service:
        """Return the model of a name, or the first one that answers a route."""
        fitting = {other.name: other for other in self.models.values() if route is None or other.route == route}
        if name is None and fitting:
            return next(iter(fitting.values()))
        if name is None:
            routes = ", ".join(sorted({f"/{other.route}" for other in self.models.values()}))
            raise RequestError(404, f"no model of this server answers this route; its models answer {routes}", "model")
        if name not in self.models:
            message = f"there is no model of that name; this server has: {', '.join(fitting or self.models)}"
            raise RequestError(404, message, "model")
        if name not in fitting:
            message = f"this model answers /{self.models[name].route}; send the request there, or to another model"
            raise RequestError(404, message, "model")
        return fitting[name]


def or_422(make: Callable[[], Result]) -> Result:
    """Call a function, and turn its `ValueError` into status 422."""
    try:
        return make()
    except ValueError as error:
        raise RequestError(422, str(error), error.field if isinstance(error, FieldError) else None) from None


def json_response(value: dict[str, Any] | list[dict[str, Any]], status: int = 200) -> Response:
    """Return a response of JSON."""
    return Response(json.dumps(value, ensure_ascii=False).encode(), status, media_type="application/json")
