"""The small solve behind every distance, generated as straight-line code for each pair of dimensions.

One matrix product gives, for two stacks [d0; D] and [e0; E], the numbers d0.e0, a = D e0, c = E d0 and G = D Et.
Then (docs/distances.md):

    s = |d0|^2 + |e0|^2 - 2 d0.e0 - |c|^2,   u = a + G c,   N = I - G Gt,   distance^2 = s - ut N^-1 u

by an LDLt factorisation that takes u_k^2 / pivot_k off s as it goes. Lanes of the inner loop are different pairs, so
the compiler turns all of it into SIMD code. A pair whose smallest pivot is below `NEAR_PARALLEL` is not trusted and
comes back as `UNSURE`, for the caller to recompute in float64.
"""

from functools import cache

from featveil.distances.backends import NEAR_PARALLEL, UNSURE
from featveil.distances.backends.compiling import Kernel, compiled


@cache
def tile_kernel(m1: int, m2: int, width: int, sign: int = -1) -> Kernel:
    """A compiled function (product, norms1, norms2, out) that fills `out` (rows, width) with squared distances.

    `product` is (rows, m1 + 1, m2 + 1, width), flat: the tile of the matrix product. Dimension 0 stands for points.
    `sign` is 1 when a stack holds the normals of a subspace and the other side is points: then squared heights add up
    (and the points' norms are 0) instead of squared coordinates being taken off.
    """
    name = f"tile_{m1}_{m2}_{width}_{'normals' if sign > 0 else 'directions'}"
    return compiled(name, _unrolled_source(name, m1, m2, width, "+" if sign > 0 else "-"))


def _unrolled_source(name: str, m1: int, m2: int, width: int, sign: str) -> str:
    """Python text of the kernel; the smaller of the two subspaces is the one that is factorised."""

    def entry(p: int, q: int) -> str:
        return f"product[row + {(p * (m2 + 1) + q) * width} + lane]"

    small, large = min(m1, m2), max(m1, m2)
    flip = m1 > m2

    def g(p: int, k: int) -> str:
        return entry(k + 1, p + 1) if flip else entry(p + 1, k + 1)

    body = ["s = norm + norms2[lane] - two * product[row + lane]"]
    for k in range(large):
        body.append(f"c{k} = {entry(k + 1, 0) if flip else entry(0, k + 1)}")
        body.append(f"s {sign}= c{k} * c{k}")
    for p in range(small):
        body += [f"g{p}_{k} = {g(p, k)}" for k in range(large)]
        a = entry(0, p + 1) if flip else entry(p + 1, 0)
        body.append(f"u{p} = {a}" + "".join(f" + g{p}_{k} * c{k}" for k in range(large)))
        for q in range(p + 1):
            start = "one" if p == q else "zero"
            body.append(f"n{p}_{q} = {start}" + "".join(f" - g{p}_{k} * g{q}_{k}" for k in range(large)))
    body += _elimination(small)
    lines = [
        f"def {name}(product, norms1, norms2, out):",
        "    zero, one, two = numpy.float32(0), numpy.float32(1), numpy.float32(2)",
        f"    tiny, limit, unsure = numpy.float32(1e-6), numpy.float32({NEAR_PARALLEL}), numpy.float32({UNSURE})",
        "    for i in range(len(norms1)):",
        f"        row = i * {(m1 + 1) * (m2 + 1) * width}",
        f"        target = i * {width}",
        "        norm = norms1[i]",
        f"        for lane in range({width}):",
        *(f"            {line}" for line in body),
    ]
    return "\n".join(lines)


def _elimination(size: int) -> list[str]:
    """LDLt of the generated variables n{p}_{q}, applied to u{p} and s as it goes; ends by storing the lane."""
    if size == 0:
        return ["out[target + lane] = max(s, zero)"]
    lines = ["low = n0_0"]
    for p in range(size):
        lines.append(f"low = min(low, n{p}_{p})")
        lines.append(f"v = one / max(n{p}_{p}, tiny)")
        lines.append(f"s -= u{p} * u{p} * v")
        for q in range(p + 1, size):
            lines.append(f"l{q} = n{q}_{p} * v")
            lines.append(f"u{q} -= l{q} * u{p}")
        for q in range(p + 1, size):
            lines += [f"n{q}_{r} -= l{q} * n{r}_{p}" for r in range(p + 1, q + 1)]
    lines.append("out[target + lane] = max(s, zero) if low >= limit else unsure")
    return lines
