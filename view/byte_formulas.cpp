#include <string>

#include <psring/common/base/text/json.h>
#include <psring/view/report_parts.h>

namespace psring::view {
namespace {

struct Figure {
  std::string text;
  std::uint64_t bytes = 0;
};

Json to_json(const Figure& figure) { return {{"text", figure.text}, {"bytes", figure.bytes}}; }

class Formulas {
 public:
  Formulas(const worker::StrategyKind& kind, const JobOptions& job, const Layout& layout)
      : kind_(kind),
        n_(kind.one_worker ? 1 : job.data_workers()),
        micro_batches_(job.accumulate),
        gradients_{"Mg", layout.gradient_bytes()},
        parameters_{"Mp", layout.parameter_bytes()},
        colocated_(job.placement == "colocated"),
        gathers_(job.reshard_after_forward ? 2 : 1),
        updates_on_worker_(job.optimizer_on == "worker") {}

  Json values() const {
    return {{"n", n_}, {"A", micro_batches_}, {"Mg", gradients_.bytes}, {"Mp", parameters_.bytes}};
  }

  /// A worker of a ring sends as much as it receives.
  Figure ring() const {
    if (kind_.stage == 0) {
      const Figure all = among_workers(gradients_);
      return {"2" + all.text, 2 * all.bytes};
    }
    if (kind_.stage == 1) return among_workers(plus(gradients_, parameters_));
    const Figure reduced = each_micro_batch(gradients_, 1);
    return among_workers(plus(reduced, kind_.stage == 2 ? parameters_ : each_micro_batch(parameters_, gathers_)));
  }

  Figure pushed() const { return kind_.stage >= 2 ? each_micro_batch(gradients_, 1) : gradients_; }
  Figure pulled() const {
    if (kind_.stage >= 3) return each_micro_batch(parameters_, gathers_);
    return updates_on_worker_ ? gradients_ : parameters_;
  }
  /// A process with a worker and a server, as many servers as workers.
  Figure both_roles() const { return among_workers(plus(pushed(), pulled())); }
  Figure of_all_workers(const Figure& one) const {
    const bool sum = one.text.find('+') != std::string::npos;
    return {"n · " + (sum ? "(" + one.text + ")" : one.text), n_ * one.bytes};
  }
  bool colocated() const { return colocated_ || kind_.colocated; }

 private:
  Figure among_workers(const Figure& one) const {
    const bool sum = one.text.find('+') != std::string::npos;
    return {"(n − 1)/n · " + (sum ? "(" + one.text + ")" : one.text), one.bytes / n_ * (n_ - 1)};
  }
  /// `times` in every micro-batch.
  Figure each_micro_batch(const Figure& one, std::uint64_t times) const {
    std::string factors = times > 1 ? std::to_string(times) + " · " : "";
    if (micro_batches_ > 1) factors += "A · ";
    return {factors + one.text, times * micro_batches_ * one.bytes};
  }
  static Figure plus(const Figure& a, const Figure& b) { return {a.text + " + " + b.text, a.bytes + b.bytes}; }

  const worker::StrategyKind& kind_;
  const std::uint64_t n_;
  const std::uint64_t micro_batches_;
  const Figure gradients_;
  const Figure parameters_;
  const bool colocated_;
  const std::uint64_t gathers_;
  const bool updates_on_worker_;
};

bool has_row(const worker::StrategyKind& kind, const JobOptions& job) {
  if (job.compress != "none" || job.local_reduce || job.share_host_parameters || !job.shard_group.empty()) return false;
  if (kind.scatters || job.replicas > 0 || job.placement == "mixed") return false;
  const bool colocated = kind.colocated || job.placement == "colocated";
  return kind.ring || kind.one_worker || (kind.servers && (!colocated || job.servers == job.workers));
}

}  // namespace

Json byte_formulas(const worker::StrategyKind& kind, const JobOptions& job, const Layout& layout) {
  if (!has_row(kind, job)) return {};
  const Formulas formulas(kind, job, layout);
  const auto both_ways = [](const Figure& figure) {
    return Json{{"sent", to_json(figure)}, {"received", to_json(figure)}};
  };
  Json json = {{"values", formulas.values()}};
  if (kind.one_worker) {
    json["worker"] = both_ways({"0", 0});
  } else if (kind.ring) {
    json["worker"] = both_ways(formulas.ring());
  } else if (formulas.colocated()) {
    json["worker"] = both_ways(formulas.both_roles());
  } else {
    const Figure pushed = formulas.pushed();
    const Figure pulled = formulas.pulled();
    json["worker"] = {{"sent", to_json(pushed)}, {"received", to_json(pulled)}};
    json["servers"] = {{"sent", to_json(formulas.of_all_workers(pulled))},
                       {"received", to_json(formulas.of_all_workers(pushed))}};
  }
  return json;
}

}  // namespace psring::view
