"""Rules of this project that a program can check."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from regard.recipe import load

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
SHAPED_ROOMS = ("nn", "models", "decode", "analysis")
LEGEND = set("NBSTQKDHEFVWRLMU")


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def public_names(tree: ast.Module) -> Iterator[ast.AST]:
    """The public functions and classes of a module, and the public methods of those classes."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from (child for child in node.body if isinstance(child, ast.FunctionDef) and child.name[0] != "_")


def shape_faults(tree: ast.AST) -> list[str]:
    """Arguments whose suffix and declared jaxtyping shape disagree, such as `x_ND: Float[Tensor, "N E"]`."""
    faults = []
    for function in functions(tree):
        for argument in [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]:
            declared = argument.annotation
            shape = (
                declared.slice.elts[-1]
                if isinstance(declared, ast.Subscript) and isinstance(declared.slice, ast.Tuple)
                else None
            )
            suffix = re.search(r"_([A-Z]+)$", argument.arg)
            if isinstance(shape, ast.Constant) and isinstance(shape.value, str) and suffix:
                # `#H` may be 1, and `N2` is another number of tokens: both are read by their letter.
                words = [word.lstrip("#").rstrip("0123456789") for word in shape.value.split()]
                letters = "".join(word for word in words if word in LEGEND)
                if letters != suffix.group(1):
                    faults.append(f"{function.name}: {argument.arg} is declared '{shape.value}'")
            elif suffix and set(suffix.group(1)) - LEGEND:
                faults.append(f"{function.name}: {argument.arg} has a letter the legend has not")
    return faults


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_every_public_name_is_documented(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "the module says nothing of itself"
    bare = [
        node.name
        for node in public_names(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not ast.get_docstring(node)
    ]
    assert bare == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_a_shape_suffix_is_the_declared_shape(path: Path) -> None:
    if path.relative_to(ROOT / "src" / "regard").parts[0] in SHAPED_ROOMS:
        assert shape_faults(ast.parse(path.read_text(encoding="utf-8"))) == []


def test_the_shape_rule_sees_a_wrong_suffix() -> None:
    wrong = 'def f(x_ND: Float[Tensor, "N E"], y_XY: Tensor) -> None: ...'
    assert len(shape_faults(ast.parse(wrong))) == 2


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_no_file_and_no_function_is_too_long(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 400
    long = [
        function.name for function in functions(ast.parse(text)) if (function.end_lineno or 0) - function.lineno >= 60
    ]
    assert long == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_no_module_has_a_name_that_says_nothing_about_its_contents(path: Path) -> None:
    assert path.stem not in {"utils", "helpers", "common", "misc"}


def repeated_classes(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """The public classes that several modules define, with the names of these modules."""
    modules = defaultdict[str, list[str]](list)
    for name, text in sources.items():
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].append(name)
    return {name: defining for name, defining in modules.items() if len(defining) > 1}


def test_no_two_public_classes_have_one_name() -> None:
    assert repeated_classes({str(path): path.read_text(encoding="utf-8") for path in SOURCES}) == {}


def test_the_rule_of_class_names_sees_a_repeated_public_class() -> None:
    sources = {"a": "class Plan: ...\nclass _Row: ...", "b": "class Plan: ...\nclass _Row: ..."}
    assert repeated_classes(sources) == {"Plan": ["a", "b"]}


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").rglob("*.toml")), ids=lambda path: path.name)
def test_every_recipe_loads(path: Path) -> None:
    assert load(path).name == path.stem


def test_there_are_recipes() -> None:
    assert list((ROOT / "recipes").glob("*.toml"))


def test_help_imports_no_heavy_library() -> None:
    """`regard --help` is fast because it imports none of these."""
    code = "import sys, regard.cli; print([m for m in ('torch', 'numpy', 'sacrebleu', 'pydantic') if m in sys.modules])"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[]"


def test_no_file_names_a_path_of_a_development_machine() -> None:
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    paths = [ROOT / name for name in files if Path(name).suffix in {".py", ".md", ".toml", ".cff", ""}]
    places = re.compile(r"/(?:work|root|home/\w+)/")
    assert [str(path) for path in paths if path.is_file() and places.search(path.read_text(encoding="utf-8"))] == []
