"""An independent MLP in NumPy, f64: loss and gradients of one batch.

usage: mlp_reference.py MODEL WIDTHS BATCH INPUT OUTPUT
  MODEL   relu (ReLU between layers, biases, mean cross-entropy) or gelu (no biases, tanh GELU after each layer,
          mean square of the output)
  INPUT   raw little-endian f32: for each layer W [out, in], then b [out] where there is one; x [batch, in];
          for relu the targets [batch] as f32
  OUTPUT  raw f32: the loss, then the gradients in the order of the parameters
"""
import sys

try:
    import numpy as np
except ImportError:
    print("SKIPPED: python3 has no NumPy")
    sys.exit(77)


def gelu(x):
    u = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    t = np.tanh(u)
    du = np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x**2)
    return 0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t**2) * du


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
    for fan_in, fan_out in zip(widths, widths[1:]):
        weight = take(fan_out, fan_in)
        layers.append((weight, take(fan_out) if model == "relu" else np.zeros(fan_out)))
    inputs, slopes = [take(batch, widths[0])], []
    for i, (weight, bias) in enumerate(layers):
        z = np.einsum("bi,oi->bo", inputs[-1], weight) + bias
        if model == "gelu":
            y, slope = gelu(z)
        elif i + 1 < len(layers):
            y, slope = np.where(z > 0, z, 0.0), (z > 0).astype(np.float64)
        else:
            y, slope = z, np.ones_like(z)
        inputs.append(y)
        slopes.append(slope)
    y = inputs[-1]
    if model == "relu":
        targets = take(batch).astype(np.int64)
        p = np.exp(y - np.log(np.sum(np.exp(y), axis=1, keepdims=True)))
        loss = -np.mean(np.log(p[np.arange(batch), targets]))
        dy = (p - np.eye(widths[-1])[targets]) / batch
    else:
        loss = np.mean(y**2)
        dy = 2 * y / y.size
    gradients = []
    for (weight, _), x, slope in zip(layers[::-1], inputs[-2::-1], slopes[::-1]):
        dz = dy * slope
        if model == "relu":
            gradients.append(dz.sum(axis=0))
        gradients.append(np.einsum("bo,bi->oi", dz, x))
        dy = np.einsum("bo,oi->bi", dz, weight)
    flat = np.concatenate([np.array([loss])] + [g.ravel() for g in gradients[::-1]])
    flat.astype("<f4").tofile(sys.argv[5])


if __name__ == "__main__":
    main()
