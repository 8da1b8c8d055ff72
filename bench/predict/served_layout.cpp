#include <algorithm>
#include <cmath>
#include <map>

#include <psring/bench/predict/served_layout.h>
#include <psring/optim/codec/compression.h>

namespace psring::bench {
namespace {

constexpr double kMostWaves = 400;  // of a step; larger pieces than the real ones change the time of the last piece

constexpr double kMostFrames = 4'000;  // of a step, each way
constexpr std::size_t kLeastWorkers = 8;

std::size_t part_of(std::size_t count, std::size_t factor) { return (count + factor - 1) / factor; }

double ratio(std::size_t whole, std::size_t part) {
  return part == 0 ? 1 : static_cast<double>(whole) / static_cast<double>(part);
}

double share(const TimedJob& job, bool standalone, std::size_t unit) {
  return static_cast<double>(job.work.layout.owned(unit, standalone ? 0 : job.job.standalone_servers()));
}

bool has(const TimedJob& job, bool standalone) {
  return standalone ? job.job.standalone_servers() > 0 : job.job.standalone_servers() < job.job.servers;
}

/// Ratio of simulated to real piece size. In stages 2 and 3 a step exchanges each piece once for each
/// micro-batch.
double coarseness(const TimedJob& job) {
  if (!job.kind.servers) return 1;
  const double times = job.kind.at_owner ? static_cast<double>(job.job.accumulate) : 1;
  double most = 1;
  for (const bool standalone : {true, false}) {
    double waves = 0;
    for (std::size_t unit = 0; has(job, standalone) && unit < job.work.layout.units.size(); ++unit)
      waves += std::ceil(share(job, standalone, unit) / static_cast<double>(job.work.layout.piece_elements));
    most = std::max(most, waves * times / kMostWaves);
  }
  return most;
}

}  // namespace

double ServedPiece::payload_bytes(net::FrameType type) const {
  switch (type) {
    case net::FrameType::push:
    case net::FrameType::push_pull:
      return pushed_bytes;
    case net::FrameType::pull:
      return asked_bytes;
    case net::FrameType::values:
      return answer_bytes - (in_parts ? early_bytes : 0);
    case net::FrameType::rows:
      return early_bytes;
    default:
      return 0;
  }
}

ServedPieces::ServedPieces(const TimedJob& job) {
  const double coarse = coarseness(job);
  for (const bool standalone : {true, false}) {
    if (!has(job, standalone)) continue;
    if (job.kind.servers) add(job, standalone, coarse);
    add_rows(job, standalone);
  }
  order(job.work.layout.units.size() + job.work.rows.size());
}

void ServedPieces::add(const TimedJob& job, bool standalone, double coarse) {
  const Layout& layout = job.work.layout;
  const auto codec = optim::make_codec(job.job.compress, job.job.error_feedback);
  const auto gradient = static_cast<double>(size_bytes(layout.gradient_type));
  const bool updates = job.job.optimizer_on == "server";
  const double answer = updates ? static_cast<double>(size_bytes(layout.parameter_type)) : gradient;
  const double update_bytes =
      update_bytes_per_element(job.job, job.costs.state_values, layout.parameter_type, layout.gradient_type);
  const double update = updates ? update_bytes * job.costs.update_s_per_byte : 0;
  const auto workers = static_cast<double>(job.job.local_reduce ? job.mesh.hosts : job.mesh.workers());
  const auto piece = static_cast<double>(layout.piece_elements);
  std::vector<ServedPiece>& pieces = pieces_[standalone ? 0 : 1];
  for (std::size_t unit = 0; unit < layout.units.size(); ++unit) {
    const double whole = share(job, standalone, unit);
    for (double done = 0; done < whole; done += piece * coarse) {
      const double elements = std::min(whole - done, piece * coarse);
      pieces.push_back({.unit = unit,
                        .trained = layout.units[unit].trained,
                        .pushed_bytes = codec ? static_cast<double>(codec->bytes(static_cast<std::size_t>(elements)))
                                              : gradient * elements,
                        .frames = std::ceil(elements / piece),
                        .answer_bytes = answer * elements,
                        .aggregate_s = elements * gradient * workers * job.costs.aggregate_s_per_byte,
                        .update_s = elements * update});
    }
  }
}

/// The cost of rows at a server is not known.
void ServedPieces::add_rows(const TimedJob& job, bool standalone) {
  std::vector<ServedPiece>& pieces = pieces_[standalone ? 0 : 1];
  for (std::size_t table = 0; table < job.work.rows.size(); ++table) {
    const RowTraffic& rows = job.work.rows[table];
    const auto each = static_cast<double>(rows.pieces);
    pieces.insert(pieces.end(), rows.pieces,
                  {.unit = job.work.layout.units.size() + table,
                   .has_rows = true,
                   .pushed_bytes = rows.gradient_bytes / each,
                   .frames = rows.frames / each,
                   .asked_bytes = rows.key_bytes / each,
                   .answer_bytes = rows.row_bytes / each,
                   .early_bytes = rows.early_bytes / each,
                   .in_parts = rows.in_parts});
  }
}

/// By their position in the servers' shares (ClientProtocol).
void ServedPieces::order(std::size_t units) {
  std::vector<std::map<double, Turn>> turns(units);  // by the pieces' places in the shares, 0 to 1
  for (const bool standalone : {true, false}) {
    const std::vector<ServedPiece>& pieces = of(standalone);
    std::vector<double> whole(units, 0);
    std::vector<double> before(units, 0);
    for (const ServedPiece& piece : pieces) whole[piece.unit] += piece.answer_bytes;
    for (std::size_t number = 0; number < pieces.size(); ++number) {
      const std::size_t unit = pieces[number].unit;
      Turn& turn = turns[unit][before[unit] / whole[unit]];
      (standalone ? turn.standalone : turn.colocated) = number;
      before[unit] += pieces[number].answer_bytes;
    }
  }
  turns_.resize(units);
  for (std::size_t unit = 0; unit < units; ++unit)
    for (const auto& [place, turn] : turns[unit]) turns_[unit].push_back(turn);
}

/// Workers of one host have a link each, as hosts with one worker do.
ServedPlaces::ServedPlaces(const TimedJob& job, double waves)
    : between(job.mesh.hosts > 1 ? job.mesh.between : job.mesh.within), within(job.mesh.within) {
  const bool one = job.mesh.hosts <= 1;
  const std::size_t real_hosts = one ? job.mesh.workers_per_host : job.mesh.hosts;
  per_host = one ? 1 : job.mesh.workers_per_host;
  const std::size_t real_standalone = job.job.standalone_servers();
  const std::size_t real_colocated = job.job.servers - real_standalone;
  std::size_t factor = 1;
  const auto frames = [&] {
    const std::size_t servers = part_of(real_standalone, factor) + part_of(real_colocated, factor);
    return static_cast<double>(part_of(real_hosts, factor) * per_host * servers) * waves;
  };
  while (frames() > kMostFrames && part_of(real_hosts, 2 * factor) * per_host >= kLeastWorkers &&
         part_of(real_hosts, 2 * factor) > 1)
    factor *= 2;
  hosts = part_of(real_hosts, factor);
  workers = hosts * per_host;
  standalone = part_of(real_standalone, factor);
  colocated = part_of(real_colocated, factor);
  first_colocated = real_standalone;
  workers_each = ratio(real_hosts, hosts);
  standalone_each = ratio(real_standalone, standalone);
  colocated_each = ratio(real_colocated, colocated);
  if (hosts > 1) between_factor = (1 - 1 / static_cast<double>(real_hosts)) / (1 - 1 / static_cast<double>(hosts));
  within_factor = static_cast<double>(hosts) / static_cast<double>(real_hosts);
}

double ServedPlaces::bytes_factor(std::size_t worker, std::size_t server_place) const {
  if (!is_worker(process_of(server_place))) return 1;
  return host_of(worker) == host_of(server_place) ? within_factor : between_factor;
}

}  // namespace psring::bench
