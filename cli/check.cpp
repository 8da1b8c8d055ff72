// psring check: marks a solution of an exercise of docs/exercises.
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <signal.h>
#include <version.h>

#include <psring/cli/check/exercises.h>
#include <psring/cli/commands.h>
#include <psring/cli/options/language.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/temporary_folder.h>
#include <psring/common/base/text/error.h>
#include <psring/common/proc/signal_watch.h>
#include <psring/view/page.h>

namespace psring::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRun = "check-run";
constexpr const char* kPage = "check.html";
constexpr int kCheckFailed = 6;
constexpr double kMostSeconds = 86400;

struct CheckFlags {
  std::string exercise;
  std::string file;
  std::string start;
  std::string compiler = "c++";
  std::string scene;
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
  out::print("{}", say(language, Text{"psring check NN --start DIR copies an exercise to a new folder.\n"
                                      "psring check NN [FILE] marks a solution.\n",
                                      "psring check NN --start DIR 把练习复制到一个新目录。\n"
                                      "psring check NN [FILE] 检查一份解答。\n"}));
  return 0;
}

/// Starts this program again to run the checks, and prints what the student's code has printed. Returns how the process
/// ended; nothing if the time has passed.
std::optional<ProcessExit> run_code(const Exercise& exercise, const fs::path& file, const fs::path& folder,
                                    const CheckFlags& flags, const std::string& program, SignalWatch& signals) {
  const Apart ended = run_apart("run",
                                {program, kRun, std::to_string(exercise.number), fs::absolute(file).string(),
                                 fs::absolute(folder).string(), "--lang", flags.lang},
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

/// The line below a check's name; "": none.
std::string explain_mark(const Exercise& exercise, std::size_t i, const Marks& marks, Language language) {
  const Check& check = exercise.checks[i];
  switch (marks.by_check[i].state) {
    case Marks::State::refused:
      return marks.by_check[i].text;
    case Marks::State::not_reached:
      return say(language, Text{"not reached: '{}' has to pass first", "没有进行：要先通过“{}”"},
                 exercise.checks[*check.need].name.in(language));
    case Marks::State::not_run:
      return say(language, Text{"not run", "没有运行"});
    case Marks::State::running:
      return "";
    case Marks::State::passed:
      break;
  }
  if (!check.kept || check.points == 0 || points_of(exercise, marks).reached > 0) return "";
  return say(language, Text{"the starting file passes this, too: its points count once another check passes",
                            "起始文件也能通过：有其他检查通过之后才计分"});
}

void print_marks(const Exercise& exercise, const Marks& marks, const std::string& unfinished_text, Language language) {
  const bool none = points_of(exercise, marks).reached == 0;
  bool ended_between_checks = !marks.ended && marks.count(Marks::State::running) == 0;
  for (std::size_t i = 0; i < exercise.checks.size(); ++i) {
    const Check& check = exercise.checks[i];
    const Marks::State state = marks.by_check[i].state;
    const bool ended_here = state == Marks::State::running ||
                            (state == Marks::State::not_run && std::exchange(ended_between_checks, false));
    const bool refused = ended_here || state == Marks::State::refused;
    const std::string points =
        check.points == 0 ? "" : fmt::format("{:>2}/{:<2}", marks.passed(i) && !none ? check.points : 0, check.points);
    out::print("  {} {:<5}  {}\n", marks.passed(i) ? "✓" : refused ? "✗" : "–", points, check.name.in(language));
    const std::string text = ended_here ? unfinished_text : explain_mark(exercise, i, marks, language);
    if (!text.empty()) out::print("           {}\n", text);
  }
}

void write_scene(const Json& scene, const std::string& path, const Invocation& invocation) {
  const Json document = {{"format", "psring-scene"},
                         {"version", 1},
                         {"program", fmt::format("psring {} ({})", kVersion, kCommit)},
                         {"command", invocation.words},
                         {"scenes", Json::array()}};
  Json with = document;
  with["scenes"].push_back(scene);
  write_whole(path, view::step_page(with));
}

/// The student's file. Throws usage or data, naming the file, if it cannot be read.
fs::path solution_file(const Exercise& exercise, const std::string& given) {
  std::error_code error;
  fs::path file = given.empty() ? fs::path(exercise.file) : fs::path(given);
  if (fs::is_directory(file, error)) file /= exercise.file;
  if (given.empty() && !fs::exists(file, error))
    fail(ErrorKind::data,
         "{}: no such file in this folder; psring check {:02} --start DIR copies the exercise, and "
         "psring check {:02} FILE marks a file",
         file.string(), exercise.number, exercise.number);
  const InputFile readable(file.string());  // throws if it is missing
  return file;
}

/// Replaces each link [words](../path) by: words (path from the source tree's root).
std::string without_outer_links(std::string_view text, const fs::path& folder) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t open = text.find('[', at);
    const std::size_t middle = text.find("](../", open);
    const std::size_t end = text.find(')', middle);
    if (end == std::string_view::npos) return result.append(text.substr(at));
    // An earlier bracket belongs to a link within the folder, or to no link.
    const std::size_t words = text.rfind('[', middle);
    const fs::path target = folder / text.substr(middle + 2, end - middle - 2);
    result.append(text.substr(at, words - at)).append(text.substr(words + 1, middle - words - 1));
    result.append(" (").append(target.lexically_normal().string()).append(")");
    at = end + 1;
  }
  return result;
}

