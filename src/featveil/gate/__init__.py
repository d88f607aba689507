"""The sketch of a map: descriptors without geometry, by which a device sees what the map knows already."""

from featveil.gate.map_sketch import Calibration, Exact, Quantised, Signature, Sketch
from featveil.gate.sketch_files import load_sketch, save_sketch

__all__ = ["Calibration", "Exact", "Quantised", "Signature", "Sketch", "load_sketch", "save_sketch"]
