#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>

#include <fmt/ranges.h>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/text.h>
#include <psring/common/net/frame.h>
#include <psring/common/net/layout_message.h>

namespace psring::net {
namespace {

constexpr std::size_t kMaxName = 256;
constexpr std::size_t kMaxTensors = std::size_t{1} << 20;
constexpr std::size_t kMaxDimensions = 8;
constexpr std::size_t kMaxPushes = 1 << 16;
constexpr std::size_t kMaxElements = std::size_t{1} << 48;
constexpr std::size_t kMaxRanges = 1 << 16;
constexpr std::size_t kMaxTables = 4096;
constexpr std::size_t kMaxWidth = 8192;
constexpr std::size_t kMaxKeys = std::size_t{1} << 32;
constexpr std::size_t kMaxTablePieces = 256;
constexpr std::size_t kMaxLookahead = 16;

// The second number of a message; tables follow the units if there are any.
constexpr std::uint64_t kInitialByWorker = 1;
constexpr std::uint64_t kHasTables = 2;

// The lowest two bits of a tensor's `init` are its kind; these bits say which further fields follow because of the
// job's mesh.
constexpr std::uint64_t kNotCounted = 4;
constexpr std::uint64_t kSlice = 8;

class Writer {
 public:
  void number(std::uint64_t value) { raw(&value, sizeof value); }
  void real(float value) { raw(&value, sizeof value); }
  void text(const std::string& value) {
    number(value.size());
    raw(value.data(), value.size());
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void raw(const void* data, std::size_t size) {
    const auto* begin = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), begin, begin + size);
  }
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::uint64_t number(std::uint64_t most, std::string_view what) {
    std::uint64_t value = 0;
    raw(&value, sizeof value);
    if (value > most) fail(ErrorKind::protocol, "layout: {} is {}, at most {} is allowed", what, value, most);
    return value;
  }
  float real() {
    float value = 0;
    raw(&value, sizeof value);
    return value;
  }
  std::string text() {
    std::string value(number(kMaxName, "the length of a name"), '\0');
    raw(value.data(), value.size());
    if (!is_utf8(value)) fail(ErrorKind::protocol, "layout: the name '{}' is not UTF-8", with_escapes(value));
    return value;
  }
  std::size_t left() const { return bytes_.size(); }
  void end() const {
    if (!bytes_.empty()) fail(ErrorKind::protocol, "layout: {} bytes too many", bytes_.size());
  }

