"""A GPT on the bytes of a text, sharded among the workers (ZeRO stage 3, FSDP); a block is a unit.

python -m psring.run --nproc 2 gpt_sharded.py TEXT [STEPS]
"""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import psring.torch

WIDTH, HEADS, LAYERS, CONTEXT = 128, 4, 4, 64


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(
                    WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
                )
                for _ in range(LAYERS)
            )
        )
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256, bias=False)
        self.head.weight = self.tokens.weight
        self.register_buffer("mask", torch.full((CONTEXT, CONTEXT), float("-inf")).triu(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.tokens(x) + self.places.weight
        for block in self.blocks:
            x = block(x, self.mask)
        return self.head(self.norm(x)).transpose(1, 2)


def block(module: nn.Module, recurse: bool, unwrapped_params: int) -> bool:
    return recurse or isinstance(module, nn.TransformerEncoderLayer)


dist.init_process_group("psring")
rank = dist.get_rank()
text = torch.frombuffer(bytearray(open(sys.argv[1], "rb").read()), dtype=torch.uint8).long()
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 200
torch.manual_seed(0)
model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model = psring.torch.Sharded(model, optimizer, stage=3, auto_wrap_policy=block)

draw = torch.Generator().manual_seed(rank)
for step in range(steps):
    starts = torch.randint(len(text) - CONTEXT, (16,), generator=draw)
    lines = torch.stack([text[at : at + CONTEXT + 1] for at in starts])
    loss = F.cross_entropy(model(lines[:, :-1]), lines[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    model.clip_grad_norm_(1.0)
    optimizer.step()
    if rank == 0 and step % 20 == 0:
        print(f"step {step}: loss {loss.item():.3f}", flush=True)
state = model.module.state_dict()  # of the whole model, on all workers
if rank == 0:
    torch.save(state, "gpt.pt")
