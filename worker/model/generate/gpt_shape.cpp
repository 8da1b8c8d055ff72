#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include <fmt/format.h>

#include <psring/common/base/error.h>
#include <psring/common/base/json.h>
#include <psring/common/base/spec.h>
#include <psring/worker/model/generate/gpt_weights.h>
#include <psring/worker/model/gpt.h>

namespace psring::worker {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPublishedHeadDim = 64;  // of every published GPT-2
constexpr std::uint64_t kMostJsonBytes = std::uint64_t{16} << 20;

std::optional<Json> read_json(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored) || fs::file_size(path, ignored) > kMostJsonBytes) return std::nullopt;
  std::ifstream in(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  return Json::try_parse(text);
}

GptShape parse_model(const std::string& text) {
  const Spec spec = Spec::parse("--model", text);
  if (spec.name() != "gpt") fail(ErrorKind::usage, "--model {}: only gpt generates text", text);
  return parse_gpt(spec);
}

const TensorEntry* find_either(const TensorFile& file, const std::string& name) {
  const TensorEntry* plain = file.find(name);
  return plain != nullptr ? plain : file.find("transformer." + name);
}

/// The shape that the tensors show; heads is 0.
GptShape shape_of_tensors(const TensorFile& file) {
  const TensorEntry* tokens = find_either(file, "wte.weight");
  const TensorEntry* places = find_either(file, "wpe.weight");
  if (tokens == nullptr || places == nullptr || tokens->shape.size() != 2 || places->shape.size() != 2)
    fail(ErrorKind::data, "{}: has no tensors wte.weight and wpe.weight of two dimensions, so it is no GPT",
         file.path());
  GptShape shape{
      .layers = 0, .dim = places->shape[1], .heads = 0, .context = places->shape[0], .vocab = tokens->shape[0]};
  while (find_either(file, fmt::format("h.{}.ln_1.weight", shape.layers)) != nullptr) ++shape.layers;
  if (shape.layers == 0 || shape.dim == 0 || shape.context == 0 || shape.vocab == 0)
    fail(ErrorKind::data, "{}: has no block h.0 of a GPT, or empty tensors", file.path());
  return shape;
}

/// The --model of the run whose folder holds the file; nothing if the file does not lie in a run folder.
std::optional<std::string> model_of_run(const fs::path& folder) {
  const std::optional<Json> run = read_json(folder / "run.json");
  if (!run || !run->is_object() || !run->contains("job")) return std::nullopt;
  const Json& job = run->at("job");
  if (!job.is_object() || !job.contains("model") || !job.at("model").is_string()) return std::nullopt;
  return job.at("model").get<std::string>();
}

std::size_t heads_of_config(const fs::path& folder) {
  const std::optional<Json> config = read_json(folder / "config.json");
  if (!config || !config->is_object() || !config->contains("n_head")) return 0;
  const Json& heads = config->at("n_head");
  return heads.is_number_unsigned() ? heads.get<std::size_t>() : 0;
}

}  // namespace

std::string gpt_text(const GptShape& shape) {
  return fmt::format("gpt:layers={},dim={},heads={},context={},vocab={}", shape.layers, shape.dim, shape.heads,
                     shape.context, shape.vocab);
}

WeightFormat stored_format(const TensorFile& file) {
  const auto found = file.metadata().find(kWeightsKey);
  if (found == file.metadata().end()) return {};
  try {
    return WeightFormat::parse(kWeightsKey, found->second);
  } catch (const Error& error) {
    fail(ErrorKind::data, "{}: {}", file.path(), error.what());
  }
}

GptShape find_gpt_shape(const TensorFile& file, const std::string& model) {
  if (!model.empty()) return parse_model(model);
  const auto kept = file.metadata().find(kModelKey);
  if (kept != file.metadata().end()) return parse_model(kept->second);
  const fs::path folder = fs::path(file.path()).parent_path();
  if (const std::optional<std::string> text = model_of_run(folder)) {
    if (!text->starts_with('@')) return parse_model(*text);
    fail(ErrorKind::usage, "{}: its run has --model {}; give --model gpt:...", file.path(), *text);
  }
  GptShape shape = shape_of_tensors(file);
  shape.heads = heads_of_config(folder);
  if (shape.heads == 0 && shape.dim % kPublishedHeadDim == 0) shape.heads = shape.dim / kPublishedHeadDim;
  if (shape.heads == 0 || shape.dim % shape.heads != 0)
    fail(ErrorKind::usage, "{}: the number of heads is not known for dim {}; give --model {},heads=N...", file.path(),
         shape.dim, fmt::format("gpt:layers={},dim={}", shape.layers, shape.dim));
  return shape;
}

}  // namespace psring::worker
