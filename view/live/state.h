#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>

#include <psring/common/base/clock.h>
#include <psring/common/base/mesh.h>
#include <psring/common/base/text/json.h>
#include <psring/view/live/series.h>

namespace psring::view {

/// The traffic between processes, from the counts that each of them publishes of what it sent. A process that is
/// started again counts from 0; the sums go on.
class LiveLinks {
 public:
  static constexpr std::size_t kMost = 1000;

  /// Takes the list `sent` of a process's status: [operation, peer, messages, payload bytes] each, all sums so far.
  void update(const std::string& from, double time_s, const Json& sent);
  /// A list with an entry per link, those with the most bytes if there are more than kMost; null if nothing is known.
  Json json() const;

 private:
  using Key = std::tuple<std::string, std::string, std::string>;  ///< from, to, operation
  struct Count {
    std::uint64_t before = 0;  ///< of the process's predecessors
    std::uint64_t now = 0;
    std::uint64_t total() const { return before + now; }
    void set(std::uint64_t value) {
      if (value < now) before += now;
      now = value;
    }
  };
  struct Link {
    Count bytes;
    Count messages;
    double bytes_per_second = 0;
  };

  bool known_ = false;
  std::map<Key, Link> links_;
  std::map<std::string, double> times_;  ///< of the last status, by process
};

/// The state of a run that docs/guide/live.md describes: takes the lines of the run folder's files, and gives the state
/// as JSON. A state machine of bounded memory: it knows no files and no clock. A line that is damaged is ignored.
class LiveState {
 public:
  /// `name`: of the run folder. `tokens`: the context of a text model; 0 for all other models.
  void set_run(const std::string& name, const Json& manifest, std::size_t tokens);
  /// Takes lines of metrics.jsonl. Of the lines that change nothing that is shown, most are not even parsed.
  void add_metrics(std::span<const std::string_view> lines, Moment now);
  void add_memory(std::string_view line, Moment now);
  void add_recovery(std::string_view line);
  /// recoveries.jsonl has begun anew.
  void clear_recoveries();
  /// Takes a file of live/, as docs/guide/live.md describes it.
  void add_status(std::string_view text, Moment now);
  /// How the run ended: with an error, or "" if it ended well; nothing if it has not ended.
  void set_end(std::optional<std::string> error) { end_ = std::move(error); }

  const std::optional<std::string>& end() const { return end_; }
  /// The state as one line of JSON.
  std::string json(Moment now) const;
  /// The state without its series.
  Json figures(Moment now) const;

 private:
  struct Worker {
    StepLine last;
    double offset_s = 0;  ///< added to its own times, which begin anew with its process
    double raw_time_s = 0;
    std::uint64_t membership = 0;
    std::optional<double> begin_s;  ///< of its first step in the membership; nothing until that is known
    std::uint64_t returns = 0;      ///< how often its steps have gone back

    /// The end of its last step, from the begin of its first in the membership.
    double end_s() const { return last.time_s - begin_s.value_or(0); }
  };
  struct Process {
    std::optional<Moment> seen;
    Json memory;
    Json status;                 ///< null if none was read
    std::optional<double> busy;  ///< fraction
  };
  /// The last time that all workers' lines have reached, and the steps that the slowest worker had made by then. Times
  /// count from each worker's first step in the membership: the workers have just met then, while a process that was
  /// started later has a clock of its own.
  struct Front {
    double time_s = 0;
    std::uint64_t steps = 0;
  };
  struct Evaluation {
    double time_s = 0;
    double loss = 0;  ///< sum over rows
    double rows = 0;
    std::optional<double> correct;
    bool text = false;
    std::map<std::string, double> own;  ///< of the model's own metrics, by "test_NAME"; sums over rows
  };

  void add_step(const StepLine& line, Moment now);
  void add_evaluation(const Json& line);
  Worker& worker_at(std::uint32_t rank, double time_s);
  std::string phase() const;
  std::uint64_t slowest() const;
  bool is_member(std::uint32_t rank, const Worker& worker) const;
  Front front() const;
  Json progress() const;
  Json evaluations() const;
  Json worker(std::uint32_t rank, Moment now, const Front& front) const;
  Json server(std::uint32_t rank, Moment now) const;
  void add_process(Json& json, const std::string& name, Moment now) const;
  Json waiting(const Process& process, Moment now) const;

  Json run_ = Json::object();
  std::size_t tokens_ = 0;
  std::size_t workers_wanted_ = 0;  ///< number of workers that the job has now
  Mesh mesh_;
  std::uint64_t membership_ = 0;
  std::uint64_t returns_ = 0;
  double time_s_ = 0;
  LiveSeries series_;
  std::map<std::uint32_t, Worker> workers_;          ///< by rank
  std::map<std::uint64_t, std::uint64_t> met_;       ///< by worker, the membership of its newest line
  std::map<std::string, Process> processes_;         ///< by name: "worker 0"
  std::map<std::uint64_t, Evaluation> evaluations_;  ///< by step
  LiveLinks links_;
  std::deque<Json> recoveries_;
  std::size_t losses_ = 0;  ///< all of recoveries.jsonl
  bool is_recovering_ = false;
  std::optional<std::string> end_;
};

}  // namespace psring::view
