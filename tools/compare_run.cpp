#include "tools/compare_run.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <thread>

#include <fmt/format.h>

#include "common/base/error.h"
#include "tools/table.h"

extern char** environ;

namespace zero::tools {
namespace {

using Clock = std::chrono::steady_clock;
volatile std::sig_atomic_t interrupted = 0;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Ended {
  int status = 0;  ///< as a shell gives it
  bool timed_out = false;
};

/// Root and more ranks than cores need Open MPI's leave.
std::vector<std::string> environment() {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "OMPI_ALLOW_RUN_AS_ROOT", 22) != 0) all.emplace_back(*entry);
  }
  all.emplace_back("OMPI_ALLOW_RUN_AS_ROOT=1");
  all.emplace_back("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1");
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> all;
  for (std::string& text : strings) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

/// Starts a process in a group of its own, with nothing to read and its output in a file. Returns an errno.
int start(std::vector<std::string> arguments, const std::string& log, pid_t& pid) {
  std::vector<std::string> variables = environment();
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  const int error = posix_spawnp(&pid, arguments[0].c_str(), &files, &attributes, pointers(arguments).data(),
                                 pointers(variables).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error;
}

/// Ends what a job has left behind: processes whose parents are gone have become children of this one.
void end_orphans() {
  for (int round = 0; round < 100; ++round) {
    std::ifstream children(fmt::format("/proc/self/task/{}/children", getpid()));
    pid_t child = 0;
    bool any = false;
    while (children >> child) {
      any = true;
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
    if (!any) return;
  }
}

/// Waits; ends the group after the limit, politely first: mpirun then ends its ranks.
template <typename Progress>
Ended wait_for(pid_t pid, double limit_seconds, const Progress& progress) {
  const auto start_time = Clock::now();
  Clock::time_point asked{};
  bool timed_out = false;
  while (true) {
    int status = 0;
    const pid_t done = waitpid(pid, &status, WNOHANG);
    if (done == pid) {
      end_orphans();
      return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), timed_out};
    }
    const bool late = seconds_since(start_time) > limit_seconds;
    if ((late || interrupted != 0) && asked == Clock::time_point{}) {
      timed_out = interrupted == 0;
      kill(-pid, SIGTERM);
      asked = Clock::now();
    }
    if (asked != Clock::time_point{} && seconds_since(asked) > 3) kill(-pid, SIGKILL);
    progress(seconds_since(start_time));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

/// The program's own sentence: the last line that begins with "error: ", or else the last line that says anything.
std::string last_words(const std::string& log) {
  constexpr std::streamoff kTail = 1 << 16;
  std::ifstream file(log, std::ios::binary);
  file.seekg(0, std::ios::end);
  file.seekg(std::max<std::streamoff>(0, static_cast<std::streamoff>(file.tellg()) - kTail));
  std::string line, last, error;
  while (std::getline(file, line)) {
    if (line.starts_with("error: ")) error = line.substr(7);
    if (line.find_first_not_of(" \t\r-") != std::string::npos) last = line;
  }
  return harmless(error.empty() ? last : error, 600);
}

std::vector<std::string> command(const Job& job, Index ranks, const std::string& out) {
  std::vector<std::string> all;
  if (!job.single_process()) {
    const bool one_for_each_core = ranks == static_cast<Index>(std::thread::hardware_concurrency());
    all = {"mpirun",
           "--quiet",
           "--oversubscribe",
           "-n",
           std::to_string(ranks),
           "--bind-to",
           one_for_each_core ? "core" : "none"};
  }
  // What the user gave comes last, so that an option without its value does not take one of these.
  all.insert(all.end(), {job.path, "--out", out + "/" + job.name});
  all.insert(all.end(), job.arguments.begin(), job.arguments.end());
  return all;
}

}  // namespace

void run_job(const Job& job, Index ranks, const std::string& out, double limit_seconds, std::size_t number,
             std::size_t total) {
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const std::string what = fmt::format("[{}/{}] {} on {}{}", number, total, harmless(job.name, 60),
                                       job.single_process() ? "one process" : counted(ranks, "rank"),
                                       job.detail.empty() ? "" : ", " + job.detail);
  if (!terminal) fmt::print(stderr, "{}\n", what);
  double shown = -1;
  const auto progress = [&](double seconds) {
    if (!terminal || seconds - shown < 0.2) return;
    shown = seconds;
    fmt::print(stderr, "\r\033[K{} {:.1f} s", what, seconds);
    std::fflush(stderr);
  };
  const std::string log = out + "/" + job.name + ".log";
  const std::vector<std::string> arguments = command(job, ranks, out);
  pid_t pid = 0;
  if (const int error = start(arguments, log, pid); error != 0) {
    throw UnusableInput(fmt::format("{} cannot be started: {}{}", harmless(arguments[0]), std::strerror(error),
                                    arguments[0] == "mpirun" ? "; tools/install_deps.sh installs it" : ""));
  }
  const Ended ended = wait_for(pid, limit_seconds, progress);
  if (terminal) fmt::print(stderr, "\r\033[K");
  if (interrupted != 0) throw ResourceFailure(fmt::format("interrupted while {} ran", harmless(job.name, 60)));
  if (ended.timed_out) {
    throw ResourceFailure(fmt::format("{} was still running after --limit {:g} seconds and was ended",
                                      harmless(job.name, 60), limit_seconds));
  }
  if (ended.status == 0) return;
  const auto status = ended.status <= 3 ? static_cast<ExitStatus>(ended.status) : ExitStatus::failed;
  const std::string words = last_words(log);
  throw Error(status, fmt::format("{} ended with status {}{}", harmless(job.name, 60), ended.status,
                                  words.empty() ? "" : ": " + words));
}

int run_quietly(const std::vector<std::string>& arguments, const std::string& log, double limit_seconds) {
  pid_t pid = 0;
  if (start(arguments, log, pid) != 0) return 127;
  return wait_for(pid, limit_seconds, [](double) {}).status;
}

void watch_signals() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  struct sigaction action {};
  action.sa_handler = [](int signal) { interrupted = signal; };
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
}

}  // namespace zero::tools
