#pragma once

#include <psring/common/base/text/spec.h>
#include <psring/worker/model/layers/gpt_layers.h>
#include <psring/worker/model/model.h>
#include <psring/worker/model/parallel/tensor_part.h>

namespace psring::worker {

/// Parses `gpt:layers=6,dim=384,heads=6,context=256,vocab=256` (these are the defaults): a GPT-2 with pre-LN, GELU's
/// tanh form, learned positions, a head tied to wte, and no dropout. The keys are the fields of GptShape. Throws usage
/// if a key is unknown, dim is not divisible by heads, or vocab is above kMostTokens.
GptShape parse_gpt(const Spec& spec);

/// Makes the model. Its layers are the embedding; attention and MLP of each block; the head; the loss is cross-entropy
/// over the tokens. `blocks` contains the embedding, each transformer block and the head. The embedding and the head
/// share the tensor wte. Throws usage like parse_gpt.
Model make_gpt(const Spec& spec);

/// The same model for one rank of a tensor-parallel group, with the part's heads, hidden columns and tokens. The
/// vocabulary may be any number of tokens; parts may then differ by one. Throws usage, too, if the heads are not
/// divisible by the parts.
Model make_gpt(const Spec& spec, const TensorPart& part);

}  // namespace psring::worker
