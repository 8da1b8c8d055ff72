#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <psring/view/live/open_metrics.h>

namespace psring::view {
namespace {

using Labels = std::vector<std::pair<const char*, std::string>>;

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || c == '"') result += '\\';
    if (c == '\n')
      result += "\\n";
    else
      result += c;
  }
  return result;
}

struct Text {
  MetricsFormat format;
  std::string text;
};

/// One metric and its samples; written if there is a sample.
class Family {
 public:
  Family(Text& text, const std::string& name, std::string_view type, const char* unit, const char* help)
      : text_(text), name_(name), sample_(name + suffix(type)), type_(type), unit_(unit), help_(help) {}
  ~Family() {
    if (samples_.empty()) return;
    const bool is_open = text_.format == MetricsFormat::open_metrics;
    const std::string& name = is_open ? name_ : sample_;
    text_.text += fmt::format("# HELP {} {}\n", name, help_);
    text_.text += fmt::format("# TYPE {} {}\n", name, !is_open && type_ == "info" ? "gauge" : type_);
    if (is_open && *unit_ != '\0') text_.text += fmt::format("# UNIT {} {}\n", name, unit_);
    text_.text += samples_;
  }
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;

  void add(const Json& value, const Labels& labels = {}) {
    if (!value.is_number() || !std::isfinite(value.get<double>())) return;
    std::string line = sample_;
    const char* before = "{";
    for (const auto& [key, text] : labels)
      line += fmt::format("{}{}=\"{}\"", std::exchange(before, ","), key, escaped(text));
    samples_ += fmt::format("{}{} {}\n", line, labels.empty() ? "" : "}", value.dump());
  }

 private:
  static const char* suffix(std::string_view type) {
    return type == "counter" ? "_total" : type == "info" ? "_info" : "";
  }

  Text& text_;
  const std::string name_;
  const std::string sample_;  ///< name of the samples
  const std::string_view type_;
  const char* const unit_;
  const char* const help_;
  std::string samples_;
};

struct Column {
  const char* field;
  const char* metric;
  const char* type;
  const char* unit;
  const char* help;
};

constexpr Column kWorker[] = {
    {"step", "psring_steps", "counter", "", "Steps that the worker has made."},
    {"samples", "psring_samples", "counter", "", "Samples that the worker's process has trained on."},
    {"loss", "psring_loss", "gauge", "", "Mean loss of the worker's last step."},
    {"training_s", "psring_training_seconds", "counter", "seconds", "Time of all steps of the worker's process."},
    {"waited_s", "psring_exposed_seconds", "counter", "seconds",
     "Time in which the worker's process waited for communication."},
    {"step_s", "psring_last_step_seconds", "gauge", "seconds", "Duration of the worker's last step."},
    {"exposed_s", "psring_last_step_exposed_seconds", "gauge", "seconds",
     "Time in which the worker waited for communication in its last step."},
    {"staleness", "psring_staleness_updates", "gauge", "",
     "Updates by other workers between a pull and the update that uses it, in the last step."},
    {"lag", "psring_lag_steps", "gauge", "", "Steps that the worker is ahead of the slowest worker."},
};

constexpr Column kServer[] = {
    {"updates", "psring_server_version", "gauge", "", "Version of the server's parameters."},
    {"rows", "psring_server_rows", "gauge", "", "Rows of tables that the server has."},
    {"busy", "psring_server_busy_ratio", "gauge", "ratio", "Fraction of time that the server works on frames."},
};

void write(Text& text, const Column& column, const char* role, const Json& processes) {
  Family family(text, column.metric, column.type, column.unit, column.help);
  for (const Json& process : processes)
    family.add(process[column.field], {{role, std::to_string(process["rank"].get<std::uint64_t>())}});
}

template <class Visit>
void for_each_process(const Json& figures, const Visit& visit) {
  for (const auto& [list, role] : {std::pair{"workers", "worker"}, std::pair{"servers", "server"}})
    for (const Json& process : figures[list])
      visit(process, fmt::format("{} {}", role, process["rank"].get<std::uint64_t>()));
}

void write_memory(Text& text, const Json& figures) {
  {
    Family booked(text, "psring_memory_bytes", "gauge", "bytes", "Booked bytes by category.");
    for_each_process(figures, [&](const Json& process, const std::string& name) {
      for (const char* category : {"parameters", "gradients", "optimizer", "activations", "communication", "index"})
        if (process["memory"].is_object() && process["memory"].contains(category))
          booked.add(process["memory"][category], {{"process", name}, {"category", category}});
    });
  }
  Family resident(text, "psring_resident_memory_bytes", "gauge", "bytes", "Resident memory of the process.");
  for_each_process(figures, [&](const Json& process, const std::string& name) {
    if (process["memory"].is_object()) resident.add(process["memory"]["rss"], {{"process", name}});
  });
}

void write_links(Text& text, const Json& links) {
  {
    Family sent(text, "psring_sent_bytes", "counter", "bytes", "Payload that one process has sent to another.");
    for (const Json& link : links)
      sent.add(link["bytes"], {{"from", link["from"].get<std::string>()},
                               {"to", link["to"].get<std::string>()},
                               {"operation", link["operation"].get<std::string>()}});
  }
  Family again(text, "psring_retransmissions", "counter", "", "Frames that were sent again.");
  for (const Json& link : links)
    again.add(link["retransmissions"],
              {{"from", link["from"].get<std::string>()}, {"to", link["to"].get<std::string>()}});
}

}  // namespace

MetricsFormat metrics_format(std::string_view accept) {
  return accept.find("application/openmetrics-text") != std::string_view::npos ? MetricsFormat::open_metrics
                                                                               : MetricsFormat::prometheus;
}

const char* content_type(MetricsFormat format) {
  return format == MetricsFormat::open_metrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                               : "text/plain; version=0.0.4; charset=utf-8";
}

std::string metrics(const Json& figures, MetricsFormat format) {
  Text text{.format = format, .text = ""};
  const Json& run = figures["run"];
  if (run.contains("name")) {
    Family info(text, "psring_run", "info", "", "The run.");
    info.add(1, {{"name", run["name"].get<std::string>()},
                 {"strategy", run["strategy"].get<std::string>()},
                 {"model", run["model"].get<std::string>()},
                 {"phase", figures["phase"].get<std::string>()}});
  }
  const Json& progress = figures["progress"];
  Family(text, "psring_samples_per_second", "gauge", "", "Samples of all workers.").add(progress["samples_per_second"]);
  Family(text, "psring_tokens_per_second", "gauge", "", "Tokens of all workers.").add(progress["tokens_per_second"]);
  for (const Column& column : kWorker) write(text, column, "worker", figures["workers"]);
  for (const Column& column : kServer) write(text, column, "server", figures["servers"]);
  write_memory(text, figures);
  write_links(text, figures["links"]);
  Family(text, "psring_losses", "counter", "", "Processes that were lost.").add(figures["losses"]);
  std::size_t recovered = 0;
  for (const Json& recovery : figures["recoveries"]) recovered += recovery["step"].is_null() ? 0 : 1;
  Family(text, "psring_recoveries", "gauge", "", "Losses after which the job continued, among the last 100.")
      .add(recovered);
  if (format == MetricsFormat::open_metrics) text.text += "# EOF\n";
  return std::move(text.text);
}

}  // namespace psring::view
