"""Features, raw or private -> picture: trained inversion networks, run by onnxruntime without torch."""

from featveil.inverters.builtin_inverter import SIFT_FILE, builtin_inverter
from featveil.inverters.inverter import Inverter, load_inverter

__all__ = ["SIFT_FILE", "Inverter", "builtin_inverter", "load_inverter"]
