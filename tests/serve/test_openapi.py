"""What the API says of itself is true: schemathesis asks all it allows, and what it forbids."""

import json
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance
from tests.serve.talk import Server

ROUTES = [
    *(("POST", path) for path in ("/translate", "/perplexity", "/align", "/tokens")),
    *(("GET", path) for path in ("/models", "/health", "/metrics")),
]
# Not every rule between fields can be said in a schema: of requests that fit it, some are refused with a reason.
UNSAID: list[Any] = [positive_data_acceptance]


@pytest.fixture(scope="module")
def described(server: Server) -> Any:
    found = schemathesis.openapi.from_dict(json.loads(server.ask("/openapi.json").body))
    found.config.update(base_url=f"http://127.0.0.1:{server.port}")
    return found


def test_every_route_is_described(described: Any) -> None:
    told = [each.ok() for each in described.get_all_operations()]
    assert sorted((each.method.upper(), each.path) for each in told) == sorted(ROUTES)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["allowed", "forbidden"])
@pytest.mark.parametrize(("method", "path"), ROUTES, ids=[path for _, path in ROUTES])
def test_every_route_answers_as_it_is_described(described: Any, method: str, path: str, mode: GenerationMode) -> None:
    if method == "GET" and mode is GenerationMode.NEGATIVE:
        assert "parameters" not in described[path][method].definition.raw  # there is nothing to get wrong
        return

    @settings(max_examples=10, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None)
    @given(case=described[path][method].as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        case.call_and_validate(excluded_checks=UNSAID)

    ask()
