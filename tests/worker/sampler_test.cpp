// Samplers: every worker's share of an epoch, with and without padding, and its order.
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/tests/support/values.h>
#include <psring/worker/data/sampler.h>

using namespace psring;
using namespace psring::worker;
using namespace psring::test;

TEST_CASE("an epoch covers every sample, workers apart but for the padding") {
  for (const std::size_t size : {1, 2, 7, 60, 61}) {
    for (const std::size_t workers : {1, 2, 3, 5}) {
      for (const bool shuffle : {false, true}) {
        Sampler sampler(size, 4 * workers, workers, 7, shuffle);
        sampler.begin_epoch(2);
        const std::size_t each = (size + workers - 1) / workers;
        std::map<std::uint32_t, std::size_t> times;
        for (std::size_t worker = 0; worker < workers; ++worker) {
          std::vector<std::uint32_t> list;
          for (std::size_t b = 0; b < sampler.batches(); ++b) {
            const auto batch = sampler.batch(worker, b);
            CHECK(batch.size() == std::min<std::size_t>(4, each - b * 4));
            list.insert(list.end(), batch.begin(), batch.end());
          }
          CHECK(list.size() == each);
          for (std::size_t k = 0; k < list.size(); ++k) {
            ++times[list[k]];
            if (!shuffle) CHECK(list[k] == (worker + k * workers) % size);
          }
        }
        CHECK(times.size() == size);  // all of them, and beyond once only what pads
        CHECK(times.rbegin()->first == size - 1);
        std::size_t extra = 0;
        for (const auto& [index, count] : times) extra += count - 1;
        CHECK(extra == each * workers - size);
        std::size_t read = 0;
        std::set<std::size_t> evaluated;
        for (std::size_t worker = 0; worker < workers; ++worker)
          for (std::size_t k = 0; k < evaluation_count(size, worker, workers); ++k, ++read)
            evaluated.insert(evaluation_sample(k, worker, workers));
        CHECK((read == size && evaluated.size() == size && *evaluated.rbegin() == size - 1));
      }
    }
  }
}

TEST_CASE("the order depends on seed and epoch alone") {
  const auto order = [](std::uint64_t seed, std::uint32_t epoch) {
    Sampler sampler(1000, 1000, 1, seed, true);
    sampler.begin_epoch(epoch + 1);
    sampler.begin_epoch(epoch);
    const auto list = sampler.batch(0, 0);
    return std::vector(list.begin(), list.end());
  };
  CHECK(order(7, 0) == order(7, 0));
  CHECK(order(7, 0) != order(7, 1));
  CHECK(order(7, 0) != order(8, 0));
  CHECK(order(7, 0) != order(7 + (std::uint64_t{1} << 32), 0));
  // The permutation is documented, so that others can reproduce it: it must not change.
  const auto first = permutation(10, CounterRng({.seed = 7, .purpose = Purpose::shuffle, .step = 1}));
  CHECK(first == std::vector<std::uint32_t>{0, 8, 2, 9, 4, 3, 1, 7, 6, 5});
}

TEST_CASE("the permutation is unbiased") {
  // All 24 orders of 4 by 24000 draws: chi-square with 23 degrees of freedom, 99.9 % below 49.7.
  std::map<std::vector<std::uint32_t>, int> counts;
  for (std::uint32_t e = 0; e < 24000; ++e)
    ++counts[permutation(4, CounterRng({.seed = 1, .purpose = Purpose::shuffle, .step = e}))];
  CHECK(counts.size() == 24);
  double chi = 0;
  for (const auto& [order, count] : counts) chi += (count - 1000.0) * (count - 1000.0) / 1000.0;
  CHECK(chi < 49.7);
}

TEST_CASE("a batch of n workers is one worker's batch at the global size") {
  for (const std::size_t workers : {2, 3, 5}) {
    Sampler one(60, 4 * workers, 1, 7, true);
    one.begin_epoch(4);
    Sampler many(60, 4 * workers, workers, 7, true);
    many.begin_epoch(4);
    for (std::size_t b = 0; b < many.batches(); ++b) {
      std::multiset<std::uint32_t> together;
      for (std::size_t worker = 0; worker < workers; ++worker)
        for (const std::uint32_t index : many.batch(worker, b)) together.insert(index);
      const auto batch = one.batch(0, b);
      CHECK(together == std::multiset<std::uint32_t>(batch.begin(), batch.end()));
    }
  }
}

TEST_CASE("without padding an epoch has every sample once, and a batch of n workers is one worker's to the end") {
  for (const std::size_t size : {1, 2, 7, 36, 37, 60, 61}) {
    for (const std::size_t workers : {1, 2, 3, 5}) {
      Sampler one(size, 4 * workers, 1, 7, true);
      one.begin_epoch(4);
      Sampler many(size, 4 * workers, workers, 7, true, Sampler::Padding::none);
      many.begin_epoch(4);
      CHECK(many.batches() == one.batches());
      for (std::size_t b = 0; b < many.batches(); ++b) {
        std::multiset<std::uint32_t> together;
        for (std::size_t worker = 0; worker < workers; ++worker) {
          const auto batch = many.batch(worker, b);
          CHECK(batch.size() <= many.batch(0, b).size());
          together.insert(batch.begin(), batch.end());
        }
        const auto batch = one.batch(0, b);
        CHECK(together == std::multiset<std::uint32_t>(batch.begin(), batch.end()));
        CHECK(many.mean_batch_size(b) == static_cast<double>(batch.size()) / static_cast<double>(workers));
      }
    }
  }
  Sampler uneven(37, 6, 3, 7, true, Sampler::Padding::none);
  uneven.begin_epoch(0);
  CHECK(uneven.batch(0, 6).size() == 1);
  CHECK(uneven.batch(1, 6).empty());
  CHECK(uneven.batch(2, 5).size() == 2);
}

TEST_CASE("a global batch that workers cannot share evenly is the same samples all the same") {
  for (const std::size_t size : {1, 15, 16, 17, 60, 61}) {
    Sampler one(size, 16, 1, 7, true);
    one.begin_epoch(4);
    Sampler uneven(size, 16, 3, 7, true);
    uneven.begin_epoch(4);
    CHECK(uneven.batches() == one.batches());
    for (std::size_t b = 0; b < uneven.batches(); ++b) {
      std::multiset<std::uint32_t> together;
      for (std::size_t worker = 0; worker < 3; ++worker) {
        const auto batch = uneven.batch(worker, b);
        CHECK(uneven.batch(0, b).size() - batch.size() <= 1);
        together.insert(batch.begin(), batch.end());
      }
      const auto batch = one.batch(0, b);
      CHECK(together == std::multiset<std::uint32_t>(batch.begin(), batch.end()));
    }
  }
}

TEST_CASE("a sampler refuses what it cannot do") {
  error_of(ErrorKind::data, [] { Sampler(0, 1, 1, 7, true); });
  error_of(ErrorKind::data, [] { Sampler(std::size_t{1} << 33, 1, 1, 7, true); });
  CHECK_THROWS_AS(Sampler(10, 0, 2, 7, true), Error);
  CHECK_THROWS_AS(Sampler(10, 5, 0, 7, true), Error);
  Sampler sampler(10, 10, 2, 7, true);
  CHECK_THROWS_AS(sampler.batch(0, 0), Error);  // no epoch was begun
  sampler.begin_epoch(0);
  CHECK_THROWS_AS(sampler.batch(0, 1), Error);
  CHECK_THROWS_AS(sampler.batch(2, 0), Error);
}
