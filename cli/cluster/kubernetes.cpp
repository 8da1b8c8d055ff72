#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <regex>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <sodium.h>

#include <psring/cli/cluster/kubernetes.h>
#include <psring/common/base/text/error.h>

namespace psring::cli {
namespace {

constexpr std::size_t kMostNameLetters = 40;  // with "-coordinator-0-0" it is the name of a host
constexpr int kUser = 10001;
constexpr int kKeyMode = 0440;  // Kubernetes gives the file to root, and to the group of the pod
constexpr const char* kKeyFolder = "/etc/psring";
constexpr const char* kKeyFile = "/etc/psring/job.key";
constexpr const char* kRunsFolder = "/runs";
constexpr const char* kDataFolder = "/data";
constexpr const char* kIndex = "metadata.annotations['batch.kubernetes.io/job-completion-index']";

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

Json labels_of(const KubernetesJob& job) {
  return {{"app.kubernetes.io/name", "psring"}, {"app.kubernetes.io/instance", job.name}};
}

Json labels_of(const KubernetesJob& job, Part part) {
  Json labels = labels_of(job);
  labels["app.kubernetes.io/component"] = name_of(part);
  return labels;
}

Json metadata_of(const KubernetesJob& job, const std::string& name, Json labels) {
  Json metadata = {{"name", name}};
  if (!job.cluster_namespace.empty()) metadata["namespace"] = job.cluster_namespace;
  metadata["labels"] = std::move(labels);
  return metadata;
}

std::string base64(std::string_view bytes) {
  std::string text(sodium_base64_ENCODED_LEN(bytes.size(), sodium_base64_VARIANT_ORIGINAL), '\0');
  sodium_bin2base64(text.data(), text.size(), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                    sodium_base64_VARIANT_ORIGINAL);
  text.pop_back();  // the final zero
  return text;
}

/// Builds the pods of a job. `host`: the name under which the coordinator's pod is found.
class Pods {
 public:
  Pods(const KubernetesJob& job, std::string host) : job_(job), host_(std::move(host)) {}

  /// A Job's specification. Each pod has an index, which is the rank of its process.
  Json job_spec(Part part) const {
    const std::size_t pods = part == Part::coordinator ? 1 : part == Part::servers ? job_.servers : job_.workers;
    Json spec = {{"completionMode", "Indexed"}, {"completions", pods}, {"parallelism", pods}};
    // The loss of the coordinator is the end of the job. If no process keeps the state, a loss ends all pods.
    spec["backoffLimit"] = part == Part::coordinator ? 0 : job_.max_restarts * pods;
    if (part != Part::coordinator) spec["podFailurePolicy"] = {{"rules", failure_rules(part)}};
    spec["template"] = {{"metadata", {{"labels", labels_of(job_, part)}}}, {"spec", pod_spec(part)}};
    return spec;
  }

 private:
  /// A pod that Kubernetes evicts is replaced at no charge, a process that was lost is replaced, and an error of the
  /// job, which would happen again, ends the Job.
  static Json failure_rules(Part part) {
    Json disruption = Json::object();
    disruption["type"] = "DisruptionTarget";
    disruption["status"] = "True";
    Json conditions = Json::array();
    conditions.push_back(std::move(disruption));
    Json ignored = Json::object();
    ignored["action"] = "Ignore";
    ignored["onPodConditions"] = std::move(conditions);
    Json fails = Json::object();
    fails["action"] = "FailJob";
    fails["onExitCodes"] = Json::object();
    fails["onExitCodes"]["containerName"] = name_of(part);
    fails["onExitCodes"]["operator"] = "In";
    fails["onExitCodes"]["values"] = std::vector<int>{1, 2, 3, 5, 6};
    Json rules = Json::array();
    rules.push_back(std::move(ignored));
    rules.push_back(std::move(fails));
    return rules;
  }

  Json pod_spec(Part part) const {
    const bool coordinates = part == Part::coordinator;
    Json spec = {{"restartPolicy", "Never"},
                 {"terminationGracePeriodSeconds", coordinates ? 120 : 10},
                 {"automountServiceAccountToken", false},
                 {"enableServiceLinks", false}};
    spec["securityContext"] = {{"runAsNonRoot", true},
                               {"runAsUser", kUser},
                               {"runAsGroup", kUser},
                               {"fsGroup", kUser},
                               {"fsGroupChangePolicy", "OnRootMismatch"},
                               {"seccompProfile", {{"type", "RuntimeDefault"}}}};
    if (!coordinates) spec["initContainers"] = one(waiting_container());
    spec["containers"] = one(container(part));
    spec["volumes"] = volumes();
    return spec;
  }

