"""Draws the two pictures that `featveil demo` uses: one pin board, photographed from two places.

Everything in them is made up here, so they may be used for anything.

Example: python recipes/draw_demo_views.py src/featveil/datasets/data
"""

import math
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.uint8]
Color = tuple[int, int, int]

WIDTH, HEIGHT = 1920, 1440
VIEW = (800, 600)
INK: Color = (62, 54, 48)
FONT, SCRIPT = cv2.FONT_HERSHEY_DUPLEX, cv2.FONT_HERSHEY_SCRIPT_COMPLEX
rng = np.random.default_rng(7)


def noise(height: int, width: int, cell: int) -> NDArray[np.float32]:
    """Smooth noise of mean 0 and deviation 1 with blobs of about `cell` pixels."""
    coarse = rng.normal(size=(height // cell + 3, width // cell + 3)).astype(np.float32)
    fine = cv2.resize(coarse, None, fx=cell, fy=cell, interpolation=cv2.INTER_CUBIC)
    return np.asarray(fine[:height, :width] / fine.std(), np.float32)


def shade(color: Color, height: int, width: int, strength: float, cells: tuple[int, ...]) -> Picture:
    """A sheet of one colour with grain at several scales."""
    grain = sum(noise(height, width, cell) / (rank + 1) for rank, cell in enumerate(cells))
    sheet = np.array(color, np.float32) + strength * np.asarray(grain)[:, :, None]
    return np.clip(sheet, 0, 255).astype(np.uint8)


def write(sheet: Picture, text: str, at: tuple[int, int], scale: float, color: Color = INK, font: int = FONT) -> None:
    cv2.putText(sheet, text, at, font, scale, color, max(1, round(scale * 2)), cv2.LINE_AA)


def cork() -> Picture:
    """The board: warm grain with dark and light flecks, in a wooden frame."""
    board = shade((104, 152, 196), HEIGHT, WIDTH, 7, (3, 6, 14, 60))
    for _ in range(9000):
        x, y = int(rng.integers(WIDTH)), int(rng.integers(HEIGHT))
        tone = int(rng.integers(-46, 30))
        color = tuple(int(np.clip(value + tone, 0, 255)) for value in (96, 142, 186))
        axes = (int(rng.integers(2, 9)), int(rng.integers(1, 5)))
        cv2.ellipse(board, (x, y), axes, float(rng.integers(180)), 0, 360, color, -1, cv2.LINE_AA)
    wood = shade((58, 86, 122), HEIGHT, WIDTH, 6, (4, 90))
    rings = np.sin(np.arange(HEIGHT)[:, None] / 5 + 3 * noise(HEIGHT, WIDTH, 120)) * 9
    wood = np.asarray(np.clip(wood + rings[:, :, None], 0, 255), np.uint8)
    wood[56:-56, 56:-56] = board[56:-56, 56:-56]
    cv2.rectangle(wood, (56, 56), (WIDTH - 57, HEIGHT - 57), (40, 58, 80), 5, cv2.LINE_AA)
    return wood


def pin(board: Picture, sheet: Picture, center: tuple[int, int], degrees: float, color: Color) -> None:
    """Lay `sheet` on the board, turned, with a soft shadow and a pin."""
    height, width = sheet.shape[:2]
    turn = cv2.getRotationMatrix2D((width / 2, height / 2), degrees, 1.0)
    turn[:, 2] += np.array(center) - (width / 2, height / 2)
    mask = cv2.warpAffine(np.full((height, width), 255, np.uint8), turn, (WIDTH, HEIGHT)).astype(np.float32) / 255
    laid = cv2.warpAffine(sheet, turn, (WIDTH, HEIGHT), flags=cv2.INTER_AREA)
    shadow = cv2.GaussianBlur(np.roll(mask, (14, 10), (0, 1)), (0, 0), 9)[:, :, None] * 0.45
    mixed = board * (1 - shadow * (1 - mask[:, :, None]))
    mixed = mixed * (1 - mask[:, :, None]) + laid * mask[:, :, None]
    board[:] = np.clip(mixed, 0, 255).astype(np.uint8)
    up = math.radians(degrees)
    head = (int(center[0] - math.sin(up) * height * 0.44), int(center[1] - math.cos(up) * height * 0.44))
    cv2.circle(board, (head[0] + 6, head[1] + 8), 13, (40, 40, 40), -1, cv2.LINE_AA)
    cv2.circle(board, head, 14, color, -1, cv2.LINE_AA)
    cv2.circle(board, (head[0] - 4, head[1] - 5), 5, (240, 240, 240), -1, cv2.LINE_AA)


def calendar() -> Picture:
    sheet = shade((238, 242, 244), 470, 430, 2, (2, 40))
    cv2.rectangle(sheet, (0, 0), (430, 92), (60, 60, 186), -1)
    write(sheet, "OCTOBER", (98, 64), 1.7, (245, 245, 245))
    for day in range(31):
        column, row = (day + 3) % 7, (day + 3) // 7
        at = (24 + column * 57, 150 + row * 66)
        write(sheet, str(day + 1), at, 0.8, (60, 60, 186) if column > 4 else INK)
    cv2.ellipse(sheet, (268, 270), (34, 27), 8, 0, 360, (190, 90, 30), 4, cv2.LINE_AA)
    write(sheet, "clinic 9:15", (196, 318), 0.75, (190, 90, 30), SCRIPT)
    write(sheet, "Mum!", (26, 452), 0.9, (60, 120, 40), SCRIPT)
    return sheet


def shopping_list() -> Picture:
    sheet = shade((150, 226, 246), 430, 330, 2, (3, 50))
    for y in range(70, 430, 46):
        cv2.line(sheet, (0, y), (330, y), (140, 190, 214), 2, cv2.LINE_AA)
    for line, text in enumerate(("to buy", "milk, 2 l", "rye bread", "plasters", "cat food", "candles (6)", "figs")):
        write(sheet, text, (30, 62 + line * 46), 1.05, (120, 60, 40) if line else (40, 40, 170), SCRIPT)
    cv2.line(sheet, (24, 146), (190, 140), (60, 60, 60), 3, cv2.LINE_AA)
    return sheet


def postcard() -> Picture:
    """Mountains over a lake at dusk."""
    height, width = 380, 560
    fade = np.linspace(0, 1, height)[:, None, None]
    sky = np.array((150, 92, 64), np.float32) * (1 - fade) + np.array((120, 186, 250), np.float32) * fade
    clouds = np.repeat(sky, width, axis=1) + 5 * noise(height, width, 30)[:, :, None]
    sheet = np.asarray(np.clip(clouds, 0, 255), np.uint8)
    cv2.circle(sheet, (392, 170), 34, (190, 232, 255), -1, cv2.LINE_AA)
    for rank, color in enumerate(((150, 110, 96), (112, 78, 66), (70, 54, 40))):
        line = 150 + rank * 42 + 34 * noise(2, width, 60 - rank * 18)[0] + 9 * noise(2, width, 9)[0]
        shape = [(0, 262), *((x, int(line[x])) for x in range(width)), (width, 262)]
        cv2.fillPoly(sheet, [np.array(shape, np.int32)], color, cv2.LINE_AA)
    lake = sheet[144:262][::-1]
    water = lake * 0.72 + np.array((44, 30, 14)) + 9 * noise(118, width, 4)[:, :, None]
    sheet[262:380] = water.clip(0, 255)
    write(sheet, "Greetings from the lake", (26, 352), 1.2, (240, 244, 250), SCRIPT)
    framed = cv2.copyMakeBorder(sheet, 16, 16, 16, 16, cv2.BORDER_CONSTANT, value=(246, 248, 248))
    return np.asarray(framed, np.uint8)


def drawing() -> Picture:
    """What a child drew: a house, a tree, a cat and the sun."""
    sheet = shade((244, 246, 244), 460, 540, 2, (2, 30))
    crayons: list[tuple[list[tuple[int, int]], Color]] = [
        ([(120, 390), (120, 230), (300, 230), (300, 390), (120, 390)], (50, 70, 200)),
        ([(104, 236), (210, 130), (316, 236)], (40, 90, 150)),
        ([(190, 390), (190, 310), (236, 310), (236, 390)], (170, 90, 40)),
        ([(140, 260), (174, 260), (174, 292), (140, 292), (140, 260)], (200, 150, 40)),
        ([(248, 260), (282, 260), (282, 292), (248, 292), (248, 260)], (200, 150, 40)),
        ([(420, 392), (414, 280), (436, 280), (432, 392)], (50, 80, 120)),
        ([(18, 398), (140, 392), (330, 400), (522, 390)], (60, 160, 60)),
    ]
    for points, color in crayons:
        for _ in range(5):
            wobbly = np.array(points) + rng.integers(-5, 6, (len(points), 2))
            cv2.polylines(sheet, [wobbly.astype(np.int32)], False, color, 3, cv2.LINE_AA)
    for _ in range(90):
        x, y = 424 + int(rng.normal() * 36), 226 + int(rng.normal() * 34)
        cv2.circle(sheet, (x, y), int(rng.integers(5, 15)), (50, int(rng.integers(120, 190)), 70), 2, cv2.LINE_AA)
    for step in range(14):
        angle = step * math.tau / 14
        reach = 62 + int(rng.integers(20))
        tip = (70 + int(math.cos(angle) * reach), 70 + int(math.sin(angle) * reach))
        cv2.line(sheet, (70, 70), tip, (40, 190, 250), 4, cv2.LINE_AA)
    cv2.circle(sheet, (70, 70), 36, (50, 210, 255), -1, cv2.LINE_AA)
    cat = (60, 110, 230)
    cv2.ellipse(sheet, (352, 372), (38, 20), 0, 0, 360, cat, -1, cv2.LINE_AA)
    cv2.circle(sheet, (392, 350), 18, cat, -1, cv2.LINE_AA)
    cv2.polylines(sheet, [np.array([(316, 366), (296, 340), (306, 316)], np.int32)], False, cat, 6, cv2.LINE_AA)
    write(sheet, "OUR HOME", (150, 442), 1.3, (180, 60, 120))
    return sheet


def prescription() -> Picture:
    sheet = shade((240, 240, 236), 440, 340, 2, (2, 30))
    write(sheet, "Dr. A. Example", (26, 52), 0.95, (140, 70, 30))
    write(sheet, "General practice, Mill Lane 4", (26, 84), 0.5)
    cv2.line(sheet, (26, 100), (314, 100), (140, 70, 30), 3, cv2.LINE_AA)
    write(sheet, "Rx", (26, 158), 1.5, (140, 70, 30), cv2.FONT_HERSHEY_TRIPLEX)
    for line, text in enumerate(("Sample tablets 20 mg", "1 - 0 - 1 after meals", "repeat: twice")):
        write(sheet, text, (40, 208 + line * 38), 0.78, (60, 40, 30), SCRIPT)
    x = 30
    while x < 300:
        wide = int(rng.integers(2, 8))
        cv2.rectangle(sheet, (x, 352), (x + wide, 412), (30, 30, 30), -1)
        x += wide + int(rng.integers(3, 8))
    swing = [(190 + step * 6, 326 + int(16 * math.sin(step * 1.3) * (1 - step / 24))) for step in range(20)]
    cv2.polylines(sheet, [np.array(swing, np.int32)], False, (150, 60, 20), 3, cv2.LINE_AA)
    return sheet


def town_map() -> Picture:
    sheet = shade((214, 232, 232), 430, 500, 2, (3, 60))
    for _ in range(70):
        x, y = int(rng.integers(500)), int(rng.integers(430))
        size = rng.integers(18, 60, 2)
        tone = (int(rng.integers(170, 215)), int(rng.integers(190, 225)), int(rng.integers(205, 238)))
        box = cv2.boxPoints(((x, y), (int(size[0]), int(size[1])), float(rng.integers(-20, 20))))
        cv2.fillPoly(sheet, [box.astype(np.int32)], tone, cv2.LINE_AA)
        cv2.polylines(sheet, [box.astype(np.int32)], True, (150, 160, 170), 1, cv2.LINE_AA)
    river = [(x, int(250 + 60 * math.sin(x / 90) + x * 0.12)) for x in range(-10, 520, 10)]
    cv2.polylines(sheet, [np.array(river, np.int32)], False, (214, 170, 110), 30, cv2.LINE_AA)
    for a, b in (
        ((0, 60), (500, 150)),
        ((90, 0), (180, 430)),
        ((340, 0), (300, 430)),
        ((0, 390), (500, 350)),
    ):
        cv2.line(sheet, a, b, (130, 150, 160), 16, cv2.LINE_AA)
        cv2.line(sheet, a, b, (250, 250, 250), 11, cv2.LINE_AA)
    for text, at in (("Mill Lane", (206, 92)), ("Harbour St", (24, 330)), ("Old Bridge", (330, 236))):
        write(sheet, text, at, 0.6)
    cv2.circle(sheet, (152, 196), 17, (40, 40, 210), 5, cv2.LINE_AA)
    write(sheet, "us", (176, 192), 0.9, (40, 40, 210), SCRIPT)
    return sheet


def scene() -> Picture:
    """The whole board, BGR."""
    board = cork()
    red, blue, green, yellow = (50, 50, 210), (190, 110, 40), (80, 150, 60), (40, 190, 230)
    pin(board, town_map(), (1550, 1070), 3, blue)
    pin(board, calendar(), (370, 400), 2.5, red)
    pin(board, postcard(), (960, 330), -4, yellow)
    pin(board, drawing(), (930, 980), 3, green)
    pin(board, shopping_list(), (360, 1020), -5, blue)
    pin(board, prescription(), (1560, 400), -2.5, red)
    return board


def photograph(board: Picture, corners: Any, light: float, warmth: Color) -> Picture:
    """The board with its `corners` there in the view (clockwise from top left), shaded and with noise."""
    edge = np.array([(0, 0), (WIDTH, 0), (WIDTH, HEIGHT), (0, HEIGHT)], np.float32)
    sharp = 2  # rendered larger, then averaged
    view = cv2.getPerspectiveTransform(edge, np.array(corners, np.float32) * sharp)
    size = (VIEW[0] * sharp, VIEW[1] * sharp)
    wall = shade((206, 214, 218), size[1], size[0], 2.5, (5, 30, 160))
    seen = cv2.warpPerspective(board, view, size, dst=wall, flags=cv2.INTER_AREA, borderMode=cv2.BORDER_TRANSPARENT)
    small = cv2.resize(seen, VIEW, interpolation=cv2.INTER_AREA).astype(np.float32)
    ramp = np.linspace(1 - light, 1 + light, VIEW[0], dtype=np.float32)[None, :, None]
    lit = small * ramp * (np.array(warmth, np.float32) / 100) + rng.normal(0, 2.2, small.shape)
    return np.asarray(np.clip(lit, 0, 255), np.uint8)


def main(folder: Path) -> None:
    """Write board-1.jpg and board-2.jpg."""
    board = scene()
    views = {
        "board-1.jpg": photograph(board, [(14, 26), (792, 12), (806, 596), (-2, 580)], 0.08, (98, 101, 104)),
        "board-2.jpg": photograph(board, [(96, 92), (702, 22), (744, 590), (52, 512)], -0.16, (106, 102, 97)),
    }
    for name, view in views.items():
        cv2.imwrite(str(folder / name), view, [cv2.IMWRITE_JPEG_QUALITY, 86])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
