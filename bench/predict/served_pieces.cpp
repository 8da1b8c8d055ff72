#include <algorithm>
#include <cmath>
#include <map>

#include <psring/bench/predict/served_pieces.h>
#include <psring/optim/codec/compression.h>

namespace psring::bench {
namespace {

constexpr double kMostWaves = 400;  // of a step; larger pieces than the real ones change the time of the last piece

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
  const std::size_t units = job.work.layout.units.size() + job.work.rows.size();
  for (const bool standalone : {true, false}) {
    units_[standalone ? 0 : 1].resize(units);
    if (!has(job, standalone)) continue;
    if (job.kind.servers) add(job, standalone, coarse);
    add_rows(job, standalone);
  }
  turns_.resize(units);
  for (std::size_t unit = 0; unit < turns_.size(); ++unit) order(unit);
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
    const std::size_t first = pieces.size();
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
    units_[standalone ? 0 : 1][unit] = {first, pieces.size()};
  }
}

/// The cost of rows at a server is not known.
void ServedPieces::add_rows(const TimedJob& job, bool standalone) {
  std::vector<ServedPiece>& pieces = pieces_[standalone ? 0 : 1];
  for (std::size_t table = 0; table < job.work.rows.size(); ++table) {
    const RowTraffic& rows = job.work.rows[table];
    const auto each = static_cast<double>(rows.pieces);
    const std::size_t unit = job.work.layout.units.size() + table;
    units_[standalone ? 0 : 1][unit] = {pieces.size(), pieces.size() + rows.pieces};
    pieces.insert(pieces.end(), rows.pieces,
                  {.unit = unit,
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
void ServedPieces::order(std::size_t unit) {
  std::map<double, Turn> turns;  // by the pieces' places in the shares, 0 to 1
  for (const bool standalone : {true, false}) {
    const auto [first, last] = units_[standalone ? 0 : 1][unit];
    double whole = 0;
    for (std::size_t piece = first; piece < last; ++piece) whole += of(standalone)[piece].answer_bytes;
    double before = 0;
    for (std::size_t piece = first; piece < last; ++piece) {
      Turn& turn = turns[before / whole];
      (standalone ? turn.standalone : turn.colocated) = piece;
      before += of(standalone)[piece].answer_bytes;
    }
  }
  for (const auto& [place, turn] : turns) turns_[unit].push_back(turn);
}

}  // namespace psring::bench
