// Names and keys on the command line that do not exist: the flag, what was given, what is known.
#include <catch2/catch.hpp>

#include <psring/optim/optimizers.h>
#include <psring/tests/support/values.h>
#include <psring/worker/training.h>

using namespace psring;
using Catch::Contains;

namespace {

std::string refusal(const std::function<void(JobOptions&)>& spoil, ErrorKind kind = ErrorKind::usage) {
  JobOptions job;
  job.model = "mlp:4-3";
  job.data = "synthetic:samples=20";
  job.global_batch = 2;
  worker::Registries registries;
  worker::register_builtins(registries);
  optim::OptimizerRegistry optimizers;
  optim::register_builtin_optimizers(optimizers);
  const worker::TrainSetup valid(job, registries, optimizers);  // so that it is `spoil` that is refused
  spoil(job);
  return test::error_of(kind, [&] { const worker::TrainSetup setup(job, registries, optimizers); });
}

}  // namespace

TEST_CASE("unknown names are usage errors with the flag and the known names") {
  CHECK(refusal([](JobOptions& job) { job.strategy = "psx"; }) ==
        "--strategy: unknown name 'psx'; known: ddp, ddp-naive, dp, fsdp, hybrid, hybrid-async, hybrid-colocated, ps, "
        "ps-async, "
        "ps-colocated, ps-ssp, ps-zero2, ps-zero3, single, zero1, zero2, zero3");
  CHECK(refusal([](JobOptions& job) { job.model = "mpl:4-3"; }) ==
        "--model: unknown name 'mpl'; known: bn-mlp, conv, dlrm, fm, gelu-mlp, gpt, mf, mlp, mse-mlp, skip-gram, "
        "two-tower");
  CHECK(refusal([](JobOptions& job) { job.data = "minst"; }) ==
        "--data: unknown name 'minst'; known: criteo, criteo-like, csv, debian, fashion-mnist, idx, pairs, skip-gram, "
        "synthetic, text, tokens");
  CHECK(refusal([](JobOptions& job) { job.optimizer = "adan"; }) ==
        "--optimizer: unknown name 'adan'; known: adagrad, adam, adamw, adamw-8bit, lamb, momentum, rmsprop, sgd");
  CHECK_THAT(refusal([](JobOptions& job) { job.schedule = "linear"; }),
             Contains("--schedule") && Contains("linear") && Contains("cosine"));
  CHECK_THAT(refusal([](JobOptions& job) { job.units = "tensor"; }), Contains("--units") && Contains("tensor"));
}

TEST_CASE("unknown keys are usage errors with the flag, the key and the known keys") {
  CHECK_THAT(refusal([](JobOptions& job) { job.model = "gpt:layer=2"; }),
             Contains("--model") && Contains("'layer'") && Contains("layers"));
  CHECK_THAT(refusal([](JobOptions& job) { job.model = "gelu-mlp:width=4"; }),
             Contains("--model") && Contains("'width'") && Contains("dim"));
  CHECK_THAT(refusal([](JobOptions& job) { job.data = "synthetic:sample=4"; }),
             Contains("--data") && Contains("'sample'") && Contains("samples"));
  CHECK_THAT(refusal([](JobOptions& job) { job.schedule = "cosine:warm=4"; }),
             Contains("--schedule") && Contains("'warm'"));
  CHECK_THAT(refusal([](JobOptions& job) { job.optimizer = "adam:lr=1"; }),
             Contains("--optimizer") && Contains("flags"));
}

TEST_CASE("values that cannot be are named with their flag") {
  CHECK_THAT(refusal([](JobOptions& job) { job.model = "mlp:4-0-3"; }), Contains("--model") && Contains("'0'"));
  CHECK_THAT(refusal([](JobOptions& job) { job.model = ""; }), Contains("--model"));
  CHECK_THAT(refusal([](JobOptions& job) { job.model = "gpt:dim=10,heads=3"; }),
             Contains("--model") && Contains("heads"));
  CHECK_THAT(refusal([](JobOptions& job) { job.beta1 = 0.9; }), Contains("--betas") && Contains("sgd"));
  CHECK_THAT(refusal([](JobOptions& job) { job.momentum = -1; }), Contains("--momentum"));
  CHECK_THAT(refusal([](JobOptions& job) { job.data = "idx:/nowhere"; }, ErrorKind::data), Contains("/nowhere"));
  CHECK_THAT(refusal([](JobOptions& job) { job.init = "/nowhere"; }, ErrorKind::data), Contains("/nowhere"));
}

TEST_CASE("a name can be registered once, and a user's stands with the built-in ones") {
  Registry<int> registry;
  const auto one = [](const Spec&) { return std::make_unique<int>(1); };
  registry.add("b", "second", one);
  registry.add("a", "first", one);
  CHECK(registry.names() == "a, b");
  CHECK(registry.contains("a"));
  CHECK_FALSE(registry.contains("c"));
  CHECK(*registry.make(Spec::parse("--x", "b:k=1")) == 1);
  CHECK_THAT(registry.help(), Contains("a                first\nb"));
  CHECK_THAT(test::error_of(ErrorKind::bug, [&] { registry.add("a", "again", one); }), Contains("'a'"));
}
