"""Pictures for the surfaces of a rendered room, drawn by code: full of detail at all sizes, never the same twice."""

import colorsys
import string

import cv2
import numpy as np
from numpy.typing import NDArray

from featveil.core.arrays import Float64

Picture = NDArray[np.uint8]
Colour = tuple[int, int, int]

_LETTERS = list(string.ascii_uppercase + string.digits)
_FONTS = (cv2.FONT_HERSHEY_SIMPLEX, cv2.FONT_HERSHEY_DUPLEX, cv2.FONT_HERSHEY_COMPLEX, cv2.FONT_HERSHEY_TRIPLEX)
_HUES = (0.0, 0.03, 0.07, 0.1, 0.13, 0.28, 0.42, 0.5, 0.57, 0.6)  # reds to ochre, olive, green, teal, blue
_DARKEST = 0.45  # brightness where two planes meet
_REACH = 0.25  # metres over which that fades


def draw_terrazzo(size: tuple[int, int], rng: np.random.Generator) -> Picture:
    """A floor of `size` (width, height): stone chips of many sizes in cement, uint8 RGB."""
    width, height = size
    picture = _plain(size, (196, 188, 176))
    for _ in range(width * height // 220):
        radius = 2.5 * rng.uniform(0, 1) ** -0.6
        centre = rng.uniform(0, 1, 2) * size
        _polygon(picture, centre, min(radius, 26.0), _stone(rng), rng)
    return _weathered(picture, 0.10, rng)


def draw_books(size: tuple[int, int], rng: np.random.Generator) -> Picture:
    """A wall of `size` (width, height): shelves full of books, uint8 RGB."""
    width, height = size
    picture = _plain(size, (70, 48, 32))
    top = 4
    while top < height - 24:
        tall = int(rng.integers(64, 100))
        left = 0
        while left < width:
            wide = int(rng.integers(10, 30))
            book = _book(tall - int(rng.integers(0, tall // 4)), wide, rng)
            foot, edge = min(top + tall, height), min(left + wide, width)
            picture[max(foot - len(book), 0) : foot, left:edge] = book[: foot - max(foot - len(book), 0), : edge - left]
            left += wide + int(rng.uniform() < 0.1) * int(rng.integers(2, 14))
        cv2.rectangle(picture, (0, top + tall), (width, top + tall + 8), (134, 96, 60), -1)
        top += tall + 18
    return _weathered(picture, 0.12, rng)


def draw_posters(size: tuple[int, int], rng: np.random.Generator) -> Picture:
    """A wall of `size` (width, height): posters with shapes and words, side by side, uint8 RGB."""
    width, height = size
    picture = _plain(size, (214, 206, 190))
    top = 6
    while top < height:
        tall, left = int(rng.integers(110, 190)), 6
        while left < width:
            wide = int(rng.integers(90, 170))
            room = picture[top : top + tall, left : left + wide]
            poster = _poster((wide, tall), rng)
            room[:] = poster[: room.shape[0], : room.shape[1]]
            left += wide + int(rng.integers(4, 12))
        top += tall + int(rng.integers(4, 12))
    return _weathered(picture, 0.12, rng)


def shade(picture: Picture, to_world: Float64, light: float) -> Picture:
    """A surface of a room under a soft light: `light` is its brightness, less where it meets another plane.

    `to_world` (3, 3) takes its pixels (u, v, 1) to metres; the planes are those where a coordinate is zero.
    """
    height, width = picture.shape[:2]
    columns, rows = np.arange(width) + 0.5, np.arange(height)[:, None] + 0.5
    brightness = np.full((height, width), light)
    for a, b, c in to_world:
        if a != 0 or b != 0:
            brightness *= 1 - (1 - _DARKEST) * np.exp(-np.abs(a * columns + b * rows + c) / _REACH)
    return np.asarray(np.rint(picture * brightness[:, :, None]), np.uint8)


def _book(tall: int, wide: int, rng: np.random.Generator) -> Picture:
    """One spine, uint8 RGB (tall, wide, 3), with bands and a title from top to bottom."""
    cover, ink = _colour(rng), _colour(rng, light=rng.uniform() < 0.7)
    lying = _plain((tall, wide), cover)
    for place in rng.integers(2, tall - 2, 3):
        cv2.line(lying, (int(place), 0), (int(place), wide), ink, int(rng.integers(1, 4)))
    _write(lying, (int(rng.integers(2, 12)), wide // 2 + 4), wide / 48 + 0.08, ink, rng)
    cv2.rectangle(lying, (0, 0), (tall - 1, wide - 1), (24, 18, 14), 1)
    return np.ascontiguousarray(np.rot90(lying, -1))


def _poster(size: tuple[int, int], rng: np.random.Generator) -> Picture:
    """A sheet of `size` (width, height) with a frame, uint8 RGB."""
    width, height = size
    picture = _plain(size, _colour(rng, light=rng.uniform() < 0.6))
    for _ in range(int(rng.integers(14, 30))):
        centre = rng.uniform(0, 1, 2) * size
        radius = float(rng.uniform(4, 34))
        if rng.uniform() < 0.4:
            thickness = -1 if rng.uniform() < 0.6 else int(rng.integers(2, 6))
            place = (int(centre[0]), int(centre[1]))
            cv2.circle(picture, place, int(radius * 0.8), _colour(rng), thickness, cv2.LINE_AA)
        else:
            _polygon(picture, centre, radius, _colour(rng), rng)
    for _ in range(5):
        left, foot = int(rng.integers(-10, width // 2)), int(rng.integers(12, height))
        _write(picture, (left, foot), float(rng.uniform(0.35, 1.1)), _colour(rng, light=rng.uniform() < 0.5), rng)
    cv2.rectangle(picture, (0, 0), (width - 1, height - 1), _colour(rng, light=False), int(rng.integers(2, 6)))
    return picture


def _polygon(picture: Picture, centre: Float64, radius: float, colour: Colour, rng: np.random.Generator) -> None:
    angles = np.sort(rng.uniform(0, 2 * np.pi, int(rng.integers(4, 8))))
    spread = rng.uniform(0.6, 1.3, len(angles)) * radius
    corners = centre + np.column_stack([np.cos(angles), np.sin(angles)]) * spread[:, None]
    # Corners at sixteenths of a pixel: small chips would otherwise all look alike.
    cv2.fillPoly(picture, [np.rint(corners * 16).astype(np.int32)], colour, cv2.LINE_AA, 4)


def _write(picture: Picture, place: tuple[int, int], scale: float, colour: Colour, rng: np.random.Generator) -> None:
    word = "".join(rng.choice(_LETTERS, int(rng.integers(3, 9))))
    font = _FONTS[int(rng.integers(len(_FONTS)))]
    cv2.putText(picture, word, place, font, scale, colour, 1 if scale < 0.6 else 2, cv2.LINE_AA)


def _weathered(picture: Picture, strength: float, rng: np.random.Generator) -> Picture:
    """The picture with brighter and darker stains of 2 to 64 pixels, softened as a lens would."""
    height, width = picture.shape[:2]
    stains = np.zeros((height, width), np.float32)
    for grain in (2, 4, 8, 16, 32, 64):
        small = rng.standard_normal((height // grain + 2, width // grain + 2)).astype(np.float32)
        stains += cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)
    factor = 1 + strength * stains / stains.std()
    worn = (picture * factor[:, :, None]).clip(0, 255)
    return np.asarray(cv2.GaussianBlur(worn.astype(np.uint8), (0, 0), 0.6), np.uint8)


def _plain(size: tuple[int, int], colour: Colour) -> Picture:
    width, height = size
    return np.full((height, width, 3), colour, np.uint8)


def _colour(rng: np.random.Generator, light: bool | None = None) -> Colour:
    """One of the muted colours of cloth and print, or a light or dark one."""
    low, high = {None: (0.25, 0.95), True: (0.82, 1.0), False: (0.08, 0.3)}[light]
    hue = _HUES[int(rng.integers(len(_HUES)))] + rng.uniform(-0.02, 0.02)
    return _rgb(hue % 1, rng.uniform(0.05, 0.3) if light else rng.uniform(0.1, 0.7), rng.uniform(low, high))


def _stone(rng: np.random.Generator) -> Colour:
    return _rgb(rng.uniform(0.0, 0.14), rng.uniform(0.05, 0.5), rng.uniform(0.12, 0.98))


def _rgb(hue: float, saturation: float, value: float) -> Colour:
    red, green, blue = colorsys.hsv_to_rgb(hue, saturation, value)
    return round(red * 255), round(green * 255), round(blue * 255)
