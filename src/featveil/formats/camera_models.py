"""COLMAP's camera models: their names, in the order of the numbers that a database has for them."""

from featveil.core import InputError

# How many parameters each has.
PARAMETERS = {
    "SIMPLE_PINHOLE": 3,
    "PINHOLE": 4,
    "SIMPLE_RADIAL": 4,
    "RADIAL": 5,
    "OPENCV": 8,
    "OPENCV_FISHEYE": 8,
    "FULL_OPENCV": 12,
    "FOV": 5,
    "SIMPLE_RADIAL_FISHEYE": 4,
    "RADIAL_FISHEYE": 5,
    "THIN_PRISM_FISHEYE": 12,
    "RAD_TAN_THIN_PRISM_FISHEYE": 16,
    "SIMPLE_DIVISION": 4,
    "DIVISION": 5,
    "SIMPLE_FISHEYE": 3,
    "FISHEYE": 4,
    "EUCM": 6,
    "EQUIRECTANGULAR": 2,
}
NAMES = tuple(PARAMETERS)


def check_model(model: str, parameters: int) -> None:
    """Raise InputError unless COLMAP has the `model`, and with that many `parameters`."""
    if model not in PARAMETERS:
        raise InputError("COLMAP has no such camera model: use one of its names, such as SIMPLE_RADIAL")
    if parameters != PARAMETERS[model]:
        raise InputError(f"a {model} camera has {PARAMETERS[model]} parameters, got {parameters}")
