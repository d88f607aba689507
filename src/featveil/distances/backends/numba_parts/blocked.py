"""The same small solve for larger dimensions, where straight-line code would not fit the registers.

The matrix N is formed and factorised in blocks of 4 x 4. Each step below runs over all lanes of one row of pairs, in
the innermost loop, which becomes SIMD code; dimensions are multiples of four (stacks are padded with zero rows). The
functions here are templates: the numbers and the names bound to `unbound` are filled in for two dimensions.
"""

from functools import cache

import numpy as np

from featveil.core.arrays import Float32
from featveil.distances.backends import NEAR_PARALLEL, UNSURE
from featveil.distances.backends.compiling import Kernel, specialised, unbound

M1, M2 = 4, 4  # dimensions
WIDTH = 64  # lanes
STRIDE = 64  # between the rows of what `_update` multiplies

# The steps, compiled.
gather: Kernel = unbound
gram: Kernel = unbound
update: Kernel = unbound
factor: Kernel = unbound
eliminate: Kernel = unbound


@cache
def blocked_kernel(m1: int, m2: int, width: int) -> Kernel:
    """As `unrolled.tile_kernel`, for dimensions that are multiples of four."""
    line = (m2 + 1) * width
    steps = {
        "gather": specialised(_gather, WIDTH=width, STRIDE=line),
        "gram": specialised(_update, WIDTH=width, STRIDE=line),
        "update": specialised(_update, WIDTH=width, STRIDE=4 * width),
        "factor": specialised(_factor, WIDTH=width),
        "eliminate": specialised(_eliminate, WIDTH=width),
    }
    return specialised(_blocked, M1=m1, M2=m2, WIDTH=width, **steps)


def _gather(u: Float32, g: Float32, c: Float32) -> None:
    """u (4 rows) += four rows of G times c, four columns at a time."""
    for a in range(4):
        for j in range(WIDTH):
            for k in range(4):
                u[a * WIDTH + j] += g[a * STRIDE + k * WIDTH + j] * c[k * WIDTH + j]


def _update(n: Float32, p: Float32, q: Float32) -> None:
    """n (4 x 4) -= p qt for four columns of p and q, whose rows lie STRIDE apart; half a block fits the registers."""
    for b in range(0, 4, 2):
        for j in range(WIDTH):
            x00, x01 = n[b * WIDTH + j], n[(b + 1) * WIDTH + j]
            x10, x11 = n[(b + 4) * WIDTH + j], n[(b + 5) * WIDTH + j]
            x20, x21 = n[(b + 8) * WIDTH + j], n[(b + 9) * WIDTH + j]
            x30, x31 = n[(b + 12) * WIDTH + j], n[(b + 13) * WIDTH + j]
            for k in range(4):
                at = k * WIDTH + j
                p0, p1, p2, p3 = p[at], p[STRIDE + at], p[2 * STRIDE + at], p[3 * STRIDE + at]
                q0, q1 = q[b * STRIDE + at], q[(b + 1) * STRIDE + at]
                x00, x01 = x00 - p0 * q0, x01 - p0 * q1
                x10, x11 = x10 - p1 * q0, x11 - p1 * q1
                x20, x21 = x20 - p2 * q0, x21 - p2 * q1
                x30, x31 = x30 - p3 * q0, x31 - p3 * q1
            n[b * WIDTH + j], n[(b + 1) * WIDTH + j] = x00, x01
            n[(b + 4) * WIDTH + j], n[(b + 5) * WIDTH + j] = x10, x11
            n[(b + 8) * WIDTH + j], n[(b + 9) * WIDTH + j] = x20, x21
            n[(b + 12) * WIDTH + j], n[(b + 13) * WIDTH + j] = x30, x31


def _factor(n: Float32, u: Float32, s: Float32, low: Float32, v: Float32) -> None:
    """LDLt of a diagonal block n, in place; takes its share off s, keeps the lowest pivot and the inverse pivots v."""
    one, tiny = np.float32(1), np.float32(1e-6)
    for j in range(WIDTH):
        u0, u1, u2, u3 = u[j], u[WIDTH + j], u[2 * WIDTH + j], u[3 * WIDTH + j]
        n10, n20, n30 = n[4 * WIDTH + j], n[8 * WIDTH + j], n[12 * WIDTH + j]
        v0 = one / max(n[j], tiny)
        l1, l2, l3 = n10 * v0, n20 * v0, n30 * v0
        n[4 * WIDTH + j], n[8 * WIDTH + j], n[12 * WIDTH + j] = l1, l2, l3
        u1, u2, u3 = u1 - l1 * u0, u2 - l2 * u0, u3 - l3 * u0
        n11 = n[5 * WIDTH + j] - l1 * n10
        n21, n31 = n[9 * WIDTH + j] - l2 * n10, n[13 * WIDTH + j] - l3 * n10
        n22, n32 = n[10 * WIDTH + j] - l2 * n20, n[14 * WIDTH + j] - l3 * n20
        n33 = n[15 * WIDTH + j] - l3 * n30
        v1 = one / max(n11, tiny)
        l2, l3 = n21 * v1, n31 * v1
        n[9 * WIDTH + j], n[13 * WIDTH + j] = l2, l3
        u2, u3 = u2 - l2 * u1, u3 - l3 * u1
        n22, n32, n33 = n22 - l2 * n21, n32 - l3 * n21, n33 - l3 * n31
        v2 = one / max(n22, tiny)
        l3 = n32 * v2
        n[14 * WIDTH + j] = l3
        u3, n33 = u3 - l3 * u2, n33 - l3 * n32
        v3 = one / max(n33, tiny)
        s[j] -= u0 * u0 * v0 + u1 * u1 * v1 + u2 * u2 * v2 + u3 * u3 * v3
        low[j] = min(low[j], min(min(n[j], n11), min(n22, n33)))
        u[WIDTH + j], u[2 * WIDTH + j], u[3 * WIDTH + j] = u1, u2, u3
        v[j], v[WIDTH + j], v[2 * WIDTH + j], v[3 * WIDTH + j] = v0, v1, v2, v3


