#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <map>
#include <regex>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <sodium.h>

#include <psring/cli/cluster/kubernetes.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>

namespace psring::cli {
namespace {

constexpr std::size_t kMostNameLetters = 40;  // with "-coordinator-0-0" it is the name of a host
bool matches(const std::string& text, const char* pattern) { return std::regex_match(text, std::regex(pattern)); }

void check_name(const char* flag, const std::string& name, const char* pattern, std::size_t most,
                const char* expected) {
  if (name.size() > most || !matches(name, pattern))
    fail(ErrorKind::usage, "{}: expected {} of at most {} characters, got '{}'", flag, expected, most, name);
}

/// A quantity of Kubernetes (apimachinery, resource.Quantity): a number, and a suffix or an exponent of 10.
void check_quantity(const char* flag, const std::string& text) {
  if (!matches(text, R"(\+?([0-9]+\.?[0-9]*|\.[0-9]+)(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]+)?)"))
    fail(ErrorKind::usage, "{}: expected a quantity of Kubernetes, such as 500m, 2Gi or 1e9, got '{}'", flag, text);
  if (text.substr(0, text.find_first_of("eE")).find_first_of("123456789") == std::string::npos)
    fail(ErrorKind::usage, "{}: expected a quantity above 0, got '{}'", flag, text);
}

/// The three kinds of pods. Names are those of the objects, too.
enum class Part : std::uint8_t { coordinator, servers, workers };

const char* name_of(Part part) {
  return part == Part::coordinator ? "coordinator" : part == Part::servers ? "server" : "worker";
}

std::string base64(std::string_view bytes) {
  std::string text(sodium_base64_ENCODED_LEN(bytes.size(), sodium_base64_VARIANT_ORIGINAL), '\0');
  sodium_bin2base64(text.data(), text.size(), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                    sodium_base64_VARIANT_ORIGINAL);
  text.pop_back();  // the final zero
  return text;
}

/// Words that YAML 1.1 or 1.2 reads as a truth value, as null, or as a number.
constexpr std::array<std::string_view, 11> kOtherValues = {"true", "false", "null", "yes", "no", "on",
                                                           "off",  "y",     "n",    "nan", "inf"};

/// Returns a text as YAML. It stands without quotes only where no reader of YAML 1.1 or 1.2 takes it for something
/// else. A text of JSON is a text of YAML.
std::string yaml(const std::string& text) {
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  const bool is_plain = matches(text, "[A-Za-z/][A-Za-z0-9_./-]*") &&
                        std::find(kOtherValues.begin(), kOtherValues.end(), lower) == kOtherValues.end();
  return is_plain ? text : Json(text).dump_any_bytes();
}

using Values = std::map<std::string, std::string>;

/// Returns a template of kubernetes.yaml.
std::string_view template_of(const std::string& name) {
  const std::string_view all = kubernetes_texts()[0].text;
  const std::string head = "\n#: " + name + "\n";
  const std::size_t begin = all.find(head) + head.size();
  return all.substr(begin, std::min(all.find("\n#", begin), all.size() - 1) + 1 - begin);
}

/// Replaces each "{NAME}" of a template by its value. A value takes over its line's indentation, line by line; a line
/// that has only an empty value is left out.
std::string fill(const std::string& name, const Values& values) {
  std::string_view text = template_of(name);
  std::string out;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n') + 1);
    text.remove_prefix(line.size());
    const std::size_t begin = line.find('{');
    if (begin == std::string_view::npos) {
      out += line;
      continue;
    }
    const std::size_t end = line.find('}', begin);
    const std::string_view indent = line.substr(0, line.find_first_not_of(' '));
    const std::string& value = values.at(std::string(line.substr(begin + 1, end - begin - 1)));
    if (value.empty()) continue;
    out += line.substr(0, begin);
    for (const char c : value) c == '\n' ? out.append("\n").append(indent) : out.append(1, c);
    out += line.substr(end + 1);
  }
  return out;
}

/// Returns a filled block without its last line's end, as a value of another template.
std::string block(const std::string& name, const Values& values = {}) {
  std::string filled = fill(name, values);
  if (!filled.empty()) filled.pop_back();
  return filled;
}

std::string list(const std::vector<std::string>& words) {
  std::string lines;
  for (const std::string& word : words) lines += (lines.empty() ? "- " : "\n- ") + yaml(word);
  return lines;
}

std::string labels_of(const KubernetesJob& job) { return block("labels", {{"name", yaml(job.name)}}); }
std::string labels_of(const KubernetesJob& job, Part part) {
  return labels_of(job) + "\napp.kubernetes.io/component: " + name_of(part);
}

std::string metadata_of(const KubernetesJob& job, const std::string& name, const std::string& labels) {
  return block("metadata",
               {{"name", yaml(name)},
                {"namespace", job.cluster_namespace.empty() ? "" : "namespace: " + yaml(job.cluster_namespace)},
                {"labels", labels}});
}

std::string resources_of(const PodSize& size) {
  return block("resources", {{"cpu", yaml(size.cpu)},
                             {"memory", yaml(size.memory)},
                             {"gpus", size.gpus > 0 ? fmt::format("nvidia.com/gpu: {}", size.gpus) : ""}});
}

/// The command of a container. Kubernetes replaces $(NAME) in a command, and $$ by $.
std::string command_of(const KubernetesJob& job, Part part, const std::string& host, const std::string& seconds) {
  if (part != Part::coordinator)
    return list({fmt::format("psring-{}", name_of(part)), "--rdzv-endpoint", fmt::format("{}:{}", host, job.port),
                 "--key", "/etc/psring/job.key", "--rank", "$(RANK)", "--join-timeout", seconds, "--leave-on-signal"});
  std::vector<std::string> words{"psring", "coordinator",         "--listen", fmt::format("0.0.0.0:{}", job.port),
                                 "--key",  "/etc/psring/job.key", "--out",    "/runs/" + job.name};
  for (const std::string& word : job.job_args) words.push_back(std::regex_replace(word, std::regex(R"(\$)"), "$$$$"));
  return list(words);
}

/// Returns a Job's specification. `host`: the name under which the coordinator's pod is found, as soon as the pod has
/// an address. `subdomain`: of the pods; may be empty.
std::string job_spec(const KubernetesJob& job, Part part, const std::string& host, const std::string& subdomain) {
  const bool coordinates = part == Part::coordinator;
  const std::size_t pods = coordinates ? 1 : part == Part::servers ? job.servers : job.workers;
  const std::string seconds = fmt::format("{}", static_cast<std::uint64_t>(std::ceil(job.join_timeout)));
  const std::string image = yaml(job.image);
  const std::string security = block("security");
  const Values listens{{"file", yaml(fmt::format("/runs/{}/job.json", job.name))}};
  const std::string waiting = block("waiting", {{"image", image},
                                                {"seconds", seconds},
                                                {"host", yaml(host)},
                                                {"resources", resources_of({.cpu = "50m", .memory = "32Mi"})},
                                                {"security", security}});
  const Values claim{{"claim", yaml(job.data_claim)}};
  const PodSize size = coordinates             ? PodSize{.cpu = "250m", .memory = "512Mi"}
                       : part == Part::servers ? job.server
                                               : job.worker;
  return block(
      "job-spec",
      {{"completions", fmt::format("completions: {0}\nparallelism: {0}", pods)},
       // The loss of the coordinator is the end of the job. If no process keeps the state, a loss ends all pods.
       {"backoff", fmt::format("{}", coordinates ? 0 : job.max_restarts * pods)},
       {"failures", coordinates ? "" : block("failures", {{"part", name_of(part)}})},
       {"labels", labels_of(job, part)},
       {"grace", coordinates ? "120" : "10"},
       {"waiting", coordinates ? "" : waiting},
       {"part", name_of(part)},
       {"image", image},
       {"command", command_of(job, part, host, seconds)},
       {"place", coordinates ? block("port", {{"port", fmt::format("{}", job.port)}}) : block("rank")},
       {"resources", resources_of(size)},
       {"probes", coordinates ? block("listen-probes", {{"test", block("listens", listens)}}) : ""},
       {"security", security},
       {"data_mount", job.data_claim.empty() ? "" : block("data-mount")},
       {"secret", yaml(job.key_secret.empty() ? job.name + "-key" : job.key_secret)},
       {"runs", yaml(job.runs_claim)},
       {"data_volume", job.data_claim.empty() ? "" : block("data-volume", claim)},
       {"subdomain", subdomain.empty() ? "" : "subdomain: " + yaml(subdomain)}});
}

/// The manifest of the Secret, if the cluster does not have one.
std::vector<Manifest> secret_of(const KubernetesJob& job) {
  if (!job.key_secret.empty()) return {};
  return {{"secret.yaml", fill("secret", {{"metadata", metadata_of(job, job.name + "-key", labels_of(job))},
                                          {"key", yaml(base64(job.key))}})}};
}

std::vector<Part> parts_of(const KubernetesJob& job) {
  if (job.servers == 0) return {Part::coordinator, Part::workers};
  return {Part::coordinator, Part::servers, Part::workers};
}

}  // namespace

