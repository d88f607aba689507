"""The same small solve for larger dimensions, where straight-line code would not fit the registers.

The matrix N is formed and factorised in blocks of 4 x 4. Each step below runs over all lanes of one row of pairs with
its 4 x 4 arithmetic written out; dimensions are multiples of four (stacks are padded with zero rows, see frames.py).
"""

from functools import cache

from featveil.distances.compiling import Kernel, compiled
from featveil.distances.kernels import NEAR_PARALLEL, UNSURE

_BLOCK = range(4)


@cache
def blocked_kernel(m1: int, m2: int, width: int) -> Kernel:
    """As `kernels.tile_kernel`, for dimensions that are multiples of four."""
    suffix = f"{m2}_{width}"
    steps = {
        "gather": compiled(f"gather_{suffix}", _gather_source(f"gather_{suffix}", (m2 + 1) * width, width)),
        "gram": compiled(f"gram_{suffix}", _update_source(f"gram_{suffix}", (m2 + 1) * width, width)),
        "update": compiled(f"update_{width}", _update_source(f"update_{width}", 4 * width, width)),
        "factor": compiled(f"factor_{width}", _factor_source(f"factor_{width}", width)),
        "solve": compiled(f"solve_{width}", _solve_source(f"solve_{width}", width)),
    }
    return compiled(f"blocked_{m1}_{suffix}", _driver_source(f"blocked_{m1}_{suffix}", m1, m2, width), steps)


def _loop(signature: str, width: int, body: list[str]) -> str:
    lines = [f"def {signature}:", "    one, tiny = numpy.float32(1), numpy.float32(1e-6)"]
    return "\n".join([*lines, f"    for j in range({width}):", *(f"        {line}" for line in body)])


def _gather_source(name: str, stride: int, width: int) -> str:
    """u (4 rows) += four rows of G times c, four columns at a time."""
    body = []
    for a in _BLOCK:
        terms = " + ".join(f"g[{a * stride + k * width} + j] * c[{k * width} + j]" for k in _BLOCK)
        body.append(f"u[{a * width} + j] += {terms}")
    return _loop(f"{name}(u, g, c)", width, body)


def _update_source(name: str, stride: int, width: int) -> str:
    """n (4 x 4) -= p qt for four columns of p and q, whose rows lie `stride` apart; half a block fits the registers."""
    body = []
    for half in ((0, 1), (2, 3)):
        cells = [(a, b) for a in _BLOCK for b in half]
        body += [f"x{a}{b} = n[{(a * 4 + b) * width} + j]" for a, b in cells]
        for k in _BLOCK:
            body += [f"p{a} = p[{a * stride + k * width} + j]" for a in _BLOCK]
            body += [f"q{b} = q[{b * stride + k * width} + j]" for b in half]
            body += [f"x{a}{b} -= p{a} * q{b}" for a, b in cells]
        body += [f"n[{(a * 4 + b) * width} + j] = x{a}{b}" for a, b in cells]
    return _loop(f"{name}(n, p, q)", width, body)


def _factor_source(name: str, width: int) -> str:
    """LDLt of a diagonal block n, in place; takes its share off s, keeps the lowest pivot and the inverse pivots v."""
    body = ["t = s[j]", "z = low[j]"]
    for a in _BLOCK:
        body.append(f"u{a} = u[{a * width} + j]")
        body += [f"n{a}{b} = n[{(a * 4 + b) * width} + j]" for b in range(a + 1)]
    for p in _BLOCK:
        body += [f"z = min(z, n{p}{p})", f"v{p} = one / max(n{p}{p}, tiny)", f"t -= u{p} * u{p} * v{p}"]
        for q in range(p + 1, 4):
            body += [f"l{q} = n{q}{p} * v{p}", f"u{q} -= l{q} * u{p}"]
        for q in range(p + 1, 4):
            body += [f"n{q}{r} -= l{q} * n{r}{p}" for r in range(p + 1, q + 1)]
            body.append(f"n[{(q * 4 + p) * width} + j] = l{q}")
        body += [f"v[{p * width} + j] = v{p}", f"u[{p * width} + j] = u{p}"]
    body += ["s[j] = t", "low[j] = z"]
    return _loop(f"{name}(n, u, s, low, v)", width, body)