 private:
  void raw(void* out, std::size_t size) {
    if (size > bytes_.size()) fail(ErrorKind::protocol, "layout: ends too early");
    std::memcpy(out, bytes_.data(), size);
    bytes_ = bytes_.subspan(size);
  }
  std::span<const std::byte> bytes_;
};

std::vector<std::size_t> read_shape(Reader& in, std::size_t dimensions) {
  std::vector<std::size_t> shape(dimensions);
  std::size_t elements = 1;
  for (std::size_t& extent : shape) {
    extent = in.number(kMaxElements, "an extent of a tensor");
    if (extent != 0 && elements > kMaxElements / extent) fail(ErrorKind::protocol, "layout: tensor too large");
    elements *= extent;
  }
  return shape;
}

/// `shape`: of the slice, which differs from the whole tensor's along one axis alone.
TensorSlice read_slice(Reader& in, const std::vector<std::size_t>& shape) {
  TensorSlice slice{.whole_shape = read_shape(in, shape.size()),
                    .axis = in.number(kMaxDimensions, "the axis of a slice"),
                    .ranges = {}};
  if (slice.axis >= shape.size()) fail(ErrorKind::protocol, "layout: a slice along axis {}", slice.axis);
  std::vector<std::size_t> expected = slice.whole_shape;
  const std::size_t whole = expected[slice.axis];
  expected[slice.axis] = 0;
  slice.ranges.resize(in.number(kMaxRanges, "the number of a slice's ranges"));
  std::size_t next = 0;
  for (Range& range : slice.ranges) {
    range.begin = in.number(whole, "the begin of a slice's range");
    range.end = in.number(whole, "the end of a slice's range");
    if (range.begin < next || range.end < range.begin)
      fail(ErrorKind::protocol, "layout: a slice with [{}, {}) after {}", range.begin, range.end, next);
    next = range.end;
    expected[slice.axis] += range.size();
  }
  if (expected != shape) fail(ErrorKind::protocol, "layout: a slice of another shape than its ranges give");
  return slice;
}

Init read_init(Reader& in, std::uint64_t kind) {
  if (kind > 2) fail(ErrorKind::protocol, "layout: initial values of kind {}", kind);
  return {static_cast<Init::Kind>(kind), in.real()};
}

TensorLayout read_tensor(Reader& in) {
  TensorLayout tensor;
  tensor.spec.name = in.text();
  tensor.spec.shape = read_shape(in, in.number(kMaxDimensions, "the number of a tensor's dimensions"));
  const std::uint64_t init = in.number(kSlice + kNotCounted + 2, "the kind of a tensor");
  tensor.spec.init = read_init(in, init & (kNotCounted - 1));
  tensor.id = static_cast<std::uint32_t>(in.number(kMaxTensors, "the number of a tensor"));
  tensor.counted = (init & kNotCounted) == 0;
  if ((init & kSlice) != 0) tensor.spec.slice = read_slice(in, tensor.spec.shape);
  return tensor;
}

/// A message without weights has owners of the same size.
CutWeights read_weights(Reader& in, std::size_t owners) {
  if (in.left() != owners * sizeof(std::uint64_t)) return {};
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
  std::vector<std::uint32_t> weights;
  std::uint64_t sum = 0;
  for (std::size_t owner = 0; owner < owners; ++owner) {
    weights.push_back(static_cast<std::uint32_t>(in.number(kMost, "the weight of an owner")));
    sum += weights.back();
    if (weights.back() == 0 || sum > kMost)
      fail(ErrorKind::protocol, "layout: a weight of {}, {} in all", weights.back(), sum);
  }
  return CutWeights(weights);
}

DType read_type(Reader& in) {
  const auto type = static_cast<DType>(in.number(kDTypes - 1, "an element type"));
  if (type != DType::f32 && type != DType::f16 && type != DType::bf16)
    fail(ErrorKind::protocol, "layout: elements of type {} are not supported", name_of(type));
  return type;
}

TableLayout read_table(Reader& in) {
  TableLayout table;
  table.name = in.text();
  table.width = in.number(kMaxWidth, "the width of a table");
  table.type = read_type(in);
  table.init = read_init(in, in.number(2, "the kind of a table's initial values"));
  table.most_keys = in.number(kMaxKeys, "most_keys of a table");
  table.most_bags = in.number(kMaxKeys, "most_bags of a table");
  table.pieces = in.number(kMaxTablePieces, "the number of a table's pieces");
  table.lookahead = in.number(kMaxLookahead, "lookahead of a table");
  if (table.width == 0 || table.pieces == 0 || table.type == DType::f16)
    fail(ErrorKind::protocol, "layout: table '{}' of width {} and type {} in {} pieces", table.name, table.width,
         name_of(table.type), table.pieces);
  return table;
}

void write_table(const TableLayout& table, Writer& out) {
  out.text(table.name);
  out.number(table.width);
  out.number(static_cast<std::uint64_t>(table.type));
  out.number(static_cast<std::uint64_t>(table.init.kind));
  out.real(table.init.a);
  out.number(table.most_keys);
  out.number(table.most_bags);
  out.number(table.pieces);
  out.number(table.lookahead);
}

void write_tensor(const TensorLayout& tensor, Writer& out) {
  out.text(tensor.spec.name);
  out.number(tensor.spec.shape.size());
  for (const std::size_t extent : tensor.spec.shape) out.number(extent);
  out.number(static_cast<std::uint64_t>(tensor.spec.init.kind) + (tensor.counted ? 0 : kNotCounted) +
             (tensor.spec.slice ? kSlice : 0));
  out.real(tensor.spec.init.a);
  out.number(tensor.id);
  if (!tensor.spec.slice) return;
  for (const std::size_t extent : tensor.spec.slice->whole_shape) out.number(extent);
  out.number(tensor.spec.slice->axis);
  out.number(tensor.spec.slice->ranges.size());
  for (const Range& range : tensor.spec.slice->ranges) {
    out.number(range.begin);
    out.number(range.end);
  }
}

}  // namespace

