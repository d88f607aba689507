"""The demo's page."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import permutations

import numpy as np
import pytest

from featveil.core import Guarantee, Keypoints, PrivateFeatures, Subspaces
from featveil.demo.astronaut import FaceCopy, FaceDemo, FaceGuess
from featveil.demo.demo import Run
from featveil.demo.demo_page import leak_headline, render
from featveil.demo.gated_room import GatedRoom, PartSent
from featveil.demo.room import MapRow, RoomMaps
from featveil.demo.two_views import Concealed, Count, LeakRow, Row, View, WordRow, Words
from featveil.metrics import Leakage
from featveil.metrics.reconstruction import Reconstruction

VOID = {"meta", "img", "br", "link"}


@pytest.fixture
def run() -> Run:
    picture = np.zeros((30, 40, 3), np.uint8)
    basis = np.tile(np.eye(4, 128, dtype=np.float32), (1500, 1, 1))
    private = PrivateFeatures(
        Subspaces(np.zeros((1500, 128), np.float32), basis),
        "sift",
        {"name": "lifting", "database": "<b>0123456789abcdef"},
        Guarantee("empirical"),
        Keypoints(np.zeros((1500, 2), np.float32)),
    )
    rows = [Row(2, Count(90, 81), Count(80, 72)), Row(4, Count(70, 63), Count(60, 54))]
    bound = [WordRow(12.0, 18_000.0, 0.244, Count(500, 60)), WordRow(10.0, 15_000.0, 0.211, Count(450, 45))]
    words = Words(4, 16384, bound, bound[1], picture, 37_000)
    attacks = [LeakRow("data<base", "looks it up", Leakage(100, 0.4, 0.3, 0.41, 0.62, 0.07, 2, 1))]
    views = [View("photograph", picture), View("data<base", picture, Reconstruction(0.1, 0.625, 12))]
    undone = View("unconceal", picture, Reconstruction(0.2, 0.5, 11))
    concealed = Concealed(Count(95, 85), picture, Leakage(100, 0.4, 0.3, 0.92, 0.95, 0.88, 2, 1), undone)
    sizes = (3_082_264, 640_000)
    pictures = (picture,) * 6
    copies = [FaceCopy("as <it> is", picture, 0.0, 0.0), FaceCopy("blurred", picture, 0.5, 0.92)]
    guesses = [FaceGuess("raw", {"knn": 100}), FaceGuess("hybrid+", {"knn": 11, "trained": 99})]
    faces = FaceDemo(copies, 1.17, 0.9, 750, guesses)
    return Run(*pictures, Count(100, 90), rows, 4, words, concealed, attacks, views, None, faces, private, *sizes, 12.3)


def gated(run: Run) -> GatedRoom:
    """What a gate sends of a room with a portrait."""
    picture, sizes = run.query, (1_064_544, 9_360, 167_494)
    parts = PartSent(1864, 424), PartSent(136, 3)
    return GatedRoom(picture, (picture, picture), *parts, 0.4, (0.01, 0.0009), (0.03, 0.0014), *sizes)


class Page(HTMLParser):
    """Checks that tags are balanced, and collects what the page would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.alts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action")]
        if tag == "img":
            self.alts.append(values.get("alt") or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_is_whole_and_loads_nothing(run: Run) -> None:
    text = render(run)
    page = Page(text)
    assert page.open == []
    assert len(page.loads) == 13
    assert all(value.startswith("data:image/jpeg;base64,") for value in page.loads)
    assert all(page.alts)
    assert not re.search(r"https?://|url\(|@import|<script", text)
    assert "${" not in text


def test_page_has_the_numbers(run: Run) -> None:
    text = " ".join(render(run).split())
    for words in ("90 of 100 matches agree", "63 of 70 matches agree", "54 of 60 matches agree"):
        assert words in text
    assert "1,500 sift features" in text
    assert "of 3.1 MB (the raw features would take 640 kB)" in text
    assert "a subspace: 640 numbers" in text
    assert "70% of raw" in text
    assert "45 of 450 candidates agree" in text
    assert "12 <span>(18,000 for the image)</span>" in text  # no epsilon without that of the image
    assert "ε = 10 (15,000 for the image)" in text
    assert "takes 37 kB" in text
    assert "looks it up</span></th><td>100</td><td>62%</td><td>41%</td><td>7%</td>" in text


def test_page_is_honest(run: Run) -> None:
    text = render(run)
    for words in ("No proof", "Positions are public", "Database attack", "Clustering", "whole numbers"):
        assert words in text
    assert "One pair in 16 fails" in text
    assert "did not happen" in text


def test_values_are_escaped(run: Run) -> None:
    text = render(run)
    assert "&lt;b&gt;" in text
    assert "<b>0123" not in text
    assert "The attack data&lt;base found 7% of the features exactly." in text


def test_no_raw_match_at_all(run: Run) -> None:
    none = Run(**{**vars(run), "raw": Count(0, 0)})
    assert "–" in render(none)


def test_what_the_attacker_sees(run: Run) -> None:
    text = render(run)
    assert "<b>Photograph:</b> stays on the device.</figcaption>" in text
    assert "<b>Attack data&lt;base:</b> from what it took for the features. SSIM 0.62.</figcaption>" in text
    assert [attack for attack, _ in run.scored_views] == ["data<base", "unconceal"]
    assert run.scored_views[0][1] == Reconstruction(0.1, 0.625, 12)
    unseen = replace(run.concealed, view="too <narrow")
    without = Run(**{**vars(run), "views": "too <narrow", "concealed": unseen})
    page = render(without)
    assert page.count("was not painted: too &lt;narrow.") == 2 and len(Page(page).loads) == 10
    assert without.scored_views == []


def test_what_undoing_the_concealer_gives(run: Run) -> None:
    text = " ".join(render(run).split())
    assert "85 of 95 matches agree, 94% of raw." in text
    assert "found 88% of the features exactly, and 92% to within 0.3." in text
    assert "<b>Attack unconceal:</b> from what it took for the features. SSIM 0.50.</figcaption>" in text


def test_of_attacks_that_are_as_strong_the_headline_is_of_the_one_tried_most() -> None:
    few = LeakRow("few", "", Leakage(100, 0, 0, 1.0, 1.0, 1.0, 1, 1))
    all_of_them = LeakRow("all", "", Leakage(1200, 0, 0, 0.999, 0.999, 0.998, 1, 1))
    weak = LeakRow("weak", "", Leakage(1200, 0, 0, 0.9, 1.0, 0.9, 1, 1))
    for rows in permutations([few, all_of_them, weak]):
        assert leak_headline(rows) == "The attack all found 100% of the features exactly."


def test_faces_pass_where_they_are_nearer_than_every_stranger(run: Run) -> None:
    text = render(run)
    assert "as &lt;it&gt; is" in text
    assert "raw 0.50, passes<br>private 0.92, <b>refused</b>" in " ".join(text.split())
    assert '<tr><th scope="row">hybrid+</th><td>11</td><td>99</td><td>–</td></tr>' in text
    assert "right in 50" in text


def test_hostile_names_stay_text(run: Run) -> None:
    evil = '"><script>alert("x")</script>'
    picture, leakage = run.query, run.attacks[0].leakage
    row = MapRow(evil, 9, 9, 1234, 5.3, 0.41, (0.1, 0.004), 8000.0)
    copies = [FaceCopy(evil, picture, 0.1, 0.2)]
    hostile = replace(
        run,
        attacks=[LeakRow(evil, evil, leakage)],
        views=[View(evil, picture, Reconstruction(0.1, 0.6, 12))],
        map=RoomMaps([row], picture, picture, picture, replace(gated(run), views=evil)),
        faces=replace(run.faces, copies=copies, guesses=[FaceGuess(evil, {"knn": 3})]),
        release=replace(run.release, defense={"name": "lifting", "database": evil}),
    )
    text = render(hostile)
    page = Page(text)
    assert page.open == [] and "<script" not in text and text.count("&lt;script&gt;") >= 8
    assert f"Her face, {evil}" in page.alts
    assert "<script" not in render(replace(run, views=evil, concealed=replace(run.concealed, view=evil)))


def test_a_map_is_a_row_with_its_epsilon_and_the_error_of_the_query(run: Run) -> None:
    rows = [
        MapRow("raw", 9, 9, 1234, 5.3, 0.41, (0.1, 0.004), None),
        MapRow("words", 8, 9, 234, 3.3, 0.91, None, 8000.0),
    ]
    text = " ".join(render(replace(run, map=RoomMaps(rows, run.query, run.query, run.query, gated(run)))).split())
    assert "<td>1,234</td> <td>5.3</td><td>0.41 px</td> <td>4.0 mm, 0.10°</td>" in text
    assert "(8,000 for the image)" in text and "<td>not localized</td>" in text and "needs pycolmap" not in text


def test_what_a_gate_sends(run: Run) -> None:
    gate = gated(run)
    whole = replace(run, map=RoomMaps([], run.query, run.query, run.query, gate))
    text = " ".join(render(whole).split())
    assert "<strong>23%</strong><small>424 of 1,864 features</small>" in text
    assert "<strong>2%</strong><small>3 of 136 features</small>" in text
    assert "raw features: 0.9 mm, 0.01°; gated: 1.4 mm, 0.03°" in text
    assert "nearer than 0.40" in text and "positions (167 kB)" in text
    assert "release takes 9 kB, the raw features 1.1 MB" in text
    assert text.index("Send only what the map knows") < text.index("The two images")
    lost = render(replace(run, map=RoomMaps([], run.query, run.query, run.query, replace(gate, gated_errors=None))))
    assert "gated: not localized" in lost
    blind = replace(whole, map=RoomMaps([], run.query, run.query, run.query, replace(gate, views="no inverter")))
    page = render(blind)
    assert "was not painted: no inverter." in page and len(Page(page).loads) == len(Page(text).loads) - 2
    assert "Send only what the map knows" not in render(run)
