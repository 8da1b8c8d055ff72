#pragma once

#include <memory>

#include <psring/optim/optimizer.h>

namespace psring::optim {

// The update rules, with PyTorch's formulas and defaults: w parameter, g gradient (times gradient_scale), t the
// update's count from 1, wd weight_decay. Arithmetic on elements is f32; each coefficient is computed in f64 once per
// call. Every `make_` function throws usage, naming the flag, if a value is out of range.

struct SgdOptions {
  double momentum = 0;  ///< 0: plain SGD without state
  bool nesterov = false;
  double weight_decay = 0;
};
/// g += wd w; plain: w -= lr g; momentum (b starts at 0): b = momentum b + g, w -= lr b;
/// Nesterov's: w -= lr (g + momentum b), which needs momentum > 0. Slots: 0, with momentum 1.
std::unique_ptr<Optimizer> make_sgd(const SgdOptions& options);

struct AdagradOptions {
  double eps = 1e-10;
  double weight_decay = 0;
};
/// g += wd w; s += g²; w -= lr g / (sqrt(s) + eps). Slots: 1. (Duchi et al., JMLR 2011.)
std::unique_ptr<Optimizer> make_adagrad(const AdagradOptions& options);

struct RmspropOptions {
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;
};
/// g += wd w; s = alpha s + (1 - alpha) g²; w -= lr g / (sqrt(s) + eps). Slots: 1. (Hinton, lecture 6e, 2012.)
std::unique_ptr<Optimizer> make_rmsprop(const RmspropOptions& options);

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
};
/// g += wd w; m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g²;
/// w -= lr m^ / (sqrt(v^) + eps) with m^ = m / (1 - beta1^t), v^ = v / (1 - beta2^t).
/// Slots: m, v. (Kingma and Ba, ICLR 2015.)
std::unique_ptr<Optimizer> make_adam(const AdamOptions& options);
/// Adam with decoupled weight decay, which is applied to the parameters instead of the gradient: first w *= 1 - lr wd.
/// (Loshchilov and Hutter, ICLR 2019; the default weight_decay is 0.01 in PyTorch.)
std::unique_ptr<Optimizer> make_adamw(const AdamOptions& options);
/// AdamW whose moments are kept in 8 bits (block_codes.h). An update computes in f32 with the moments that were read,
/// and rounds them when they are stored; so the step itself uses the unrounded moments. (Dettmers et al., ICLR 2022.)
std::unique_ptr<Optimizer> make_adamw_8bit(const AdamOptions& options);
/// The direction r = m^ / (sqrt(v^) + eps) + wd w, scaled for each tensor by ||w|| / ||r|| (updater.h): a layerwise
/// rule. Usual eps: 1e-6. (You et al., ICLR 2020, algorithm 2.)
std::unique_ptr<Optimizer> make_lamb(const AdamOptions& options);

}  // namespace psring::optim
