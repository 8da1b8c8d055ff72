// Unpaired frames of rows: pushes that bring their keys, values that are assigned, and lists of rows.
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/optim/rows/row_hash.h>
#include <psring/server/requests.h>
#include <psring/server/table_shard.h>

namespace psring::server {

using net::FrameHeader;
using net::FrameType;
using net::Message;

/// Books the keys that unpaired frames can make this server hold beyond those of two steps.
void TableShard::begin_unpaired(Table& table) {
  if (std::exchange(table.unpaired, true)) return;
  const std::size_t bytes = optim::key_list_bytes(table.layout, options_.workers, false, is_exact()) / 2;
  ledger_.book(Category::communication, bytes);
  booked_ += bytes;
}

/// Takes the gradients of a step, which begin with their keys.
void TableShard::on_unpaired_push(Table& table, Piece& piece, Message message, Answers& answers) {
  const FrameHeader header = message.header;
  const std::size_t each = sizeof(std::uint64_t) + table.layout.row_bytes();
  const std::size_t count = message.payload.size() / each;
  const float lr = std::bit_cast<float>(header.micro);
  if (message.payload.size() % each != 0)
    fail(ErrorKind::protocol, "{} bytes of keys and gradients of {} bytes each", message.payload.size(), each);
  if (!std::isfinite(lr)) fail(ErrorKind::protocol, "gradients with the learning rate {}", lr);
  for (std::size_t worker = 0; is_exact() && worker < piece.workers.size(); ++worker)
    for (const Pulled& other : piece.workers[worker])
      if (other.step == header.step && other.lr && *other.lr != lr)
        fail(ErrorKind::data, "worker {} pushes step {} of table '{}' with learning rate {:g}, worker {} with {:g}",
             header.sender_rank, header.step, table.layout.name, lr, worker, *other.lr);
  const std::uint64_t at = due(table, piece, header.sender_rank);
  if (header.step > at)
    fail(ErrorKind::protocol, "gradients of step {} with their keys, where step {} is due", header.step, at);
  WorkerMemory& own = table.workers[header.sender_rank];
  const std::size_t before = own.pushed_step == header.step ? own.pushed : 0;
  if (before + count > table.layout.most_keys)
    fail(ErrorKind::protocol, "gradients of {} keys of one step, at most {} expected", before + count,
         table.layout.most_keys);
  PulledFrame read = read_keys(table, piece, header, message.payload.first(count * sizeof(std::uint64_t)), false);
  PulledFrame& frame = keep(piece, header, at, std::move(read));
  begin_unpaired(table);
  own.keys += count;
  own.pushed = before + count;
  own.pushed_step = header.step;
  frame.gradients = std::move(message);
  Pulled& list = piece.workers[header.sender_rank].back();
  list.lr = lr;
  ++list.pushed;
  use_pushes(table, piece, header.sender_rank, answers);
}

/// Gives rows values, from worker 0 alone, which has to keep the others waiting meanwhile.
void TableShard::assign(Table& table, const Piece& piece, const Message& message, Answers& answers) {
  const FrameHeader& header = message.header;
  const std::size_t each = sizeof(std::uint64_t) + table.layout.width * sizeof(float);
  const std::size_t count = message.payload.size() / each;
  if (header.sender_rank != 0) fail(ErrorKind::protocol, "values of rows come from worker 0");
  if (message.payload.size() % each != 0)
    fail(ErrorKind::protocol, "{} bytes of keys and values of {} bytes each", message.payload.size(), each);
  const std::span<const std::byte> bytes = message.payload;
  const PulledFrame read = read_keys(table, piece, header, bytes.first(count * sizeof(std::uint64_t)), false);
  table.rows->assign(read.keys, {bytes.data() + count * sizeof(std::uint64_t), count * table.layout.width, DType::f32});
  answers.push_back({header.sender(), answer_to(header, FrameType::rows_ack), {}});
}

/// Answers with the trained rows of a range, from a key on.
void TableShard::list(Table& table, const Piece& piece, const Message& message, Answers& answers) {
  const FrameHeader& header = message.header;
  std::uint64_t first = 0;
  if (message.payload.size() != sizeof first || header.range() != piece.buckets)
    fail(ErrorKind::protocol, "a list of rows of buckets [{}, {}) from a key of {} bytes", header.begin, header.end,
         message.payload.size());
  std::memcpy(&first, message.payload.data(), sizeof first);
  if (optim::bucket_of(first) < header.begin) first = std::uint64_t{header.begin} << 44;
  const std::size_t each = sizeof(std::uint64_t) + table.layout.width * sizeof(float);
  const std::size_t most = std::min<std::size_t>({header.micro, table.layout.most_keys, net::kMaxPayloadBytes / each});
  const std::vector<std::uint64_t> keys = table.rows->list(first, (std::uint64_t{header.end} << 44) - 1, most);
  Buffer& listed = table.workers[header.sender_rank].listed;
  if (listed.size_bytes() < keys.size() * each)
    listed = Buffer(table.layout.most_keys * each, Category::communication, ledger_);
  const std::span<std::byte> bytes = listed.bytes().first(keys.size() * each);
  const std::size_t key_bytes = keys.size() * sizeof(std::uint64_t);
  if (!keys.empty()) std::memcpy(bytes.data(), keys.data(), key_bytes);
  table.rows->read(keys, {bytes.data() + key_bytes, keys.size() * table.layout.width, DType::f32});
  FrameHeader answer = answer_to(header, FrameType::rows);
  answer.version = piece.version;
  answers.push_back({header.sender(), answer, bytes});
}

}  // namespace psring::server
