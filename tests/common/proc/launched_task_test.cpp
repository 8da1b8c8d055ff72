#include <map>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/common/proc/launched_task.h>
#include <psring/common/proc/node_list.h>

using namespace psring;
using Catch::Contains;
using Strings = std::vector<std::string>;
using Counts = std::vector<std::size_t>;
using Variables = std::map<std::string, std::string>;

namespace {

Strings nodes(const std::string& text) { return parse_node_list("SLURM_JOB_NODELIST", text); }
Counts counts(const std::string& text) { return parse_tasks_per_node("SLURM_TASKS_PER_NODE", text); }

Environment environment(Variables variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

Variables changed(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}

std::optional<LaunchedTask> task(const std::string& launcher, const Variables& variables) {
  return launched_task(launcher, environment(variables));
}

/// Variables as Slurm 22.05 sets them in a task of srun -N2 -n4 -m plane=3.
const Variables kSlurm = {{"SLURM_JOB_ID", "17"},
                          {"SLURM_STEP_ID", "2"},
                          {"SLURM_PROCID", "3"},
                          {"SLURM_LOCALID", "0"},
                          {"SLURM_NODEID", "1"},
                          {"SLURM_NTASKS", "4"},
                          {"SLURM_STEP_NUM_TASKS", "4"},
                          {"SLURM_JOB_NUM_NODES", "3"},
                          {"SLURM_JOB_NODELIST", "n[1-3]"},
                          {"SLURM_STEP_NODELIST", "n[1,3]"},
                          {"SLURM_TASKS_PER_NODE", "2(x3)"},
                          {"SLURM_STEP_TASKS_PER_NODE", "3,1"}};
/// Variables as Open MPI 4.1 sets them in a task of mpirun -n 4 on two hosts.
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"PMIX_RANK", "2"},
                            {"PMIX_NAMESPACE", "41811969"}};
/// Variables as MPICH 4.0 sets them in a task of mpirun -n 4 on two hosts.
const Variables kHydra = {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};

}  // namespace

TEST_CASE("a node list is written out in order") {
  CHECK(nodes("n1") == Strings{"n1"});
  CHECK(nodes("n[1-3,7]") == Strings{"n1", "n2", "n3", "n7"});
  CHECK(nodes("n[08-11],login,gpu[2]-ib") == Strings{"n08", "n09", "n10", "n11", "login", "gpu2-ib"});
  CHECK(nodes("rack[0-1]n[1-2]") == Strings{"rack0n1", "rack0n2", "rack1n1", "rack1n2"});
  CHECK(nodes("a-b.example.org,c") == Strings{"a-b.example.org", "c"});
}

TEST_CASE("a node list of another form is refused, and the variable is named") {
  for (const char* const text : {"", ",", "a,", ",a", "n[", "n]", "n[]", "n[1", "n[1-]", "n[-1]", "n[3-1]", "n[1,]",
                                 "n[a]", "n[1]]", "n[1[2]]", "n[0000000001]"}) {
    INFO(text);
    CHECK_THROWS_WITH(nodes(text), Contains("SLURM_JOB_NODELIST="));
  }
  CHECK_THROWS_WITH(nodes("n[0-999999999]"), Contains("more than 65536 nodes"));
  CHECK_THROWS_WITH(nodes("n[0-999][0-999]"), Contains("more than 65536 nodes"));
  CHECK(nodes("n[00001-65536]").size() == kMostNodes);
}

TEST_CASE("tasks per node are written out in order") {
  CHECK(counts("4") == Counts{4});
  CHECK(counts("3,1") == Counts{3, 1});
  CHECK(counts("2(x3),1") == Counts{2, 2, 2, 1});
  for (const char* const text : {"", "a", "2(", "2(x", "2(x3", "2(3)", "2,", ",2", "2(x3)4", "2 "}) {
    INFO(text);
    CHECK_THROWS_WITH(counts(text), Contains("SLURM_TASKS_PER_NODE="));
  }
  CHECK_THROWS_WITH(counts("1(x99999)"), Contains("more than 65536 nodes"));
}

TEST_CASE("a task of srun") {
  for (const char* const launcher : {"auto", "slurm"}) {
    const auto found = task(launcher, kSlurm);
    REQUIRE(found);
    CHECK(found->launcher == "srun");
    CHECK(found->rank == 3);
    CHECK(found->tasks == 4);
    CHECK(found->here == 0);
    CHECK(found->tasks_here == 1);
    CHECK(found->name == "slurm-17.2-0");
    CHECK(found->other_nodes == Strings{"n1"});
    CHECK_FALSE(found->on_one_host());
  }
  CHECK(task("auto", changed(kSlurm, {{"SLURM_RESTART_COUNT", "2"}}))->name == "slurm-17.2-2");
  CHECK_FALSE(task("none", kSlurm));
  CHECK_THROWS_WITH(task("mpi", kSlurm), Contains("--launcher mpi"));
}

