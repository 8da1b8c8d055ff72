#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <psring/common/proc/job.h>
#include <psring/tests/support/values.h>

using namespace psring;
using nlohmann::ordered_json;
using test::error_of;

namespace {

/// Another value of the same type than the default's; what is optional and not given gets a number.
ordered_json other(const ordered_json& value, std::size_t salt) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_string()) return fmt::format("{}é\"\n{}", value.get<std::string>(), salt);
  if (value.is_number_float()) return value.get<double>() + 0.1 + 1e-9 * static_cast<double>(salt);
  if (value.is_number()) return (std::uint64_t{1} << 40) + salt;
  return salt + 1;
}

}  // namespace

TEST_CASE("every field of a job survives the way, by itself and with all others") {
  const ordered_json defaults = ordered_json::parse(to_json({}));
  CHECK(defaults.size() == 100);  // a field that is new is counted here, and must be visited
  ordered_json all = defaults;
  std::size_t salt = 0;
  for (const auto& [name, value] : defaults.items()) {
    ordered_json one = defaults;
    one[name] = all[name] = other(value, ++salt);
    INFO(name);
    CHECK(ordered_json::parse(to_json(job_from_json(one.dump()))) == one);
    CHECK(one != defaults);
  }
  CHECK(ordered_json::parse(to_json(job_from_json(all.dump()))) == all);
}

TEST_CASE("fields land where they belong") {
  JobOptions job;
  job.strategy = "single";
  job.steps = 7;
  job.beta2 = 0.99;
  job.seed = UINT64_MAX;
  job.encrypt = true;
  job.clip_norm = 0.1;
  const JobOptions read = job_from_json(to_json(job));
  CHECK(read.strategy == "single");
  CHECK(read.steps == 7);
  CHECK(read.beta2 == 0.99);
  CHECK_FALSE(read.beta1);
  CHECK_FALSE(read.lr);
  CHECK(read.seed == UINT64_MAX);
  CHECK(read.encrypt);
  CHECK(read.clip_norm == 0.1);  // to the bit
  CHECK(read.workers == job.workers);
}

TEST_CASE("what is no job is a data error") {
  for (const char* text : {"", "{", "[]", "null", "7", "{}", "\xff\xfe"})
    CHECK_THAT(error_of(ErrorKind::data, [&] { job_from_json(text); }), Catch::Contains("the job's description"));
  const ordered_json defaults = ordered_json::parse(to_json({}));
  for (const auto& [name, value] : defaults.items()) {
    ordered_json without = defaults;
    without.erase(name);
    CHECK_THAT(error_of(ErrorKind::data, [&] { job_from_json(without.dump()); }), Catch::Contains(name));
    ordered_json wrong = defaults;
    wrong[name] = ordered_json::array();
    error_of(ErrorKind::data, [&] { job_from_json(wrong.dump()); });
  }
}

TEST_CASE("a count that is no whole number is a data error, whatever a conversion would make of it") {
  ordered_json defaults = ordered_json::parse(to_json({}));
  defaults["steps"] = 7;  // one that may be missing
  std::size_t counts = 0;
  for (const auto& [name, value] : defaults.items()) {
    if (!value.is_number_unsigned()) continue;
    ++counts;
    for (const char* number : {"-1", "0.5", "2e+42", "-1e300", "18446744073709551616", "true"}) {
      ordered_json wrong = defaults;
      wrong[name] = ordered_json::parse(number);
      CAPTURE(name, number);
      CHECK_THAT(error_of(ErrorKind::data, [&] { job_from_json(wrong.dump()); }),
                 Catch::Contains("the job's description: '" + name + "': expected a whole number"));
    }
  }
  CHECK(counts > 10);
}

TEST_CASE("a worker's batch is its share of the global one") {
  JobOptions job;
  job.global_batch = 120;
  job.workers = 3;
  job.virtual_workers = 2;
  CHECK(job.batch_per_worker() == 20);
  job.workers = 2;
  job.virtual_workers = 7;
  CHECK(job.batch_per_worker() == 9);  // of the first; others have 8
}
