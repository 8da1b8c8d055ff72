#pragma once

#include <psring/common/base/text/spec.h>
#include <psring/worker/model/model.h>

namespace psring::worker {

/// `conv:1x28x28-16c3-p2-32c3-r3-p2-d0.2-128-10`: a convolutional net for images, with cross-entropy. First come the
/// image's channels x height x width, then these words:
///
///   16c3   convolution to 16 channels with kernel 3 (odd), and ReLU
///   p2     the largest of each 2 x 2 pixels
///   r3     residual block with kernel 3: y = relu(x + conv(relu(conv(x))))
///   d0.2   dropout with this probability, not at the end
///   128    linear layer, with ReLU unless it is the last; behind it only linear layers and dropout
///
/// The tensors are `convs.<i>.weight` [out, in, kernel, kernel], `convs.<i>.bias`, `layers.<i>.weight` [out, in] and
/// `layers.<i>.bias`. A block is a convolution, a residual block or a linear layer, with the pooling and dropout after
/// it. Throws usage, naming --model and the word, if the text is something else.
Model make_conv_net(const Spec& spec);

}  // namespace psring::worker