std::vector<std::byte> encode(const LayoutMessage& message) {
  Writer out;
  out.number(message.seed);
  out.number((message.initial_by_worker ? kInitialByWorker : 0) + (message.layout.tables.empty() ? 0 : kHasTables));
  out.number(message.layout.owners);
  out.number(message.layout.piece_elements);
  out.number(static_cast<std::uint64_t>(message.layout.parameter_type));
  out.number(static_cast<std::uint64_t>(message.layout.gradient_type));
  out.number(message.layout.pushes);
  out.number(message.layout.units.size());
  for (const UnitLayout& unit : message.layout.units) {
    out.text(unit.name);
    out.number(unit.trained ? 1 : 0);
    out.number(unit.tensors.size());
    for (const TensorLayout& tensor : unit.tensors) write_tensor(tensor, out);
  }
  if (!message.layout.tables.empty()) out.number(message.layout.tables.size());
  for (const TableLayout& table : message.layout.tables) write_table(table, out);
  const CutWeights& weights = message.layout.weights;
  for (std::size_t owner = 0; owner < weights.owners(); ++owner) out.number(weights.weight(owner));
  return out.take();
}

LayoutMessage decode_layout(std::span<const std::byte> bytes) {
  if (bytes.size() > kMaxPayloadBytes)
    fail(ErrorKind::protocol, "layout: {} bytes, at most {} are allowed", bytes.size(), kMaxPayloadBytes);
  Reader in(bytes);
  LayoutMessage message;
  message.seed = in.number(~std::uint64_t{0}, "the seed");
  const std::uint64_t flags = in.number(kInitialByWorker + kHasTables, "the flags");
  message.initial_by_worker = (flags & kInitialByWorker) != 0;
  const std::size_t owners = in.number(1 << 16, "the number of owners");
  if (owners == 0) fail(ErrorKind::protocol, "layout: no owners");
  const std::size_t piece_elements = in.number(kPieceElements, "the size of pieces");
  if (piece_elements < kLeastPieceElements || piece_elements % kCut != 0)
    fail(ErrorKind::protocol, "layout: pieces of {} elements", piece_elements);
  const DType parameter_type = read_type(in);
  const DType gradient_type = read_type(in);
  const std::size_t pushes = in.number(kMaxPushes, "the number of pushes");
  if (pushes == 0) fail(ErrorKind::protocol, "layout: no pushes");
  const std::size_t count = in.number(kMaxTensors, "the number of units");
  std::vector<UnitSpec> units;
  std::size_t elements = 0;
  for (std::size_t u = 0; u < count; ++u) {
    UnitSpec unit;
    unit.name = in.text();
    unit.trained = in.number(1, "whether a unit is trained") == 1;
    const std::size_t tensors = in.number(kMaxTensors, "the number of a unit's tensors");
    for (std::size_t t = 0; t < tensors; ++t) {
      unit.tensors.push_back(read_tensor(in));
      elements += unit.tensors.back().spec.elements();
      if (elements > kMaxElements) fail(ErrorKind::protocol, "layout: more than {} elements", kMaxElements);
    }
    units.push_back(std::move(unit));
  }
  std::vector<TableLayout> tables;
  const std::size_t table_count = (flags & kHasTables) != 0 ? in.number(kMaxTables, "the number of tables") : 0;
  if (table_count > 0 && owners > kMostTableOwners)
    fail(ErrorKind::protocol, "layout: {} owners of a table, at most {}", owners, kMostTableOwners);
  for (std::size_t t = 0; t < table_count; ++t) tables.push_back(read_table(in));
  CutWeights weights = read_weights(in, owners);
  in.end();
  message.layout = make_layout(std::move(units), owners);
  message.layout.weights = std::move(weights);
  message.layout.piece_elements = piece_elements;
  message.layout.parameter_type = parameter_type;
  message.layout.gradient_type = gradient_type;
  message.layout.pushes = pushes;
  message.layout.tables = std::move(tables);
  return message;
}