TEST_CASE("the script of sbatch and a shell of salloc are no tasks") {
  Variables script = kSlurm;
  script.erase("SLURM_STEP_ID");
  for (const Variables& variables : {script, changed(kSlurm, {{"SLURM_STEP_ID", "4294967290"}}), Variables()}) {
    CHECK_FALSE(task("auto", variables));
    CHECK_THROWS_WITH(task("slurm", variables), Contains("--launcher slurm") && Contains("srun psring"));
  }
}

TEST_CASE("variables of Slurm that contradict each other are refused") {
  CHECK_THROWS_WITH(task("auto", changed(kSlurm, {{"SLURM_PROCID", "4"}})), Contains("task 4 of 4"));
  CHECK_THROWS_WITH(task("auto", changed(kSlurm, {{"SLURM_PROCID", "x"}})), Contains("SLURM_PROCID=x"));
  CHECK_THROWS_WITH(task("auto", changed(kSlurm, {{"SLURM_NODEID", "2"}})), Contains("has no node 2"));
  CHECK_THROWS_WITH(task("auto", changed(kSlurm, {{"SLURM_LOCALID", "1"}})), Contains("task 1 of 1"));
  Variables without = kSlurm;
  without.erase("SLURM_LOCALID");
  CHECK_THROWS_WITH(task("auto", without), Contains("SLURM_PROCID=3 is set, as srun does") &&
                                               Contains("SLURM_LOCALID is not") && Contains("--launcher none"));
}

TEST_CASE("the job of Slurm") {
  const auto job = slurm_job(environment(changed(kSlurm, {{"SLURM_RESTART_COUNT", "1"}})));
  REQUIRE(job);
  CHECK(job->id == "17");
  CHECK(job->restarts == 1);
  CHECK(job->nodes == 3);
  CHECK_FALSE(slurm_job(environment({})));
}

TEST_CASE("a task of Open MPI's mpirun") {
  const auto found = task("mpi", kOpenMpi);
  REQUIRE(found);
  CHECK(found->launcher == "mpirun");
  CHECK(found->rank == 2);
  CHECK(found->tasks == 4);
  CHECK(found->here == 0);
  CHECK(found->tasks_here == 2);
  CHECK(found->name == "mpi-41811969");
  // Version 5 names a job by host, process and number: the name stays one file name.
  CHECK(task("auto", changed(kOpenMpi, {{"PMIX_NAMESPACE", "prterun-n1-4711@1/../x"}}))->name ==
        "mpi-prterun-n1-4711-1----x");
}

TEST_CASE("a task of MPICH's mpirun, which does not name its job") {
  const auto found = task("auto", kHydra);
  REQUIRE(found);
  CHECK(found->rank == 3);
  CHECK(found->tasks == 4);
  CHECK(found->here == 1);
  CHECK(found->tasks_here == 2);
  CHECK(found->name.empty());
}

TEST_CASE("mpirun in a job of Slurm starts its helpers by srun, whose variables its tasks inherit") {
  for (const Variables& mpi : {kOpenMpi, kHydra}) {
    CHECK(task("auto", changed(kSlurm, mpi))->launcher == "mpirun");
    CHECK(task("slurm", changed(kSlurm, mpi))->launcher == "srun");
  }
  // srun --mpi=pmi2 and --mpi=pmix set these, too.
  CHECK(task("auto", changed(kSlurm, {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"PMIX_RANK", "3"}}))->launcher == "srun");
}

