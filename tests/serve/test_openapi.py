"""The OpenAPI document is true: schemathesis sends valid and invalid requests, and checks the responses against it."""

import json
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance
from tests.serve.client import Server

ROUTES = [
    *(("POST", path) for path in ("/translate", "/perplexity", "/align", "/tokens")),
    *(("GET", path) for path in ("/models", "/health", "/metrics")),
]
# A schema cannot express every rule between fields, so some requests that fit it are refused with a reason.
EXCLUDED: list[Any] = [positive_data_acceptance]


@pytest.fixture(scope="module")
def openapi(server: Server) -> Any:
    document = schemathesis.openapi.from_dict(json.loads(server.request("/openapi.json").body))
    document.config.update(base_url=f"http://127.0.0.1:{server.port}")
    return document


def test_every_route_is_documented(openapi: Any) -> None:
    operations = [result.ok() for result in openapi.get_all_operations()]
    assert sorted((operation.method.upper(), operation.path) for operation in operations) == sorted(ROUTES)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["valid", "invalid"])
@pytest.mark.parametrize(("method", "path"), ROUTES, ids=[path for _, path in ROUTES])
def test_every_route_responds_as_documented(openapi: Any, method: str, path: str, mode: GenerationMode) -> None:
    if method == "GET" and mode is GenerationMode.NEGATIVE:
        assert "parameters" not in openapi[path][method].definition.raw  # so no request is invalid
        return

    @settings(max_examples=10, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None)
    @given(case=openapi[path][method].as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        case.call_and_validate(excluded_checks=EXCLUDED)

    check()
