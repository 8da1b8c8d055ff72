#pragma once

#include <cstddef>

#include <psring/common/base/spec.h>
#include <psring/worker/model/gpt_layers.h>
#include <psring/worker/model/model.h>

namespace psring::worker {

/// `gpt:layers=6,dim=384,heads=6,context=256,vocab=256`, these being the defaults: a GPT-2 (pre-LN, GELU's tanh
/// form, learned positions, head tied to wte, no dropout). The keys' meaning is GptShape's.
/// Throws usage where a key is unknown dim is not divisible by heads, or vocab is above kMostTokens.
GptShape parse_gpt(const Spec& spec);

/// Layers: the embedding; two a block, attention and MLP; the head; cross-entropy over the tokens. `blocks` has
/// the embedding, each transformer block and the head. wte is a tensor of both the embedding and the head.
/// Throws usage as parse_gpt does.
Model make_gpt(const Spec& spec);

}  // namespace psring::worker
