// Exercise 14: these stages run forward only. README.md has the text; psring check 14 marks this file.
#include <psring/cli/check/exercise.h>

using psring::exercise::Stage;

void pipeline_step(Stage& stage) {
  const bool first = stage.stage() == 0;
  const bool last = stage.stage() + 1 == stage.stages();
  for (std::size_t m = 0; m < stage.micro_batches(); ++m) {
    const std::span<float> input = stage.input(m);
    if (!first) stage.recv(stage.stage() - 1, input);
    const std::span<const float> activation = stage.forward(m);
    if (!last) stage.send(stage.stage() + 1, activation);
  }
}
