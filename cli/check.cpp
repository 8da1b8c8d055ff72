// psring check: marks a solution of an exercise of docs/exercises.
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include <signal.h>
#include <version.h>

#include <psring/cli/check/apart.h>
#include <psring/cli/check/marks.h>
#include <psring/cli/check/solution.h>
#include <psring/cli/check/temporary_folder.h>
#include <psring/cli/commands.h>
#include <psring/cli/language.h>
#include <psring/common/base/error.h>
#include <psring/common/base/file.h>
#include <psring/common/base/standard_files.h>
#include <psring/common/proc/signal_watch.h>
#include <psring/view/page.h>

namespace psring::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRun = "check-run";
constexpr int kCheckFailed = 6;
constexpr double kMostSeconds = 86400;

struct CheckFlags {
  std::string exercise;
  std::string file;
  std::string compiler = "c++";
  std::string scene = "check.html";
  std::string lang = "en";
  double seconds = 60;
};

/// The arguments of the process that runs a student's code.
struct RunFlags {
  std::string exercise;
  std::string file;
  std::string folder;
  std::string lang = "en";
};

Exercise find_exercise(const std::string& text) {
  std::string known;
  for (Exercise& exercise : exercises()) {
    const std::string number = fmt::format("{:02}", exercise.number);
    if (text == number || text == std::to_string(exercise.number) || text == exercise.name ||
        text == number + "-" + exercise.name)
      return std::move(exercise);
    known += fmt::format("{}{}", known.empty() ? "" : ", ", number);
  }
  fail(ErrorKind::usage, "exercise '{}': there is none of this number or name; known are {}", text, known);
}

int list_exercises(Language language) {
  for (const Exercise& exercise : exercises())
    out::print("{:02}  {}\n    {}/{}\n", exercise.number, exercise.title.in(language), exercise.folder(),
               exercise.file);
  out::print("{}", say(language,
                       Text{"psring check NN [FILE] marks a solution.\n", "psring check NN [FILE] 检查一份解答。\n"}));
  return 0;
}

/// Starts this program again to run the checks, and prints what the student's code has printed. Returns how the process
/// ended; nothing if the time has passed.
std::optional<ProcessExit> run_code(const Exercise& exercise, const fs::path& file, const fs::path& folder,
                                    const CheckFlags& flags, const std::string& program, SignalWatch& signals) {
  const Apart ended = run_apart(
      "run", {program, kRun, std::to_string(exercise.number), file.string(), folder.string(), "--lang", flags.lang},
      folder, from_seconds(flags.seconds), signals);
  if (!ended.printed.empty()) out::print("{}{}", ended.printed, ended.printed.ends_with('\n') ? "" : "\n");
  return ended.exit;
}

/// Says why the process ended before all checks did.
std::string unfinished(const std::optional<ProcessExit>& exit, const CheckFlags& flags, Language language) {
  if (!exit)
    return say(language,
               Text{"it has not ended after {} s: does a loop never end? (--seconds sets the limit)",
                    "{} 秒后仍未结束：是否有循环永不结束？（--seconds 设定时限）"},
               flags.seconds);
  if (exit->signal == SIGXFSZ)
    return say(language,
               Text{"it has printed more than {} MiB: does a loop never end?", "输出超过 {} MiB：是否有循环永不结束？"},
               kMostPrinted >> 20);
  if (exit->signal != 0)
    return say(language,
               Text{"the code was ended by signal {} ({}); is an index out of bounds?",
                    "代码被信号 {}（{}）终止；是否有下标越界？"},
               exit->signal, ::strsignal(exit->signal));
  return say(language, Text{"the code ended the process with status {}", "代码以状态 {} 结束了进程"}, exit->status);
}

struct Points {
  unsigned reached = 0;
  unsigned all = 0;
};

Points print_marks(const Exercise& exercise, const Marks& marks, const std::string& unfinished_text,
                   Language language) {
  Points points;
  bool ended_between_checks = !marks.ended && !marks.running();
  for (std::size_t i = 0; i < exercise.checks.size(); ++i) {
    const Check& check = exercise.checks[i];
    const Marks::Mark& mark = marks.by_check[i];
    const bool passed = mark.state == Marks::State::passed;
    points.all += check.points;
    points.reached += passed ? check.points : 0;
    out::print("  {} {:>2}/{:<2}  {}\n", passed ? "✓" : "✗", passed ? check.points : 0, check.points,
               check.name.in(language));
    if (mark.state == Marks::State::refused) out::print("           {}\n", mark.text);
    if (mark.state == Marks::State::running) out::print("           {}\n", unfinished_text);
    if (mark.state == Marks::State::not_run)
      out::print("           {}\n", std::exchange(ended_between_checks, false)
                                        ? unfinished_text
                                        : say(language, Text{"not run", "没有运行"}));
  }
  return points;
}