  static Json one(Json item) {
    Json list = Json::array();
    list.push_back(std::move(item));
    return list;
  }

  static Json security() {
    return {{"allowPrivilegeEscalation", false},
            {"readOnlyRootFilesystem", true},
            {"capabilities", {{"drop", one("ALL")}}}};
  }

  /// The name of the coordinator's pod is known as soon as the pod has an address.
  Json waiting_container() const {
    const std::string script = fmt::format(
        "i=0; until getent hosts \"$0\" >/dev/null; do i=$((i+1)); [ $i -lt {} ] || exit 4; sleep 1; done", seconds());
    Json container = {{"name", "wait-for-coordinator"}, {"image", job_.image}};
    container["command"] = std::vector<std::string>{"/bin/sh", "-c", script, host_};
    container["resources"] = resources({.cpu = "50m", .memory = "32Mi"});
    container["securityContext"] = security();
    return container;
  }

  Json container(Part part) const {
    Json container = {{"name", name_of(part)}, {"image", job_.image}};
    container["command"] = command(part);
    if (part == Part::coordinator) {
      container["workingDir"] = kRunsFolder;
      container["ports"] = one({{"name", "coordinator"}, {"containerPort", job_.port}, {"protocol", "TCP"}});
    } else {
      container["env"] = one({{"name", "RANK"}, {"valueFrom", {{"fieldRef", {{"fieldPath", kIndex}}}}}});
    }
    container["resources"] = resources(part == Part::workers   ? job_.worker
                                       : part == Part::servers ? job_.server
                                                               : PodSize{.cpu = "250m", .memory = "512Mi"});
    // A connection without proof of the key would count as an attack; and a process that hangs is found by the
    // coordinator, by its silence.
    const std::string listens = fmt::format("{}/{}/job.json", kRunsFolder, job_.name);
    if (part == Part::coordinator) container["startupProbe"] = probe({"test", "-f", listens}, 2, 150);
    if (part == Part::coordinator) container["readinessProbe"] = probe({"test", "-f", listens}, 10, 3);
    container["livenessProbe"] =
        probe({"/bin/sh", "-c", "read -r p n state rest < /proc/1/stat && [ \"$state\" != T ]"}, 20, 6);
    container["securityContext"] = security();
    container["volumeMounts"] = mounts();
    return container;
  }

  static Json probe(const std::vector<std::string>& command, int period_s, int failures) {
    return {{"exec", {{"command", command}}}, {"periodSeconds", period_s}, {"failureThreshold", failures}};
  }

  std::vector<std::string> command(Part part) const {
    if (part != Part::coordinator)
      return {fmt::format("psring-{}", name_of(part)),
              "--rdzv-endpoint",
              fmt::format("{}:{}", host_, job_.port),
              "--key",
              kKeyFile,
              "--rank",
              "$(RANK)",
              "--join-timeout",
              fmt::format("{}", seconds()),
              "--leave-on-signal"};
    std::vector<std::string> words = {
        "psring", "coordinator", "--listen", fmt::format("0.0.0.0:{}", job_.port),
        "--key",  kKeyFile,      "--out",    fmt::format("{}/{}", kRunsFolder, job_.name)};
    for (const std::string& word : job_.job_args) words.push_back(escaped(word));
    return words;
  }

  /// Kubernetes replaces $(NAME) in a command.
  static std::string escaped(const std::string& word) {
    return std::regex_replace(word, std::regex(R"(\$\()"), "$$$$(");
  }

  static Json resources(const PodSize& size) {
    Json requests = {{"cpu", size.cpu}, {"memory", size.memory}};
    Json limits = Json::object();
    limits["memory"] = size.memory;
    if (size.gpus > 0) limits["nvidia.com/gpu"] = size.gpus;
    return {{"requests", std::move(requests)}, {"limits", std::move(limits)}};
  }

  Json mounts() const {
    Json mounts = Json::array();
    mounts.push_back({{"name", "key"}, {"mountPath", kKeyFolder}, {"readOnly", true}});
    mounts.push_back({{"name", "tmp"}, {"mountPath", "/tmp"}});
    mounts.push_back({{"name", "shm"}, {"mountPath", "/dev/shm"}});
    mounts.push_back({{"name", "runs"}, {"mountPath", kRunsFolder}});
    if (!job_.data_claim.empty()) mounts.push_back({{"name", "data"}, {"mountPath", kDataFolder}, {"readOnly", true}});
    return mounts;
  }

