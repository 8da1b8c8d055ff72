"""A recommender: most of its parameters are embeddings, which live at the servers.

python -m psring.run --nproc 2 recommender_ps.py [STEPS]
"""

import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

import psring.torch

USERS, ITEMS, WIDTH = 20000, 5000, 32


class Recommender(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(USERS, WIDTH), nn.Embedding(ITEMS, WIDTH)
        self.score = nn.Sequential(nn.Linear(2 * WIDTH, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, user: torch.Tensor, item: torch.Tensor) -> torch.Tensor:
        return self.score(torch.cat([self.user(user), self.item(item)], 1)).squeeze(1)


rank = int(os.environ["RANK"])
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200
torch.manual_seed(0)
taste = torch.randn(ITEMS)  # what everybody likes, to be learnt
model = Recommender()
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
model = psring.torch.ParameterServer(model, optimizer, servers=2)

draw = torch.Generator().manual_seed(rank)
for step in range(steps):
    user = torch.randint(USERS, (512,), generator=draw)
    item = torch.randint(ITEMS, (512,), generator=draw)
    loss = F.mse_loss(model(user, item), taste[item])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0 and step % 50 == 0:
        print(f"step {step}: loss {loss.item():.3f}", flush=True)
if rank == 0:
    print(f"last loss {loss.item():.3f}")
model.close()
