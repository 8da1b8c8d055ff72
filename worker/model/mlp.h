#pragma once

#include <psring/common/base/spec.h>
#include <psring/worker/model/model.h>

namespace psring::worker {

/// `mlp:784-512-512-10`: linear layers with ReLU between them, cross-entropy. Tensors `layers.<i>.weight`
/// [out, in] and `layers.<i>.bias`. Throws usage, naming --model, where the widths are no list of at least two
/// whole numbers > 0.
Model make_mlp(const Spec& spec);

/// `bn-mlp:784-512-512-10`: the same with batch norm before each ReLU. Tensors `layers.<i>.weight`, `norms.<i>.weight`,
/// `norms.<i>.bias` and, of the last linear layer alone, `layers.<i>.bias`: batch norm would take any other away.
/// Buffers as BatchNorm's, `norms.<i>.running_mean` ... A block is a linear layer and its norm. Throws usage as above.
Model make_bn_mlp(const Spec& spec);

/// `gelu-mlp:dim=1024,layers=4`: square linear layers without bias, GELU after each, the mean square of the output
/// as the loss. Tensors `layers.<i>.weight`; a block is a linear layer and its GELU. Throws usage as above.
Model make_gelu_mlp(const Spec& spec);

}  // namespace psring::worker
