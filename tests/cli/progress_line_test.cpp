// The line that shows how far a run is: in every width the step and the time left are on it.
#include <catch2/catch.hpp>

#include <psring/cli/train/progress_line.h>

using namespace psring::cli;
using Catch::Contains;
using Catch::EndsWith;

namespace {

const RunProgress kRun{.step = 1200, .steps = 4000, .loss = 0.5653, .samples_per_second = 20903, .seconds_left = 45};

}  // namespace

TEST_CASE("the time left, in the unit that fits") {
  CHECK(duration_text(0) == "0 s");
  CHECK(duration_text(89) == "89 s");
  CHECK(duration_text(90) == "2 min");
  CHECK(duration_text(3600) == "60 min");
  CHECK(duration_text(3 * 3600 + 20 * 60) == "3 h 20 min");
}

TEST_CASE("in 80 columns there is all of it") {
  CHECK(terminal_line("ps", kRun, 79) ==
        "ps [##.......] step 1200/4000  loss 0.5653  20903 samples/s a worker  45 s left");
  CHECK(plain_line("ps", kRun) == "ps step 1200/4000  loss 0.5653  20903 samples/s a worker  45 s left");
}

TEST_CASE("a text model shows its perplexity, and tokens") {
  RunProgress text = kRun;
  text.loss = 2;
  text.tokens_per_second = 64000;
  CHECK(plain_line("ps", text) == "ps step 1200/4000  loss 2.0000  perplexity 7.4  64000 tokens/s a worker  45 s left");
  CHECK(terminal_line("ps", text, 79) ==
        "ps [###.......] step 1200/4000  loss 2.0000  64000 tokens/s a worker  45 s left");
  text.loss.reset();
  CHECK_THAT(plain_line("ps", text), !Contains("perplexity"));
}

TEST_CASE("a wide terminal has the whole bar, and no more") {
  CHECK_THAT(terminal_line("ps", kRun, 200), Contains("[#######.................] step"));
}

TEST_CASE("every width shows the step and the time left") {
  RunProgress large = kRun;
  large.steps = 100'000'000;
  large.seconds_left = 987654;
  for (const std::string label :
       {"ps", "ps-colocated n=128 s=128 reshard-after-forward=off", "checking bits: single with 2 virtual workers"})
    for (std::size_t columns = 45; columns < 160; ++columns) {
      const std::string line = terminal_line(label, large, columns);
      INFO(line);
      CHECK(line.size() <= columns);
      CHECK_THAT(line, Contains("step 1200/100000000") && EndsWith("  274 h 21 min left"));
    }
  CHECK(terminal_line("ps", kRun, 5).size() == 5);
}

TEST_CASE("a run that evaluates says how far it is, and not how fast it trains") {
  RunProgress evaluates = kRun;
  evaluates.evaluated = 0.4;
  CHECK(plain_line("ps", evaluates) == "ps step 1200/4000  evaluated 40 %  45 s left");
  CHECK_THAT(terminal_line("ps", evaluates, 80), Contains("evaluated 40 %") && !Contains("loss"));
}
