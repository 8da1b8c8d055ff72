#include <algorithm>

#include <psring/bench/predict/fit.h>
#include <psring/cli/compare/table_cells.h>
#include <psring/cli/plan/plan_text.h>
#include <psring/cli/text_table.h>
#include <psring/common/base/text/text.h>

namespace psring::cli {
namespace {

constexpr double kGiB = 1 << 30;
constexpr std::size_t kColumns = 80;

std::string ms(double seconds) { return number(1e3 * seconds, seconds < 0.01 ? 2 : 1); }
std::string megabytes(double bytes) { return fmt::format("{:.4g}", bytes / 1e6); }
std::string exposed(const PlanRow& row) { return percent(row.step.exposed_s / row.step.step_s); }

std::string hosts(std::size_t count, Language language) {
  return say(language, count == 1 ? Text{"{} host", "{} 台主机"} : Text{"{} hosts", "{} 台主机"}, count);
}

std::string name_of(const PlanRow& row) { return row.label + (row.inexact ? " *" : ""); }

std::string notes(const PlanRows& plan, const std::optional<double>& limit, Language language) {
  std::string text;
  if (std::ranges::any_of(plan.rows, [](const PlanRow& row) { return !row.fits; }))
    text += say(language,
                {"!: a process needs more than the {:.4g} GiB of --memory\n",
                 "!：一个进程需要的内存超过 --memory 的 {:.4g} GiB\n"},
                *limit / kGiB);
  if (std::ranges::any_of(plan.rows, [](const PlanRow& row) { return row.inexact; }))
    text += say(language, {"*: inexact: compression or precision change what is computed\n",
                           "*：不精确：压缩或精度改变了计算结果\n"});
  for (const std::string& line : plan.left_out)
    text += wrapped(say(language, {"left out: {}", "略去：{}"}, line), kColumns, 2);
  if (const std::string costs = costs_note(plan, language); !costs.empty()) text += wrapped(costs, kColumns, 2);
  return text;
}

/// The bytes of rows of the first `shown` plan rows.
std::string row_bytes_table(const PlanRows& plan, std::size_t shown, Language language) {
  const bool zh = language == Language::zh;
  TextTable table(
      zh ? std::vector<std::string>{"每步行的 MB", "worker 发送", "worker 接收", "server 接收", "server 发送"}
         : std::vector<std::string>{"MB of rows a step", "worker sends", "receives", "server receives", "sends"});
  bool any = false;
  for (std::size_t i = 0; i < shown; ++i) {
    if (plan.rows[i].memory.rows.empty()) continue;
    any = true;
    const RowBytes bytes = plan.rows[i].row_bytes();
    table.add({name_of(plan.rows[i]), megabytes(bytes.worker_sends), megabytes(bytes.worker_receives),
               megabytes(bytes.server_receives), megabytes(bytes.server_sends)});
  }
  return any ? table.plain(kColumns) : "";
}

std::string note_on_processors(const bench::Mesh& mesh, Language language) {
  if (!mesh.one_machine) return "";
  return say(language, {"the hosts share one machine's processors\n", "各主机共用一台机器的处理器\n"});
}

}  // namespace

std::string costs_note(const PlanRows& plan, Language language) {
  std::string note;
  if (plan.tables)
    note = say(language,
               {"rows of tables: the step has the time of their exchange, but not that of the work to find and update "
                "them. ",
                "表的行：每步时间包含行的交换，但不含查找和更新行的工作。"});
  if (!plan.reference_costs) return note;
  return note + say(language,
                    {"costs of a message and of encryption: measured on {}; psring fit measures yours",
                     "消息和加密的开销：在 {} 上测得；psring fit 可测量您的机器"},
                    bench::reference_fit().processor);
}

std::string bound_name(const std::string& bound, Language language) {
  if (language == Language::en) return bound;
  constexpr std::pair<const char*, const char*> kNames[] = {{"compute", "计算"},
                                                            {"worker link", "worker 网卡"},
                                                            {"server link", "server 网卡"},
                                                            {"server", "server 处理"},
                                                            {"link within host", "主机内链路"},
                                                            {"latency", "延迟"},
                                                            {"bubble", "气泡"},
                                                            {"processors", "处理器"}};
  for (const auto& [en, zh] : kNames)
    if (bound == en) return zh;
  return bound;
}

std::string plan_table(const PlanRows& plan, const bench::Mesh& mesh, const std::optional<double>& limit,
                       std::size_t top, Language language) {
  const bool zh = language == Language::zh;
  std::string text = say(
      language, {"{0} on {2}; {3} within a host, {4} between hosts\n", "{1} 个 worker，{2}；主机内 {3}，主机间 {4}\n"},
      count_of(mesh.workers(), "worker"), mesh.workers(), hosts(mesh.hosts, language), net::to_string(mesh.within),
      net::to_string(mesh.between));
  text += note_on_processors(mesh, language);
  const bool tokens = plan.rows.front().tokens;
  std::vector<std::string> columns =
      zh ? std::vector<std::string>{"策略",   "#",       "主机", "每步 ms", "暴露", tokens ? "token/s" : "样本/s",
                                    "每主机", "发送 MB", "GiB",  "受限于"}
         : std::vector<std::string>{
               "strategy", "#",       "hosts", "step ms", "exposed", tokens ? "tokens/s" : "samples/s",
               "per host", "sent MB", "GiB",   "bound by"};
  const std::size_t shown = std::min(plan.rows.size(), top);
  const bool stages = std::any_of(plan.rows.begin(), plan.rows.begin() + static_cast<std::ptrdiff_t>(shown),
                                  [](const PlanRow& row) { return row.job.pipeline > 1; });
  // A table of 80 columns has no room for both.
  constexpr std::size_t kSent = 7;
  const auto show_bubble = [stages](std::vector<std::string>& cells, const std::string& bubble) {
    constexpr std::ptrdiff_t kBubble = 5;
    if (!stages) return;
    cells.erase(cells.begin() + kSent);
    cells.insert(cells.begin() + kBubble, bubble);
  };
  show_bubble(columns, zh ? "气泡" : "bubble");
  TextTable table(columns);
  for (std::size_t i = 0; i < shown; ++i) {
    const PlanRow& row = plan.rows[i];
    std::vector<std::string> cells{name_of(row),
                                   std::to_string(i + 1),
                                   std::to_string(row.hosts),
                                   ms(row.step.step_s),
                                   exposed(row),
                                   number(row.samples_per_s, 0),
                                   number(row.per_host(), 1),
                                   number(row.sent_bytes / 1e6, 1),
                                   number(row.process_bytes / kGiB, 2) + (row.fits ? "" : "!"),
                                   bound_name(row.step.bound, language)};
    show_bubble(cells, row.job.pipeline > 1 ? percent(row.step.bubble) : "");
    table.add(cells);
  }
  return text + table.plain(kColumns) + row_bytes_table(plan, shown, language) + notes(plan, limit, language);
}

namespace {

bool equal(const PlanRow& first, const PlanRow& second) {
  return first.fits == second.fits && first.per_host() < 1.005 * second.per_host();
}

/// Says why a row beats another that is not equal.
std::string reason_between(const PlanRow& first, const PlanRow& second, Language language) {
  const std::string names = say(language, {"{} beats {}", "{} 胜过 {}"}, first.label, second.label);
  if (first.fits != second.fits) return names + say(language, {", which does not fit into memory", "：后者放不进内存"});
  const std::string steps =
      say(language, {"steps of {} and {} ms", "每步分别为 {} 和 {} ms"}, ms(first.step.step_s), ms(second.step.step_s));
  if (first.hosts != second.hosts && first.step.step_s > 0.995 * second.step.step_s)
    return names + say(language, {": it needs {}, the second {}, for {}", "：它需要 {}，后者需要 {}，{}"},
                       hosts(first.hosts, language), hosts(second.hosts, language), steps);
  const double computing = second.step.compute_s - first.step.compute_s;
  if (computing > (second.step.step_s - first.step.step_s) / 2)
    return names + say(language,
                       {": it computes {} of {} ms, the second {} of {} ms",
                        "：它的一步 {1} ms 中计算占 {0} ms，后者的 {3} ms 中占 {2} ms"},
                       ms(first.step.compute_s), ms(first.step.step_s), ms(second.step.compute_s),
                       ms(second.step.step_s));
  const double idle = second.step.bubble * second.step.step_s - first.step.bubble * first.step.step_s;
  if (idle > (second.step.step_s - first.step.step_s) / 2)
    return names + say(language,
                       {": its stages wait for each other in {} of a step's {} ms, the second's in {} of {} ms",
                        "：它的各阶段在一步 {1} ms 中互相等待 {0} ms，后者在 {3} ms 中等待 {2} ms"},
                       ms(first.step.bubble * first.step.step_s), ms(first.step.step_s),
                       ms(second.step.bubble * second.step.step_s), ms(second.step.step_s));
  if (second.sent_bytes > 1.02 * first.sent_bytes)
    return names + say(language,
                       {": its busiest card carries {} MB a step, the second's {} MB; {}",
                        "：它最忙的网卡每步传输 {} MB，后者为 {} MB；{}"},
                       megabytes(first.sent_bytes), megabytes(second.sent_bytes), steps);
  return names + say(language,
                     {": {} of its {} ms are exposed communication, of the second's {} ms {}",
                      "：它的一步 {1} ms 中暴露的通信占 {0} ms，后者的 {2} ms 中占 {3} ms"},
                     ms(first.step.exposed_s), ms(first.step.step_s), ms(second.step.step_s),
                     ms(second.step.exposed_s));
}

/// The lines of the crossings at which the lead changes hands.
std::string lead_changes(const PlanSweep& sweep, const std::vector<PlanPoint>& points, Language language) {
  std::string text;
  for (const PlanCrossing& crossing : find_crossings(points)) {
    if (crossing.of != PlanCrossing::Of::per_host) continue;
    const auto leads = [&](std::size_t at, const std::string& series) {
      return std::ranges::count(points[at].plan.rows.front().series, series) > 0;
    };
    if (!leads(crossing.point, crossing.before) || !leads(crossing.point + 1, crossing.after)) continue;
    text +=
        wrapped(say(language, {"between {} = {} and {}: {} takes the lead from {}", "{} 在 {} 和 {} 之间：{} 超过 {}"},
                    sweep.name, points[crossing.point].value, points[crossing.point + 1].value, crossing.after,
                    crossing.before),
                kColumns, 2);
  }
  return text;
}

}  // namespace

std::string plan_reason(const PlanRows& plan, Language language) {
  const std::vector<PlanRow>& rows = plan.rows;
  if (rows.size() < 2) return "";
  if (!equal(rows[0], rows[1])) return reason_between(rows[0], rows[1], language);
  const std::string both =
      say(language,
          {"{} and {} are equal within 0.5 %; they need {:.3g} and {:.3g} GiB of memory",
           "{} 和 {} 相差不到 0.5 %；分别需要 {:.3g} 和 {:.3g} GiB 内存"},
          rows[0].label, rows[1].label, rows[0].process_bytes / kGiB, rows[1].process_bytes / kGiB);
  const auto other = std::ranges::find_if(rows, [&](const PlanRow& row) { return !equal(rows[0], row); });
  if (other == rows.end()) return both;
  return both + say(language, {". {}", "。{}"}, reason_between(rows[0], *other, language));
}

std::string sweep_table(const PlanSweep& sweep, const std::vector<PlanPoint>& points, Language language) {
  const bool zh = language == Language::zh;
  TextTable table(
      zh ? std::vector<std::string>{sweep.name, "主机", "每步 ms", "暴露", "每秒", "每主机", "GiB", "受限于", "最佳"}
         : std::vector<std::string>{sweep.name, "hosts", "step ms", "exposed", "per s", "per host", "GiB", "bound by",
                                    "best"});
  for (const PlanPoint& point : points) {
    const PlanRow& best = point.plan.rows.front();
    table.add({point.value, std::to_string(best.hosts), ms(best.step.step_s), exposed(best),
               number(best.samples_per_s, 0), number(best.per_host(), 1),
               number(best.process_bytes / kGiB, 2) + (best.fits ? "" : "!"), bound_name(best.step.bound, language),
               name_of(best)});
  }
  const std::string costs = costs_note(points.front().plan, language);
  return note_on_processors(points.front().mesh, language) + table.plain() + lead_changes(sweep, points, language) +
         (costs.empty() ? "" : wrapped(costs, kColumns, 2));
}

}  // namespace psring::cli