void check(const KubernetesJob& job) {
  check_name("--name", job.name, "[a-z]([-a-z0-9]*[a-z0-9])?", kMostNameLetters,
             "a DNS label (a-z, 0-9 and '-', a letter first, no '-' last)");
  if (!job.cluster_namespace.empty())
    check_name("--namespace", job.cluster_namespace, "[a-z0-9]([-a-z0-9]*[a-z0-9])?", 63,
               "a DNS label (a-z, 0-9 and '-', no '-' first or last)");
  for (const auto& [flag, name] :
       {std::pair("--key-secret", job.key_secret), {"--runs-claim", job.runs_claim}, {"--data-claim", job.data_claim}})
    if (!name.empty())
      check_name(flag, name, R"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)", 253,
                 "a DNS name (a-z, 0-9, '-' and '.')");
  if (!matches(job.image, "[A-Za-z0-9][A-Za-z0-9._:/@-]*"))
    fail(ErrorKind::usage, "--image: expected an image such as registry.example.com/psring:0.1.0, got '{}'", job.image);
  if (job.port == 0 || job.port > 65535) fail(ErrorKind::usage, "--port: expected 1 to 65535, got {}", job.port);
  for (const auto& [flag, text] : {std::pair("--cpu", job.worker.cpu),
                                   {"--memory", job.worker.memory},
                                   {"--server-cpu", job.server.cpu},
                                   {"--server-memory", job.server.memory}})
    check_quantity(flag, text);
}

