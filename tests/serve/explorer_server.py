"""The explorer's server with a page and a tiny model of a test: python explorer_server.py PAGE FOLDER [KEY=VALUE]...

The model is trained in FOLDER, in a few steps unless the settings say otherwise.
"""

import sys
from pathlib import Path

from regard.recipe import load
from regard.serve.explorer import make_explorer_app
from regard.serve.explorer_models import BackgroundTraining
from regard.serve.server import listen, log_line, run, url
from regard.serve.settings import ServerSettings

TINY = ("name=tiny", "data.train.0.pairs=60", "text.size=400", "train.steps=4", "train.every=2", "train.tokens=200")


def main(page: str, folder: str, *overrides: str) -> None:
    recipe = load(Path(__file__).parents[1] / "memorised.toml", [*TINY, *overrides])
    settings = ServerSettings()
    with listen("127.0.0.1", 0) as listener:
        app = make_explorer_app({}, settings, BackgroundTraining(recipe, Path(folder), "cpu"), Path(page))
        run(app, settings, listener, lambda: log_line(f"ready: tiny on {url(listener)}, for a test"), websockets=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
