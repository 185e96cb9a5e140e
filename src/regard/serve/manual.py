"""The API's own description, read from its OpenAPI document, as a page that asks nobody else for anything."""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

Table = Mapping[str, Any]

HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}
"""The page has no script and needs no other file, so that a browser may refuse both."""

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


def manual(told: Table) -> str:
    """The page for an OpenAPI document."""
    about, shapes = told["info"], told.get("components", {}).get("schemas", {})
    parts = [
        f"<h1>{escape(about['title'])} {escape(about['version'])}</h1>",
        *(f"<p>{_prose(each)}</p>" for each in about["description"].split("\n\n")),
        '<p>All of this for machines: <a href="openapi.json">openapi.json</a>. A server that asks for a token is told '
        "it in the header <code>Authorization: Bearer TOKEN</code>.</p>",
        *(
            part
            for path, ways in told["paths"].items()
            for way, route in ways.items()
            for part in _route(path, way, route)
        ),
        "<h2>Shapes of answers</h2>",
        *(part for name, shape in shapes.items() for part in _shape(name, shape)),
    ]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(about["title"])}'
    head += f"</title><style>{STYLE}</style>"
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>'


def _route(path: str, way: str, route: Table) -> Iterator[str]:
    """What one route is for, what it takes and what it answers."""
    name = escape(f"{way.upper()} {path}")
    yield f'<h2 id="{escape(path)}"><code>{name}</code></h2><p>{_prose(route["description"])}</p>'
    asked = route.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if asked is not None:
        yield f"<pre>{escape(_curl(path, asked))}</pre><h3>Takes</h3>{_fields(asked)}"
    yield "<h3>Answers</h3><table><tbody>"
    for status, answer in sorted(route["responses"].items()):
        shapes = [_kind(each["schema"]) for each in answer.get("content", {}).values() if each.get("schema")]
        cells = f"<td>{_prose(answer['description'])}</td><td>{' or '.join(shapes)}</td>"
        yield f'<tr><th scope="row">{escape(status)}</th>{cells}</tr>'
    yield "</tbody></table>"


def _shape(name: str, shape: Table) -> Iterator[str]:
    """What an answer is made of."""
    yield f'<h3 id="{escape(name)}">{escape(name)}</h3><p>{_prose(shape.get("description", ""))}</p>{_fields(shape)}'


def _fields(shape: Table) -> str:
    """The fields of an object, those that must be there marked."""
    must = shape.get("required", ())
    rows = (
        f'<tr><th scope="row">{escape(name)}</th><td>{_kind(each)}{", must be there" if name in must else ""}</td>'
        f"<td>{_prose(each.get('description', ''))}</td></tr>"
        for name, each in shape.get("properties", {}).items()
    )
    return f"<table><tbody>{''.join(rows)}</tbody></table>"


def _kind(each: Table) -> str:
    """What a value may be, in words."""
    if "$ref" in each:
        name = escape(each["$ref"].rsplit("/", 1)[1])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in each:
        return " or ".join(_kind(one) for one in each["anyOf"] if one != {"type": "null"})
    if "enum" in each or "const" in each:
        return " or ".join(f"<code>{escape(str(one))}</code>" for one in each.get("enum", [each.get("const")]))
    match each.get("type"):
        case "array" if "prefixItems" in each:
            return f"({', '.join(_kind(one) for one in each['prefixItems'])})"
        case "array":
            return f"list of {_kind(each['items'])}{_bounds(each, 'minItems', 'maxItems', ' of them')}"
        case "object":
            inner = each.get("additionalProperties")
            return f"object of {_kind(inner)}" if isinstance(inner, dict) else "object"
        case "string":
            return f"text{_bounds(each, 'minLength', 'maxLength', ' characters')}"
        case kind:
            return f"{escape(str(kind or 'text'))}{_bounds(each, 'minimum', 'maximum')}"


def _bounds(each: Table, least: str, most: str, unit: str = "") -> str:
    """From where to where a number, a length or a count may go."""
    said = [f"{word} {each[name]:,.10g}" for word, name in (("from", least), ("up to", most)) if name in each]
    return f" ({' '.join(said)}{unit})" if said else ""


def _curl(path: str, asked: Table) -> str:
    """A line that can be pasted, with the examples of what must be there."""
    examples = (f'"{name}": "{asked["properties"][name]["examples"][0]}"' for name in asked["required"])
    return f"curl http://127.0.0.1:8000{path} --json '{{{', '.join(examples)}}}'"


def _prose(text: str) -> str:
    """Text in which what stands between backticks is code."""
    parts = escape(text, quote=False).split("`")
    return "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts))