namespace {

struct Known {
  const char* launcher;  ///< the word of --launcher
  Variables variables;   ///< of task 1 of 2, both on one host
};

/// Variables as launchers set them in their tasks, those that psring reads.
std::vector<Known> known_launchers() {
  return {
      {"torchrun",
       {{"RANK", "1"},
        {"WORLD_SIZE", "2"},
        {"LOCAL_RANK", "1"},
        {"LOCAL_WORLD_SIZE", "2"},
        {"TORCHELASTIC_RUN_ID", "none"}}},
      {"flux",
       {{"FLUX_TASK_RANK", "1"}, {"FLUX_JOB_SIZE", "2"}, {"FLUX_TASK_LOCAL_ID", "1"}, {"FLUX_JOB_NNODES", "1"}}},
      {"mpi", {{"PALS_RANKID", "1"}, {"PMI_SIZE", "2"}, {"PALS_LOCAL_RANKID", "1"}, {"PALS_LOCAL_SIZE", "2"}}},
      {"mpi",
       {{"MV2_COMM_WORLD_RANK", "1"},
        {"MV2_COMM_WORLD_SIZE", "2"},
        {"MV2_COMM_WORLD_LOCAL_RANK", "1"},
        {"MV2_COMM_WORLD_LOCAL_SIZE", "2"}}},
      {"mpi",
       {{"JSM_NAMESPACE_RANK", "1"},
        {"JSM_NAMESPACE_SIZE", "2"},
        {"JSM_NAMESPACE_LOCAL_RANK", "1"},
        {"JSM_NAMESPACE_LOCAL_SIZE", "2"}}},
      {"mpi", {{"HOROVOD_RANK", "1"}, {"HOROVOD_SIZE", "2"}, {"HOROVOD_LOCAL_RANK", "1"}, {"HOROVOD_LOCAL_SIZE", "2"}}},
      {"mpi", {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_LOCAL_RANK", "1"}, {"PMI_LOCAL_SIZE", "2"}}},
  };
}

}  // namespace

TEST_CASE("a task of each launcher has its place") {
  for (const Known& known : known_launchers()) {
    INFO(known.variables.begin()->first);
    for (const std::string launcher : {"auto", known.launcher}) {
      const auto found = task(launcher, known.variables);
      REQUIRE(found);
      CHECK(found->rank == 1);
      CHECK(found->tasks == 2);
      CHECK(found->here == 1);
      CHECK(found->on_one_host());
    }
    CHECK_FALSE(task("none", known.variables));
  }
}

TEST_CASE("a launcher's variable without the others is refused, never ignored") {
  for (const Known& known : known_launchers()) {
    for (const auto& [left_out, value] : known.variables) {
      if (left_out == "TORCHELASTIC_RUN_ID") continue;
      Variables variables = known.variables;
      variables.erase(left_out);
      INFO(left_out);
      CHECK(has_launcher(environment(variables)));
      CHECK_THROWS_WITH(task("auto", variables), Contains(left_out.substr(0, 3)) && Contains("--launcher none"));
      CHECK_FALSE(task("none", variables));
    }
  }
  for (const char* const alone :
       {"RANK", "LOCAL_RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "FLUX_TASK_RANK", "PALS_RANKID", "ALPS_APP_PE",
        "MV2_COMM_WORLD_RANK", "PMI_RANK", "PMI_ID", "PMI_SIZE", "PMI_FD", "PMIX_RANK", "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "DMLC_ROLE"}) {
    INFO(alone);
    CHECK_THROWS_WITH(task("auto", {{alone, "3"}}),
                      Contains(std::string(alone) + "=3 is set") && Contains("--launcher none"));
    CHECK_FALSE(task("none", {{alone, "3"}}));
  }
  CHECK_FALSE(has_launcher(environment({})));
}

TEST_CASE("the tasks of Flux on several hosts, which does not tell how they are spread") {
  const Variables variables = {{"FLUX_TASK_RANK", "3"},
                               {"FLUX_JOB_SIZE", "5"},
                               {"FLUX_TASK_LOCAL_ID", "0"},
                               {"FLUX_JOB_NNODES", "2"},
                               {"FLUX_JOB_ID", "f2/x9"}};
  const auto found = task("auto", variables);
  REQUIRE(found);
  CHECK(found->tasks_here == 3);
  CHECK_FALSE(found->on_one_host());
  CHECK(found->name == "flux-f2-x9");
}

TEST_CASE("an inner launcher comes before an outer one, and a complete one before others") {
  const Variables torchrun = known_launchers()[0].variables;
  CHECK(task("auto", changed(kSlurm, torchrun))->launcher == "torchrun");
  CHECK_FALSE(task("auto", torchrun)->has_store);
  CHECK(task("auto", changed(torchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}}))->has_store);
  // Scripts for srun export some of torchrun's variables.
  CHECK(task("auto", changed(kSlurm, {{"WORLD_SIZE", "4"}, {"RANK", "3"}}))->launcher == "srun");
  CHECK(task("auto", changed(kSlurm, {{"WORLD_SIZE", "1"}}))->launcher == "srun");
}

TEST_CASE("a task that is alone need not know more") {
  for (const Variables& variables : {Variables{{"WORLD_SIZE", "1"}}, {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}}) {
    const auto found = task("auto", variables);
    REQUIRE(found);
    CHECK(found->tasks == 1);
  }
}

TEST_CASE("an unknown launcher is refused") {
  CHECK_THROWS_WITH(task("pbs", {}),
                    Contains("expected auto, slurm, mpi, ") && Contains("torchrun") && Contains("or none"));
}
