"""An HTML page that documents the API, rendered from its OpenAPI document. The page loads nothing from elsewhere."""

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

JsonSchema = Mapping[str, Any]

HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}
"""Headers to send with the page: it has no script and needs no other file, so a browser may refuse both."""

STYLE = """
:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 58rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin: 3rem 0 .5rem; border-top: 1px solid #8886; padding-top: 1rem; }
h3 { margin: 1.5rem 0 .3rem; font-size: 1rem; }
code, pre, th[scope=row] { font-family: ui-monospace, monospace; font-size: .9em; }
pre { padding: .7rem; overflow-x: auto; background: #8882; border-radius: .3rem; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid #8884; }
thead { font-size: .85em; }
th[scope=row] { white-space: nowrap; }
"""


def render_api_page(openapi: Mapping[str, Any]) -> str:
    """Return the HTML page for an OpenAPI document."""
    info, schemas = openapi["info"], openapi.get("components", {}).get("schemas", {})
    parts = [
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
        *(f"<p>{_inline(paragraph)}</p>" for paragraph in info["description"].split("\n\n")),
        '<p>The same as an OpenAPI document: <a href="openapi.json">openapi.json</a>. If the server requires a token, '
        "send it in the header <code>Authorization: Bearer TOKEN</code>.</p>",
        *(
            part
            for path, operations in openapi["paths"].items()
            for part in _route(path, operations, openapi["paths"], schemas)
        ),
        "<h2>Schemas</h2>",
        *(
            f'<h3 id="{escape(name)}">{escape(name)}</h3><p>{_inline(schema.get("description", ""))}</p>'
            + _fields(schema)
            for name, schema in schemas.items()
        ),
    ]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(info["title"])}'
    head += f"</title><style>{STYLE}</style>"
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>'


def _route(
    path: str, operations: Mapping[str, Any], paths: Mapping[str, Any], schemas: Mapping[str, JsonSchema]
) -> Iterator[str]:
    """Render the operations of a path: description, example, request and responses."""
    operation = next(iter(operations.values()))  # a path has one operation, or GET and HEAD
    name = escape(f"{', '.join(operations).upper()} {path}")
    yield f'<h2 id="{escape(path)}"><code>{name}</code></h2>'
    yield from (f"<p>{_inline(paragraph)}</p>" for paragraph in operation["description"].split("\n\n"))
    original = path.removeprefix("/v1")
    if original != path and _describes_the_same(operations, paths.get(original, {})):
        yield f'<p>The same as <a href="#{escape(original)}">{escape(original)}</a>.</p>'
        return
    requests = _request_schemas(operation)
    if requests:
        yield f"<pre>{escape(_curl(path, schemas[requests[0]]))}</pre>"
    for request in requests:
        yield f'<h3>Request: <a href="#{escape(request)}">{escape(request)}</a></h3>'
    yield "<h3>Responses</h3><table><tbody>"
    for status, response in sorted(operation["responses"].items()):
        types = [_type(body["schema"]) for body in response.get("content", {}).values() if body.get("schema")]
        cells = f"<td>{_inline(response['description'])}</td><td>{' or '.join(types)}</td>"
        yield f'<tr><th scope="row">{escape(status)}</th>{cells}</tr>'
    yield "</tbody></table>"


def _describes_the_same(operations: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Return whether two paths have the same methods with the same descriptions."""
    return {method: operation["description"] for method, operation in operations.items()} == {
        method: operation["description"] for method, operation in others.items()
    }


def _request_schemas(operation: Mapping[str, Any]) -> list[str]:
    """Return the names of the schemas that a JSON body may have."""
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    choices = schema.get("anyOf", [schema])
    return [choice["$ref"].rsplit("/", 1)[1] for choice in choices if "$ref" in choice]


def _fields(schema: JsonSchema) -> str:
    """Render the fields of an object as a table."""
    required = schema.get("required", ())
    rows = (
        f'<tr><th scope="row">{escape(name)}</th><td>{_type(field)}{", required" if name in required else ""}</td>'
        f"<td>{_inline(field.get('description', ''))}</td></tr>"
        for name, field in schema.get("properties", {}).items()
    )
    return f"<table><tbody>{''.join(rows)}</tbody></table>"


def _type(schema: JsonSchema) -> str:
    """Render the type of a value, with its bounds."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rsplit("/", 1)[1])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(choice) for choice in schema["anyOf"] if choice != {"type": "null"})
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " or ".join(f"<code>{escape(str(value))}</code>" for value in values)
    match schema.get("type"):
        case "array" if "prefixItems" in schema:
            return f"({', '.join(_type(item) for item in schema['prefixItems'])})"
        case "array":
            return f"list of {_type(schema['items'])}{_bounds(schema, 'minItems', 'maxItems', ' items')}"
        case "object":
            values = schema.get("additionalProperties")
            return f"object of {_type(values)}" if isinstance(values, dict) else "object"
        case "string":
            return f"string{_bounds(schema, 'minLength', 'maxLength', ' characters')}"
        case kind:
            return f"{escape(str(kind or 'string'))}{_bounds(schema, 'minimum', 'maximum')}"


def _bounds(schema: JsonSchema, minimum: str, maximum: str, unit: str = "") -> str:
    """Render the bounds of a number, a length or a count, such as `(from 1 up to 8)`."""
    keywords = {"from": minimum, "above": "exclusiveMinimum", "up to": maximum}
    bounds = [f"{word} {schema[name]:,.10g}" for word, name in keywords.items() if name in schema]
    return f" ({' '.join(bounds)}{unit})" if bounds else ""


def _curl(path: str, request: JsonSchema) -> str:
    """Return a command line that sends the required fields with their examples."""
    examples = {name: request["properties"][name]["examples"][0] for name in request["required"]}
    return f"curl http://127.0.0.1:8000{path} --json '{json.dumps(examples, ensure_ascii=False)}'"


def _inline(text: str) -> str:
    """Escape text, and render what is between backticks as code."""
    parts = escape(text, quote=False).split("`")
    return "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts))
