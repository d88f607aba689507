"""The photograph that tests of faces share."""

import numpy as np
import pytest

from featveil.extractors.images import Image


@pytest.fixture(scope="session")
def astronaut() -> Image:
    """A photograph (512, 512, 3) of one person; the test is skipped, visibly, without dlib."""
    pytest.importorskip("dlib", reason="faces: pip install 'featveil[faces]'")
    data = pytest.importorskip("skimage.data", reason="the picture of a face: pip install scikit-image")
    return np.asarray(data.astronaut(), np.uint8)