namespace {

/// "WHAT A, not B" if the values differ; otherwise "".
template <class T>
std::string if_different(std::string_view what, const T& a, const T& b) {
  return a == b ? "" : fmt::format("{} {}, not {}", what, a, b);
}

std::string text_of(const std::vector<std::size_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string first_of(std::initializer_list<std::string> differences) {
  const auto first = std::find_if(differences.begin(), differences.end(), [](const auto& d) { return !d.empty(); });
  return first == differences.end() ? "" : *first;
}

std::string difference_of_tensors(const TensorLayout& a, const TensorLayout& b) {
  const std::string text = first_of(
      {if_different("is named", a.spec.name, b.spec.name),
       if_different("is", text_of(a.spec.shape), text_of(b.spec.shape)), if_different("is tensor", a.id, b.id),
       a.spec.init.kind == b.spec.init.kind && a.spec.init.a == b.spec.init.a ? "" : "begins with other values",
       "is another part of the whole tensor"});
  return fmt::format("tensor '{}' {}", b.spec.name, text);
}

std::string difference_of_units(const UnitLayout& a, const UnitLayout& b) {
  if (a.name != b.name) return if_different("is named", a.name, b.name);
  if (a.trained != b.trained) return a.trained ? "is trained, not frozen" : "is frozen, not trained";
  if (a.tensors.size() != b.tensors.size()) return if_different("has tensors:", a.tensors.size(), b.tensors.size());
  for (std::size_t t = 0; t < a.tensors.size(); ++t) {
    Writer own;
    Writer other;
    write_tensor(a.tensors[t], own);
    write_tensor(b.tensors[t], other);
    if (own.take() != other.take()) return difference_of_tensors(a.tensors[t], b.tensors[t]);
  }
  return "";
}

std::string difference_of_table(const TableLayout& a, const TableLayout& b) {
  return first_of({if_different("is named", a.name, b.name), if_different("has rows of width", a.width, b.width),
                   if_different("has rows of type", name_of(a.type), name_of(b.type)),
                   if_different("has in a batch, at most, keys:", a.most_keys, b.most_keys),
                   if_different("has in a batch, at most, bags:", a.most_bags, b.most_bags),
                   if_different("is pulled ahead by steps:", a.lookahead, b.lookahead),
                   a.init.kind == b.init.kind && a.init.a == b.init.a ? "" : "begins with other values",
                   if_different("is cut into pieces:", a.pieces, b.pieces)});
}

std::string difference_of_tables(const Layout& a, const Layout& b) {
  for (std::size_t t = 0; t < std::min(a.tables.size(), b.tables.size()); ++t)
    if (const std::string text = difference_of_table(a.tables[t], b.tables[t]); !text.empty())
      return fmt::format("table {} '{}' {}", t, b.tables[t].name, text);
  return "";
}

}  // namespace

std::string difference(const LayoutMessage& message, const LayoutMessage& expected) {
  const Layout& a = message.layout;
  const Layout& b = expected.layout;
  for (std::size_t u = 0; u < std::min(a.units.size(), b.units.size()); ++u)
    if (const std::string text = difference_of_units(a.units[u], b.units[u]); !text.empty())
      return fmt::format("unit {} '{}' {}", u, b.units[u].name, text);
  return first_of({if_different("units:", a.units.size(), b.units.size()),
                   if_different("parameters of type", name_of(a.parameter_type), name_of(b.parameter_type)),
                   if_different("gradients of type", name_of(a.gradient_type), name_of(b.gradient_type)),
                   if_different("seed", message.seed, expected.seed), if_different("owners:", a.owners, b.owners),
                   if_different("elements of a piece:", a.piece_elements, b.piece_elements),
                   if_different("pushes of a step:", a.pushes, b.pushes),
                   message.initial_by_worker == expected.initial_by_worker ? "" : "initial values from elsewhere",
                   if_different("tables:", a.tables.size(), b.tables.size()), difference_of_tables(a, b),
                   "other shares of the servers"});
}

}  // namespace psring::net
