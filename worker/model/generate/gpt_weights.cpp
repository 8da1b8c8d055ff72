#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include <psring/common/base/text/error.h>
#include <psring/worker/model/generate/gpt_weights.h>

namespace psring::worker {

std::size_t OutputCut::size() const {
  return std::accumulate(ranges.begin(), ranges.end(), std::size_t{0},
                         [](std::size_t sum, Range range) { return sum + range.size(); });
}

std::vector<std::size_t> OutputCut::places() const {
  std::vector<std::size_t> result;
  for (const Range range : ranges)
    for (std::size_t output = range.begin; output < range.end; ++output) result.push_back(output);
  return result;
}

std::vector<std::size_t> OutputCut::own() const {
  std::vector<std::size_t> result(whole, kNone);
  const std::vector<std::size_t> all = places();
  for (std::size_t i = 0; i < all.size(); ++i) result[all[i]] = i;
  return result;
}

GptCut cut_gpt(const GptShape& shape, const TensorPart& part) {
  if (shape.heads % part.size() != 0)
    fail(ErrorKind::usage, "--tensor {}: {} heads of attention are not divisible by {}", part.size(), shape.heads,
         part.size());
  if (shape.vocab < part.size())
    fail(ErrorKind::usage, "--tensor {}: a vocabulary of {} has no token for each part", part.size(), shape.vocab);
  const std::size_t dim = shape.dim;
  const std::size_t head_dim = dim / shape.heads;
  GptCut cut{.heads = part.of(shape.heads), .attention = {3 * dim, {}}};
  for (std::size_t i = 0; i < 3; ++i)
    cut.attention.ranges.push_back({i * dim + cut.heads.begin * head_dim, i * dim + cut.heads.end * head_dim});
  cut.projection = {dim, {part.of(dim)}};
  cut.expansion = {4 * dim, {part.of(4 * dim)}};
  cut.contraction = {dim, {part.of(dim)}};
  cut.tokens = {shape.vocab, {part.of(shape.vocab)}};
  return cut;
}

namespace {

using Kind = WeightFormat::Kind;

constexpr std::string_view kPrefix = "transformer.";  // published GPT-2 files may have it

/// Reads tensors by GPT-2's names, and remembers which tensors were used.
class Reader {
 public:
  explicit Reader(const TensorFile& file) : file_(file) {}

  const TensorEntry& find(const std::string& name, const std::vector<std::size_t>& shape) {
    const TensorEntry* entry = file_.find(name);
    if (entry == nullptr) entry = file_.find(std::string(kPrefix) + name);
    const std::string wanted = fmt::format("{} [{}]", name, fmt::join(shape, ", "));
    if (entry == nullptr) fail(ErrorKind::data, "{}: has no tensor {}, which the model needs", file_.path(), wanted);
    if (entry->shape != shape)
      fail(ErrorKind::data, "{}: tensor {} has shape [{}], the model wants {}", file_.path(), entry->name,
           fmt::join(entry->shape, ", "), wanted);
    used_.insert(entry);
    return *entry;
  }

  void read(const std::string& name, const std::vector<std::size_t>& shape, std::span<float> out) {
    read(find(name, shape), 0, out);
  }
  void read(const TensorEntry& entry, std::size_t first, std::span<float> out) const {
    file_.read(entry, first, out);
    const auto odd = std::find_if(out.begin(), out.end(), [](float value) { return !std::isfinite(value); });
    if (odd != out.end())
      fail(ErrorKind::data, "{}: tensor {}: element {} is {}", file_.path(), entry.name,
           first + static_cast<std::size_t>(odd - out.begin()), *odd);
  }
  void read_bytes(const std::string& name, const std::string& dtype, const std::vector<std::size_t>& shape,
                  std::span<std::uint8_t> out) {
    const TensorEntry& entry = find(name, shape);
    if (entry.dtype != dtype)
      fail(ErrorKind::data, "{}: tensor {} is of type {}, expected {}", file_.path(), entry.name, entry.dtype, dtype);
    file_.read_bytes(entry, 0, std::as_writable_bytes(out));
  }

  void refuse_others() const {
    for (const TensorEntry& entry : file_.entries()) {
      const std::string_view name = entry.name;
      const bool mask = name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
      if (!used_.contains(&entry) && !mask && name != "lm_head.weight")
        fail(ErrorKind::data, "{}: tensor {} [{}] is none of the model's", file_.path(), entry.name,
             fmt::join(entry.shape, ", "));
    }
    check_tied_head(file_);
  }

