"""Scenes show what their captions say, words point at what they are about, and splits have nothing in common."""

from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.scenes import COLOURS, KINDS, LANGUAGES, PIXELS, SIZES, SPLITS, Scene, descriptions, find_scene, scenes
from regard.data.scenes.description import ASIDE, HELD_OUT, OVERLAPPING, Description, Group
from regard.data.scenes.shapes import POINTS, coverage

numbers = st.integers(0, 10**6)
names = st.builds(lambda split, number: f"scene:{split}/0/{number}", st.sampled_from(SPLITS), numbers)


@cache
def some(split: str) -> tuple[Scene, ...]:
    """Scenes of a split."""
    return tuple(scenes(split, 600))


def edges(scene: Scene, number: int) -> tuple[float, float, float, float]:
    """The box around all things of a group, in pixels."""
    boxes = np.array(scene_boxes(scene, number)) * PIXELS
    return *boxes[:, :2].min(0), *boxes[:, 2:].max(0)  # type: ignore[return-value]


def scene_boxes(scene: Scene, number: int) -> list[tuple[float, float, float, float]]:
    """The boxes of the things of a group."""
    before = sum(group.amount for group in scene.description.groups[:number])
    return [thing.box for thing in scene.things[before : before + scene.description.groups[number].amount]]


@given(names)
def test_a_scene_shows_as_many_things_of_each_kind_as_its_description_says(name: str) -> None:
    scene = find_scene(name)
    shown = Counter((thing.kind, thing.colour, thing.size) for thing in scene.things)
    groups = scene.description.groups
    assert shown == {(group.kind, group.colour, group.size): group.amount for group in groups}


@given(names)
def test_the_box_of_a_thing_is_the_smallest_that_has_its_pixels(name: str) -> None:
    scene = find_scene(name)
    assert (scene.image.shape, scene.image.dtype) == ((PIXELS, PIXELS, 3), np.uint8)
    inside = np.zeros((PIXELS, PIXELS), bool)
    for thing in scene.things:
        assert 0 <= thing.box[0] < thing.box[2] <= 1
        assert 0 <= thing.box[1] < thing.box[3] <= 1
        left, top, right, bottom = (round(edge * PIXELS) for edge in thing.box)
        area = scene.image[top:bottom, left:right].astype(int)
        background = scene.image[0, 0].astype(int)
        if scene.description.relation not in OVERLAPPING:  # where two things meet, their colours are mixed
            # Pixels that a thing covers by at least a half are nearer to its colour than to the background.
            is_own = abs(area - thing.rgb).sum(2) <= abs(area - background).sum(2) + 3
            for side in (is_own[0], is_own[-1], is_own[:, 0], is_own[:, -1]):
                assert side.any()
        assert (area == thing.rgb).all(2).mean() > 0.1
        inside[top:bottom, left:right] = True
    for rgb in {thing.rgb for thing in scene.things}:
        assert not (scene.image[~inside] == rgb).all(1).any()


@given(names, st.sampled_from(LANGUAGES))
def test_each_word_points_at_the_things_that_it_is_about(name: str, language: str) -> None:
    scene = find_scene(name, language)
    groups = scene.description.groups
    regions = [tuple(scene_boxes(scene, number)) for number in range(len(groups))]
    pointing = [regions.index(word.boxes) for word in scene.words if word.boxes is not None]
    # Shape, colour and size, and a number for several things, except for two in Arabic, which is the dual.
    words = [3 + (group.amount > 1 and (language != "ar" or group.amount > 2)) for group in groups]
    assert pointing == [number for number, count in enumerate(words) for _ in range(count)]
    assert " ".join(word.text for word in scene.words) == scene.caption
    assert all(word.text and " " not in word.text for word in scene.words)


@given(names)
def test_of_the_relations_between_two_groups_exactly_the_named_one_holds(name: str) -> None:
    scene = find_scene(name)
    if scene.description.second is None:
        return
    left, top, right, bottom = edges(scene, 0)
    other_left, other_top, other_right, other_bottom = edges(scene, 1)
    across = min(right, other_right) - max(left, other_left)
    down = min(bottom, other_bottom) - max(top, other_top)
    holds = {
        "above": bottom < other_top and across > 0,
        "below": top > other_bottom and across > 0,
        "to_the_left_of": right < other_left and down > 0,
        "to_the_right_of": left > other_right and down > 0,
    }
    relation = scene.description.relation
    if relation in ASIDE:
        assert [key for key, value in holds.items() if value] == [relation]
    else:
        assert relation in OVERLAPPING
        assert across >= 0
        assert down >= 0
        assert not any(holds.values())


