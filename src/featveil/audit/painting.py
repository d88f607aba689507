"""What the best attackers of an audit see of one photograph of each dataset: pictures, and how near they come.

The best attack guesses all features of the release, also where a sample of them was measured, and an inverter of raw
descriptors paints the guesses. Beside that: raw descriptors (attack read) and random ones (chance) at the same
keypoints, and the photograph itself.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType

import cv2
import numpy as np
from numpy.typing import NDArray

from featveil.attacks import Chance, Read
from featveil.audit.measuring import Audit, Measuring, Subject, Unit, measure_units, one_thread
from featveil.audit.rows import PHOTOGRAPH, PICTURES_TASK, SKIPPED, UNSCORED
from featveil.audit.schemes import Scheme, Victim
from featveil.audit.trials import Trial
from featveil.core import FeatveilError, InputError, MissingExtraError
from featveil.core.files import make_folder, replacing
from featveil.core.records import Parameter, Record
from featveil.core.resuming import Key, Plan, Report, resume, versions
from featveil.core.version import VERSION
from featveil.defenses import Identity
from featveil.extractors import read_image
from featveil.metrics.reconstruction import METRIC, UNIT, Reconstruction, compare
from featveil.pipelines.painters import picture_size, raw_painter, resized, view
from featveil.pipelines.scoring import attack_parameters

Image = NDArray[np.uint8]
Best = Mapping[tuple[str, str], str]  # dataset and scheme -> the trial that got most back

_KEY = ("dataset", "seed", "victim", "scheme", "attack", "made_with")
_PLAIN = (Trial(Read()), Trial(Chance()))
_NAME = 80  # letters of a file's name that come from others


def paint_resumable(
    audit: Audit,
    best: Best,
    folder: Path,
    inverter: Path | None = None,
    processes: int = 1,
    report: Report = lambda done, total: None,
) -> list[Record]:
    """Paint what `folder` does not hold yet, write a PNG and append a record for each, return those of the audit.

    `inverter` is a file with one of raw descriptors; None is the built-in one. What cannot be painted has a record with
    the reason, and where there is no inverter each dataset has one, which is not stored. Raises InputError when the
    folder cannot be written or was made by another version of featveil.
    """
    try:
        digest = raw_painter(audit.settings.kind, inverter).digest
    except FeatveilError as error:
        seed = audit.settings.seeds[0]
        return [
            _record((one.name, str(seed), one.victims[0].name, PHOTOGRAPH, "None", ""), str(error))
            for one in audit.datasets
        ]
    gallery = Gallery(_with_plain(audit), best, digest)
    make_folder(folder)

    def missing(done: frozenset[Key]) -> Iterator[Record]:
        units: dict[Unit, tuple[str, ...]] = {}
        for unit, keys in gallery.wanted.items():
            names = [name for name, key in keys.items() if key not in done or not (folder / file_name(key)).is_file()]
            units |= {unit: tuple(names)} if names else {}
        make = partial(Painting, gallery=gallery, folder=folder, inverter=inverter)
        if processes > 1 and len(units) > 1:
            yield from measure_units(gallery.audit, units, processes, make)
            return
        painting = make(gallery.audit)
        for unit, wanted in units.items():
            yield from painting.records(unit, wanted)

    keys = {key: dict[str, Parameter]() for names in gallery.wanted.values() for key in names.values()}
    return resume(folder / "records.jsonl", Plan(PICTURES_TASK, _KEY, {}, keys), missing, report)


@dataclass(frozen=True, eq=False)
class Gallery:
    """The pictures of an audit: of the first victim of each dataset, with the first seed."""

    audit: Audit
    best: Best
    inverter: str  # digest

    @cached_property
    def wanted(self) -> dict[Unit, dict[str, Key]]:
        """The trials of each unit, with the key of their record; PHOTOGRAPH stands for that."""
        keys: dict[Unit, dict[str, Key]] = {}
        for place, dataset in enumerate(self.audit.datasets):
            for number, scheme in enumerate(self.audit.schemes):
                attack = self.best.get((dataset.name, scheme.name))
                names = [attack] if attack is not None else []
                if isinstance(scheme.defense, Identity):
                    names = [trial.name for trial in _PLAIN]
                names += [PHOTOGRAPH] if number == 0 else []
                unit = Unit(place, 0, number, 0)
                keys |= {unit: {name: self.key(unit, name) for name in names}} if names else {}
        return keys

    def key(self, unit: Unit, name: str) -> Key:
        """Of the record of one picture."""
        dataset, scheme = self.audit.datasets[unit.dataset], self.audit.schemes[unit.scheme]
        start = dataset.name, str(self.audit.settings.seeds[unit.seed]), dataset.victims[unit.victim].name
        size = list(picture_size(dataset.victims[unit.victim].features))
        if name == PHOTOGRAPH:
            return *start, PHOTOGRAPH, "None", str(size)
        stated = {**self.audit.stated(scheme), **attack_parameters(self.audit.trial(name).method)}
        stated |= {"inverter": self.inverter, "size": size, "featveil": VERSION}
        made_with = hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()[:16]
        return *start, scheme.name, name, made_with


class Painting(Measuring):
    """Paints units, one after the other, into files of `folder`."""

    def __init__(self, audit: Audit, gallery: Gallery, folder: Path, inverter: Path | None) -> None:
        super().__init__(audit)
        self.gallery, self.folder = gallery, folder
        self.painter = raw_painter(audit.settings.kind, inverter)

    def records(self, unit: Unit, wanted: tuple[str, ...]) -> Iterator[Record]:
        """Those of the pictures that `wanted` names, which are in their files then."""
        with one_thread():
            subject = self.subject(unit)
        photograph = _photograph(subject.victim)
        for name in wanted:
            key, stated = self.gallery.key(unit, name), self._stated(subject)
            try:
                picture = photograph if name == PHOTOGRAPH else self._painted(subject, self.audit.trial(name))
                if picture is None:
                    raise InputError("the photograph is not there any more, or another one is")
                score = None if photograph is None or name == PHOTOGRAPH else compare(picture, photograph)
            except (InputError, MissingExtraError) as error:
                yield _record(key, str(error), stated)
            else:
                _write(picture, self.folder / file_name(key))
                yield _record(key, score, stated | {"picture": file_name(key)})

    def _painted(self, subject: Subject, trial: Trial) -> Image:
        if self.painter.needs_geometry and not subject.scheme.geometry:
            raise InputError(f"{self.painter.name} reads scale and orientation of keypoints, which are not sent")
        with one_thread():
            guess = subject.guessed(trial)
        return view(subject.private, guess, self.painter, picture_size(subject.victim.features))

    def _stated(self, subject: Subject) -> dict[str, Parameter]:
        stated = {**subject.stated, "features": len(subject.private)}
        return stated | {"inverter": self.painter.digest[:16], "inverter_name": self.painter.name}


def file_name(key: Key) -> str:
    """Of a picture: what it shows as far as a file's name can say it, and digits that tell it from others."""
    dataset, _, victim, scheme, attack, _ = key
    parts = [dataset, Path(victim).stem, scheme, *([] if attack == "None" else [attack.replace(" + ", "+")])]
    shown = re.sub(r"[^A-Za-z0-9.+-]+", "_", "-".join(parts))[:_NAME]
    return f"{shown}-{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:8]}.png"