 private:
  const TensorFile& file_;
  std::set<const TensorEntry*> used_;
};

/// A matrix, as a file has it: whole.
struct Stored {
  std::string name;
  std::size_t inputs = 0;
  const OutputCut& cut;  ///< the outputs that the packed matrix has of it
  bool transposed = false;

  std::vector<std::size_t> shape() const {
    if (transposed) return {cut.whole, inputs};
    return {inputs, cut.whole};
  }
};

/// Packs f32 weights, a panel's columns at a time: reads of [inputs, outputs] touch whole cache lines.
void pack(Reader& reader, const Stored& stored, PackedMatrix& matrix) {
  const TensorEntry& entry = reader.find(stored.name, stored.shape());
  const std::size_t inputs = matrix.inputs();
  const std::size_t outputs = matrix.outputs();
  const std::vector<std::size_t> places = stored.cut.places();
  if (stored.transposed) {
    std::vector<float> column(inputs);
    for (std::size_t output = 0; output < outputs; ++output) {
      reader.read(entry, places[output] * inputs, column);
      matrix.set_column(output, column);
    }
    return;
  }
  std::vector<float> all(entry.elements);
  reader.read(entry, 0, all);
  std::vector<float> columns(inputs * kPanelColumns);
  for (std::size_t first = 0; first < outputs; first += kPanelColumns) {
    const std::size_t count = std::min(kPanelColumns, outputs - first);
    for (std::size_t k = 0; k < inputs; ++k)
      for (std::size_t j = 0; j < count; ++j) columns[j * inputs + k] = all[k * stored.cut.whole + places[first + j]];
    for (std::size_t j = 0; j < count; ++j)
      matrix.set_column(first + j, std::span(columns).subspan(j * inputs, inputs));
  }
}

/// The tensors of a quantised matrix, in the order of the file.
std::vector<StoredTensor> stored_tensors(const Stored& stored, const WeightFormat& format) {
  std::vector<std::size_t> shape = stored.shape();
  const std::string& name = stored.name;
  if (format.kind == Kind::int8) return {{name, "I8", shape}, {name + ".scale", "F32", {stored.cut.whole}}};
  shape[1] /= 2;
  const std::vector<std::size_t> scales{format.groups(stored.inputs), stored.cut.whole};
  std::vector<StoredTensor> tensors{{name, "U8", shape}, {name + ".scale", "F32", scales}};
  if (format.affine) tensors.push_back({name + ".zero", "U8", scales});
  return tensors;
}

/// Calls each(byte's index, low half's place, high half's place) of a matrix as int4 stores it, or
/// each(index, place, place) for int8; a place is (input, output).
template <class Each>
void for_each_byte(const Stored& stored, const WeightFormat& format, const Each& each) {
  const std::vector<std::size_t> shape = stored.shape();
  const std::size_t step = format.kind == Kind::int4 ? 2 : 1;
  const auto place = [&](std::size_t row, std::size_t column) {
    return stored.transposed ? std::pair(column, row) : std::pair(row, column);
  };
  std::size_t index = 0;
  for (std::size_t row = 0; row < shape[0]; ++row)
    for (std::size_t column = 0; column < shape[1]; column += step)
      each(index++, place(row, column), place(row, column + step - 1));
}

/// Calls each(index, group, output) for the scales of the whole matrix.
template <class Each>
void for_each_scale(const Stored& stored, const WeightFormat& format, const Each& each) {
  const std::size_t groups = format.kind == Kind::int4 ? format.groups(stored.inputs) : 1;
  for (std::size_t g = 0; g < groups; ++g)
    for (std::size_t output = 0; output < stored.cut.whole; ++output) each(g * stored.cut.whole + output, g, output);
}

std::size_t elements(const StoredTensor& tensor) {
  std::size_t product = 1;
  for (const std::size_t extent : tensor.shape) product *= extent;
  return product;
}

void load_quantised(Reader& reader, const Stored& stored, PackedMatrix& matrix) {
  const WeightFormat& format = matrix.format();
  const std::vector<StoredTensor> tensors = stored_tensors(stored, format);
  const std::vector<std::size_t> own = stored.cut.own();
  std::vector<std::uint8_t> bytes(elements(tensors[0]));
  reader.read_bytes(stored.name, tensors[0].dtype, tensors[0].shape, bytes);
  const bool int4 = format.kind == Kind::int4;
  const auto set = [&](std::pair<std::size_t, std::size_t> place, std::uint8_t q) {
    if (own[place.second] != OutputCut::kNone) matrix.set_quantised(place.first, own[place.second], q);
  };
  for_each_byte(stored, format, [&](std::size_t i, auto low, auto high) {
    set(low, int4 ? bytes[i] & 15 : bytes[i]);
    if (int4) set(high, bytes[i] >> 4);
  });
  std::vector<float> scales(elements(tensors[1]));
  reader.read(tensors[1].name, tensors[1].shape, scales);
  for_each_scale(stored, format, [&](std::size_t i, std::size_t g, std::size_t o) {
    if (own[o] != OutputCut::kNone) matrix.set_scale(g, own[o], scales[i]);
  });
  if (tensors.size() < 3) return;
  bytes.resize(elements(tensors[2]));
  reader.read_bytes(tensors[2].name, "U8", tensors[2].shape, bytes);
  for_each_scale(stored, format, [&](std::size_t i, std::size_t g, std::size_t o) {
    if (own[o] != OutputCut::kNone) matrix.set_zero(g, own[o], bytes[i]);
  });
}

/// REQUIRES: the matrix is whole.
void save_quantised(TensorWriter& writer, const Stored& stored, const PackedMatrix& matrix) {
  const WeightFormat& format = matrix.format();
  const bool int4 = format.kind == Kind::int4;
  std::vector<std::uint8_t> bytes;
  for_each_byte(stored, format, [&](std::size_t, auto low, auto high) {
    const std::uint8_t first = matrix.quantised(low.first, low.second);
    bytes.push_back(int4 ? static_cast<std::uint8_t>(first | matrix.quantised(high.first, high.second) << 4) : first);
  });
  writer.append_bytes(std::as_bytes(std::span(bytes)));
  std::vector<float> scales;
  bytes.clear();
  for_each_scale(stored, format, [&](std::size_t, std::size_t g, std::size_t o) {
    scales.push_back(matrix.scale(g, o));
    bytes.push_back(matrix.zero(g, o));
  });
  writer.append(scales);
  if (format.affine) writer.append_bytes(std::as_bytes(std::span(bytes)));
}

/// wpe, and for each block two norms and the biases of the part's outputs; ln_f.
std::size_t vector_floats(const GptShape& shape, const GptCut& cut) {
  const std::size_t biases =
      cut.attention.size() + cut.projection.size() + cut.expansion.size() + cut.contraction.size();
  return shape.context * shape.dim + shape.layers * (4 * shape.dim + biases) + 2 * shape.dim;
}

std::size_t matrix_bytes(const WeightFormat& format, std::size_t inputs, std::size_t outputs) {
  return format.size_bytes(inputs, round_up(outputs, kPanelColumns));
}

}  // namespace

template <class Self, class Each>
void GptWeights::for_each_matrix(Self& self, const Each& each) {
  each("wte.weight", self.wte_, self.cut_.tokens, true);
  for (std::size_t i = 0; i < self.blocks_.size(); ++i) {
    auto& block = self.blocks_[i];
    const std::string prefix = fmt::format("h.{}.", i);
    each(prefix + "attn.c_attn.weight", block.attention.weight, self.cut_.attention, false);
    each(prefix + "attn.c_proj.weight", block.projection.weight, self.cut_.projection, false);
    each(prefix + "mlp.c_fc.weight", block.expansion.weight, self.cut_.expansion, false);
    each(prefix + "mlp.c_proj.weight", block.contraction.weight, self.cut_.contraction, false);
  }
}

template <class Self, class Each>
void GptWeights::for_each_vector(Self& self, const Each& each) {
  const std::size_t dim = self.shape_.dim;
  const GptCut& cut = self.cut_;
  using Extents = std::vector<std::size_t>;
  using Ranges = std::vector<Range>;
  each("wpe.weight", self.wpe_, Extents{self.shape_.context, dim}, Ranges{{0, self.shape_.context * dim}});
  const auto pair = [&](const std::string& name, auto& norm) {
    each(name + ".weight", norm.weight, Extents{dim}, Ranges{{0, dim}});
    each(name + ".bias", norm.bias, Extents{dim}, Ranges{{0, dim}});
  };
  for (std::size_t i = 0; i < self.blocks_.size(); ++i) {
    auto& block = self.blocks_[i];
    const std::string prefix = fmt::format("h.{}.", i);
    const auto bias = [&](const char* name, auto& linear, const OutputCut& outputs) {
      each(prefix + name, linear.bias, Extents{outputs.whole}, outputs.ranges);
    };
    pair(prefix + "ln_1", block.ln_1);
    bias("attn.c_attn.bias", block.attention, cut.attention);
    bias("attn.c_proj.bias", block.projection, cut.projection);
    pair(prefix + "ln_2", block.ln_2);
    bias("mlp.c_fc.bias", block.expansion, cut.expansion);
    bias("mlp.c_proj.bias", block.contraction, cut.contraction);
  }
  pair("ln_f", self.ln_f_);
}

GptWeights::GptWeights(const TensorFile& file, const GptShape& shape, const WeightFormat& format, MemoryLedger& ledger,
                       const TensorPart& part)
    : shape_(shape), part_(part), cut_(cut_gpt(shape, part)), format_(format) {
  const std::size_t dim = shape.dim;
  if (format.kind == Kind::int4 && dim % 2 != 0)
    fail(ErrorKind::usage, "int4 weights need an even dim: the model has {}", dim);
  const WeightFormat kept = stored_format(file);
  check(kept.kind == Kind::f32 || kept == format, "{} holds {}, not {}", file.path(), kept.text(), format.text());
  vectors_ = Buffer(vector_floats(shape, cut_) * sizeof(float), Category::parameters, ledger);
  wte_ = PackedMatrix(dim, cut_.tokens.size(), format, ledger);
  for (std::size_t i = 0; i < shape.layers; ++i) {
    Block& block = blocks_.emplace_back();
    block.attention.weight = PackedMatrix(dim, cut_.attention.size(), format, ledger);
    block.projection.weight = PackedMatrix(dim, cut_.projection.size(), format, ledger);
    block.expansion.weight = PackedMatrix(dim, cut_.expansion.size(), format, ledger);
    block.contraction.weight = PackedMatrix(4 * dim, cut_.contraction.size(), format, ledger);
  }
  Reader reader(file);
  std::size_t used = 0;
  for_each_vector(
      *this, [&](const std::string& name, std::span<const float>& values, const auto& extents, const auto& ranges) {
        const TensorEntry& entry = reader.find(name, extents);
        const std::size_t begin = used;
        for (const Range range : ranges) {
          reader.read(entry, range.begin, vectors_.as<float>().subspan(used, range.size()));
          used += range.size();
        }
        values = vectors_.as<float>().subspan(begin, used - begin);
      });
  for_each_matrix(*this, [&](const std::string& name, PackedMatrix& matrix, const OutputCut& cut, bool transposed) {
    (kept.kind == Kind::f32 ? pack : load_quantised)(reader, {name, matrix.inputs(), cut, transposed}, matrix);
  });
  reader.refuse_others();
}

void GptWeights::save(const std::string& path) const {
  check(format_.kind != Kind::f32, "f32 weights are not quantised");
  check(cut_.tokens.size() == shape_.vocab, "a part of the weights is saved");
  std::vector<StoredTensor> tensors;
  for_each_vector(*this, [&](const std::string& name, std::span<const float>, const auto& extents, const auto&) {
    tensors.push_back({name, "F32", extents});
  });
  for_each_matrix(*this,
                  [&](const std::string& name, const PackedMatrix& matrix, const OutputCut& cut, bool transposed) {
                    for (StoredTensor& tensor : stored_tensors({name, matrix.inputs(), cut, transposed}, format_))
                      tensors.push_back(std::move(tensor));
                  });
  TensorWriter writer(path, tensors, {{kWeightsKey, format_.text()}, {kModelKey, gpt_text(shape_)}});
  for_each_vector(*this, [&](const std::string&, std::span<const float> values, const auto&, const auto&) {
    writer.append(values);
  });
  for_each_matrix(*this,
                  [&](const std::string& name, const PackedMatrix& matrix, const OutputCut& cut, bool transposed) {
                    save_quantised(writer, {name, matrix.inputs(), cut, transposed}, matrix);
                  });
  writer.commit();
}

std::size_t weight_bytes(const GptShape& shape, const WeightFormat& format, const TensorPart& part) {
  const std::size_t dim = shape.dim;
  const GptCut cut = cut_gpt(shape, part);
  const std::size_t block =
      matrix_bytes(format, dim, cut.attention.size()) + matrix_bytes(format, dim, cut.projection.size()) +
      matrix_bytes(format, dim, cut.expansion.size()) + matrix_bytes(format, 4 * dim, cut.contraction.size());
  return 4 * vector_floats(shape, cut) + shape.layers * block + matrix_bytes(format, dim, cut.tokens.size());
}

std::size_t decode_bytes(const GptShape& shape, const WeightFormat& format, const TensorPart& part) {
  return weight_bytes(shape, format, part) - 4 * (shape.context - 1) * shape.dim;
}

std::size_t parameter_count(const GptShape& shape) {
  return vector_floats(shape, cut_gpt(shape, {})) + shape.layers * 12 * shape.dim * shape.dim + shape.vocab * shape.dim;
}

}  // namespace psring::worker
