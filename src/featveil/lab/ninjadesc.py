"""What NinjaDesc reports of its concealers (ninjadesc.txt): inversion by base descriptor, lambda and architecture.

Theirs are 1000 Harris corners of photographs of MegaDepth, networks of full size trained on it, and no floor. Lambda
None is the raw base descriptor. Figures 5 and 8 are pictures: what can be read of them is said in words.
"""

Figures = tuple[float, float, float]

# MAE, SSIM and PSNR of SOSNet: table 1 (unet), table 4 (both).
SOSNET: dict[str, dict[float | None, Figures]] = {
    "unet": {
        None: (0.104, 0.596, 17.904),
        0.001: (0.117, 0.566, 18.037),
        0.01: (0.125, 0.569, 16.826),
        0.1: (0.129, 0.527, 17.821),
        0.25: (0.162, 0.484, 17.671),
        1.0: (0.183, 0.385, 13.367),
        2.5: (0.212, 0.349, 12.010),
    },
    "uresnet": {
        None: (0.121, 0.595, 16.533),
        1.0: (0.190, 0.427, 12.753),
        2.5: (0.202, 0.380, 12.299),
    },
}

# SSIM, table 3.
SSIM: dict[str, dict[float | None, float]] = {
    "sosnet": {None: 0.596, 0.01: 0.569, 0.1: 0.527, 0.25: 0.484, 1.0: 0.385, 2.5: 0.349},
    "hardnet": {None: 0.582, 0.01: 0.545, 0.1: 0.516, 0.25: 0.399, 1.0: 0.349, 2.5: 0.312},
    "sift": {None: 0.553, 0.01: 0.490, 0.1: 0.459, 0.25: 0.395, 1.0: 0.362, 2.5: 0.296},
}

SAID = """\
Theirs: 1000 Harris corners of MegaDepth, networks of full size, and no floor; the paper's own blank picture is unknown.
Compare orders and drops, not digits. Of their figures 5 and 8 the text says: for SOSNet and HardNet mAP falls by less
than 4 points while 1 - SSIM gains 30; for SIFT mAP rises for every lambda, because utility training improves it;
matching at lambda 2.5 stays near raw HardNet, is above raw SIFT, and above sub-hybrid lifting of dimension 2.
"""
