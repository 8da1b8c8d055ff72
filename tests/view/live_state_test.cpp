#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <psring/tests/support/temporary_folder.h>
#include <psring/view/live/access.h>
#include <psring/view/live/open_metrics.h>
#include <psring/view/live/run_files.h>
#include <psring/view/live/state.h>

using namespace psring;
using namespace psring::view;
using namespace psring::test;

namespace {

const Moment kStart = Moment(std::chrono::seconds(100));

Json manifest(int workers, int servers) {
  return {{"command", {"psring", "train"}},
          {"job",
           {{"strategy", "ps"},
            {"model", "mlp:4-2"},
            {"data", "synthetic"},
            {"workers", workers},
            {"servers", servers},
            {"steps", 4000},
            {"global_batch", 8}}}};
}

std::string step_line(std::uint64_t step, int worker, double time_s, double loss, const std::string& more = "") {
  return fmt::format(
      R"({{"step":{},"epoch":0,"worker":{},"time_s":{},"loss":{},"samples":4,"step_s":0.5,"exposed_comm_s":0.1,"staleness":1{}}})",
      step, worker, time_s, loss, more);
}

void add(LiveState& state, const std::vector<std::string>& lines) {
  const std::vector<std::string_view> views(lines.begin(), lines.end());
  state.add_metrics(views, kStart);
}

Json state_of(const LiveState& state) { return Json::parse(state.json(kStart + std::chrono::seconds(2))); }

}  // namespace

TEST_CASE("an evaluation has the model's own metrics") {
  LiveState state;
  state.set_run("run", manifest(2, 1), 0);
  const auto line = [](int worker, int rows, double value) {
    return fmt::format(R"({{"step":4,"worker":{},"time_s":1,"test_loss":1,"test_rows":{},"own":{{"test_rmse":{}}}}})",
                       worker, rows, value);
  };
  add(state, {line(0, 3, 0.5), line(1, 1, 1.5)});
  const Json evaluations = state_of(state)["evaluations"];
  REQUIRE(evaluations.size() == 1);
  CHECK(evaluations[0]["own"]["test_rmse"].get<double>() == 0.75);
  CHECK(evaluations[0]["test_accuracy"].is_null());
}

TEST_CASE("a line about a step is read as a complete parser reads it") {
  const std::string text =
      R"({"step":12,"worker":3,"time_s":1.5e-2,"loss":null,"samples":4,"step_s":0.5,"compute_s":0.25,)"
      R"("exposed_comm_s":0.125,"bubble_s":0.0625,"staleness":2,"membership":7})";
  const auto line = read_step_line(text);
  REQUIRE(line);
  CHECK(line->worker == 3);
  CHECK(line->step == 12);
  CHECK(line->membership == 7);
  CHECK(line->time_s == 1.5e-2);
  CHECK_FALSE(line->loss);
  CHECK(line->samples == 4);
  CHECK(line->step_s == 0.5);
  CHECK(line->compute_s == 0.25);
  CHECK(line->exposed_s == 0.125);
  CHECK(line->bubble_s == 0.0625);
  CHECK(line->staleness == 2);
  const std::string others =
      R"(,"a\"}":"b,\"}","list":[1,{"step":99},"]"],"own":{"worker":8,"x":[]},"yes":true, "loss" : -2 })";
  const auto more = read_step_line(text.substr(0, text.size() - 1) + others);
  REQUIRE(more);
  CHECK(more->step == 12);
  CHECK(more->worker == 3);
  CHECK(more->loss == -2);
  for (const char* bad :
       {"", "{", "{}", "[]", "null", R"({"step":1,"worker":0,"time_s":1})",
        R"({"step":1,"worker":-1,"time_s":1,"step_s":1})", R"({"step":1.5,"worker":0,"time_s":1,"step_s":1})",
        R"({"step":1e30,"worker":0,"time_s":1,"step_s":1})", R"({"step":"1","worker":0,"time_s":1,"step_s":1})",
        R"({"step":1,"worker":0,"time_s":1,"step_s":1)", R"({"step":1,"worker":0,"time_s":1,"step_s":1}})",
        R"({"step":1 "worker":0,"time_s":1,"step_s":1})", R"({"step":1,"worker":0,"time_s":nan,"step_s":1})",
        R"({"step":1,"worker":0,"time_s":1,"step_s":[1})"}) {
    INFO(bad);
    CHECK_FALSE(read_step_line(bad));
  }
  for (std::size_t size = 0; size < text.size(); ++size)
    CHECK_FALSE(read_step_line(std::string_view(text).substr(0, size)));
}