def test_what_is_in_front_covers_what_is_behind() -> None:
    overlapping = [scene for scene in some("train") if scene.description.relation in OVERLAPPING]
    assert len(overlapping) > 50
    for scene in overlapping:
        front, back = scene.things if scene.description.relation == "in_front_of" else scene.things[::-1]
        left, top, right, bottom = (round(edge * PIXELS) for edge in front.box)
        # The thing in front is whole: its box has the sides of its shape, and each pixel inside of it is its own.
        whole = [coverage(front.kind, radius, x, y) for radius in range(11, 27) for x in (0, 1) for y in (0, 1)]
        shapes = [mask[np.ix_(mask.max(1) * 2 >= POINTS, mask.max(0) * 2 >= POINTS)] == POINTS for mask in whole]
        own = (scene.image[top:bottom, left:right] == front.rgb).all(2)
        assert any(np.array_equal(own, shape) for shape in shapes)
        assert (scene.image == back.rgb).all(2).any()


def test_small_and_large_things_differ_in_size() -> None:
    sides: dict[str, set[int]] = {size: set() for size in SIZES}
    for scene in some("train"):
        if scene.description.relation not in OVERLAPPING:
            for thing in scene.things:
                left, top, right, bottom = thing.box
                sides[thing.size].add(round(max(right - left, bottom - top) * PIXELS))
    assert max(sides["small"]) + 3 <= min(sides["large"])


def test_every_form_of_scene_occurs() -> None:
    drawn = [scene.description for scene in some("train")]
    assert {description.relation for description in drawn} == {"", *ASIDE, *OVERLAPPING}
    assert {group.amount for description in drawn for group in description.groups} == {1, 2, 3, 4}
    for at, values in enumerate((KINDS, COLOURS, SIZES)):
        assert {group[at] for description in drawn for group in description.groups} == set(values)


@pytest.mark.parametrize("split", SPLITS)
def test_the_order_of_mention_follows_from_the_things(split: str) -> None:
    for scene in some(split):
        ranks = [group.rank for group in scene.description.groups]
        assert ranks == sorted(set(ranks))


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_caption_belongs_to_one_description(language: str) -> None:
    said: dict[Description, set[str]] = {}
    for split in SPLITS:
        for scene, (_, caption) in zip(some(split), descriptions(split, 600, language), strict=True):
            said.setdefault(scene.description, set()).add(caption)
    assert {len(captions) for captions in said.values()} == {1}
    assert len(set().union(*said.values())) == len(said) > 1000


def test_splits_have_no_description_in_common() -> None:
    drawn = {split: {scene.description for scene in some(split)} for split in SPLITS}
    assert sum(map(len, drawn.values())) == len(set().union(*drawn.values()))
    assert all(description.split == split for split, those in drawn.items() for description in those)


def test_held_out_colours_of_shapes_are_in_relations_of_novel_only() -> None:
    def pairs(split: str) -> set[tuple[str, str]]:
        related = (scene.description for scene in some(split) if scene.description.second is not None)
        return {(group.kind, group.colour) for description in related for group in description.groups}

    assert not pairs("train") & HELD_OUT
    assert not pairs("test") & HELD_OUT
    assert pairs("novel") >= HELD_OUT
    for scene in some("novel"):
        assert any((group.kind, group.colour) in HELD_OUT for group in scene.description.groups)
    alone = {(scene.things[0].kind, scene.things[0].colour) for scene in scenes("train", 3000)}
    assert alone >= HELD_OUT  # each of them is known from scenes without a relation


def test_pictures_are_distinct_and_depend_on_split_seed_and_number_alone() -> None:
    images = [scene.image.tobytes() for split in SPLITS for scene in some(split)]
    images += [scene.image.tobytes() for scene in scenes("train", 100, seed=1)]
    assert len(set(images)) == len(images)
    for scene in (some("train")[17], some("novel")[3]):
        again = find_scene(scene.name, "de")
        np.testing.assert_array_equal(again.image, scene.image)
        assert again.things == scene.things
        assert again.caption != scene.caption


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("dev", 1), "scenes have no split 'dev': choose one of train, valid, test, novel"),
        (("train", 1, "es"), "scenes have no language 'es': choose one of en, de, fr, it, ar"),
        (("train", -1), "cannot draw -1 scenes"),
    ],
)
def test_an_unknown_split_or_language_is_an_error(arguments: tuple[str, int], problem: str) -> None:
    for generate in (scenes, descriptions):
        with pytest.raises(ValueError, match=problem):
            list(generate(*arguments))


def test_a_group_is_ranked_by_shape_then_colour_then_size() -> None:
    groups = [Group(kind, colour, size) for kind in KINDS for colour in COLOURS for size in SIZES]
    mixed = groups[1::2] + groups[::2]
    assert sorted(mixed, key=lambda group: group.rank) == groups
