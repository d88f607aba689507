"""What attackers see of photographs under every defense, and how near that is to the photograph.

Recover-then-invert: an attack estimates every descriptor, and an inverter of raw ones paints the picture. Direct: an
inverter trained on what the defense sends. Floors: a grey picture, and random descriptors at the true positions.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np

from featveil.attacks import Guess, attack
from featveil.audit.releases import Releases, Scheme, Victim
from featveil.core.files import make_folder, replacing
from featveil.core.records import Parameter, Record
from featveil.core.resuming import Key, Plan, Report, resume, versions
from featveil.core.seeding import image_generator
from featveil.extractors import CONTRAST
from featveil.lab.inversion_photos import Photograph
from featveil.lab.inversion_study import Attempt, Study
from featveil.metrics import Truth, guess_distances
from featveil.metrics.reconstruction import METRIC, UNIT, compare
from featveil.pipelines.painters import Image, blank, paint, recovered

TASK = "inversion"

_KEY = ("victim", "scheme", "attack")


def run(study: Study, pictures: Path | None = None, done: frozenset[Key] = frozenset()) -> Iterator[Record]:
    """One record for each photograph, scheme and attempt that is not in `done`: MAE, SSIM and PSNR.

    What the attacker sees is written to `picture_path` in the folder `pictures`, unless that is None.
    """
    victims = {one.name: Victim(one.name, one.features, one.features) for one in study.photographs}
    releases = Releases(list(victims.values()), study.database, study.settings.seed)
    for photograph, scheme, attempt in study.wanted():
        if _key(photograph, scheme, attempt) not in done:
            picture, told = _painted(study, releases, victims[photograph.name], photograph, scheme, attempt)
            if pictures is not None:
                _store(picture, picture_path(pictures, scheme.name, attempt.name, photograph.name))
            yield _record(study, photograph, scheme, attempt, picture, told)


def run_resumable(study: Study, folder: Path, report: Report = lambda done, total: None) -> list[Record]:
    """Run what FOLDER/records.jsonl does not hold yet, append each record once measured, return all asked for.

    Pictures go to FOLDER/pictures. `report` is called with records (done, total). Raises InputError when the file has
    other settings, photographs or inverters.
    """
    shared: dict[str, Parameter] = {"dataset": study.dataset, "seed": study.settings.seed, **study.settings.shared()}
    shared["own_database"] = study.database.digest[:16]
    wanted: dict[Key, Mapping[str, Parameter]] = {
        _key(photograph, scheme, attempt): _stated(photograph, scheme, attempt)
        for photograph, scheme, attempt in study.wanted()
    }
    plan = Plan(TASK, _KEY, shared, wanted, usual={"contrast_threshold": CONTRAST})
    return resume(folder / "records.jsonl", plan, lambda done: run(study, folder / "pictures", done), report)


def picture_path(folder: Path, scheme: str, attack: str, victim: str) -> Path:
    """Where what an attacker sees of a photograph is kept."""
    return folder / scheme / attack.replace(" + ", "+") / f"{victim}.png"


def _painted(
    study: Study, releases: Releases, victim: Victim, photograph: Photograph, scheme: Scheme, attempt: Attempt
) -> tuple[Image, dict[str, Parameter]]:
    """The picture, and what a record tells of how it was made."""
    if attempt.painter is None:
        return blank(photograph.image), {"seconds": 0.0}
    trial, settings = attempt.trial, study.settings
    full = settings.geometry == "full" or (trial is not None and trial.geometry)
    seen = releases.release(victim, scheme, geometry=full)
    started = time.perf_counter()
    if trial is None:
        words = None if scheme.codebook is None else np.asarray(scheme.codebook.values, np.float32)
        made = paint(seen, attempt.painter, words)
        return made, {"seconds": round(time.perf_counter() - started, 3)}
    truth = releases.truth(victim, scheme)
    known = replace(releases.knowledge(victim, scheme, trial), truth=truth.points)
    rng = image_generator(settings.seed, victim.name, 0, trial.name)
    guess = attack(seen, trial.method, known, rng)
    told = _told(guess, truth, time.perf_counter() - started)
    return paint(recovered(seen, guess), attempt.painter), told


def _told(guess: Guess, truth: Truth, seconds: float) -> dict[str, Parameter]:
    distances = guess_distances(guess.values, truth.points)
    return {
        "seconds": round(seconds, 3),
        "answered": round(float(guess.answered.mean()), 4),
        "median_distance": round(float(np.median(distances)), 4),
    }


def _record(
    study: Study, photograph: Photograph, scheme: Scheme, attempt: Attempt, picture: Image, told: dict[str, Parameter]
) -> Record:
    parameters: dict[str, Parameter] = {"victim": photograph.name, **_stated(photograph, scheme, attempt)}
    parameters |= study.settings.shared() | {"own_database": study.database.digest[:16]}
    parameters |= {"features": len(photograph.features), **told}
    epsilon = scheme.defense.guarantee().compose(len(photograph.features)).epsilon
    parameters |= {} if epsilon is None else {"image_epsilon": epsilon}
    return Record(
        task=TASK,
        dataset=study.dataset,
        scheme=scheme.name,
        metric=METRIC,
        value=tuple(round(value, 6) for value in compare(picture, photograph.image)),
        unit=UNIT,
        count=len(photograph.features),
        seed=study.settings.seed,
        versions=versions("onnxruntime"),
        attack=attempt.name,
        parameters=parameters,
    )


def _stated(photograph: Photograph, scheme: Scheme, attempt: Attempt) -> dict[str, Parameter]:
    """What decides a record, beside the settings that all share."""
    painter = attempt.painter
    made: dict[str, Parameter] = {**scheme.parameters(), "photograph": photograph.digest[:16]}
    made["inverter"] = None if painter is None else painter.digest[:16]
    made["inverter_name"] = None if painter is None else painter.name
    made["inverter_geometry"] = None if painter is None else painter.inverter.encoding.geometry
    return made


def _store(picture: Image, path: Path) -> None:
    make_folder(path.parent)
    _, content = cv2.imencode(".png", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))
    with replacing(path) as temporary:
        temporary.write_bytes(content.tobytes())


def _key(photograph: Photograph, scheme: Scheme, attempt: Attempt) -> Key:
    return photograph.name, scheme.name, attempt.name
