#!/usr/bin/env python3
"""GPT-2 in PyTorch, as psring trains it: the same sizes, AdamW, bf16, random tokens. Prints one JSON line.

    scripts/gpt_torch.py [--compile] [--parameters f32|bf16] [--layers 12 --dim 768 --heads 12 --context 1024
                        --vocab 50304] [--batch 32] [--steps 20] [--warm-up 5]

`--parameters f32`: autocast, the usual way; bf16: all in bf16, which is faster and learns less well. `attention` is the
backend that scaled_dot_product_attention chose.
"""

import argparse
import json
import re
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(dim)
        self.attn = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.ln_2 = nn.LayerNorm(dim)
        self.fc = nn.Linear(dim, 4 * dim)
        self.out = nn.Linear(4 * dim, dim)

    def forward(self, x):
        batch, context, dim = x.shape
        q, k, v = (
            part.view(batch, context, self.heads, dim // self.heads).transpose(1, 2)
            for part in self.attn(self.ln_1(x)).split(dim, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, context, dim))
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, dim, heads, context, vocab):
        super().__init__()
        self.wte = nn.Embedding(vocab, dim)
        self.wpe = nn.Embedding(context, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def attention_of(step):
    """Which of its attentions PyTorch chose, as its operators are named; from one step that is not timed."""
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            step()
        names = [event.key for event in profile.key_averages()]
    except Exception as error:  # the timing does not depend on it
        return f"unknown ({type(error).__name__})"
    found = sorted({match[1] for name in names if (match := re.search(r"_scaled_dot_product_(\w+?)_attention", name))})
    return " ".join(found) or "math"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("layers", 12), ("dim", 768), ("heads", 12), ("context", 1024), ("vocab", 50304),
                          ("batch", 32), ("steps", 20), ("warm-up", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--parameters", choices=["f32", "bf16"], default="f32")
    options = parser.parse_args()

    torch.manual_seed(7)
    torch.backends.cuda.matmul.allow_tf32 = True
    model = Gpt(options.layers, options.dim, options.heads, options.context, options.vocab).cuda()
    if options.parameters == "bf16":
        model = model.bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    run = torch.compile(model) if options.compile else model
    shape = (options.batch, options.context)
    ids = torch.randint(options.vocab, shape, device="cuda")
    targets = torch.randint(options.vocab, shape, device="cuda")

    def train():
        with torch.autocast("cuda", torch.bfloat16, enabled=options.parameters == "f32"):
            loss = run(ids, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        return loss

    times = []
    for step in range(options.warm_up + options.steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        loss = train()
        if step >= options.warm_up:
            times.append(time.perf_counter() - start)
    median = statistics.median(times)
    print(json.dumps({
        "torch": torch.__version__,
        "way": ("compile" if options.compile else "eager") + ", parameters " + options.parameters,
        "step_ms": round(1e3 * median, 3),
        "spread": round((max(times) - min(times)) / median, 3),
        "tokens_per_s": round(options.batch * options.context / median),
        "loss": round(loss.item(), 4),
        "attention": attention_of(train),
        "cuda": torch.version.cuda,
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
    }))


if __name__ == "__main__":
    main()