def _with_plain(audit: Audit) -> Audit:
    """The audit with raw descriptors at every selection of keypoints that a scheme releases, before all others."""
    sent = dict.fromkeys((scheme.apart, scheme.geometry) for scheme in audit.schemes)
    plain = [Scheme(_plain_name(*shown), Identity(), *shown) for shown in sent]
    names = {scheme.name for scheme in plain}
    trials = [trial for trial in _PLAIN if trial.name not in {one.name for one in audit.trials}]
    schemes = (*plain, *(scheme for scheme in audit.schemes if scheme.name not in names))
    return replace(audit, schemes=schemes, trials=(*trials, *audit.trials))


def _plain_name(apart: bool, geometry: bool) -> str:
    return "identity" + ("-apart" if apart else "") + ("-geometry" if geometry else "")


def _photograph(victim: Victim) -> Image | None:
    """Of the size that pictures are painted in; None where there is no such file, or not with that size."""
    if victim.pasted is not None:
        return resized(victim.pasted.picture, picture_size(victim.features))
    if victim.photograph is None:
        return None
    try:
        image = read_image(victim.photograph)
    except FeatveilError:
        return None
    if (image.shape[1], image.shape[0]) != victim.features.image_size:
        return None
    return resized(image, picture_size(victim.features))


def _record(
    key: Key, result: Reconstruction | str | None, stated: Mapping[str, Parameter] = MappingProxyType({})
) -> Record:
    """Of a picture: how near it is to the photograph, None where that is not known, or why there is none."""
    dataset, seed, victim, scheme, attack, made_with = key
    given: dict[str, Parameter] = {**stated, "victim": victim, "made_with": made_with}
    metric, value, unit = UNSCORED, tuple[float, ...](), ""
    if isinstance(result, str):
        metric, given["reason"] = SKIPPED, result
    elif result is not None:
        metric, value, unit = METRIC, tuple(round(number, 6) for number in result), UNIT
    return Record(
        task=PICTURES_TASK,
        dataset=dataset,
        scheme=scheme,
        metric=metric,
        value=value or 0.0,
        unit=unit,
        count=0 if metric == SKIPPED else 1,
        seed=int(seed),
        versions=versions("onnxruntime"),
        attack=None if attack == "None" else attack,
        parameters=given,
    )


def _write(picture: Image, path: Path) -> None:
    _, content = cv2.imencode(".png", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))
    with replacing(path) as temporary:
        temporary.write_bytes(content.tobytes())
