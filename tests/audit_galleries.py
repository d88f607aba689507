"""Made-up pictures of an audit, as a task writes them, for the records of `audits.py`."""

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from audits import VERSIONS
from featveil.audit.rows import PHOTOGRAPH, PICTURES_TASK, UNSCORED, summarize_audit
from featveil.core.records import Parameter, Record
from featveil.metrics.reconstruction import METRIC, UNIT

SIZE = (400, 300)


def picture_record(
    scheme: str, attack: str | None, ssim: float | None, parameters: dict[str, Parameter], dataset: str = "town"
) -> Record:
    """One picture; without a score for None."""
    given = {"victim": f"{dataset}-0.png", "keypoints": "all", "geometry": False, "defense": "lifting", **parameters}
    metric, unit = (UNSCORED, "") if ssim is None else (METRIC, UNIT)
    value = 0.0 if ssim is None else (0.2, ssim, 15.0)
    return Record(PICTURES_TASK, dataset, scheme, metric, value, unit, 1, 0, VERSIONS, attack, given)


def write_picture(folder: Path, name: str, shade: int) -> str:
    """A PNG with noise, of `SIZE`; its name."""
    noise = np.random.default_rng(shade).integers(0, 256, (SIZE[1] // 20, SIZE[0] // 20, 3), np.uint8)
    cv2.imwrite(str(folder / name), cv2.resize(noise, SIZE))
    return name


def gallery(folder: Path, records: Sequence[Record]) -> list[Record]:
    """For an audit: the photograph, raw and random descriptors at all and at few keypoints, and every scheme."""
    made: list[Record] = []
    rows = summarize_audit(records)
    for dataset in dict.fromkeys(row.dataset for row in rows):
        shown: list[tuple[str, str | None, float | None, dict[str, Parameter]]] = [(PHOTOGRAPH, None, None, {})]
        for keypoints, geometry in (("all", False), ("apart", False), ("apart", True)):
            sent: dict[str, Parameter] = {"defense": "identity", "keypoints": keypoints, "geometry": geometry}
            shown += [(f"identity-{keypoints}-{geometry}", "read", 0.6, sent)]
            shown += [(f"identity-{keypoints}-{geometry}", "chance", 0.4, sent)]
        for row in rows:
            if row.dataset == dataset and row.defense != "identity" and row.best is not None:
                sent = {"defense": row.defense, "keypoints": row.keypoints, "geometry": row.geometry}
                shown.append((row.scheme, row.best.attack, 0.4 + 0.2 * row.best.below_near.mean, sent))
        for place, (scheme, attack, ssim, parameters) in enumerate(shown):
            name = write_picture(folder, f"{dataset}-{place}.png", place)
            made.append(picture_record(scheme, attack, ssim, parameters | {"picture": name}, dataset))
    return made
