"""Logits of a GPT-2 from a safetensors file: in PyTorch if it is installed, else in NumPy (f64).

    gpt_logits.py MODEL.safetensors HEADS TOKENS OUT

TOKENS are numbers separated by commas; OUT gets the logits of every position as f32, [tokens, vocab]. Prints the name of
the library. Exit status 77: neither library is there.
"""

import json
import struct
import sys

try:
    import numpy as np
except ImportError:
    sys.exit(77)
try:
    import torch
    import torch.nn.functional as F
except ImportError:
    torch = None


def read_tensors(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            tensors[name] = np.frombuffer(data[begin:end], dtype="<f4").reshape(entry["shape"])
    return tensors


def logits_torch(t, heads, ids):
    t = {name: torch.from_numpy(np.array(values)) for name, values in t.items()}
    n, dim = len(ids), t["wte.weight"].shape[1]
    x = t["wte.weight"][torch.tensor(ids)] + t["wpe.weight"][:n]
    mask = torch.full((n, n), float("-inf")).triu(1)
    for i in range(sum(name.endswith(".ln_1.weight") for name in t)):
        h = {name[len(f"h.{i}."):]: values for name, values in t.items() if name.startswith(f"h.{i}.")}
        y = F.layer_norm(x, (dim,), h["ln_1.weight"], h["ln_1.bias"])
        qkv = y @ h["attn.c_attn.weight"] + h["attn.c_attn.bias"]
        q, k, v = (part.view(n, heads, dim // heads).transpose(0, 1) for part in qkv.split(dim, dim=1))
        weights = torch.softmax(q @ k.transpose(1, 2) / (dim // heads) ** 0.5 + mask, dim=2)
        y = (weights @ v).transpose(0, 1).reshape(n, dim)
        x = x + y @ h["attn.c_proj.weight"] + h["attn.c_proj.bias"]
        y = F.layer_norm(x, (dim,), h["ln_2.weight"], h["ln_2.bias"])
        y = F.gelu(y @ h["mlp.c_fc.weight"] + h["mlp.c_fc.bias"], approximate="tanh")
        x = x + y @ h["mlp.c_proj.weight"] + h["mlp.c_proj.bias"]
    return (F.layer_norm(x, (dim,), t["ln_f.weight"], t["ln_f.bias"]) @ t["wte.weight"].T).numpy()


def logits_numpy(t, heads, ids):
    t = {name: values.astype(np.float64) for name, values in t.items()}
    n, dim = len(ids), t["wte.weight"].shape[1]

    def norm(x, name):
        mean, variance = x.mean(axis=1, keepdims=True), x.var(axis=1, keepdims=True)
        return (x - mean) / np.sqrt(variance + 1e-5) * t[name + ".weight"] + t[name + ".bias"]

    def linear(x, name):
        return x @ t[name + ".weight"] + t[name + ".bias"]

    x = t["wte.weight"][ids] + t["wpe.weight"][:n]
    for i in range(sum(name.endswith(".ln_1.weight") for name in t)):
        qkv = linear(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn")
        q, k, v = (part.reshape(n, heads, -1).transpose(1, 0, 2) for part in np.split(qkv, 3, axis=1))
        scores = q @ k.transpose(0, 2, 1) / (dim // heads) ** 0.5 + np.triu(np.full((n, n), -np.inf), 1)
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        weights /= weights.sum(axis=2, keepdims=True)
        x = x + linear((weights @ v).transpose(1, 0, 2).reshape(n, dim), f"h.{i}.attn.c_proj")
        y = linear(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc")
        y = 0.5 * y * (1 + np.tanh((2 / np.pi) ** 0.5 * (y + 0.044715 * y**3)))
        x = x + linear(y, f"h.{i}.mlp.c_proj")
    return norm(x, "ln_f") @ t["wte.weight"].T


def main():
    path, heads, ids, out = sys.argv[1:]
    tensors, ids = read_tensors(path), [int(token) for token in ids.split(",")]
    compute = logits_numpy if torch is None else logits_torch
    compute(tensors, int(heads), ids).astype("<f4").tofile(out)
    print("NumPy" if torch is None else f"PyTorch {torch.__version__}")


if __name__ == "__main__":
    main()
