"""Updates rows as PyTorch's sparse optimizers do, and as NumPy does in f64.

row_rules.py RULE LR WIDTH ROWS STEPS IN OUT: IN holds f32: the initial values [ROWS, WIDTH], then for each step a row number, -1
at the end, and the coalesced gradients of these rows. OUT gets the values after the last step, in f64.
"""

import sys

try:
    import numpy as np
    import torch
except ImportError:
    print("SKIPPED: PyTorch and NumPy are not installed")
    sys.exit(77)


def steps_of(data, width, steps):
    for _ in range(steps):
        end = int(np.argmax(data < 0))
        rows, data = data[:end].astype(np.int64), data[end + 1 :]
        yield rows, data[: end * width].reshape(end, width)
        data = data[end * width :]


def in_torch(kind, lr, values, steps):
    w = torch.nn.Parameter(torch.from_numpy(values.copy()))
    optimizer = kind([w], lr=lr)
    for rows, gradients in steps:
        w.grad = torch.sparse_coo_tensor(torch.from_numpy(rows)[None], torch.from_numpy(gradients.copy()), w.shape).coalesce()
        optimizer.step()
    return w.detach().numpy()


def rowwise_adagrad(lr, w, steps):
    sums = np.zeros((len(w), 1))
    for rows, g in steps:
        sums[rows] += (g**2).mean(axis=1, keepdims=True)
        w[rows] -= lr * g / (np.sqrt(sums[rows]) + 1e-8)
    return w


def ftrl(lr, w, steps, beta=1.0, l1=0.001, l2=0.01):
    z, n = np.zeros_like(w), np.zeros_like(w)
    for rows, g in steps:
        c = (np.sqrt(n[rows] + g**2) - np.sqrt(n[rows])) / lr
        z[rows] += g - c * w[rows]
        n[rows] += g**2
        w[rows] = np.where(np.abs(z[rows]) <= l1, 0, -(z[rows] - np.sign(z[rows]) * l1) / ((beta + np.sqrt(n[rows])) / lr + l2))
    return w


def main():
    rule, lr, width, rows, steps, source, to = sys.argv[1:]
    lr, width, rows, steps = float(lr), int(width), int(rows), int(steps)
    data = np.fromfile(source, dtype=np.float32)
    values = data[: rows * width].reshape(rows, width)
    updates = list(steps_of(data[rows * width :], width, steps))
    torch_rules = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "adam": torch.optim.SparseAdam}
    if rule in torch_rules:
        result = in_torch(torch_rules[rule], lr, values, updates)
    else:
        wide = [(rows, gradients.astype(np.float64)) for rows, gradients in updates]
        result = {"rowwise-adagrad": rowwise_adagrad, "ftrl": ftrl}[rule](lr, values.astype(np.float64), wide)
    result.astype(np.float64).tofile(to)


main()
