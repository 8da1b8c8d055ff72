#pragma once

#include <psring/common/base/text/spec.h>
#include <psring/worker/model/model.h>
#include <psring/worker/model/parallel/tensor_part.h>

namespace psring::worker {

/// `mlp:784-512-512-10`: linear layers with ReLU between them, and cross-entropy. The tensors are `layers.<i>.weight`
/// [out, in] and `layers.<i>.bias`. A word such as `d0.2` after a width is dropout with this probability
/// (`mlp:784-512-d0.2-10`). Throws usage, naming --model, unless the widths are a list of at least two whole numbers
/// > 0.
Model make_mlp(const Spec& spec);

/// `mse-mlp:8-64-64-1`: the same layers for real targets, as many as the last width; the loss is the mean square of the
/// error.
Model make_mse_mlp(const Spec& spec);

/// `bn-mlp:784-512-512-10`: the same with batch norm before each ReLU. The tensors are `layers.<i>.weight`,
/// `norms.<i>.weight`, `norms.<i>.bias`, and `layers.<i>.bias` of the last linear layer only, because batch norm would
/// cancel any other bias. The buffers are BatchNorm's, `norms.<i>.running_mean` ... A block is a linear layer and its
/// norm. Throws usage like make_mlp.
Model make_bn_mlp(const Spec& spec);

/// `gelu-mlp:dim=1024,layers=4`: square linear layers without bias, GELU after each layer; the loss is the mean square
/// of the output. The tensors are `layers.<i>.weight`; a block is a linear layer and its GELU. Throws usage like
/// make_mlp.
Model make_gelu_mlp(const Spec& spec);

// The same models for one rank of a tensor-parallel group. Layers 2i and 2i + 1 are a pair: the first cuts its outputs,
// the second its inputs, so that the width between them is divided, unevenly by one where it is not divisible. With an
// odd number of linear layers the last one is whole, and the same at all ranks. A part draws the dropout that the whole
// model draws. Throws usage, too, if a width that is divided has fewer columns than there are parts.
Model make_mlp(const Spec& spec, const TensorPart& part);
Model make_mse_mlp(const Spec& spec, const TensorPart& part);
Model make_gelu_mlp(const Spec& spec, const TensorPart& part);

}  // namespace psring::worker
