// A program with a loss and a metric of its own, for the layers of mse-mlp:
//   ./own_loss train --strategy ps --workers 2 --servers 1 --model huber:8-32-1 --data synthetic --steps 300
#include <cmath>

#include <psring/cli/app.h>
#include <psring/worker/model/mlp.h>

using namespace psring::worker;

struct Huber final : Loss {  // of a row with one output: error^2 / 2 up to an error of 1, then linear
  LossResult evaluate(ConstMatrix y, const Targets& targets, float scale, Matrix dy) const override {
    LossResult result{.loss_sum = 0, .rows = y.rows};
    for (std::size_t i = 0; i < y.size(); ++i) {
      const float error = y.data[i] - targets.values.data[i];
      const float size = std::abs(error);
      result.loss_sum += static_cast<double>(size <= 1 ? error * error / 2 : size - 0.5F);
      if (dy.data != nullptr) dy.data[i] = scale * (size <= 1 ? error : std::copysign(1.0F, error));
    }
    return result;
  }
};

double absolute_errors(ConstMatrix y, const Targets& targets) {  // summary.json has their mean over all test rows
  double sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) sum += static_cast<double>(std::abs(y.data[i] - targets.values.data[i]));
  return sum;
}

int main(int argc, char** argv) {
  psring::App app;
  app.models().add("huber", "huber:8-32-1: an MLP with Huber's loss", [](const psring::Spec& spec) {
    auto model = std::make_unique<Model>(make_mse_mlp(spec));
    model->loss = std::make_unique<Huber>();
    model->metrics.push_back({"mae", absolute_errors});
    return model;
  });
  return app.run(argc, argv);
}
