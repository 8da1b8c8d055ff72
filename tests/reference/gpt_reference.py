"""GPT-2's loss and gradients in NumPy, f64, written from the formulas alone.

gpt_reference.py FILE reads FILE: a line "layers dim heads context vocab batch", then f32 parameters (each tensor
of NAMES in order), then i32 tokens and i32 targets, [batch, context] each. Writes FILE.out: f64 mean loss, then the
f64 gradient of each tensor in the same order.
"""

import sys

try:
    import numpy as np
except ImportError:
    sys.exit(77)


def names(layers, d, context, vocab):
    yield "wte.weight", (vocab, d)
    yield "wpe.weight", (context, d)
    for i in range(layers):
        h = f"h.{i}."
        yield h + "ln_1.weight", (d,)
        yield h + "ln_1.bias", (d,)
        yield h + "attn.c_attn.weight", (d, 3 * d)
        yield h + "attn.c_attn.bias", (3 * d,)
        yield h + "attn.c_proj.weight", (d, d)
        yield h + "attn.c_proj.bias", (d,)
        yield h + "ln_2.weight", (d,)
        yield h + "ln_2.bias", (d,)
        yield h + "mlp.c_fc.weight", (d, 4 * d)
        yield h + "mlp.c_fc.bias", (4 * d,)
        yield h + "mlp.c_proj.weight", (4 * d, d)
        yield h + "mlp.c_proj.bias", (d,)
    yield "ln_f.weight", (d,)
    yield "ln_f.bias", (d,)


class Tape:
    """Reverse-mode differentiation of a few operations; psring's layers have hand-written backward passes."""

    def __init__(self):
        self.steps = []

    def record(self, value, *inputs):
        """inputs: (node, function from the output's gradient to the input's)."""
        node = Node(value)
        self.steps.append((node, inputs))
        return node

    def run(self, loss):
        loss.gradient = np.ones_like(loss.value)
        for node, inputs in reversed(self.steps):
            for source, back in inputs:
                source.gradient = source.gradient + back(node.gradient)

    def add(self, a, b):
        return self.record(a.value + b.value, (a, lambda g: unbroadcast(g, a)), (b, lambda g: unbroadcast(g, b)))

    def mul(self, a, b):
        return self.record(
            a.value * b.value,
            (a, lambda g: unbroadcast(g * b.value, a)),
            (b, lambda g: unbroadcast(g * a.value, b)),
        )

    def matmul(self, a, b):
        return self.record(
            a.value @ b.value,
            (a, lambda g: unbroadcast(g @ b.value.swapaxes(-1, -2), a)),
            (b, lambda g: unbroadcast(a.value.swapaxes(-1, -2) @ g, b)),
        )

    def view(self, a, there, back):
        return self.record(there(a.value), (a, back))


class Node:
    def __init__(self, value):
        self.value = value
        self.gradient = np.zeros_like(value)


def unbroadcast(g, node):
    while g.ndim > node.value.ndim:
        g = g.sum(axis=0)
    for axis, extent in enumerate(node.value.shape):
        if extent == 1 and g.shape[axis] != 1:
            g = g.sum(axis=axis, keepdims=True)
    return g


def normalise(t, x):
    mean = x.value.mean(-1, keepdims=True)
    deviation = np.sqrt(((x.value - mean) ** 2).mean(-1, keepdims=True) + 1e-5)
    z = (x.value - mean) / deviation
    n = x.value.shape[-1]

    def back(g):  # the Jacobian written out: (I - 1/n - z z^T / n) / deviation, row by row
        jacobian = np.eye(n) - 1.0 / n - z[..., :, None] * z[..., None, :] / n
        return (jacobian @ g[..., None])[..., 0] / deviation

    return t.record(z, (x, back))


def gelu(t, x):
    c = np.sqrt(2 / np.pi)
    v = x.value
    th = np.tanh(c * (v + 0.044715 * v**3))
    slope = 0.5 * (1 + th) + 0.5 * v * (1 - th**2) * c * (1 + 3 * 0.044715 * v**2)
    return t.record(0.5 * v * (1 + th), (x, lambda g: g * slope))