def _eliminate(n: Float32, unit: Float32, d: Float32, v: Float32, u: Float32, below: Float32) -> None:
    """Below a factorised diagonal block d: n becomes L D, unit L, and `below` loses L times the block's u."""
    for j in range(WIDTH):
        d10, d20, d21 = d[4 * WIDTH + j], d[8 * WIDTH + j], d[9 * WIDTH + j]
        d30, d31, d32 = d[12 * WIDTH + j], d[13 * WIDTH + j], d[14 * WIDTH + j]
        v0, v1, v2, v3 = v[j], v[WIDTH + j], v[2 * WIDTH + j], v[3 * WIDTH + j]
        u0, u1, u2, u3 = u[j], u[WIDTH + j], u[2 * WIDTH + j], u[3 * WIDTH + j]
        for a in range(4):
            at = 4 * a * WIDTH + j
            x0 = n[at]
            x1 = n[at + WIDTH] - x0 * d10
            x2 = n[at + 2 * WIDTH] - x0 * d20 - x1 * d21
            x3 = n[at + 3 * WIDTH] - x0 * d30 - x1 * d31 - x2 * d32
            l0, l1, l2, l3 = x0 * v0, x1 * v1, x2 * v2, x3 * v3
            below[a * WIDTH + j] -= l0 * u0 + l1 * u1 + l2 * u2 + l3 * u3
            n[at], n[at + WIDTH], n[at + 2 * WIDTH], n[at + 3 * WIDTH] = x0, x1, x2, x3
            unit[at], unit[at + WIDTH], unit[at + 2 * WIDTH], unit[at + 3 * WIDTH] = l0, l1, l2, l3


def _blocked(product: Float32, norms1: Float32, norms2: Float32, out: Float32) -> None:
    """The loop over rows of pairs that runs the steps block by block."""
    blocks, cell, line, four = M1 // 4, 16 * WIDTH, (M2 + 1) * WIDTH, 4 * WIDTH
    u, v = np.empty(M1 * WIDTH, np.float32), np.empty(four, np.float32)
    s, low = np.empty(WIDTH, np.float32), np.empty(WIDTH, np.float32)
    full, unit = np.empty(blocks * blocks * cell, np.float32), np.empty(blocks * blocks * cell, np.float32)
    for i in range(len(norms1)):
        t = product[i * (M1 + 1) * line : (i + 1) * (M1 + 1) * line]
        for j in range(WIDTH):
            s[j] = norms1[i] + norms2[j] - np.float32(2) * t[j]
            low[j] = np.float32(1)
        for k in range(M2):
            c = t[(k + 1) * WIDTH : (k + 2) * WIDTH]
            for j in range(WIDTH):
                s[j] -= c[j] * c[j]
        for p in range(blocks):
            top = (4 * p + 1) * line
            here = u[p * four : (p + 1) * four]
            for a in range(4):
                for j in range(WIDTH):
                    here[a * WIDTH + j] = t[top + a * line + j]
            for k in range(WIDTH, line, four):
                gather(here, t[top + k : top + k + 3 * line + four], t[k : k + four])
            for q in range(p + 1):
                n = full[(p * blocks + q) * cell : (p * blocks + q + 1) * cell]
                n[:] = np.float32(0)
                if p == q:
                    for a in range(4):
                        n[a * 5 * WIDTH : (a * 5 + 1) * WIDTH] = np.float32(1)
                left = (4 * q + 1) * line
                for k in range(WIDTH, line, four):
                    gram(n, t[top + k : top + k + 3 * line + four], t[left + k : left + k + 3 * line + four])
        for p in range(blocks):
            d = full[(p * blocks + p) * cell : (p * blocks + p + 1) * cell]
            here = u[p * four : (p + 1) * four]
            factor(d, here, s, low, v)
            for q in range(p + 1, blocks):
                at = (q * blocks + p) * cell
                eliminate(full[at : at + cell], unit[at : at + cell], d, v, here, u[q * four : (q + 1) * four])
            for q in range(p + 1, blocks):
                lower = unit[(q * blocks + p) * cell : (q * blocks + p + 1) * cell]
                for r in range(p + 1, q + 1):
                    x = full[(r * blocks + p) * cell : (r * blocks + p + 1) * cell]
                    update(full[(q * blocks + r) * cell : (q * blocks + r + 1) * cell], lower, x)
        o = out[i * WIDTH : (i + 1) * WIDTH]
        for j in range(WIDTH):
            fine = low[j] >= np.float32(NEAR_PARALLEL)
            o[j] = max(s[j], np.float32(0)) if fine else np.float32(UNSURE)