def _solve_source(name: str, width: int) -> str:
    """Below a factorised diagonal block d: n becomes L D, l becomes L, and `below` loses L times the block's u."""
    body = [f"d{q}{p} = d[{(q * 4 + p) * width} + j]" for q in _BLOCK for p in range(q)]
    for p in _BLOCK:
        body += [f"v{p} = v[{p * width} + j]", f"u{p} = u[{p * width} + j]"]
    for a in _BLOCK:
        for p in _BLOCK:
            done = "".join(f" - x{r} * d{p}{r}" for r in range(p))
            body.append(f"x{p} = n[{(a * 4 + p) * width} + j]{done}")
        body.append(f"below[{a * width} + j] -= " + " + ".join(f"x{p} * v{p} * u{p}" for p in _BLOCK))
        for p in _BLOCK:
            body.append(f"n[{(a * 4 + p) * width} + j] = x{p}")
            body.append(f"l[{(a * 4 + p) * width} + j] = x{p} * v{p}")
    return _loop(f"{name}(n, l, d, v, u, below)", width, body)


def _driver_source(name: str, m1: int, m2: int, width: int) -> str:
    """The loop over rows of pairs that runs the steps block by block."""
    return f"""
def {name}(product, norms1, norms2, out):
    blocks, cell, line = {m1 // 4}, {16 * width}, {(m2 + 1) * width}
    u = numpy.empty({m1 * width}, numpy.float32)
    v = numpy.empty({4 * width}, numpy.float32)
    s = numpy.empty({width}, numpy.float32)
    low = numpy.empty({width}, numpy.float32)
    full = numpy.empty(blocks * blocks * cell, numpy.float32)
    unit = numpy.empty(blocks * blocks * cell, numpy.float32)
    for i in range(len(norms1)):
        t = product[i * {m1 + 1} * line : (i + 1) * {m1 + 1} * line]
        for j in range({width}):
            s[j] = norms1[i] + norms2[j] - numpy.float32(2) * t[j]
            low[j] = numpy.float32(1)
        for k in range({m2}):
            c = t[(k + 1) * {width} : (k + 2) * {width}]
            for j in range({width}):
                s[j] -= c[j] * c[j]
        for p in range(blocks):
            top = (4 * p + 1) * line
            here = u[4 * p * {width} : 4 * (p + 1) * {width}]
            for a in range(4):
                for j in range({width}):
                    here[a * {width} + j] = t[top + a * line + j]
            for k in range({width}, {(m2 + 1) * width}, {4 * width}):
                gather(here, t[top + k : top + k + 3 * line + {4 * width}], t[k : k + {4 * width}])
            for q in range(p + 1):
                n = full[(p * blocks + q) * cell : (p * blocks + q + 1) * cell]
                n[:] = numpy.float32(0)
                if p == q:
                    for a in range(4):
                        n[a * {5 * width} : a * {5 * width} + {width}] = numpy.float32(1)
                left = (4 * q + 1) * line
                for k in range({width}, {(m2 + 1) * width}, {4 * width}):
                    gram(n, t[top + k : top + k + 3 * line + {4 * width}],
                         t[left + k : left + k + 3 * line + {4 * width}])
        for p in range(blocks):
            d = full[(p * blocks + p) * cell : (p * blocks + p + 1) * cell]
            here = u[4 * p * {width} : 4 * (p + 1) * {width}]
            factor(d, here, s, low, v)
            for q in range(p + 1, blocks):
                at = (q * blocks + p) * cell
                solve(full[at : at + cell], unit[at : at + cell], d, v, here,
                      u[4 * q * {width} : 4 * (q + 1) * {width}])
            for q in range(p + 1, blocks):
                l = unit[(q * blocks + p) * cell : (q * blocks + p + 1) * cell]
                for r in range(p + 1, q + 1):
                    x = full[(r * blocks + p) * cell : (r * blocks + p + 1) * cell]
                    update(full[(q * blocks + r) * cell : (q * blocks + r + 1) * cell], l, x)
        o = out[i * {width} : (i + 1) * {width}]
        for j in range({width}):
            fine = low[j] >= numpy.float32({NEAR_PARALLEL})
            o[j] = max(s[j], numpy.float32(0)) if fine else numpy.float32({UNSURE})
"""