  Json volumes() const {
    const std::string secret = job_.key_secret.empty() ? job_.name + "-key" : job_.key_secret;
    Json volumes = Json::array();
    volumes.push_back({{"name", "key"}, {"secret", {{"secretName", secret}, {"defaultMode", kKeyMode}}}});
    volumes.push_back({{"name", "tmp"}, {"emptyDir", {{"sizeLimit", "1Gi"}}}});
    volumes.push_back({{"name", "shm"}, {"emptyDir", {{"medium", "Memory"}, {"sizeLimit", "256Mi"}}}});
    volumes.push_back({{"name", "runs"}, {"persistentVolumeClaim", {{"claimName", job_.runs_claim}}}});
    if (!job_.data_claim.empty())
      volumes.push_back(
          {{"name", "data"}, {"persistentVolumeClaim", {{"claimName", job_.data_claim}, {"readOnly", true}}}});
    return volumes;
  }

  std::uint64_t seconds() const { return static_cast<std::uint64_t>(std::ceil(job_.join_timeout)); }

  const KubernetesJob& job_;
  const std::string host_;
};

Json secret_of(const KubernetesJob& job) {
  Json secret = {{"apiVersion", "v1"}, {"kind", "Secret"}};
  secret["metadata"] = metadata_of(job, job.name + "-key", labels_of(job));
  secret["type"] = "Opaque";
  secret["immutable"] = true;
  secret["data"] = {{"job.key", base64(job.key)}};
  return secret;
}

/// A Service without an address of its own: it gives pods their names, before they are ready, too.
Json service_of(const KubernetesJob& job) {
  Json service = {{"apiVersion", "v1"}, {"kind", "Service"}};
  service["metadata"] = metadata_of(job, job.name, labels_of(job));
  Json port = {{"name", "coordinator"}, {"port", job.port}, {"targetPort", job.port}, {"protocol", "TCP"}};
  Json ports = Json::array();
  ports.push_back(std::move(port));
  service["spec"] = {{"clusterIP", "None"}, {"publishNotReadyAddresses", true}, {"selector", labels_of(job)}};
  service["spec"]["ports"] = std::move(ports);
  return service;
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
  std::vector<Manifest> manifests;
  if (job.key_secret.empty()) manifests.push_back({"secret.yaml", secret_of(job)});
  manifests.push_back({"service.yaml", service_of(job)});
  const std::string host = job.name + "-coordinator";
  const Pods pods(job, fmt::format("{}-0.{}", host, job.name));
  for (const Part part : parts_of(job)) {
    Json object = {{"apiVersion", "batch/v1"}, {"kind", "Job"}};
    object["metadata"] = metadata_of(job, fmt::format("{}-{}", job.name, name_of(part)), labels_of(job, part));
    object["spec"] = pods.job_spec(part);
    object["spec"]["template"]["spec"]["subdomain"] = job.name;  // the pod of index 0 is host NAME-0 of the Service
    manifests.push_back({fmt::format("{}.yaml", name_of(part)), std::move(object)});
  }
  return manifests;
}

std::vector<Manifest> job_set_manifests(const KubernetesJob& job) {
  std::vector<Manifest> manifests;
  if (job.key_secret.empty()) manifests.push_back({"secret.yaml", secret_of(job)});
  const Pods pods(job, fmt::format("{0}-coordinator-0-0.{0}", job.name));
  Json set = {{"apiVersion", "jobset.x-k8s.io/v1alpha2"}, {"kind", "JobSet"}};
  set["metadata"] = metadata_of(job, job.name, labels_of(job));
  Json jobs = Json::array();
  for (const Part part : parts_of(job)) {
    Json one = {{"name", name_of(part)}, {"replicas", 1}};
    one["template"] = {{"metadata", {{"labels", labels_of(job, part)}}}, {"spec", pods.job_spec(part)}};
    jobs.push_back(std::move(one));
  }
  Json coordinator = Json::array();
  coordinator.push_back("coordinator");
  Json spec = Json::object();
  spec["network"] = {{"enableDNSHostnames", true}, {"subdomain", job.name}, {"publishNotReadyAddresses", true}};
  spec["successPolicy"] = {{"operator", "All"}, {"targetReplicatedJobs", std::move(coordinator)}};
  spec["failurePolicy"] = {{"maxRestarts", 0}};
  spec["replicatedJobs"] = std::move(jobs);
  set["spec"] = std::move(spec);
  manifests.push_back({"jobset.yaml", std::move(set)});
  return manifests;
}

}  // namespace psring::cli
