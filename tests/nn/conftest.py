"""Shapes are checked in these tests: every call into the layers and models is held to its signature."""

from jaxtyping import install_import_hook

install_import_hook(["regard.nn", "regard.models"], "beartype.beartype")
