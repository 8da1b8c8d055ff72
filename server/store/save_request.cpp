#include <algorithm>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/server/store/save_request.h>

namespace psring::server {

void SaveRequest::ask(const net::FrameHeader& header, const Store& store) {
  if (options_.save_every == 0 || (options_.optimizer == nullptr && header.version == 0))
    fail(ErrorKind::protocol, "there is nothing to save here");
  if (header.version >= options_.workers)
    fail(ErrorKind::protocol, "a save that waits for {} other workers of {}", header.version, options_.workers);
  if (std::ranges::any_of(store.pieces(), [&](const StoredPiece& piece) { return piece.version > header.step; }))
    fail(ErrorKind::protocol, "version {} is past, and cannot be saved", header.step);
  request_ = header;
}

void SaveRequest::set_written(const net::FrameHeader& header) {
  if (options_.save_every == 0 || header.sender_rank == 0) fail(ErrorKind::protocol, "nobody asked for what is saved");
  written_[header.sender_rank] = header.step;
}

std::optional<std::uint64_t> SaveRequest::due(const Store& store) const {
  if (!request_) return std::nullopt;
  const std::uint64_t version = request_->step;
  const auto written =
      std::ranges::count_if(written_, [&](const auto& by_worker) { return by_worker.second == version; });
  if (std::cmp_less(written, request_->version)) return std::nullopt;
  if (std::ranges::any_of(store.pieces(),
                          [&](const StoredPiece& piece) { return piece.trained && piece.version != version; }))
    return std::nullopt;
  return version;
}

net::FrameHeader SaveRequest::finish() {
  const net::FrameHeader request = request_.value();
  request_.reset();
  return request;
}

void SaveRequest::clear() {
  request_.reset();
  written_.clear();
}

}  // namespace psring::server
