#include <cmath>

#include <catch2/catch.hpp>

#include <psring/optim/schedule.h>
#include <psring/tests/support/values.h>

using namespace psring;
using namespace psring::optim;
using Catch::Contains;

namespace {

std::unique_ptr<Schedule> schedule(const char* text, std::uint64_t steps = 100) {
  return make_schedule(Spec::parse("--lr-schedule", text), steps);
}

std::string error(const char* text, std::uint64_t steps = 100) {
  return test::error_of(ErrorKind::usage, [&] { schedule(text, steps); });
}

}  // namespace

TEST_CASE("a constant rate, warmed up or not") {
  const auto plain = schedule("constant");
  CHECK(plain->lr(0.1, 0) == 0.1F);
  CHECK(plain->lr(0.1, 1000000) == 0.1F);
  CHECK(schedule("constant:warmup=0")->factor(0) == 1);
  const auto warmed = schedule("constant:warmup=4");
  CHECK(warmed->factor(0) == 0.25);
  CHECK(warmed->factor(2) == 0.75);
  CHECK(warmed->factor(3) == 1);
  CHECK(warmed->factor(4) == 1);
}

TEST_CASE("a rate that falls in steps") {
  const auto s = schedule("step:every=10,gamma=0.5");
  CHECK(s->factor(0) == 1);
  CHECK(s->factor(9) == 1);
  CHECK(s->factor(10) == 0.5);
  CHECK(s->factor(39) == 0.125);
  CHECK(s->lr(0.2, 20) == 0.05F);
  CHECK(schedule("step:every=10")->factor(10) == 0.1);
}

TEST_CASE("a cosine over the run, warmed up, to its least rate") {
  const auto plain = schedule("cosine");
  CHECK(plain->factor(0) == 1);
  CHECK(plain->factor(25) == Approx(0.5 + 0.5 * std::sqrt(0.5)));
  CHECK(plain->factor(50) == Approx(0.5));
  CHECK(plain->factor(100) == 0);
  CHECK(plain->factor(500) == 0);
  const auto full = schedule("cosine:warmup=20,min=0.1");
  CHECK(full->factor(0) == 0.05);
  CHECK(full->factor(19) == 1);
  CHECK(full->factor(20) == 1);
  CHECK(full->factor(60) == Approx(0.55));
  CHECK(full->factor(100) == Approx(0.1));
  CHECK(full->factor(101) == 0.1);
  CHECK(schedule("cosine:warmup=100")->factor(99) == 1);
  CHECK(schedule("cosine", 0)->factor(0) == 0);
}

TEST_CASE("a schedule that makes no sense is a usage error that names the flag") {
  CHECK_THAT(error("linear"), Contains("--lr-schedule") && Contains("'linear'") && Contains("constant, cosine, step"));
  CHECK_THAT(error("constant:gamma=2"), Contains("--lr-schedule") && Contains("'gamma'") && Contains("warmup"));
  CHECK_THAT(error("cosine:every=2"), Contains("'every'"));
  CHECK_THAT(error("step:every=2,warmup=3"), Contains("'warmup'"));
  CHECK_THAT(error("cosine:10"), Contains("KEY=VALUE"));
  CHECK_THAT(error("constant:"), Contains("KEY=VALUE"));
  CHECK_THAT(error("step"), Contains("every=N"));
  CHECK_THAT(error("step:gamma=0.1"), Contains("every=N"));
  CHECK_THAT(error("step:every=0"), Contains("every"));
  CHECK_THAT(error("step:every=5,gamma=0"), Contains("gamma"));
  CHECK_THAT(error("step:every=5,gamma=nan"), Contains("gamma"));
  CHECK_THAT(error("cosine:min=1.5"), Contains("min"));
  CHECK_THAT(error("cosine:min=x"), Contains("min"));
  CHECK_THAT(error("cosine:warmup=-1"), Contains("warmup"));
  CHECK_THAT(error("cosine:warmup=101"), Contains("warmup") && Contains("100"));
}