TEST_CASE("a state without lines knows nothing") {
  LiveState state;
  CHECK(state_of(state)["phase"].get<std::string>() == "starting");
  state.set_run("<b>", manifest(2, 1), 0);
  const Json json = state_of(state);
  CHECK(json["run"]["name"].get<std::string>() == "<b>");
  CHECK(json["workers"].size() == 2);
  CHECK(json["workers"][0]["step"].is_null());
  CHECK(json["servers"][0]["updates"].is_null());
  CHECK(json["servers"][0]["rows"].is_null());
  CHECK(json["links"].is_null());
  CHECK(json["progress"]["loss"].is_null());
}

TEST_CASE("lines of two workers become one state") {
  LiveState state;
  state.set_run("run", manifest(2, 0), 16);
  add(state, {step_line(0, 0, 1, 4), step_line(0, 1, 1, 2), step_line(1, 0, 2, 3), "{\"step\":1,\"worker\":0", "[]"});
  const Json json = state_of(state);
  CHECK(json["phase"].get<std::string>() == "training");
  CHECK(json["progress"]["step"].get<int>() == 1);
  CHECK(json["workers"][0]["lag"].get<int>() == 0);  // at 1 s, which both lines have reached
  CHECK(json["workers"][0]["seen_s"].get<double>() == 2);
  CHECK(json["series"]["loss"][0].get<double>() == 3);
  CHECK(json["series"]["samples_per_second"][0].get<double>() == 16);
  CHECK(json["progress"]["samples_per_second"].get<double>() == 8);
  CHECK(json["progress"]["tokens_per_second"].get<double>() == 128);
  CHECK(json["progress"]["left_s"].get<double>() == 3999);
  CHECK(json["time_s"].get<double>() == 2);
}

TEST_CASE("workers of a mesh have a place, and stages a bubble") {
  Json two_by_four = manifest(8, 0);
  two_by_four["job"]["tensor"] = 2;
  two_by_four["job"]["pipeline"] = 2;
  LiveState state;
  state.set_run("run", two_by_four, 0);
  add(state, {step_line(0, 7, 1, 4, R"(,"bubble_s":0.05)")});
  const Json json = state_of(state);
  CHECK(json["run"]["mesh"] == Json({{"data", 2}, {"tensor", 2}, {"pipeline", 2}}));
  for (std::size_t rank = 0; rank < 8; ++rank)
    CHECK(json["workers"][rank]["place"] == Json({{"data", rank / 4}, {"tensor", rank % 2}, {"stage", rank / 2 % 2}}));
  CHECK(json["workers"][7]["bubble_s"].get<double>() == 0.05);
  CHECK(json["workers"][0]["bubble_s"].is_null());  // no line yet

  LiveState plain;
  plain.set_run("run", manifest(2, 0), 0);
  add(plain, {step_line(0, 0, 1, 4)});
  const Json whole = state_of(plain);
  CHECK(whole["run"]["mesh"].is_null());
  CHECK(whole["workers"][0]["place"].is_null());
  CHECK(whole["workers"][0]["bubble_s"].is_null());
}

TEST_CASE("lag counts at a time that all workers' lines have reached") {
  const auto lag_of = [](std::uint64_t step, double time_s) {
    LiveState state;
    state.set_run("run", manifest(2, 0), 0);
    add(state, {step_line(0, 0, 0.5, 1), step_line(0, 1, 0.5, 1)});
    add(state, {step_line(step, 0, time_s, 1), step_line(4, 1, 2.5, 1)});
    const Json json = state_of(state);
    return json["workers"][0]["lag"].get<int>();
  };
  CHECK(lag_of(5, 3) == 0);    // its line is one step of 0.5 s newer
  CHECK(lag_of(7, 3) == 2);    // two steps more than that
  CHECK(lag_of(9, 5.5) == 3);  // worker 1 has written no line for longer than lines take
}

