"""The explorer's server with a page and a model of the test's own: python looking.py PAGE FOLDER [KEY=VALUE]...

The model is made in FOLDER, in a few steps, as the settings say.
"""

import sys
from pathlib import Path

from regard.recipe import load
from regard.serve.look import make_look_app
from regard.serve.look_making import Making
from regard.serve.server import address, listen, run, say
from regard.serve.settings import Settings

TINY = ("name=tiny", "data.train.0.pairs=60", "text.size=400", "train.steps=4", "train.every=2", "train.tokens=200")


def main(page: str, folder: str, *overrides: str) -> None:
    recipe = load(Path(__file__).parents[1] / "memorised.toml", [*TINY, *overrides])
    settings = Settings()
    with listen("127.0.0.1", 0) as listening:
        app = make_look_app({}, settings, Making(recipe, Path(folder), "cpu"), Path(page))
        run(app, settings, listening, lambda: say(f"ready: tiny on {address(listening)}, for a test"), sockets=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
