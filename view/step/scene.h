#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <utility>
#include <vector>

#include <psring/common/base/layout.h>
#include <psring/common/base/text/json.h>
#include <psring/view/step/collective_plans.h>
#include <psring/view/step/scene_sources.h>
#include <psring/view/step/simulated_job.h>

namespace psring::view {

/// The lists that a scene's events refer to by number. A scene and its runs share them.
struct SceneTables {
  SceneSources sources;
  CollectivePlans plans;
};

/// Records a simulated job as a scene: every event on one virtual clock, in the order in which it happened.
/// docs/scene.md describes the JSON. One recorder records one job.
class SceneRecorder final : public JobListener, public net::SimulatedNetwork::Listener {
 public:
  /// `hosts`: the process that each place lives in; frames within a process are not counted. REQUIRES: the tables
  /// outlive the recorder.
  SceneRecorder(std::vector<std::size_t> hosts, SceneTables& tables);
  ~SceneRecorder() override;

  /// The numbers that a process's units have in the scene's list, by place: in a mesh, a process has those of its
  /// stage. Without this, or with an empty list, its units are those of the scene.
  void number_units(std::vector<std::vector<std::size_t>> numbers) { numbers_ = std::move(numbers); }

  /// The job has tables: events show the memory of their index as well. `units_elsewhere`: the units that the servers
  /// of rows do not have, by which their numbers of tables are smaller than the scene's.
  void show_tables(std::size_t units_elsewhere) { tables_begin_later_by_ = units_elsewhere; }

  /// The job's messages carry samples, which are not part of the exchange.
  void leave_out_messages() { messages_are_samples_ = true; }

  EventListener* joins(std::size_t place, net::Peer duty, const MemoryLedger& memory, Moment now) override;
  void leaves(std::size_t place) override;
  void predicts(std::size_t place, const worker::Prediction& prediction) override;
  void starts(std::size_t place, const WatchedCall& call, const ring::Request& request,
              const ring::LinkOptions& options) override;
  void ends(std::size_t place, const WatchedCall& call) override;
  void on_send(std::size_t from, std::size_t to, const net::FrameHeader& header, Moment now, Moment departs) override;
  void on_arrival(std::size_t from, std::size_t to, const net::FrameHeader& header, Moment now) override;
  void on_death(std::size_t place, Moment now) override;
  void on_return(std::size_t place, Moment now) override;

  /// The events as a list of objects, in order; see docs/scene.md.
  const Json& events() const { return *events_; }
  /// Payload bytes of the exchange that each place sent, by the step that a worker was in; a server has one sum.
  const std::vector<std::vector<std::uint64_t>>& sent() const { return sent_; }
  /// By place; nothing for servers.
  const std::vector<std::optional<worker::Prediction>>& predictions() const { return predictions_; }

 private:
  class Process;
  using Booked = std::array<std::size_t, kCategories>;

  /// Appends an event of a place, and the memory that it has booked since the event before.
  Json& add(std::size_t place, Moment now, const char* kind);
  void look_at_memory(std::size_t place, Moment now);
  std::size_t shown(std::size_t place, std::size_t unit) const;
  void add_source(Json& event, const std::source_location& source);
  void add_values(Json& event, std::size_t plan, const WatchedCall& call, bool after) const;
  std::source_location source_of(std::size_t from, std::size_t to, const net::FrameHeader& header, Moment now) const;

  SceneTables& tables_;
  const std::vector<std::size_t> hosts_;             ///< by place
  std::vector<std::unique_ptr<Process>> processes_;  ///< by place; null: not in an epoch
  std::vector<Booked> booked_;                       ///< by place, as last recorded
  std::vector<std::uint64_t> steps_;                 ///< by place: the step that the place is in
  std::vector<std::vector<std::uint64_t>> sent_;     ///< by place and step
  std::vector<std::vector<std::size_t>> numbers_;    ///< see number_units
  std::vector<std::optional<worker::Prediction>> predictions_;
  /// By link: the numbers of the frames in flight, by their sequence numbers.
  std::map<std::pair<std::size_t, std::size_t>, std::map<std::uint64_t, std::uint64_t>> in_flight_;
  std::uint64_t frames_ = 0;
  bool messages_are_samples_ = false;
  std::optional<std::size_t> tables_begin_later_by_;  ///< empty: no tables
  std::unique_ptr<Json> events_;
};

}  // namespace psring::view
