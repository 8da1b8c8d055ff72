#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include <psring/common/base/consistency.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/failed_frame.h>
#include <psring/optim/codec/compression.h>
#include <psring/optim/loss_scaler.h>
#include <psring/worker/servers/client_protocol.h>

namespace psring::worker {

using net::FrameHeader;
using net::FrameType;

ClientProtocol::ClientProtocol(Layout layout, Mark mark, std::size_t first_owner, const optim::Codec* codec,
                               bool copied_pushes)
    : layout_(std::move(layout)),
      mark_(std::move(mark)),
      first_owner_(first_owner),
      codec_(codec),
      copied_pushes_(copied_pushes) {
  units_.resize(layout_.units.size());
}

void ClientProtocol::make_exchanges() {
  if (!exchanges_.empty()) return;
  for (const Piece& piece : make_pieces(layout_)) {
    Unit& unit = units_[piece.unit];
    if (unit.first == unit.last) unit.first = exchanges_.size();
    Range pushed = piece.range;
    if (codec_ != nullptr) {
      pushed.begin = unit.first == exchanges_.size() ? 0 : exchanges_.back().pushed.end;
      pushed.end = pushed.begin + codec_->bytes(piece.range.size());
    }
    exchanges_.push_back({.piece = piece, .pushed = pushed});
    unit.last = exchanges_.size();
  }
  const auto turn = [&](std::size_t s) {
    const Piece& piece = exchanges_[s].piece;
    const Range owned = layout_.partition(piece.unit).range(piece.owner);
    const double part = static_cast<double>(piece.range.begin - owned.begin) / static_cast<double>(owned.size());
    return std::pair(part, (piece.owner + layout_.owners - first_owner_ % layout_.owners) % layout_.owners);
  };
  order_.resize(exchanges_.size());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  for (const Unit& unit : units_)
    std::sort(order_.begin() + static_cast<std::ptrdiff_t>(unit.first),
              order_.begin() + static_cast<std::ptrdiff_t>(unit.last),
              [&](std::size_t a, std::size_t b) { return turn(a) < turn(b); });
}

void ClientProtocol::open(std::uint64_t seed, bool initial_by_worker, Frames& out) {
  make_exchanges();
  layout_bytes_ = net::encode(net::LayoutMessage{layout_, seed, initial_by_worker});
  for (std::uint32_t server = 0; server < layout_.owners; ++server) {
    FrameHeader header;
    header.type = FrameType::layout;
    header.flags = FrameHeader::kStartUp;
    out.push_back({{net::Role::server, server}, header, layout_bytes_});
    layouts_missing_.insert(server);
  }
}

std::uint64_t ClientProtocol::version() const {
  check(opened(), "nothing is known of servers that have not taken the layout");
  std::uint64_t least = kFinalVersion;
  for (const auto& [server, said] : opened_) least = std::min(least, said.version);
  return least;
}

std::span<const std::byte> ClientProtocol::loss_scale() const {
  const std::uint64_t least = version();
  const auto at =
      std::find_if(opened_.begin(), opened_.end(), [&](const auto& o) { return o.second.version == least; });
  return at->second.loss_scale;
}

FrameHeader ClientProtocol::header(const PieceExchange& exchange, FrameType type, DType dtype) const {
  FrameHeader header;
  header.dtype = dtype;
  header.type = type;
  header.unit = static_cast<std::uint32_t>(exchange.piece.unit);
  header.set_range(exchange.piece.range);
  return header;
}

namespace {

net::Peer owner(const Piece& piece) { return {net::Role::server, static_cast<std::uint32_t>(piece.owner)}; }

}  // namespace

void ClientProtocol::initial(std::size_t unit, std::span<const float> values, Frames& out) {
  for_each_exchange(units_[unit], [&](const PieceExchange& exchange) {
    FrameHeader head = header(exchange, FrameType::initial, DType::f32);
    head.flags = FrameHeader::kStartUp;
    out.push_back({owner(exchange.piece), head, ConstElements(values).part(exchange.piece.range).bytes()});
  });
}

FrameHeader ClientProtocol::push_header(const PieceExchange& exchange, FrameType type, std::uint64_t step) const {
  FrameHeader header = this->header(exchange, type, layout_.gradient_type);
  header.step = step;
  if (codec_ != nullptr) header.encoding = codec_->encoding();
  return header;
}

void ClientProtocol::push(std::size_t unit, std::uint64_t step, std::size_t micro, ConstElements gradient,
                          Frames& out) {
  Unit& state = units_[unit];
  for_each_exchange(state, [&](PieceExchange& exchange) {
    FrameHeader head = push_header(exchange, FrameType::push, step);
    head.micro = static_cast<std::uint32_t>(micro);
    head.flags = FrameHeader::kWantAck | (copied_pushes_ ? FrameHeader::kCopy : 0);
    ++exchange.unacknowledged;
    ++state.unacknowledged;
    out.push_back({owner(exchange.piece), head, gradient.part(exchange.pushed).bytes()});
  });
}

void ClientProtocol::ask(Unit& unit, PieceExchange& exchange, std::uint64_t version, FrameHeader& header) {
  check(!exchange.waiting, "unit {} is pulled twice at once", exchange.piece.unit);
  exchange.waiting = true;
  exchange.updates = false;
  exchange.wanted = version;
  ++unit.missing;
  header.version = version;
  header.dest = mark_ && header.dtype == unit.into.type() ? mark_(unit.into.part(exchange.piece.range).data()) : 0;
}

void ClientProtocol::pull(std::size_t unit, std::uint64_t version, Elements into, bool start_up, Frames& out) {
  Unit& state = units_[unit];
  state.into = into;
  for_each_exchange(state, [&](PieceExchange& exchange) {
    FrameHeader head = header(exchange, FrameType::pull, into.type());
    if (start_up) head.flags = FrameHeader::kStartUp;
    ask(state, exchange, version, head);
    out.push_back({owner(exchange.piece), head, {}});
  });
}

void ClientProtocol::push_pull(std::size_t unit, std::uint64_t step, ConstElements gradient, Elements into,
                               Frames& out) {
  Unit& state = units_[unit];
  state.into = into;
  for_each_exchange(state, [&](PieceExchange& exchange) {
    FrameHeader head = push_header(exchange, FrameType::push_pull, step);
    ask(state, exchange, step + 1, head);
    exchange.updates = true;
    out.push_back({owner(exchange.piece), head, gradient.part(exchange.pushed).bytes()});
  });
}

void ClientProtocol::leave(Frames& out) const {
  for (std::uint32_t server = 0; server < layout_.owners; ++server) {
    FrameHeader header;
    header.type = FrameType::leave;
    out.push_back({{net::Role::server, server}, header, {}});
  }
}

void ClientProtocol::save(std::uint64_t version, std::size_t others, Frames& out) {
  for (std::uint32_t server = 0; server < layout_.owners; ++server) {
    FrameHeader header;
    header.type = FrameType::save;
    header.step = version;
    header.version = others;
    out.push_back({{net::Role::server, server}, header, {}});
    saves_missing_.insert(server);
  }
}

void ClientProtocol::written(std::uint64_t version, Frames& out) const {
  for (std::uint32_t server = 0; server < layout_.owners; ++server) {
    FrameHeader header;
    header.type = FrameType::saved;
    header.step = version;
    out.push_back({{net::Role::server, server}, header, {}});
  }
}

void ClientProtocol::on_message(const net::Message& message) {
  const FrameHeader& header = message.header;
  const auto peer = [&] { return to_string(header.sender()); };
  if (header.sender_role != net::Role::server)
    fail(ErrorKind::protocol, "a {} frame of {}", to_string(header.type), peer());
  switch (header.type) {
    case FrameType::layout_ok:
      if (layouts_missing_.erase(header.sender_rank) == 0)
        fail(ErrorKind::protocol, "{} takes a layout that it was not sent", peer());
      if (message.payload.size() > optim::LossScaler::kBytes)
        fail(ErrorKind::protocol, "{} takes the layout with {} bytes of payload", peer(), message.payload.size());
      opened_[header.sender_rank] = {header.version, {message.payload.begin(), message.payload.end()}};
      return;
    case FrameType::push_ack: {
      PieceExchange& exchange = find(header);
      if (exchange.unacknowledged == 0) fail(ErrorKind::protocol, "{} acknowledges a push that was not made", peer());
      add_staleness(header);
      exchange.heard = header.version;
      --exchange.unacknowledged;
      --units_[exchange.piece.unit].unacknowledged;
      return;
    }
    case FrameType::saved:
      if (saves_missing_.erase(header.sender_rank) == 0)
        fail(ErrorKind::protocol, "{} has saved what it was not asked to", peer());
      if ((header.flags & FrameHeader::kSkipped) != 0) last_skipped_ = header.step;
      return;
    case FrameType::values:
      return on_values(message);
    case FrameType::failed:
      throw net::error_of(message);
    default:
      fail(ErrorKind::protocol, "{} sent a {} frame", peer(), to_string(header.type));
  }
}

void ClientProtocol::on_values(const net::Message& message) {
  const FrameHeader& header = message.header;
  PieceExchange& exchange = find(header);
  Unit& unit = units_[exchange.piece.unit];
  // Before the first pull there is no place to put anything.
  if (!exchange.waiting || header.version < exchange.wanted || header.dtype != unit.into.type() ||
      message.payload.size() != header.range().size() * size_bytes(header.dtype))
    fail(ErrorKind::protocol, "{} sent version {} of unit {}, which was not asked for", to_string(header.sender()),
         header.version, header.unit);
  const Elements into = unit.into.part(header.range());
  if (message.payload.data() != into.data()) std::memcpy(into.data(), message.payload.data(), message.payload.size());
  if ((header.flags & FrameHeader::kSkipped) != 0) last_skipped_ = header.version;
  if (exchange.updates) add_staleness(header);
  exchange.version = exchange.heard = header.version;
  exchange.arrived = true;
  exchange.waiting = false;
  --unit.missing;
}

ClientProtocol::PieceExchange& ClientProtocol::find(const FrameHeader& header) {
  if (header.unit < units_.size()) {
    const Unit& unit = units_[header.unit];
    const auto begin = exchanges_.begin() + static_cast<std::ptrdiff_t>(unit.first);
    const auto end = exchanges_.begin() + static_cast<std::ptrdiff_t>(unit.last);
    const auto at = std::lower_bound(begin, end, header.begin, [](const PieceExchange& exchange, std::size_t b) {
      return exchange.piece.range.begin < b;
    });
    if (at != end && at->piece.range == header.range() && at->piece.owner == header.sender_rank) return *at;
  }
  fail(ErrorKind::protocol, "{} answers for [{}, {}) of unit {}, which it does not own", to_string(header.sender()),
       header.begin, header.end, header.unit);
}

void ClientProtocol::add_staleness(const FrameHeader& header) {
  staleness_.sum += header.staleness;
  ++staleness_.updates;
}

std::uint64_t ClientProtocol::heard(std::size_t unit) const {
  std::uint64_t oldest = exchanges_[units_[unit].first].heard;
  for (std::size_t i = units_[unit].first; i < units_[unit].last; ++i) oldest = std::min(oldest, exchanges_[i].heard);
  return oldest;
}

bool ClientProtocol::arrived(std::size_t unit) const {
  const Unit& state = units_[unit];
  return std::all_of(exchanges_.begin() + static_cast<std::ptrdiff_t>(state.first),
                     exchanges_.begin() + static_cast<std::ptrdiff_t>(state.last),
                     [](const PieceExchange& exchange) { return exchange.arrived; });
}

bool ClientProtocol::has(std::size_t unit, std::uint64_t version) const {
  const Unit& state = units_[unit];
  if (state.missing != 0) return false;
  return std::all_of(exchanges_.begin() + static_cast<std::ptrdiff_t>(state.first),
                     exchanges_.begin() + static_cast<std::ptrdiff_t>(state.last),
                     [&](const PieceExchange& exchange) { return exchange.arrived && exchange.version >= version; });
}

}  // namespace psring::worker
