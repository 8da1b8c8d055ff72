// A step taken apart by kernel, on a device that the host plays (support/cuda_on_host): its times say nothing, what it
// counts does.
#include <catch2/catch.hpp>

#include <psring/bench/gpu_step.h>

using namespace psring;

TEST_CASE("a step's kernels are counted, with what they read, write and compute") {
  const bench::GpuStepOptions options{.model = "gpt:layers=2,dim=64,heads=1,context=16,vocab=64",
                                      .batch = 2,
                                      .precision = "bf16",
                                      .steps = 2,
                                      .warm_up = 1};
  const auto device = make_cuda_device(0);
  const bench::GpuStep step = bench::measure_gpu_step(options, *device, 64);
  CHECK(step.copy_rate > 0);
  CHECK(step.matrix_rate > 0);
  CHECK(step.one_by_one_s > 0);
  CHECK(device->graphs_launched() > 0);
  CHECK(step.tokens_per_s == Approx(16 * step.samples_per_s));
  // Each of 2 layers has 4 products, and the head has one; backward has two for each of them.
  CHECK(step.kernels.at("product").calls == 3 * (2 * 4 + 1));
  const double rows = 2 * 16;
  CHECK(step.kernels.at("product").flops == 3 * 2 * rows * (2 * 12 * 64 * 64 + 64 * 64));
  CHECK(step.kernels.at("attention").calls == 2);
  CHECK(step.kernels.at("attention, backward").calls == 2);
  CHECK(step.kernels.at("layer norm").calls == 2 * (2 * 2 + 1));  // backward makes them again
  CHECK(step.kernels.at("loss").calls == 1);
  CHECK(step.kernels.at("loss").bytes == 2 * rows * 64 * 2);
  // A parameter of AdamW in 16 bit: gradient and copy, and the f32 copy and two moments read and written.
  CHECK(step.kernels.at("update").bytes / (2 + 2 + 3 * 8) >= 2 * 12 * 64 * 64);
  for (const auto& [name, kernel] : step.kernels) CHECK(kernel.seconds > 0);
  CHECK(step.codecs.size() == 2 * 5);
  for (const auto& [name, codec] : step.codecs) CHECK(codec.seconds > 0);
}