std::vector<Manifest> job_manifests(const KubernetesJob& job) {
  std::vector<Manifest> manifests = secret_of(job);
  manifests.push_back(
      {"service.yaml", fill("service", {{"metadata", metadata_of(job, job.name, labels_of(job))},
                                        {"labels", labels_of(job)},
                                        {"ports", fmt::format("port: {0}\ntargetPort: {0}", job.port)}})});
  const std::string host = fmt::format("{0}-coordinator-0.{0}", job.name);
  for (const Part part : parts_of(job)) {
    const std::string metadata = metadata_of(job, fmt::format("{}-{}", job.name, name_of(part)), labels_of(job, part));
    // The pod of index 0 is host NAME-0 of the Service.
    manifests.push_back({fmt::format("{}.yaml", name_of(part)),
                         fill("job", {{"metadata", metadata}, {"spec", job_spec(job, part, host, job.name)}})});
  }
  return manifests;
}

std::vector<Manifest> job_set_manifests(const KubernetesJob& job) {
  std::vector<Manifest> manifests = secret_of(job);
  const std::string host = fmt::format("{0}-coordinator-0-0.{0}", job.name);
  std::string jobs;
  for (const Part part : parts_of(job))
    jobs += fill("replicated-job",
                 {{"part", name_of(part)}, {"labels", labels_of(job, part)}, {"spec", job_spec(job, part, host, "")}});
  jobs.pop_back();
  manifests.push_back({"jobset.yaml", fill("job-set", {{"metadata", metadata_of(job, job.name, labels_of(job))},
                                                       {"name", yaml(job.name)},
                                                       {"jobs", jobs}})});
  return manifests;
}

}  // namespace psring::cli