def causal_softmax(t, s):
    n = s.value.shape[-1]
    masked = np.where(np.tril(np.ones((n, n), bool)), s.value, -np.inf)
    p = np.exp(masked - masked.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return t.record(p, (s, lambda g: p * (g - (g * p).sum(-1, keepdims=True))))


def gather(t, table, index):
    def back(g):
        out = np.zeros_like(table.value)
        np.add.at(out, index, g)
        return out

    return t.record(table.value[index], (table, back))


def cross_entropy(t, logits, targets):
    x = logits.value.reshape(-1, logits.value.shape[-1])
    rows = np.arange(x.shape[0])
    p = np.exp(x - x.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    loss = -np.log(p[rows, targets.reshape(-1)]).mean()

    def back(g):
        d = p.copy()
        d[rows, targets.reshape(-1)] -= 1
        return g * (d / x.shape[0]).reshape(logits.value.shape)

    return t.record(np.array(loss), (logits, back))


def gpt(t, w, tokens, heads, layers):
    batch, context = tokens.shape
    d = w["wte.weight"].value.shape[1]

    def norm(x, name):
        return t.add(t.mul(normalise(t, x), w[name + ".weight"]), w[name + ".bias"])

    def linear(x, name):
        return t.add(t.matmul(x, w[name + ".weight"]), w[name + ".bias"])

    def part(x, i):
        def back(g):
            out = np.zeros_like(x.value)
            out[..., i * d : (i + 1) * d] = g
            return out

        return t.view(x, lambda v: v[..., i * d : (i + 1) * d], back)

    def split(x):
        return t.view(
            x,
            lambda v: v.reshape(batch, context, heads, d // heads).transpose(0, 2, 1, 3),
            lambda g: g.transpose(0, 2, 1, 3).reshape(batch, context, d),
        )

    def join(x):
        return t.view(
            x,
            lambda v: v.transpose(0, 2, 1, 3).reshape(batch, context, d),
            lambda g: g.reshape(batch, context, heads, d // heads).transpose(0, 2, 1, 3),
        )

    def turned(x):
        return t.view(x, lambda v: v.swapaxes(-1, -2), lambda g: g.swapaxes(-1, -2))

    x = t.add(gather(t, w["wte.weight"], tokens), w["wpe.weight"])
    for i in range(layers):
        h = f"h.{i}."
        qkv = linear(norm(x, h + "ln_1"), h + "attn.c_attn")
        q, k, v = (split(part(qkv, j)) for j in range(3))
        scores = t.mul(t.matmul(q, turned(k)), Node(np.array(1 / np.sqrt(d // heads))))
        mixed = join(t.matmul(causal_softmax(t, scores), v))
        x = t.add(x, linear(mixed, h + "attn.c_proj"))
        x = t.add(x, linear(gelu(t, linear(norm(x, h + "ln_2"), h + "mlp.c_fc")), h + "mlp.c_proj"))
    return t.matmul(norm(x, "ln_f"), turned(w["wte.weight"]))


def main(path):
    with open(path, "rb") as file:
        layers, d, heads, context, vocab, batch = map(int, file.readline().split())
        raw = file.read()
    at = 0
    w = {}
    for name, shape in names(layers, d, context, vocab):
        count = int(np.prod(shape))
        w[name] = Node(np.frombuffer(raw, "<f4", count, at).astype(np.float64).reshape(shape))
        at += 4 * count
    tokens = np.frombuffer(raw, "<i4", batch * context, at).reshape(batch, context)
    targets = np.frombuffer(raw, "<i4", batch * context, at + 4 * tokens.size).reshape(batch, context)
    t = Tape()
    loss = cross_entropy(t, gpt(t, w, tokens, heads, layers), targets)
    t.run(loss)
    with open(path + ".out", "wb") as file:
        file.write(np.float64(loss.value).tobytes())
        for node in w.values():
            file.write(np.ascontiguousarray(node.gradient).tobytes())


main(sys.argv[1])
