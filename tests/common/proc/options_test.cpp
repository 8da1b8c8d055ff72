#include <cstddef>
#include <set>
#include <string>
#include <type_traits>
#include <variant>

#include <catch2/catch.hpp>

#include <psring/common/proc/options/check.h>
#include <psring/common/proc/options/one_table.h>
#include <psring/common/proc/options/table.h>
#include <psring/common/proc/options/values.h>
#include <psring/tests/support/values.h>

using namespace psring;
using namespace psring::options;
using test::error_of;

namespace {

struct Place {
  std::size_t offset;
  std::size_t bytes;
  std::size_t alignment;
};

Place place_of(const Option& option) {
  const JobOptions job;
  return std::visit(
      [&](auto member) -> Place {
        if constexpr (std::is_same_v<decltype(member), std::monostate>) {
          return {0, 0, 1};
        } else {
          using Value = std::remove_cvref_t<decltype(job.*member)>;
          const auto* const field = reinterpret_cast<const char*>(&(job.*member));
          return {static_cast<std::size_t>(field - reinterpret_cast<const char*>(&job)), sizeof(Value), alignof(Value)};
        }
      },
      option.field);
}

std::size_t rounded_up(std::size_t value, std::size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

JobOptions job_with(const std::string& name, const std::string& text) { return job_of({{name, text}}); }

}  // namespace

TEST_CASE("every field of a job has one row") {
  std::size_t end = 0;
  for (const Option* const option : recorded()) {
    const Place place = place_of(*option);
    INFO(option->name);
    CHECK(place.offset == rounded_up(end, place.alignment));  // no field lies between two rows' fields
    end = place.offset + place.bytes;
  }
  CHECK(rounded_up(end, alignof(JobOptions)) == sizeof(JobOptions));
}

TEST_CASE("names, help and defaults of the table are whole") {
  std::set<std::string> names;
  std::size_t everyday = 0;
  for (const Group& group : groups())
    for (const Option& option : group.options) {
      INFO(option.name);
      CHECK(names.insert(option.name).second);
      CHECK(std::string(option.help).size() > 5);
      check(JobOptions(), option);  // a default passes its own check
      CHECK(has_default(JobOptions(), option));
      everyday += option.everyday ? 1 : 0;
    }
  CHECK(everyday >= 15);
  CHECK(everyday <= 25);
}

TEST_CASE("a text sets its field") {
  CHECK(job_with("model", "mlp:4-2").model == "mlp:4-2");
  CHECK(job_with("workers", "3").workers == 3);
  CHECK(job_with("lr", "1e-3").lr == 0.001);
  CHECK(job_with("clip-norm", "0.5").clip_norm == 0.5);
  CHECK(job_with("nesterov", "true").nesterov);
  CHECK_FALSE(job_with("overlap", "off").overlap);
  CHECK(job_with("bucket", "3M").bucket_bytes == 3u << 20);
  CHECK(job_with("betas", "0.8,0.9").beta1 == std::nullopt);  // cli/options/resolve.cpp sets both
}

TEST_CASE("the default of an option is written as a user writes it") {
  CHECK(default_text(at("bucket")) == "25M");
  CHECK(default_text(at("overlap")) == "on");
  CHECK(default_text(at("trace")) == "off");
  CHECK(default_text(at("global-batch")) == "128");
  CHECK(default_text(at("heartbeat-timeout")) == "10");
  CHECK(default_text(at("lr")).empty());
  CHECK(default_text(at("nesterov")).empty());
  CHECK(default_text(at("encrypt")) == "auto");
}

TEST_CASE("a wrong value is refused with the values that are expected") {
  const auto line = [](const char* name, const char* text) {
    return error_of(ErrorKind::usage, [&] { job_with(name, text); });
  };
  CHECK(line("workers", "two") == "--workers: expected a whole number, got 'two'");
  CHECK(line("workers", "0") == "--workers: expected a number > 0");
  CHECK(line("threads", "1025") == "--threads: expected a number up to 1024, got 1025");
  CHECK(line("prefetch", "3") == "--prefetch: expected 0, 1 or 2, got 3");
  CHECK(line("max-restarts", "1000001") == "--max-restarts: expected a number up to 1000000, got 1000001");
  CHECK(line("lr", "-1") == "--lr: expected a number > 0, got -1");
  CHECK(line("lr", "fast") == "--lr: expected a number, got 'fast'");
  CHECK(line("clip-norm", "inf") == "--clip-norm: expected a number >= 0, got inf");
  CHECK(line("shuffle", "x") == "--shuffle: expected epoch or none, got 'x'");
  CHECK(line("overlap", "x") == "--overlap: expected on or off, got 'x'");
  CHECK(line("op-timeout", "-1") == "--op-timeout: expected seconds from 0 to 3.1536e+07, got -1");
  CHECK(line("consistency", "now").starts_with("--consistency: "));
}

TEST_CASE("--table gives one table its own options, and leaves the others") {
  JobOptions job;
  job.table_optimizer = "sgd";
  job.table_lr = 0.5;
  job.table_ttl = "9";
  job.table =
      " words:optimizer=adam:beta1=0.8,beta2=0.9,lr=0.1,admit=3,zero  contexts:ttl=2,keep=9,compress=int8,rows=";
  CHECK(named_tables(job.table) == std::vector<std::string>{"words", "contexts"});
  const JobOptions words = options_of_table(job, "words");
  CHECK(words.table_optimizer == "adam:beta1=0.8,beta2=0.9");
  CHECK(words.table_lr == 0.1);
  CHECK(words.table_admit == "3,zero");
  CHECK(words.table_ttl == "9");
  const JobOptions contexts = options_of_table(job, "contexts");
  CHECK(contexts.table_optimizer == "sgd");
  CHECK(contexts.table_ttl == "2,keep=9");
  CHECK(contexts.table_compress == "int8");
  CHECK(contexts.table_rows.empty());
  CHECK(options_of_table(job, "others").table_ttl == "9");
}

TEST_CASE("a wrong --table is refused with one line that names the table") {
  const auto refused = [](const std::string& text) { return error_of(ErrorKind::usage, [&] { named_tables(text); }); };
  CHECK_THAT(refused("words"),
             Catch::Contains("--table: expected NAME:KEY=VALUE,... such as") && Catch::Contains("'words'"));
  CHECK_THAT(refused(":lr=1"), Catch::Contains("--table: expected NAME:KEY=VALUE"));
  CHECK_THAT(refused("words:"),
             Catch::Contains("--table words: expected KEY=VALUE with one of the keys optimizer, lr"));
  CHECK_THAT(refused("words:rate=1"),
             Catch::Contains("--table words: expected KEY=VALUE") && Catch::Contains("'rate=1'"));
  CHECK_THAT(refused("words:lr=x"), Catch::Contains("--table words: --table-lr: expected a number, got 'x'"));
  CHECK_THAT(refused("words:lr=0"), Catch::Contains("--table words: --table-lr: expected a number > 0"));
  CHECK_THAT(refused("words:type=f16"), Catch::Contains("--table words: --table-type: expected f32 or bf16"));
  CHECK_THAT(refused("words:compress=sign"),
             Catch::Contains("--table words: --table-compress: expected none, bf16 or int8"));
  CHECK_THAT(refused("words:lr=1,lr=2"), Catch::Contains("--table words: lr is given twice"));
  CHECK_THAT(refused("words:lr=1 words:type=bf16"), Catch::Contains("--table words: is given twice"));
}
