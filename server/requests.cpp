#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <string_view>

#include <psring/common/base/text/error.h>
#include <psring/common/net/row_flags.h>
#include <psring/optim/rows/table_rows.h>
#include <psring/optim/state_memory.h>
#include <psring/server/requests.h>
#include <psring/server/rounds.h>
#include <psring/server/table_shard.h>

namespace psring::server {

net::FrameHeader answer_to(const net::FrameHeader& asked, net::FrameType type) {
  net::FrameHeader header;
  header.type = type;
  header.unit = asked.unit;
  header.set_range(asked.range());
  header.step = asked.step;
  header.dest = asked.dest;
  header.flags = asked.flags & (net::FrameHeader::kStartUp | net::kUnpaired | net::kListed | net::kAhead);
  return header;
}

void set_staleness(const Staleness& gradient, net::FrameHeader& answer) {
  const auto bounded = [](std::uint64_t value) {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(value, std::numeric_limits<std::uint32_t>::max()));
  };
  answer.staleness = bounded(gradient.staleness);
  answer.lag = bounded(gradient.lag);
}

net::Outgoing failed(const net::FrameHeader& asked, const Error& error) {
  constexpr std::size_t kMost = 1024;
  const auto text = std::make_shared<const std::string>(
      std::string_view(error.what()).substr(0, kMost));  // shared: the frame's holder
  net::FrameHeader header = answer_to(asked, net::FrameType::failed);
  header.version = static_cast<std::uint64_t>(exit_status(error.kind()));
  return {asked.sender(), header, std::as_bytes(std::span(*text)), text};
}

namespace {

/// True for frames with a gradient.
bool is_push(net::FrameType type) { return type == net::FrameType::push || type == net::FrameType::push_pull; }
/// The bookkeeping of all pieces of the shard, in bytes.
std::size_t bookkeeping_bytes(const ShardOptions& options, const Layout& layout) {
  std::size_t bytes = 0;
  for (std::size_t unit = 0; unit < layout.units.size(); ++unit) {
    const std::size_t owned = layout.owned(unit, options.rank);
    const std::size_t pieces = round_up(owned, layout.piece_elements) / layout.piece_elements;
    const std::size_t pushes = layout.units[unit].trained ? layout.pushes : 0;
    bytes += pieces * (sizeof(StoredPiece) + Rounds::bytes(pushes, options.workers));
  }
  return bytes;
}

/// The memory of tables before the first row, in bytes.
double table_bytes(const ShardOptions& options, const Layout& layout) {
  double bytes = 0;  // in floating point: products of a message's numbers may not fit into any integer
  for (const TableLayout& table : layout.tables) {
    TableLayout one = table;
    one.most_keys = 1;
    const bool exact = !options.row_consistency.each_push_updates;
    const optim::TableRule& rule = options.row_rules->of(table.name);
    const std::size_t key = optim::key_list_bytes(one, 1, rule.rows.counts(), exact) + table.row_bytes();
    bytes += static_cast<double>(options.workers) * static_cast<double>(table.most_keys) * static_cast<double>(key) +
             static_cast<double>(optim::TableRows::scratch_bytes(table.width)) +
             static_cast<double>(table.pieces) * static_cast<double>(TableShard::piece_bytes(table, options.workers));
  }
  return bytes;
}

/// The memory that a shard needs for a layout, in bytes.
std::size_t needed_bytes(const ShardOptions& options, const Layout& layout) {
  const std::size_t parameter = size_bytes(layout.parameter_type);
  const std::size_t gradient = size_bytes(layout.gradient_type);
  const std::size_t trained = layout.owned_trained_elements(options.rank);
  const std::size_t bookkeeping = bookkeeping_bytes(options, layout);
  if (options.optimizer == nullptr) return gradient * trained + bookkeeping;
  const std::size_t state = options.optimizer->slots() * optim::slot_bytes(*options.optimizer, trained);
  const std::size_t master = options.keeps_master(layout) ? sizeof(float) : 0;
  const std::size_t mean = options.keeps_mean(layout) ? gradient : 0;
  const std::size_t copies = options.consistency.exact() ? 0 : options.workers * parameter;
  return state + (parameter + master + mean + copies) * trained + parameter * layout.owned_elements(options.rank) +
         bookkeeping;
}

}  // namespace

void check_worker(const ShardOptions& options, const net::FrameHeader& header) {
  if (header.sender_role != net::Role::worker || header.sender_rank >= options.workers)
    fail(ErrorKind::protocol, "{} is no worker of this job", to_string(header.sender()));
}

void check_layout(const ShardOptions& options, const Layout& layout) {
  if (layout.owners != options.servers)
    fail(ErrorKind::data, "a layout cut among {} servers, the job has {}", layout.owners, options.servers);
  if (options.optimizer == nullptr && layout.pushes > 1)
    fail(ErrorKind::data, "a layout of {} micro-batches, which a server without an optimizer does not add up",
         layout.pushes);
  if (!layout.tables.empty()) {
    if (options.row_rules == nullptr || options.optimizer == nullptr)
      fail(ErrorKind::data, "a layout with tables, of which this server has no rows");
    if (const double needed = table_bytes(options, layout); needed > static_cast<double>(options.memory_bytes))
      fail(ErrorKind::data, "tables that take {:.0f} MiB of a server, {} MiB are allowed", needed / (1 << 20),
           options.memory_bytes >> 20);
  }
  if (const std::size_t needed = needed_bytes(options, layout); needed > options.memory_bytes)
    fail(ErrorKind::data, "a layout that takes {} MiB of a server, {} MiB are allowed", needed >> 20,
         options.memory_bytes >> 20);
}

void check_form(const ShardOptions& options, const Layout& layout, DType answered, const net::Message& message) {
  const net::FrameHeader& header = message.header;
  const std::size_t elements = header.range().size();
  const DType expected = header.type == net::FrameType::initial ? DType::f32
                         : header.type == net::FrameType::pull  ? answered
                                                                : layout.gradient_type;
  if (header.dtype != expected)
    fail(ErrorKind::protocol, "elements of type {}, {} expected", name_of(header.dtype), name_of(expected));
  const optim::Codec* const codec = is_push(header.type) ? options.codec : nullptr;
  if (header.encoding != (codec != nullptr ? codec->encoding() : net::Encoding::dense))
    fail(ErrorKind::protocol, "a {} in encoding {}", to_string(header.type), static_cast<int>(header.encoding));
  const std::size_t carried = header.type == net::FrameType::pull ? 0
                              : codec != nullptr                  ? codec->bytes(elements)
                                                                  : elements * size_bytes(expected);
  if (message.payload.size() != carried)
    fail(ErrorKind::protocol, "a {} with {} bytes of payload, {} expected", to_string(header.type),
         message.payload.size(), carried);
  if (codec != nullptr) codec->check_form(message.payload, elements);
  const std::size_t answer = elements * size_bytes(answered);
  if (!message.reply_space.empty() && message.reply_space.size() != answer)
    fail(ErrorKind::protocol, "space of {} bytes for an answer of {}", message.reply_space.size(), answer);
}

}  // namespace psring::server