/// Writes an exercise's texts and its starting file to a new folder. Links of the texts that lead out of the exercise's
/// folder become paths from psring's source tree. Throws usage if `folder` exists, data if it cannot be written.
void copy_exercise(const Exercise& exercise, const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder, error))
    fail(ErrorKind::usage, "--start {}: it exists already; name a new folder", folder.string());
  make_folder(folder);
  for (const view::SourceText& each : exercise_texts()) {
    const fs::path path(each.path);
    if (path.parent_path() != exercise.folder()) continue;
    const bool page = path.extension() == ".md";
    write_whole((folder / path.filename()).string(),
                page ? without_outer_links(each.text, path.parent_path()) : std::string(each.text));
  }
}

int start(const Exercise& exercise, const CheckFlags& flags, Language language) {
  if (!flags.file.empty())
    fail(ErrorKind::usage, "--start copies an exercise and marks no file: leave out '{}' or --start", flags.file);
  const fs::path folder(flags.start);
  copy_exercise(exercise, folder);
  out::print("{}\n", say(language,
                         Text{"{}: read README.md, change {}, and mark it: psring check {:02} {}",
                              "{}：请读 README.zh-CN.md，修改 {}，再检查：psring check {:02} {}"},
                         folder.string(), exercise.file, exercise.number, (folder / exercise.file).string()));
  return 0;
}

int check(const CheckFlags& flags, const Invocation& invocation) {
  const Language language = parse_language(flags.lang);
  if (flags.exercise.empty()) {
    if (!flags.start.empty()) fail(ErrorKind::usage, "--start copies one exercise: psring check NN --start DIR");
    return list_exercises(language);
  }
  if (!(flags.seconds > 0 && flags.seconds <= kMostSeconds))
    fail(ErrorKind::usage, "--seconds {}: expected a time above 0, and at most {}", flags.seconds, kMostSeconds);
  const Exercise exercise = find_exercise(flags.exercise);
  if (!flags.start.empty()) return start(exercise, flags, language);
  const fs::path file = solution_file(exercise, flags.file);
  SignalWatch signals;
  const TemporaryFolder folder("psring-check");
  if (exercise.is_program())
    compile_solution(flags.compiler, file, folder.path() / "solution.so", folder.path(), signals);
  const auto exit = run_code(exercise, file, folder.path(), flags, invocation.words.at(0), signals);
  const Marks marks = read_marks(exercise, folder.path());
  if (!marks.error.empty()) fail(ErrorKind::data, "{}: {}", file.string(), marks.error);
  out::print("{:02} {}: {}\n", exercise.number, exercise.title.in(language), file.string());
  print_marks(exercise, marks, unfinished(exit, flags, language), language);
  const Points points = points_of(exercise, marks);
  out::print("{}\n", say(language, Text{"{} of {} points", "{} / {} 分"}, points.reached, points.all));
  if (marks.count(Marks::State::passed) == exercise.checks.size()) return 0;
  if (const Json scene = read_scene(folder.path()); !scene.is_null()) {
    const std::string page = flags.scene.empty() ? (file.parent_path() / kPage).string() : flags.scene;
    write_scene(scene, page, invocation);
    out::print("{}\n", say(language, Text{"the moment, event by event: {}", "逐个事件查看这一刻：{}"}, page));
  }
  return kCheckFailed;
}

int run(const RunFlags& flags, const Invocation& invocation) {
  limit_output();
  fs::current_path(flags.folder);  // the code's relative paths lead there
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
  command.add("FILE", flags->file, "the solution, or its folder; without, start.cpp or start.txt in this folder")
      .show_value("FILE");
  command.add("--start", flags->start, "copy the exercise to this new folder, to be worked on there")
      .show_value("DIR")
      .check([](const std::string& text) { return text.empty() ? "expected the name of a new folder" : ""; });
  command
      .add("--scene", flags->scene,
           "page that shows a refused run event by event, where there is one (check.html beside the solution)")
      .show_value("FILE");
  command.add("--compiler", flags->compiler, "C++ compiler for the solution").show_default();
  command.add("--seconds", flags->seconds, "time in which the checks have to end").show_default();
  command.add("--lang", flags->lang, kLanguageHelp).show_default();
  command.add_footer(
      "psring check 05 --start my05 copies exercise 05 to the folder my05, and psring check 05 my05/start.txt marks "
      "it. "
      "Status 6: a check refuses the solution, and says why.");
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
