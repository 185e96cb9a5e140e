"""`regard scenes`: draw pictures of shapes, with their captions and the region that each word is about."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.data.scenes import Scene


def scenes(
    to: Annotated[str, typer.Option(help="Language of the captions: en, de, fr, it or ar.")] = "en",
    count: Annotated[int, typer.Option("-n", "--count", min=0, help="Number of pictures.")] = 5,
    split: Annotated[
        str, typer.Option(help="train, valid, test or novel (colours of shapes not in relations of train).")
    ] = "train",
    seed: Annotated[int, typer.Option(help="Random seed; it gives the same pictures on every machine.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for PNG files and captions.tsv, which lists them for training.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per picture, with the boxes of each word.")
    ] = False,
) -> None:
    """Draw pictures of shapes with captions.

    \b
    regard scenes -n 5 --to de
    regard scenes -n 2000 --out shapes
    regard scenes --split novel --json

    Each picture has one right caption. A box is left, top, right and bottom, in parts of the picture.
    """
    from regard.data.scenes import scenes as drawn

    lines = []
    for number, scene in enumerate(drawn(split, count, to, seed)):
        image = scene.name
        if out is not None:
            image = f"{number:06}.png"
            _write(scene, out / image)
        lines.append(f"{image}\t{scene.caption}\n")
        typer.echo(json.dumps(_to_json(scene, image), ensure_ascii=False) if as_json else scene.caption)
    if out is not None:
        from regard.files import write_atomically

        write_atomically(out / "captions.tsv", "".join(lines).encode())


def _write(scene: "Scene", path: Path) -> None:
    """Write a picture as a PNG file."""
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(scene.image).save(path)


def _to_json(scene: "Scene", image: str) -> dict[str, object]:
    """Return a scene as a JSON object."""
    return {
        "image": image,
        "caption": scene.caption,
        "words": [{"text": word.text, "boxes": word.boxes} for word in scene.words],
        "things": [thing._asdict() for thing in scene.things],
    }
