#include <bit>

#include <psring/common/base/text/error.h>
#include <psring/common/net/row_flags.h>
#include <psring/worker/programs/unpaired_rows.h>

namespace psring::worker {

using net::FrameHeader;
using Frames = RowClient::Frames;

UnpairedRows::UnpairedRows(PsClient& client) : rows_(client), lists_(client.layout().tables.size()) {
  rows_.protocol().set_listener(
      [this](std::size_t table, std::span<const std::byte> payload) { take_list(table, payload); });
}

void UnpairedRows::fetch(std::size_t table, std::span<const std::uint64_t> keys, std::uint64_t version, Elements into) {
  rows_.send([&](Frames& out) { rows_.protocol().ask(table, {.keys = keys}, version, into, net::kUnpaired, out); });
}

void UnpairedRows::push(std::size_t table, std::span<const RowFrame> frames, Payloads payloads, std::uint64_t step,
                        float lr) {
  FrameHeader like;
  like.dtype = rows_.layout().tables[table].type;
  like.flags = FrameHeader::kWantAck | net::kUnpaired;
  like.micro = std::bit_cast<std::uint32_t>(lr);
  like.step = step;
  send(table, frames, payloads, like);
}

void UnpairedRows::assign(std::size_t table, std::span<const RowFrame> frames, Payloads payloads) {
  FrameHeader like;
  like.dtype = DType::f32;
  like.flags = FrameHeader::kWantAck | net::kUnpaired | FrameHeader::kStartUp;
  send(table, frames, payloads, like);
}

/// Sends frames with the type, flags, learning rate and step of `like`.
void UnpairedRows::send(std::size_t table, std::span<const RowFrame> frames, Payloads payloads,
                        const FrameHeader& like) {
  rows_.send([&](Frames& out) {
    for (std::size_t i = 0; i < frames.size(); ++i) {
      FrameHeader head = rows_.protocol().header(table, frames[i], net::FrameType::rows_push, like.step);
      head.dtype = like.dtype;
      head.flags = like.flags;
      head.micro = like.micro;
      out.push_back({{net::Role::server, static_cast<std::uint32_t>(frames[i].owner)}, head, payloads[i]});
    }
    rows_.protocol().await(table, frames.size());
  });
}

void UnpairedRows::list(std::size_t table, const RowFrame& piece, const std::uint64_t& first, std::size_t most) {
  const std::size_t each = sizeof(std::uint64_t) + rows_.layout().tables[table].width * sizeof(float);
  lists_[table] = {most * each, std::nullopt};
  rows_.send([&](Frames& out) {
    FrameHeader head = rows_.protocol().header(table, piece, net::FrameType::rows_pull, 0);
    head.dtype = DType::f32;
    head.flags = net::kListed | FrameHeader::kStartUp;
    head.micro = static_cast<std::uint32_t>(most);
    out.push_back(
        {{net::Role::server, static_cast<std::uint32_t>(piece.owner)}, head, std::as_bytes(std::span(&first, 1))});
  });
}

void UnpairedRows::take_list(std::size_t table, std::span<const std::byte> payload) {
  const std::size_t each = sizeof(std::uint64_t) + rows_.layout().tables[table].width * sizeof(float);
  List& own = lists_[table];
  if (own.most_bytes < payload.size() || payload.size() % each != 0 || own.listed)
    fail(ErrorKind::protocol, "a server sent a list of {} bytes of table '{}' that was not asked for", payload.size(),
         rows_.layout().tables[table].name);
  own.listed.emplace(payload.begin(), payload.end());
}

}  // namespace psring::worker
