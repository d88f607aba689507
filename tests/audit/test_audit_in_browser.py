"""The page of an audit in a real browser: no errors, tables that sort, no sideways scrolling on a phone."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from audit_galleries import gallery
from audits import audit
from featveil.audit.gallery import AuditPictures
from featveil.audit.page import audit_page

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome is installed")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder, records = tmp_path_factory.mktemp("pictures"), audit(("a town", "woods"), (0, 1), 1)
    return audit_page(records, AuditPictures(gallery(folder, records), folder))


def opened(path: Path) -> tuple[str, str]:
    """The document after its scripts ran, and what the browser logged."""
    profile = f"--user-data-dir={path.parent / 'profile'}"
    quiet = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", profile)
    command = [str(BROWSER), *quiet, "--virtual-time-budget=3000", "--enable-logging=stderr"]
    done = subprocess.run([*command, "--dump-dom", path.as_uri()], capture_output=True, timeout=120, check=True)
    return done.stdout.decode(), done.stderr.decode()


def told(page: str, script: str, path: Path, width: int = 1000) -> Any:
    """What `script` assigns to `answer`; it sees the page as `page`, in a frame that is `width` wide.

    A window of a browser without a screen is at least 500 wide, so a phone is a frame in it.
    """
    frame = f'<iframe style="width:{width}px;height:700px;border:0" srcdoc="{html.escape(page)}"></iframe>'
    frame += '<pre id="told"></pre>'
    run = "document.querySelector('iframe').onload = event => { const page = event.target.contentDocument;"
    run += f"{script} document.getElementById('told').textContent = JSON.stringify(answer); }};"
    path.write_text(f"<!doctype html><meta charset=utf-8>{frame}<script>{run}</script>", encoding="utf-8")
    document, _ = opened(path)
    found = re.search(r'<pre id="told">(.+?)</pre>', document, re.DOTALL)
    assert found is not None, "the script did not run to its end"
    return json.loads(html.unescape(found[1]))


def test_it_opens_without_errors(page: str, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page, encoding="utf-8")
    document, log = opened(path)
    assert "CONSOLE" not in log
    assert document.count("<button") == 2 * (11 + 8)
    # The check itself: what the policy forbids is logged.
    path.write_text(page.replace("</body>", "<script>1</script></body>"), encoding="utf-8")
    assert "CONSOLE" in opened(path)[1]


SORTED = """
const answer = {};
const [utility, attacks] = page.querySelectorAll("table.sortable");
const column = (table, place) => [...table.tBodies[0].rows].map(row => row.cells[place].textContent);
const press = (table, place) => table.tHead.rows[0].cells[place].querySelector("button").click();
answer.first = column(utility, 0);
press(utility, 0); answer.names = column(utility, 0);
const heading = utility.tHead.rows[0].cells[4];
press(utility, 4); answer.up = column(utility, 4); answer.state = heading.getAttribute("aria-sort");
press(utility, 4); answer.down = column(utility, 4); answer.turned = heading.getAttribute("aria-sort");
answer.sorted = page.querySelectorAll("[aria-sort]").length;
const button = attacks.tHead.rows[0].cells[7].querySelector("button");
button.focus(); answer.focused = page.activeElement === button;
utility.tBodies[0].rows[0].cells[4].removeAttribute("data-value");
utility.tBodies[0].rows[0].cells[4].textContent = "–";
press(utility, 4); answer.dashUp = column(utility, 4).at(-1);
press(utility, 4); answer.dashDown = column(utility, 4).at(-1);
"""


def test_tables_sort_numbers_as_numbers_and_say_how(page: str, tmp_path: Path) -> None:
    answer = told(page, SORTED, tmp_path / "report.html")

    def numbers(column: str) -> list[float]:
        return [float(cell.split("%")[0]) for cell in answer[column]]

    assert numbers("up") == sorted(numbers("up")) and answer["up"][-1] == "100.0%"
    assert numbers("down") == sorted(numbers("up"), reverse=True)
    assert sorted(answer["up"]) != answer["up"]  # as text it would be another order
    assert answer["names"] != answer["first"] and sorted(answer["names"]) == sorted(answer["first"])
    assert answer["names"].index("subset-8-4") < answer["names"].index("subset-10-4")
    assert (answer["state"], answer["turned"], answer["sorted"]) == ("ascending", "descending", 1)
    assert answer["focused"]
    assert answer["dashUp"] == answer["dashDown"] == "–"  # no figure: last, either way


WIDTHS = """
const root = page.documentElement;
const pictures = [...page.images].map(image => image.naturalWidth);
const tables = [...page.querySelectorAll(".scroll")].map(box => [box.scrollWidth, box.clientWidth]);
const answer = { pictures, tables, content: root.scrollWidth, window: root.clientWidth };
"""


def test_a_phone_does_not_scroll_sideways(page: str, tmp_path: Path) -> None:
    answer = told(page, WIDTHS, tmp_path / "report.html", 360)
    assert answer["content"] <= answer["window"] <= 360
    assert len(answer["tables"]) == 4
    assert len(answer["pictures"]) == 2 * 78 and set(answer["pictures"]) == {256}  # all of them were let in
    assert all(content > box for content, box in answer["tables"])  # tables scroll in their own box
    wide = page.replace("<h1>", '<div style="width:400px">wide</div><h1>', 1)  # the check itself
    assert told(wide, WIDTHS, tmp_path / "report.html", 360)["content"] > 360
