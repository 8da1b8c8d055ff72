#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include <psring/common/base/text/json.h>
#include <psring/view/step/scene_text.h>

namespace psring::view {
namespace {

std::string kib(std::uint64_t bytes) { return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024); }

class Text {
 public:
  explicit Text(const Json& scene) : scene_(scene), peaks_(scene.at("processes").size(), 0) {}

  std::string write() {
    text_ = fmt::format("{}: {}, link {}\n", scene_.at("label").get<std::string>(),
                        scene_.at("model").get<std::string>(), scene_.at("link").get<std::string>());
    for (const Json& event : scene_.at("events")) add(event);
    add_sums();
    if (scene_.contains("error")) text_ += "failed: " + scene_["error"].get<std::string>() + "\n";
    return std::move(text_);
  }

 private:
  static std::uint64_t number(const Json& object, const char* key) { return object.at(key).get<std::uint64_t>(); }
  std::string process(std::size_t place) const {
    const Json& processes = scene_.at("processes");
    return place < processes.size() ? processes[place].at("name").get<std::string>() : "coordinator";
  }
  std::string unit(const Json& number) const {
    const std::size_t at = number.get<std::size_t>();
    return at < scene_.at("units").size() ? scene_["units"][at].at("name").get<std::string>() : "";
  }
  /// " h.0", " h.0 to h.2", or "" if the event names no unit.
  std::string units(const Json& event) const {
    if (event.contains("unit")) return fmt::format(" {}", unit(event["unit"]));
    if (!event.contains("units")) return "";
    const std::size_t begin = event["units"][0].get<std::size_t>();
    const std::size_t last = event["units"][1].get<std::size_t>() - 1;
    return last > begin ? fmt::format(" {} to {}", unit(begin), unit(last)) : fmt::format(" {}", unit(begin));
  }

  void line(const Json& event, const std::string& what) {
    text_ +=
        fmt::format("{:10.3f} ms  {:10}  {}\n", event.at("t").get<double>() / 1e6, process(number(event, "p")), what);
  }

  void add(const Json& event) {
    const auto kind = event.at("e").get<std::string>();
    if (kind == "begin") {
      add_activity(event);
    } else if (kind == "start") {
      line(event, fmt::format("starts {}{}, {}", name(event), units(event), kib(number(event, "bytes"))));
    } else if (kind == "finish") {
      line(event, fmt::format("{}{} is complete", name(event), units(event)));
    } else if (kind == "send") {
      frames_[number(event, "frame")] = &event;
      if (number(event, "bytes") > 0) line(event, fmt::format("sends {}", frame(event, number(event, "to"), "to")));
    } else if (kind == "arrive") {
      const Json& sent = *frames_.at(number(event, "frame"));
      if (number(sent, "bytes") > 0) line(event, fmt::format("has {}", frame(sent, number(sent, "p"), "from")));
    } else if (kind == "hold" || kind == "drop") {
      line(event, fmt::format("{} whole {} of{}, {}", kind == "hold" ? "has memory for" : "drops the",
                              event.at("values").get<std::string>(), units(event), kib(number(event, "bytes"))));
    } else if (kind == "gradient") {
      line(event, fmt::format("gradient of{} is {}", units(event), event.at("state").get<std::string>()));
    } else if (kind == "memory") {
      std::uint64_t sum = 0;
      for (const Json& bytes : event.at("bytes")) sum += bytes.get<std::uint64_t>();
      std::uint64_t& peak = peaks_.at(number(event, "p"));
      peak = std::max(peak, sum);
    } else if (kind == "report") {
      line(event, fmt::format("step {} is over, loss {:.4f}", event.at("step").get<std::uint64_t>(),
                              event.at("loss").get<double>()));
    } else if (kind == "die") {
      line(event, "dies");
    } else if (kind == "return") {
      line(event, "starts again");
    }
  }

  void add_activity(const Json& event) {
    const auto what = event.at("name").get<std::string>();
    if (what == "step") return line(event, fmt::format("begins step {}", event.at("step").get<std::uint64_t>()));
    if (what == "load" || what == "acquire" || what == "acquire rows") return;
    std::string rest = units(event);
    if (event.contains("layer")) rest += fmt::format(", layer {}", event["layer"].get<std::size_t>());
    if (event.contains("peer")) rest += " for " + event["peer"].get<std::string>();
    line(event, what + rest);
  }

  static std::string name(const Json& event) {
    auto name = event.at("name").get<std::string>();
    std::replace(name.begin(), name.end(), '_', '-');
    return name;
  }
  std::string frame(const Json& sent, std::size_t other, const char* preposition) const {
    return fmt::format("{}{}, {}, {} {}", name(sent), units(sent), kib(number(sent, "bytes")), preposition,
                       process(other));
  }

  static std::string predicted(const Json& process, std::uint64_t steps) {
    if (!process.contains("predicted") || !process["predicted"].contains("worker_sends")) return "";
    const std::uint64_t step = number(process["predicted"], "worker_sends");
    if (!process["predicted"].contains("worker_sends_of_run"))
      return fmt::format(", {} steps of {} predicted", steps, kib(step));
    const std::uint64_t all = steps * step + number(process["predicted"], "worker_sends_of_run");
    return fmt::format(", {} predicted for {} steps", kib(all), steps);
  }

  void add_sums() {
    for (std::size_t place = 0; place < peaks_.size(); ++place) {
      const Json& process = scene_["processes"][place];
      const auto sent = process.at("sent").get<std::vector<std::uint64_t>>();
      text_ += fmt::format("{}: sent {}", process.at("name").get<std::string>(),
                           kib(std::accumulate(sent.begin(), sent.end(), std::uint64_t{0})));
      text_ += predicted(process, number(scene_, "steps"));
      text_ += fmt::format("; peak memory {}\n", kib(peaks_[place]));
    }
  }

  const Json& scene_;
  std::string text_;
  std::vector<std::uint64_t> peaks_;             ///< by process, in bytes
  std::map<std::uint64_t, const Json*> frames_;  ///< frames that were sent, by number
};

}  // namespace

std::string scene_text(const Json& scene) { return Text(scene).write(); }

}  // namespace psring::view