TEST_CASE("lag counts from a membership's first step, whatever a restarted worker's clock says") {
  LiveState state;
  state.set_run("run", manifest(2, 0), 0);
  add(state, {step_line(0, 0, 1, 1), step_line(0, 1, 1, 1)});
  const std::string later = R"(,"membership":1)";
  std::vector<std::string> lines;
  for (std::uint64_t step = 1; step <= 8; ++step) {  // worker 1's process began after worker 0 had trained for 20 s
    lines.push_back(step_line(step, 0, 20 + 0.5 * static_cast<double>(step), 1, later));
    if (step <= 6) lines.push_back(step_line(step, 1, 0.2 + 0.5 * static_cast<double>(step), 1, later));
  }
  SECTION("as a viewer sees it that comes late") { add(state, lines); }
  SECTION("as lines come one by one") {
    for (const std::string& line : lines) add(state, {line});
  }
  const Json json = state_of(state);
  CHECK(json["workers"][0]["lag"].get<int>() == 0);
  CHECK(json["workers"][1]["lag"].get<int>() == 0);
}

TEST_CASE("a long run has a series of bounded length, and the newest line of each worker") {
  LiveState state;
  state.set_run("run", manifest(2, 0), 0);
  std::vector<std::string> lines;
  for (std::uint64_t step = 0; step < 3001; ++step) {
    lines.push_back(step_line(step, 0, static_cast<double>(step), 1));
    if (step < 2999) lines.push_back(step_line(step, 1, static_cast<double>(step), 1));
  }
  add(state, lines);
  const Json json = state_of(state);
  CHECK(json["series"]["step"].size() <= LiveSeries::kMost);
  CHECK(json["series"]["step"].size() > LiveSeries::kMost / 2);
  CHECK(json["series"]["step"][1].get<int>() == 4);
  CHECK(json["workers"][0]["step"].get<int>() == 3001);
  CHECK(json["workers"][1]["step"].get<int>() == 2999);
}

TEST_CASE("steps that are made again take the place of the former, and time goes on") {
  LiveState state;
  state.set_run("run", manifest(2, 0), 0);
  for (int worker : {0, 1})
    for (std::uint64_t step : {0, 1, 2}) add(state, {step_line(step, worker, 1.0 + static_cast<double>(step), 1)});
  state.add_recovery(R"({"lost":"worker 1 was killed","epoch":0,"restarts":1})");
  CHECK(state_of(state)["phase"].get<std::string>() == "recovering");
  state.add_recovery(R"({"epoch":1,"step":1,"seconds":0.5,"workers":2})");
  for (int worker : {0, 1}) add(state, {step_line(1, worker, worker == 0 ? 4 : 0.5, 7, R"(,"membership":1)")});
  const Json json = state_of(state);
  CHECK(json["phase"].get<std::string>() == "training");
  CHECK(json["series"]["step"].size() == 2);
  CHECK(json["series"]["loss"][1].get<double>() == 7);
  CHECK(json["series"]["time_s"][1].get<double>() == 4.5);
  CHECK(json["recoveries"][0]["delay_s"].get<double>() == 0.5);
}

