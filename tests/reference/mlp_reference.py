"""An independent MLP in NumPy, f64: loss and gradients of one batch.

usage: mlp_reference.py MODEL WIDTHS BATCH INPUT OUTPUT
  MODEL   relu (ReLU between layers, biases, mean cross-entropy), bn (the same with batch norm before each ReLU, and
          a bias in the last layer alone) or gelu (no biases, tanh GELU after each layer, mean square of the output)
  INPUT   raw little-endian f32: for each layer W [out, in], b [out] where there is one, batch norm's weight and bias
          [out] where there is one; x [batch, in]; for relu and bn the targets [batch] as f32
  OUTPUT  raw f32: the loss, then the gradients in the order of the parameters; for bn then each norm's running mean,
          running variance and count after this batch, and the loss that evaluation with them has
"""
import sys

try:
    import numpy as np
except ImportError:
    print("SKIPPED: python3 has no NumPy")
    sys.exit(77)

EPSILON, MOMENTUM = 1e-5, 0.1


def gelu(x):
    u = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    t = np.tanh(u)
    du = np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x**2)
    return 0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t**2) * du


def cross_entropy(y, targets):
    p = np.exp(y - np.log(np.sum(np.exp(y), axis=1, keepdims=True)))
    loss = -np.mean(np.log(p[np.arange(len(y)), targets]))
    return loss, (p - np.eye(y.shape[1])[targets]) / len(y)


def standardise_backward(dz_hat, z):
    """The gradient by z of sum(dz_hat * (z - mean(z)) / std(z)), through the whole Jacobian of each column."""
    n, dz = len(z), np.empty_like(z)
    for j in range(z.shape[1]):
        centred = z[:, j] - z[:, j].mean()
        s = np.sqrt(np.mean(centred**2) + EPSILON)
        jacobian = (np.eye(n) - 1 / n) / s - np.outer(centred, centred) / (n * s**3)
        dz[:, j] = jacobian.T @ dz_hat[:, j]
    return dz


def main():
    model, widths, batch = sys.argv[1], [int(w) for w in sys.argv[2].split("-")], int(sys.argv[3])
    values = np.fromfile(sys.argv[4], dtype="<f4").astype(np.float64)
    at = 0

    def take(*shape):
        nonlocal at
        n = int(np.prod(shape))
        at += n
        return values[at - n : at].reshape(shape)

    layers = []
    for i, (fan_in, fan_out) in enumerate(zip(widths, widths[1:])):
        last = i + 2 == len(widths)
        weight = take(fan_out, fan_in)
        bias = take(fan_out) if model == "relu" or (model == "bn" and last) else None
        norm = (take(fan_out), take(fan_out)) if model == "bn" and not last else None
        layers.append((weight, bias, norm))

    def forward(x, statistics):
        """The output, and of each layer its input, what goes into its norm, and its activation's slope."""
        steps = []
        for i, (weight, bias, norm) in enumerate(layers):
            z = np.einsum("bi,oi->bo", x, weight) + (0 if bias is None else bias)
            active = z
            if norm is not None:
                mean, variance = statistics(i, z)
                active = (z - mean) / np.sqrt(variance + EPSILON) * norm[0] + norm[1]
            if model == "gelu":
                y, slope = gelu(active)
            elif i + 1 < len(layers):
                y, slope = np.where(active > 0, active, 0.0), (active > 0).astype(np.float64)
            else:
                y, slope = active, np.ones_like(active)
            steps.append((x, z, slope))
            x = y
        return x, steps

    x = take(batch, widths[0])
    y, steps = forward(x, lambda _, z: (z.mean(axis=0), z.var(axis=0)))
    if model == "gelu":
        loss, dy = np.mean(y**2), 2 * y / y.size
    else:
        targets = take(batch).astype(np.int64)
        loss, dy = cross_entropy(y, targets)

    gradients = []
    for (weight, bias, norm), (x_in, z, slope) in zip(layers[::-1], steps[::-1]):
        dz = dy * slope
        if norm is not None:
            normal = (z - z.mean(axis=0)) / np.sqrt(z.var(axis=0) + EPSILON)
            gradients += [dz.sum(axis=0), (dz * normal).sum(axis=0)]
            dz = standardise_backward(dz * norm[0], z)
        if bias is not None:
            gradients.append(dz.sum(axis=0))
        gradients.append(np.einsum("bo,bi->oi", dz, x_in))
        dy = np.einsum("bo,oi->bi", dz, weight)

    after = []
    if model == "bn":
        running = []
        for _, z, _ in steps[:-1]:
            running.append((MOMENTUM * z.mean(axis=0), 1 - MOMENTUM + MOMENTUM * z.var(axis=0, ddof=1)))
            after += [*running[-1], np.array([1])]
        y, _ = forward(x, lambda i, _: running[i])
        after.append(np.array([cross_entropy(y, targets)[0]]))
    flat = np.concatenate([np.array([loss])] + [g.ravel() for g in gradients[::-1]] + after)
    flat.astype("<f4").tofile(sys.argv[5])


if __name__ == "__main__":
    main()