void write_scene(const Json& scene, const CheckFlags& flags, const Invocation& invocation) {
  const Json document = {{"format", "psring-scene"},
                         {"version", 1},
                         {"program", fmt::format("psring {} ({})", kVersion, kCommit)},
                         {"command", invocation.words},
                         {"scenes", Json::array()}};
  Json with = document;
  with["scenes"].push_back(scene);
  write_whole(flags.scene, view::step_page(with));
}

int check(const CheckFlags& flags, const Invocation& invocation) {
  const Language language = parse_language(flags.lang);
  if (flags.exercise.empty()) return list_exercises(language);
  if (!(flags.seconds > 0 && flags.seconds <= kMostSeconds))
    fail(ErrorKind::usage, "--seconds {}: expected a time above 0, and at most {}", flags.seconds, kMostSeconds);
  const Exercise exercise = find_exercise(flags.exercise);
  const fs::path file = flags.file.empty() ? fs::path(exercise.folder()) / exercise.file : fs::path(flags.file);
  const InputFile readable(file.string());  // throws, naming the file, if it is missing
  SignalWatch signals;
  const TemporaryFolder folder("psring-check");
  if (exercise.is_program())
    compile_solution(flags.compiler, file, folder.path() / "solution.so", folder.path(), signals);
  const auto exit = run_code(exercise, file, folder.path(), flags, invocation.words.at(0), signals);
  const Marks marks = read_marks(exercise, folder.path());
  if (!marks.error.empty()) fail(ErrorKind::data, "{}: {}", file.string(), marks.error);
  out::print("{:02} {}: {}\n", exercise.number, exercise.title.in(language), file.string());
  const Points points = print_marks(exercise, marks, unfinished(exit, flags, language), language);
  out::print("{}\n", say(language, Text{"{} of {} points", "{} / {} 分"}, points.reached, points.all));
  if (points.reached == points.all) return 0;
  if (const Json scene = read_scene(folder.path()); !scene.is_null()) {
    write_scene(scene, flags, invocation);
    out::print("{}\n", say(language, Text{"the moment, event by event: {}", "逐个事件查看这一刻：{}"}, flags.scene));
  }
  return kCheckFailed;
}

int run(const RunFlags& flags, const Invocation& invocation) {
  limit_output();
  const Exercise exercise = find_exercise(flags.exercise);
  std::optional<Solution> solution;
  if (exercise.is_program()) solution.emplace(fs::path(flags.folder) / "solution.so");
  Json scene;
  run_checks(exercise,
             {.language = parse_language(flags.lang),
              .app = invocation.app,
              .file = flags.file,
              .solution = solution ? &*solution : nullptr,
              .scene = scene},
             flags.folder);
  return 0;
}

}  // namespace

Command add_check(const Flags& program) {
  const Flags command = program.add_command("check", "mark a solution of an exercise");
  auto flags = std::make_shared<CheckFlags>();  // shared: the parser fills it in, the command reads it
  command.add("EXERCISE", flags->exercise, "number or name of the exercise; without, all exercises are listed");
  command.add("FILE", flags->file, "the solution; without, the start file in docs/exercises, below this folder");
  command.add("--scene", flags->scene, "page that shows a refused run event by event, where there is one")
      .show_default();
  command.add("--compiler", flags->compiler, "C++ compiler for the solution").show_default();
  command.add("--seconds", flags->seconds, "time in which the checks have to end").show_default();
  command.add("--lang", flags->lang, kLanguageHelp).show_default();
  command.add_footer("The exercises are in docs/exercises. Status 6: a check refuses the solution, and says why.");
  return [flags](const Invocation& invocation) {
    try {
      return check(*flags, invocation);
    } catch (const Interrupted& end) {
      return interrupted_status(end.signal);
    }
  };
}

Command add_check_run(const Flags& program) {
  const Flags command = program.add_command(kRun, "");
  command.hide();                             // started by check
  auto flags = std::make_shared<RunFlags>();  // shared: the parser fills it in, the command reads it
  command.add("EXERCISE", flags->exercise).require();
  command.add("FILE", flags->file).require();
  command.add("FOLDER", flags->folder).require();
  command.add("--lang", flags->lang);
  return [flags](const Invocation& invocation) { return run(*flags, invocation); };
}

}  // namespace psring::cli
