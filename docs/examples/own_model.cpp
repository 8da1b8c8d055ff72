// A program with a layer and a model of its own, and with all subcommands of psring:
//   ./own_model compare --strategies single,ps --model square:width=64 --data fashion-mnist --steps 50
#include <memory>

#include <psring/cli/app.h>
#include <psring/worker/model/layers/linear.h>
#include <psring/worker/model/loss.h>

using namespace psring::worker;

struct Square final : Layer {  // y = x^2
  void forward(const Forward& pass) const override {
    for (std::size_t i = 0; i < pass.x.size(); ++i) pass.y.data[i] = pass.x.data[i] * pass.x.data[i];
  }
  void backward(const Backward& pass) const override {
    if (pass.dx.data == nullptr) return;  // the first layer: no layer before it needs dx
    for (std::size_t i = 0; i < pass.dx.size(); ++i) pass.dx.data[i] = 2 * pass.x.data[i] * pass.dy.data[i];
  }
};

std::unique_ptr<Model> make_square(const psring::Spec& spec) {
  spec.allow_only({"width"});
  const std::size_t width = spec.positive("width", 64);
  auto model = std::make_unique<Model>();
  model->name = spec.text();
  model->input_cols = 784;
  model->classes = 10;
  model->loss = make_cross_entropy();
  model->layers.push_back(std::make_unique<Linear>("layers.0", model->input_cols, width, Linear::Options{}));
  model->layers.push_back(std::make_unique<Square>());
  model->layers.push_back(std::make_unique<Linear>("layers.1", width, model->classes, Linear::Options{}));
  return model;
}

int main(int argc, char** argv) {
  psring::App app;
  app.models().add("square", "square:width=64: squares between two linear layers", make_square);
  return app.run(argc, argv);
}
