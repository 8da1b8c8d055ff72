#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/number.h>
#include <psring/common/base/text/text.h>
#include <psring/worker/model/conv_net.h>
#include <psring/worker/model/graph.h>
#include <psring/worker/model/layers/convolution.h>
#include <psring/worker/model/layers/dropout.h>
#include <psring/worker/model/layers/joins.h>
#include <psring/worker/model/layers/linear.h>
#include <psring/worker/model/loss.h>

namespace psring::worker {
namespace {

constexpr std::size_t kMostSide = 65536;  // of an image, and of channels and kernels: products do not overflow

/// Returns the whole number from 1 to kMostSide that the text is.
std::optional<std::size_t> number(std::string_view text) {
  const auto value = read_number<std::size_t>(text);
  return value && (*value == 0 || *value > kMostSide) ? std::nullopt : value;
}

/// Puts a net together, word by word.
class Builder {
 public:
  explicit Builder(const Spec& spec) : spec_(spec), graph_(model_) {
    model_.name = spec.text();
    const std::vector<std::string> words = split(spec.argument(), '-');
    read_image(words.front());
    if (words.size() < 2) refuse(words.front(), "layers after the image's size, such as -16c3-p2-10");
    for (std::size_t i = 1; i < words.size(); ++i) add(words[i], i + 1 == words.size());
    model_.classes = columns_;
    model_.loss = make_cross_entropy();
  }

  Model take() { return std::move(model_); }

 private:
  [[noreturn]] void refuse(const std::string& word, const char* expected) const {
    fail(ErrorKind::usage, "--model {}: expected {}, got '{}'", spec_.text(), expected, word);
  }

  void read_image(const std::string& word) {
    std::vector<std::size_t> sides;
    for (const std::string& side : split(word, 'x'))
      if (const auto found = number(side)) sides.push_back(*found);
    if (sides.size() != 3 || split(word, 'x').size() != 3) refuse(word, "CHANNELSxHEIGHTxWIDTH, as in conv:1x28x28-10");
    image_ = {sides[0], sides[1], sides[2]};
    model_.input_cols = columns_ = image_.elements();
  }

  void add(const std::string& word, bool last) {
    constexpr const char* kWords = "a word such as 16c3, p2, r3, d0.2 or 128";
    const std::size_t c = word.find('c');
    if (word.starts_with('d') && !last) return add_dropout(word);
    if (const auto width = number(word)) return add_linear(*width, last);
    if (last) refuse(word, "the number of classes at the end");
    if (linear_ > 0) refuse(word, "only linear layers and dropout after the first linear layer");
    if (word.starts_with('p')) return add_pool(word);
    if (word.starts_with('r')) return add_residual(word, kernel(word, 1));
    if (c == std::string::npos || !number(word.substr(0, c))) refuse(word, kWords);
    add_convolution(*number(word.substr(0, c)), kernel(word, c + 1));
  }

  std::size_t kernel(const std::string& word, std::size_t at) const {
    const auto found = number(std::string_view(word).substr(at));
    if (!found || *found % 2 == 0) refuse(word, "an odd kernel, as in 16c3 or r3");
    return *found;
  }

  /// Appends a layer that reads the output of the layer before it.
  void append(std::unique_ptr<Layer> layer) {
    const std::string name = fmt::format("{}", model_.layers.size());
    if (model_.blocks.empty()) model_.blocks.emplace_back();
    model_.blocks.back().push_back(model_.layers.size());
    graph_.add(name, std::move(layer), newest_);
    newest_ = name;
  }
  void begin_block() {
    const bool only_dropout = model_.blocks.size() == 1 && convolutions_ + linear_ == 0;
    if (!only_dropout) model_.blocks.emplace_back();
  }

  void append_convolution(std::size_t channels, std::size_t kernel, Conv2d::Activation activation) {
    append(std::make_unique<Conv2d>(fmt::format("convs.{}", convolutions_++), image_,
                                    Conv2d::Options{.out = channels, .kernel = kernel, .activation = activation}));
    image_.channels = channels;
    columns_ = image_.elements();
  }

  void add_convolution(std::size_t channels, std::size_t kernel) {
    begin_block();
    append_convolution(channels, kernel, Conv2d::Activation::relu);
  }

  void add_residual(const std::string& word, std::size_t kernel) {
    begin_block();
    const std::string input = newest_;
    append_convolution(image_.channels, kernel, Conv2d::Activation::relu);
    append_convolution(image_.channels, kernel, Conv2d::Activation::none);
    const std::string name = fmt::format("{} {}", word, model_.layers.size());
    model_.blocks.back().push_back(model_.layers.size());
    graph_.add(name, std::make_unique<Add>(Add::Activation::relu), {{"a", input}, {"b", newest_}});
    newest_ = name;
  }

  void add_pool(const std::string& word) {
    const auto size = number(std::string_view(word).substr(1));
    if (!size || *size > image_.height || *size > image_.width) refuse(word, "pooling that fits into the image");
    auto pool = std::make_unique<MaxPool>(image_, *size);
    image_ = pool->image();
    columns_ = image_.elements();
    append(std::move(pool));
  }

  void add_dropout(const std::string& word) {
    append(std::make_unique<Dropout>(parse_dropout(word.substr(1), spec_.text())));
  }

  void add_linear(std::size_t width, bool last) {
    begin_block();
    const auto activation = last ? Linear::Activation::none : Linear::Activation::relu;
    append(std::make_unique<Linear>(fmt::format("layers.{}", linear_++), columns_, width,
                                    Linear::Options{.bias = true, .activation = activation}));
    columns_ = width;
  }

  const Spec& spec_;
  Model model_;
  Graph graph_;
  ImageShape image_;
  std::size_t columns_ = 0;  ///< of the newest output
  std::size_t convolutions_ = 0;
  std::size_t linear_ = 0;
  std::string newest_ = "input";
};

}  // namespace

Model make_conv_net(const Spec& spec) { return Builder(spec).take(); }

}  // namespace psring::worker
