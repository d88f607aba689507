"""The papers' numbers, which tables show beside ours, under the names used here."""

Figures = tuple[float, float, float]  # MAE, SSIM and PSNR

# Inverting SIFT, by scheme and attack. Both papers have 10 holiday photographs of Flickr and networks trained on
# MegaDepth; neither reports a floor. LDP-FEAT: lifting with 256,000 descriptors (table 1), 256,000 words (table 4).
# Their direct inversion attack (DIA) is `direct` here.
LDP_FEAT: dict[tuple[str, str], Figures] = {
    ("identity", "read"): (0.0913, 0.6878, 18.59),
    ("sub-hybrid-2", "nearest"): (0.1690, 0.3611, 14.00),
    ("sub-hybrid-4", "nearest"): (0.1913, 0.3273, 12.84),
    ("sub-hybrid-8", "nearest"): (0.1985, 0.2481, 12.29),
    ("sub-hybrid-16", "nearest"): (0.1873, 0.2457, 12.76),
    ("sub-hybrid-2", "direct"): (0.1194, 0.5005, 16.35),
    ("sub-hybrid-4", "direct"): (0.1468, 0.4190, 14.79),
    ("sub-hybrid-8", "direct"): (0.1635, 0.3676, 14.01),
    ("sub-hybrid-16", "direct"): (0.1761, 0.3496, 13.43),
    ("sub-hybrid-2", "clustering"): (0.1087, 0.5919, 17.30),
    ("sub-hybrid-4", "clustering"): (0.1142, 0.5652, 16.51),
    ("sub-hybrid-8", "clustering"): (0.1254, 0.5160, 15.83),
    ("sub-hybrid-16", "clustering"): (0.1424, 0.4122, 14.73),
    ("sub-hybrid-2", "database"): (0.0947, 0.6566, 18.26),
    ("sub-hybrid-4", "database"): (0.0950, 0.6543, 18.27),
    ("sub-hybrid-8", "database"): (0.1000, 0.6385, 17.89),
    ("sub-hybrid-16", "database"): (0.1063, 0.5882, 17.47),
    ("subset-16-1", "direct"): (0.1069, 0.6248, 17.35),
    ("subset-14-1", "direct"): (0.1137, 0.5923, 16.90),
    ("subset-12-1", "direct"): (0.1317, 0.4668, 15.77),
    ("subset-10-1", "direct"): (0.1701, 0.3651, 13.72),
    ("subset-16-2", "direct"): (0.1173, 0.5582, 16.50),
    ("subset-14-2", "direct"): (0.1208, 0.5417, 16.31),
    ("subset-12-2", "direct"): (0.1366, 0.4655, 15.44),
    ("subset-10-2", "direct"): (0.1660, 0.3676, 13.84),
    ("subset-16-4", "direct"): (0.1261, 0.4976, 15.94),
    ("subset-14-4", "direct"): (0.1322, 0.4868, 15.47),
    ("subset-12-4", "direct"): (0.1438, 0.4511, 14.93),
    ("subset-10-4", "direct"): (0.1758, 0.3666, 13.48),
}

# Dusmanu et al. 2021, supplement C, table 4.
LIFTING: dict[tuple[str, str], Figures] = {
    ("identity", "read"): (0.092, 0.778, 18.645),
    ("random-2", "nearest"): (0.111, 0.740, 17.386),
    ("sub-hybrid-2", "nearest"): (0.181, 0.519, 13.434),
    ("sub-hybrid-2", "direct"): (0.150, 0.653, 14.959),
    ("sub-hybrid-4", "direct"): (0.160, 0.611, 14.471),
    ("sub-hybrid-6", "direct"): (0.166, 0.585, 14.154),
}

# NinjaDesc, inverting concealed descriptors by base descriptor, lambda (None: raw) and architecture. Theirs are 1000
# Harris corners of photographs of MegaDepth, networks of full size trained on it, and no floor. Figures 5 and 8 are
# pictures: what can be read of them is said in words.
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
CONCEALED_SSIM: dict[str, dict[float | None, float]] = {
    "sosnet": {None: 0.596, 0.01: 0.569, 0.1: 0.527, 0.25: 0.484, 1.0: 0.385, 2.5: 0.349},
    "hardnet": {None: 0.582, 0.01: 0.545, 0.1: 0.516, 0.25: 0.399, 1.0: 0.349, 2.5: 0.312},
    "sift": {None: 0.553, 0.01: 0.490, 0.1: 0.459, 0.25: 0.395, 1.0: 0.362, 2.5: 0.296},
}

NINJADESC_SAID = """\
Theirs: 1000 Harris corners of MegaDepth, networks of full size, and no floor; the paper's own blank picture is unknown.
Compare orders and drops, not digits. Of their figures 5 and 8 the text says: for SOSNet and HardNet mAP falls by less
than 4 points while 1 - SSIM gains 30; for SIFT mAP rises for every lambda, because utility training improves it;
matching at lambda 2.5 stays near raw HardNet, is above raw SIFT, and above sub-hybrid lifting of dimension 2.
"""

# Pittaluga and Zhuang 2023, tables S2 and S3: by dimension, and in S2 by the number of neighbours.
MEMBERS_NEAR = {
    4: {50: 0.9389, 20: 0.9560, 10: 0.9661, 5: 0.9746},
    16: {50: 0.8727, 20: 0.9054, 10: 0.9273, 5: 0.9438},
}
NO_COLLISION = {2: 0.9742, 4: 0.9430, 8: 0.8546, 16: 0.7303}
