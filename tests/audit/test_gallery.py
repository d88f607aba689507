"""The part of an audit's page that shows what attackers see."""

import base64
import re
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from audit_galleries import gallery, picture_record, write_picture
from audits import audit, leakage_record, spec, utility_record
from featveil.audit.gallery import AuditPictures, describe_view
from featveil.audit.page import audit_page
from featveil.audit.rows import AuditRow, summarize_audit
from featveil.core import InputError
from featveil.core.records import Parameter, Record
from featveil.metrics.reconstruction import Reconstruction

EVIL = '"><script>alert("x")</script>'


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return audit(("town",), (0,), 1)


@pytest.fixture(scope="module")
def painted(records: list[Record], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record]]:
    folder = tmp_path_factory.mktemp("pictures")
    return folder, gallery(folder, records)


def section(text: str) -> str:
    found = re.search(r"<h2>What the best attacker sees</h2>.*?<h2>", text, re.DOTALL)
    assert found is not None
    return found[0]


def line(text: str, scheme: str) -> str:
    (found,) = [part for part in text.split('<section class="seen">') if f" {scheme}</a></h4>" in part]
    return found


def row_of(records: list[Record], scheme: str) -> AuditRow:
    return next(row for row in summarize_audit(records) if row.scheme == scheme)


def test_each_scheme_has_four_pictures_with_their_scores(
    records: list[Record], painted: tuple[Path, list[Record]]
) -> None:
    text = section(audit_page(records, AuditPictures(painted[1], painted[0])))
    assert "town: town-0.png" in text
    assert text.count("<section") == 20 and text.count("<img ") == 18 * 4 + 2 * 3 and "No picture" not in text
    lifted = line(text, "sub-hybrid-4")
    titles = re.findall(r"<figcaption><b>(.*?)</b>(?:<br>SSIM ([\d.]+))?</figcaption>", lifted)
    assert titles == [
        ("Photograph", ""),
        ("Raw descriptors", "0.60"),
        ("Best attack: lattice", "0.59"),
        ("Random descriptors", "0.40"),
    ]
    assert re.findall(r"<figcaption><b>(.*?)</b>", line(text, "identity-apart")) == [
        "Photograph",
        "Raw descriptors",
        "Random descriptors",
    ]
    assert all(f'href="#d1-s{number}"' in text for number in range(1, 21))


def test_pictures_are_small_and_in_the_page(records: list[Record], painted: tuple[Path, list[Record]]) -> None:
    text = section(audit_page(records, AuditPictures(painted[1], painted[0])))
    sources = re.findall(r'src="data:image/jpeg;base64,([^"]*)" width="256" height="192" alt="[^"]+"', text)
    assert len(sources) == text.count("<img ") == text.count("src=")
    picture = cv2.imdecode(np.frombuffer(base64.b64decode(sources[0]), np.uint8), cv2.IMREAD_COLOR)
    assert picture is not None and picture.shape == (192, 256, 3)
    raw, apart = (
        re.findall('base64,([^"]*)', line(text, scheme))[1] for scheme in ("sub-hybrid-4", "hardened-4-16-apart")
    )
    assert raw != apart  # each beside raw descriptors of the keypoints that it sends
    assert len(text) < 78 * 40_000


def test_the_page_says_that_it_is_sensitive(records: list[Record], painted: tuple[Path, list[Record]]) -> None:
    page = audit_page(records, AuditPictures(painted[1], painted[0]))
    assert "This page is sensitive." in page and "photographs and what attackers see of them" in page
    for none in (None, AuditPictures()):
        page = audit_page(records, none)
        assert "What the best attacker sees" not in page and "what attackers see of them" not in page


def test_the_sentence_compares_with_both_ends(records: list[Record]) -> None:
    row = row_of(records, "sub-hybrid-4")

    def told(best: float, raw: float = 0.6, floor: float = 0.4) -> str:
        return describe_view(row, *(Reconstruction(0.1, value, 20) for value in (best, raw, floor)))

    assert "What lattice guesses is painted as well as raw descriptors, or almost" in told(0.59)
    assert "50% of the way between" in told(0.5)
    assert "hardly better than random descriptors" in told(0.42) and "hardly better" in told(0.3)
    assert "the pictures do not tell how well" in told(0.5, raw=0.41)
    assert describe_view(row, None, Reconstruction(0, 1, 9), None) == "How near the pictures come is not known."
    assert describe_view(replace(row, best=None), None, None, None) == "No attack on it was run."


def test_what_was_not_painted_says_why(records: list[Record], painted: tuple[Path, list[Record]]) -> None:
    folder, found = painted
    hidden = next(record for record in found if record.scheme == "sub-hybrid-4")
    skipped = replace(
        hidden, metric="skipped", value=0.0, parameters={**hidden.parameters, "reason": "it <ended> in an error."}
    )
    others = [record for record in found if record is not hidden]
    shown = line(section(audit_page(records, AuditPictures([*others, skipped], folder))), "sub-hybrid-4")
    assert "No picture: it &lt;ended&gt; in an error.</p>" in shown and shown.count("<img ") == 3
    assert "How near the pictures come is not known." in shown
    shown = line(section(audit_page(records, AuditPictures(others, folder))), "sub-hybrid-4")
    assert "No picture: it was not painted." in shown
    reason: dict[str, Parameter] = {"victim": "a.png", "reason": "there is no inverter of kind x"}
    none = replace(picture_record("photograph", None, None, {}), metric="skipped", parameters=reason)
    text = section(audit_page(records, AuditPictures([none])))
    assert "There are no pictures: there is no inverter of kind x." in text and "<section" not in text


@pytest.mark.parametrize("name", ["gone.png", "../outside.png", "text.png", "/etc/hostname", "None"])
def test_lost_and_foreign_files_are_not_shown(
    records: list[Record], painted: tuple[Path, list[Record]], tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    write_picture(tmp_path, "outside.png", 1)
    (folder / "text.png").write_text("text")
    lost = [replace(record, parameters={**record.parameters, "picture": name}) for record in painted[1]]
    write_picture(folder, "one.png", 2)
    lost.append(picture_record("photograph", None, None, {"picture": "one.png"}))
    text = line(section(audit_page(records, AuditPictures(lost, folder))), "sub-hybrid-4")
    assert text.count("<img ") == 1 and text.count("No picture: its file is not there any more") == 3


def test_records_of_something_else_are_refused(records: list[Record]) -> None:
    with pytest.raises(InputError, match="is not one of an audit's pictures"):
        AuditPictures(records)
    damaged = replace(picture_record("x", "mean", 0.5, {"picture": "a.png"}), value=(0.1, 0.2))
    with pytest.raises(InputError, match="is not one of an audit's pictures"):
        AuditPictures([damaged])


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    raw = utility_record("identity", "one", (9, 9, 9, 9), spec("identity", EVIL), dataset=EVIL)
    attacked = leakage_record(EVIL, "mean", 0.3, spec("lifting", EVIL), dataset=EVIL)
    name = write_picture(tmp_path, "a.png", 0)
    seen = picture_record(EVIL, "mean", 0.5, {"picture": name, "victim": EVIL}, EVIL)
    text = section(audit_page([raw, attacked], AuditPictures([seen], tmp_path)))
    assert "<script" not in text and "&lt;script&gt;" in text
