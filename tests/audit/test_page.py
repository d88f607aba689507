"""The page of an audit, without a browser."""

import base64
import hashlib
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from audits import audit, leakage_record, skipped_record, spec, utility_record
from featveil.audit.page import GLYPH_SIZE, Example, audit_page, strokes
from featveil.audit.rows import Spread, summarize_audit
from featveil.audit.sentences import bottom_line, describe_attack, describe_promise, describe_scheme, percent
from featveil.core import InputError
from featveil.core.records import Parameter

VOID = {"meta", "br", "link", "img"}
EVIL = '<script>alert("x")</script>&$${near}.png'


class Page(HTMLParser):
    """Checks that tags are balanced; collects ids, links, what would be loaded, tables and all text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attrs)
        self.ids += [str(given["id"])] if "id" in given else []
        self.links += [str(given["href"])] if "href" in given else []
        self.loaded += [str(given[name]) for name in ("src", "srcset", "data", "action") if name in given]
        if given.get("role") == "img":
            self.images.append(given)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        """What a reader sees."""
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def text() -> str:
    return audit_page(audit(victims=2))


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_everything_is_inside_the_page(text: str, page: Page) -> None:
    assert page.loaded == [] and "link" not in page.tags and "img" not in page.tags
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    assert "http:" not in text and "https:" not in text and "url(" not in text and "@import" not in text
    assert "$" not in re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)


def test_the_policy_lets_the_script_of_the_page_run_and_nothing_else(text: str) -> None:
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert policy[1] == f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def test_parts_come_in_order_with_both_datasets(page: Page) -> None:
    headings = ["The privacy-utility frontier", "Each scheme", "All results", "How to read this"]
    places = [page.text.index(heading) for heading in headings]
    assert places == sorted(places)
    assert page.tags.count("article") == 2 * 20
    assert page.tags.count("table") == 2 * 2 and page.tags.count("details") == 2
    assert page.tags.count("tr") == 4 + 2 * (
        20 + sum(len(row.trials) for row in summarize_audit(audit(("town",), (0,), 1)))
    )
    assert "2: town-0.png, town-1.png" in page.text and "Seeds 0, 1" in page.text and "featveil 0.1.0" in page.text


def test_every_picture_has_a_text(page: Page) -> None:
    assert len(page.images) == 2 * 2 + 2 * 20 * 6
    assert all(image.get("aria-label") or image.get("aria-labelledby") for image in page.images)
    assert "Thin crosses are ranges" in page.text
    assert "This page is sensitive." in page.text


def test_examples_are_those_of_the_best_attack_and_no_more_than_recorded() -> None:
    records = audit(("town",), (0,), 1)
    row = next(row for row in summarize_audit(records) if row.scheme == "hardened-4-8")
    assert row.best is not None
    card = _card(audit_page(records), 13)
    assert f"guess at descriptor 3 by {row.best.attack}" in card and card.count('class="glyph"') == 6
    truth = [50] * 128
    guess = [50] * 127 + [0]
    shown = {"shown_truth": truth, "shown_guess": guess}
    fewer = [
        replace(record, parameters={**record.parameters, **shown}) if "shown_truth" in record.parameters else record
        for record in records
    ]
    card = _card(audit_page(fewer), 13)
    assert card.count('class="glyph"') == 2 and f"distance {(1 / 128) ** 0.5:.2f}" in card
    none = [replace(r, parameters={k: v for k, v in r.parameters.items() if "shown" not in k}) for r in records]
    assert 'class="glyph"' not in audit_page(none) and "This page is sensitive" not in audit_page(none)
    other = [replace(r, parameters={**r.parameters, "kind": "face"}) for r in records]
    assert 'class="glyph"' not in audit_page(other)  # whose values are no gradients


@pytest.mark.parametrize("shown", [[1, 2, 3], [1] * 256, "text", [0.5] * 128])
def test_damaged_examples_are_refused(shown: list[int]) -> None:
    parameters = {**spec("lifting"), "shown_truth": [1] * 128, "shown_guess": shown}
    raw = [utility_record("identity", "one", (9, 9, 9, 9), spec("identity"))]
    with pytest.raises(InputError, match="examples"):
        audit_page([*raw, leakage_record("sub-hybrid-4", "mean", 0.3, parameters)])


def test_hostile_names_stay_text() -> None:
    plain, lifted = spec("identity", EVIL), spec(EVIL, EVIL, strategy=EVIL, dimension=4)
    shown: dict[str, Parameter] = {"shown_truth": [9] * 128, "shown_guess": [9] * 128}
    bad = leakage_record("x" + EVIL, "mean", 0.3, lifted | shown, dataset=EVIL)
    records = [
        utility_record("identity", "one", (9, 9, 9, 9), plain, dataset=EVIL),
        utility_record("x" + EVIL, "one", (9, 9, 9, 9), lifted, dataset=EVIL),
        replace(bad, attack=EVIL, versions={EVIL: EVIL}),
        skipped_record("x" + EVIL, "vertex", EVIL, lifted, dataset=EVIL),
    ]
    text = audit_page(records)
    page = Page(text)
    assert page.tags.count("script") == 1 and text.count("<script>alert") == 0
    assert EVIL in page.text


def test_an_interrupted_audit_says_so_and_what_is_there() -> None:
    records = audit(("town",), (0,), 2)
    assert "Incomplete" not in audit_page(records) and "not finished" not in Page(audit_page(records)).text
    part = [r for r in records if r.scheme != "sub-hybrid-4" or r.attack is None]
    page = Page(audit_page(part))
    assert "32 of 36 results are missing" in page.text
    assert "sub-hybrid-4 (not attacked yet)" in page.text
    assert "sub-hybrid-4*" in page.text and "this may change" in page.text


def test_the_bottom_line_is_computed() -> None:
    rows = summarize_audit(audit(("town",), (0,), 2))
    line = bottom_line(rows)
    assert line.startswith("Of 18 private schemes, 12 keep at least half") and "hardened-4-16 leaks least" in line
    weak = [replace(row, utility_one=Spread(0.1, 0.1, 0.1)) for row in rows if row.scheme != "random-2"]
    weak += [replace(row, utility_one=Spread(0.4, 0.4, 0.4)) for row in rows if row.scheme == "random-2"]
    assert bottom_line(weak).startswith("None of 18 private schemes keeps half")
    assert "random-2 keeps most: it keeps 40%" in bottom_line(weak)
    assert "Of 1 private scheme, 1 keeps" in bottom_line(
        [row for row in rows if row.scheme in ("identity", "random-2")]
    )
    assert "nothing can be said" in bottom_line(rows[:2])


def test_words_of_a_scheme_name_its_parameters_and_both_epsilons() -> None:
    rows = {row.scheme: row for row in summarize_audit(audit(("town",), (0,), 1))}
    apart = describe_scheme(rows["hardened-4-16-apart-geometry"])
    assert "dimension 16" in apart and "4 real descriptors" in apart
    assert "do not overlap" in apart and "scale and orientation" in apart
    assert "overlap" not in describe_scheme(rows["hardened-4-16"])
    promise = describe_promise(rows["subset-8-4"])
    assert "epsilon 8 for a descriptor" in promise and "3,200 for an image of 400 features" in promise
    # The bound is of one feature: attack posterior-overlap names more words than that.
    assert "From the words of one feature alone" in promise and "15.4% of the time; overlapping features add" in promise
    assert "epsilon 49 per unit of distance" in describe_promise(rows["metric-49-1"])
    assert "19,600 per unit of distance for an image" in describe_promise(rows["metric-49-1"])
    assert "empirical" in describe_promise(rows["sub-hybrid-4"])
    assert describe_promise(rows["identity"]) == "Guarantee: none."


def test_attacks_are_told_by_what_they_do_and_have() -> None:
    assert describe_attack("lattice").startswith("the integer vector")
    told = describe_attack("overlap + geometry")
    assert told.endswith("it also has scale and orientation of the keypoints")
    assert "lifting drew" in describe_attack("lattice + lifting_database")
    assert describe_attack("an attack of tomorrow") == ""


def test_little_is_not_nothing() -> None:
    assert percent(Spread(0.004, 0.004, 0.004)) == "0.4%"
    assert percent(Spread(0.0, 0.0, 0.0)) == "0%"
    assert percent(Spread(0.274, 0.251, 0.3)) == "27% (25–30)"
    assert percent(Spread(0.274, 0.272, 0.2749)) == "27%"
    assert percent(None) == "–"


def _card(text: str, number: int) -> str:
    found = re.search(rf'<article class="card scheme" id="d1-s{number}">.*?</article>', text, re.DOTALL)
    assert found is not None
    return found[0]


def drawn(values: list[int]) -> list[tuple[float, ...]]:
    """Start and step of every stroke of a descriptor."""
    steps = re.findall(r"M(\S+) (\S+)l(\S+) (\S+?)(?=M|$)", strokes(values))
    return [tuple(map(float, numbers)) for numbers in steps]


def test_values_are_strokes_from_the_middle_of_their_cell_in_their_direction() -> None:
    values = [0] * GLYPH_SIZE
    values[0], values[(1 * 4 + 2) * 8 + 2] = 60, 30  # first cell, first direction; second line, third cell, third one
    right, down = drawn(values)
    assert right[:2] == (12, 12) and right[2] > 0 and right[3] == 0
    assert down[:2] == (60, 36) and down[2] == pytest.approx(0) and down[3] == pytest.approx(right[2] / 2, abs=0.1)


def test_zeros_and_what_is_below_have_no_stroke_and_large_values_stay_near_their_cell() -> None:
    assert drawn([0] * GLYPH_SIZE) == [] and drawn([-200] * GLYPH_SIZE) == []
    assert all(abs(step) <= 24 for stroke in drawn([255] * GLYPH_SIZE) for step in stroke[2:])


def test_distance_is_a_share_of_the_norm_of_the_truth() -> None:
    truth, zeros = (300, 400, *[0] * 126), (0,) * 128
    assert Example(truth, truth).distance == 0
    assert Example(truth, zeros).distance == pytest.approx(1)
    assert Example(truth, (300, 0, *[0] * 126)).distance == pytest.approx(0.8)
    assert Example(zeros, zeros).distance == 0


def test_the_frontier_is_an_svg_with_its_words_and_a_hostile_name_in_it_is_text() -> None:
    evil = '</desc><script>alert("x")</script>'
    records = [
        replace(record, scheme=record.scheme + evil) if record.scheme == "sub-hybrid-4" else record
        for record in audit(("town",), (0,), 1)
    ]
    one, both = re.findall(r'<svg class="frontier".*?</svg>', audit_page(records), re.DOTALL)
    tree = ElementTree.fromstring(one)
    assert tree.get("role") == "img" and tree.get("aria-labelledby") == "d1-one-t d1-one-d" and one != both
    titles = [mark.findtext("title") or "" for mark in tree.iter("g")]
    assert len(titles) == 20 and any(title.startswith("sub-hybrid-4" + evil) for title in titles)
    assert "<script" not in one


def test_a_defense_of_another_package_has_its_place_and_its_recorded_guarantee() -> None:
    claim: dict[str, Parameter] = {"guarantee": "local-dp", "guarantee_epsilon": 3.0, "guarantee_unit": "descriptor"}
    given = spec("shuffle") | claim
    records = [
        utility_record("identity", "one", (9, 9, 9, 9), spec("identity")),
        utility_record("shuffle-7", "one", (9, 9, 9, 5), given),
        replace(leakage_record("shuffle-7", "mean", 0.3, given), attack="stranger"),
    ]
    page = Page(audit_page(records))
    assert "Guarantee: local-dp" in page.text and "epsilon 3 for a descriptor" in page.text
    assert "1,200 for an image" in page.text and "shuffle-7" in page.text and "by stranger" in page.text
