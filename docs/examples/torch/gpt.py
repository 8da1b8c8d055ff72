"""A small GPT on bytes, for gpt_ps.py and gpt_sharded.py; a block is a unit."""

import torch
from torch import nn

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


def read(path: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(open(path, "rb").read()), dtype=torch.uint8).long()


def batch(text: torch.Tensor, draw: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    starts = torch.randint(len(text) - CONTEXT, (16,), generator=draw)
    lines = torch.stack([text[at : at + CONTEXT + 1] for at in starts])
    return lines[:, :-1], lines[:, 1:]