TEST_CASE("statuses give waits, load and links; a process that begins anew counts on") {
  LiveState state;
  state.set_run("run", manifest(1, 1), 0);
  const auto status = [](double time, double busy, int bytes) {
    return fmt::format(
        R"({{"role":"server","rank":0,"time_s":{},"busy_s":{},"updates":3,"rows":70,"bytes_sent":9,"bytes_received":8,"waiting":{{"operation":"push","peer":"worker 0","since_s":1}},"sent":[["pull","worker 0",2,{}],["retransmitted","worker 0",5,50]]}})",
        time, busy, bytes);
  };
  state.add_status(status(1, 0, 100), kStart);
  state.add_status(status(2, 0.25, 300), kStart);
  const Json json = state_of(state);
  CHECK(json["servers"][0]["busy"].get<double>() == 0.25);
  CHECK(json["servers"][0]["rows"] == Json(70));
  CHECK(json["servers"][0]["waiting"]["since_s"].get<double>() == 3);
  CHECK(json["links"][0]["bytes_per_second"].get<double>() == 200);
  CHECK(json["links"][1]["retransmissions"].get<int>() == 5);
  state.add_status(status(3, 0, 10), kStart);
  const Json later = state_of(state);
  CHECK(later["links"][0]["bytes"].get<int>() == 310);
  state.add_status("{\"role\":", kStart);
  state.set_end("killed");
  const Json ended = state_of(state);
  CHECK(ended["phase"].get<std::string>() == "failed");
  CHECK(ended["servers"][0]["waiting"].is_null());
  CHECK(metrics_format("application/openmetrics-text;version=1.0.0,text/plain;q=0.3") == MetricsFormat::open_metrics);
  CHECK(metrics_format("*/*") == MetricsFormat::prometheus);
  CHECK_THAT(metrics(ended, MetricsFormat::prometheus), Catch::Contains("# TYPE psring_sent_bytes_total counter\n") &&
                                                            !Catch::Contains("# UNIT") && !Catch::Contains("# EOF"));
  CHECK_THAT(
      metrics(ended, MetricsFormat::open_metrics),
      Catch::Contains("# TYPE psring_sent_bytes counter\n# UNIT psring_sent_bytes bytes\n") &&
          Catch::Contains("psring_sent_bytes_total{from=\"server 0\",to=\"worker 0\",operation=\"pull\"} 310\n") &&
          Catch::Contains("psring_retransmissions_total{from=\"server 0\",to=\"worker 0\"}") &&
          Catch::EndsWith("# EOF\n"));
}

TEST_CASE("a follower reads lines once, whole ones only, and sees that a file is another one") {
  TemporaryFolder folder;
  const std::string path = folder.file("lines");
  FileFollower follower(path);
  CHECK(follower.next().lines.empty());
  const auto append = [&](const char* text) { std::ofstream(path, std::ios::app) << text; };
  append("one\ntw");
  CHECK(follower.next().lines == std::vector<std::string_view>{"one"});
  append("o\n\nthree");
  CHECK(follower.next().lines == std::vector<std::string_view>{"two", ""});
  std::filesystem::resize_file(path, 9);  // without the half line
  append("four\n");
  CHECK(follower.next().lines == std::vector<std::string_view>{"four"});
  std::filesystem::resize_file(path, 4);
  FileFollower::Step step = follower.next();
  CHECK(step.replaced);
  CHECK(step.lines == std::vector<std::string_view>{"one"});
  std::ofstream(folder.file("other")) << "a longer first line\n";
  std::filesystem::rename(folder.file("other"), path);
  step = follower.next();
  CHECK(step.replaced);
  CHECK(step.lines == std::vector<std::string_view>{"a longer first line"});
}

TEST_CASE("hosts and tokens") {
  for (const char* host : {"127.0.0.1", "127.0.0.1:80", "localhost:9", "[::1]:80", "10.0.0.2:1", "[::1]"}) {
    INFO(host);
    CHECK(is_own_host(host));
  }
  for (const char* host : {"", "evil.example", "evil.example:80", "localhost.evil", "127.0.0.1.evil:80", "localhost:x",
                           "127.0.0.1@evil"}) {
    INFO(host);
    CHECK_FALSE(is_own_host(host));
  }
  const Access access("0123");
  HttpRequest request{.method = "GET", .token = "0123", .host = "localhost"};
  CHECK_FALSE(access.refuse(request));
  request.token = "012";
  CHECK(access.refuse(request) == 403);
  request.authorization = "Bearer 0123";
  CHECK_FALSE(access.refuse(request));
  request.origin = "http://localhost:1";
  CHECK(access.refuse(request) == 403);
  CHECK(Access().token().size() == 32);
  CHECK(Access().token() != Access().token());
}
