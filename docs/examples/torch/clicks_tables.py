"""Clicks on ads: embeddings of any 64-bit keys, whose rows live at servers, beside a linear layer under DDP:

python -m psring.run --nproc 2 clicks_tables.py [STEPS]
"""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import psring.torch

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200
dist.init_process_group("psring")
torch.manual_seed(0)
tables = psring.torch.Tables(servers=2, optimizer=psring.torch.RowWiseAdagrad(lr=0.05))


class Clicks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ads = tables.EmbeddingBag("ads", 16, mode="sum")  # as nn.EmbeddingBag, for any int64
        self.user = tables.Embedding("user", 16, padding_idx=0)
        self.score = nn.Linear(32, 1)

    def forward(self, ads: torch.Tensor, offsets: torch.Tensor, user: torch.Tensor) -> torch.Tensor:
        return self.score(torch.cat([self.ads(ads, offsets), self.user(user)], 1)).squeeze(1)


model = nn.parallel.DistributedDataParallel(Clicks())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
tables.attach(optimizer)

draw = torch.Generator().manual_seed(dist.get_rank())
for step in range(steps):
    lengths = torch.randint(1, 4, (256,), generator=draw)
    ads = torch.randint(1000, (int(lengths.sum()),), generator=draw) * 0x1234567891  # keys need not be small
    user = torch.randint(1, 2000, (256,), generator=draw)
    clicked = (user % 3 == 0).float()  # what is to be learnt
    loss = F.binary_cross_entropy_with_logits(model(ads, lengths.cumsum(0) - lengths, user), clicked)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 0 and step % 50 == 0:
        print(f"step {step}: loss {loss.item():.3f}", flush=True)
if dist.get_rank() == 0:
    print(f"last loss {loss.item():.3f}, {len(tables.state_dict()['ads.keys'])} ads")
tables.close()
