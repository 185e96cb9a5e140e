"""Classifiers, taggers and mask fillers are served by the queue, limits and errors of the other routes."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.serve.client import Response, Server
from tests.serve.untrained import TEXTS

import regard


def post(server: Server, route: str, **body: Any) -> Response:
    return server.request(f"/{route}", body)


def close(first: Any, second: Any) -> bool:
    """Return whether two JSON values are equal, numbers up to the rounding of other batches."""
    if isinstance(first, float) and isinstance(second, float):
        return abs(first - second) < 1e-5
    if isinstance(first, dict) and isinstance(second, dict):
        return list(first) == list(second) and all(close(first[key], second[key]) for key in first)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(close, first, second))
    return bool(first == second)


@pytest.mark.parametrize(
    ("route", "run", "texts", "options"),
    [
        ("classify", "labels", TEXTS, {"attention": True}),
        ("classify", "labels", TEXTS, {}),
        ("tag", "tags", TEXTS, {}),
        ("fill", "masks", ["the red [MASK] sat", "[MASK] [MASK]"], {"top": 3}),
    ],
)
def test_a_request_is_answered_as_by_the_predictor(
    server_of_labels: Server,
    untrained_runs: dict[str, Path],
    route: str,
    run: str,
    texts: list[str],
    options: dict[str, Any],
) -> None:
    expected = [result.to_json() for result in regard.load(untrained_runs[run], "cpu")(texts, **options)]
    response = post(server_of_labels, route, text=texts, **options)
    assert response.status == 200, response.body
    assert response.json["model"] == run
    assert close(response.json["results"], json.loads(json.dumps(expected)))


def test_requests_of_many_clients_are_answered_each_by_its_own_result(server_of_labels: Server) -> None:
    texts = [f"the red cat {'sat ' * number}" for number in range(8)]
    alone = [post(server_of_labels, "tag", text=text).json["results"][0] for text in texts]
    with ThreadPoolExecutor(8) as clients:
        together = list(clients.map(lambda text: post(server_of_labels, "tag", text=text).json["results"][0], texts))
    assert all(map(close, together, alone))


def test_a_text_that_cannot_be_predicted_is_a_fault_beside_the_others(server_of_labels: Server) -> None:
    response = post(server_of_labels, "fill", text=["no mask here", "the [MASK] cat"])
    assert response.status == 200
    assert "no mask" in response.json["results"][0]["fault"]
    assert response.json["results"][1]["masks"]
    assert post(server_of_labels, "fill", text="no mask here").status == 422


@pytest.mark.parametrize(
    ("route", "body", "status", "message"),
    [
        ("classify", {"text": "x", "model": "nothing"}, 404, "there is no model of that name"),
        ("classify", {"text": "x", "model": "tags"}, 404, "this model answers /tag"),
        ("translate", {"source": "x", "model": "tags"}, 404, "this model answers /tag"),
        ("classify", {"text": "x" * 401}, 422, "this server allows 400"),
        ("tag", {"text": ["x"] * 11}, 422, "this server allows 10"),
        ("tag", {"text": "\ufdfa" * 100}, 422, "this server allows 400"),
        ("fill", {"text": "[MASK]", "top": 101}, 422, "top"),
        ("classify", {"source": "x"}, 422, "text"),
        ("classify", {"text": []}, 422, "text"),
    ],
)
def test_a_bad_request_is_refused_with_a_reason(
    server_of_labels: Server, route: str, body: dict[str, Any], status: int, message: str
) -> None:
    response = post(server_of_labels, route, **body)
    assert response.status == status
    assert message in response.json["message"]


def test_a_server_without_a_model_for_a_route_names_the_routes_it_has(server: Server) -> None:
    response = post(server, "classify", text="x")
    assert response.status == 404
    assert "/translate" in response.json["message"]


def test_models_are_listed_with_their_routes(server_of_labels: Server) -> None:
    models = server_of_labels.request("/models").json["models"]
    assert {model["name"]: model["route"] for model in models} == {
        "labels": "classify",
        "tags": "tag",
        "masks": "fill",
        "chats": "chat",
        "memorised": "translate",
    }
