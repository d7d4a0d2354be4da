#include "tests/support/child.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <stdexcept>

namespace zero::testing {
namespace {

std::runtime_error not_permitted(const std::string& what) {
  return std::runtime_error(kNotPermitted + what + " (" + std::strerror(errno) + ")");
}

void write_file(const char* path, const std::string& text) { std::ofstream(path) << text; }

}  // namespace

std::string in_child(const std::function<std::string()>& work) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) throw std::runtime_error("no pipe");
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("no child");
  if (child == 0) {
    close(ends[0]);
    std::string answer;
    try {
      answer = work();
    } catch (const std::exception& thrown) {
      answer = thrown.what();
    }
    const bool told = write(ends[1], answer.data(), answer.size()) == static_cast<ssize_t>(answer.size());
    _exit(told ? 0 : 1);
  }
  close(ends[1]);
  std::string answer;
  std::array<char, 4096> part{};
  for (ssize_t got = 0; (got = read(ends[0], part.data(), part.size())) > 0;) {
    answer.append(part.data(), static_cast<std::size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return "the child ended by signal " + std::to_string(WTERMSIG(status));
  if (WEXITSTATUS(status) != 0) return "the child ended with status " + std::to_string(WEXITSTATUS(status));
  return answer;
}

void refuse_calls(const std::vector<RefusedCall>& calls) {
  std::vector<sock_filter> filter;
  const auto load = [&](std::size_t offset) {
    filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<unsigned>(offset)));
  };
  for (const RefusedCall& call : calls) {
    const auto deny = SECCOMP_RET_ERRNO | static_cast<unsigned>(call.error);
    load(offsetof(seccomp_data, nr));
    if (call.argument < 0) {
      filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call.number), 0, 1));
    } else {
      filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call.number), 0, 4));
      load(offsetof(seccomp_data, args) + 8 * static_cast<std::size_t>(call.argument));  // its low half
      filter.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, call.mask));
      filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call.value, 0, 1));
    }
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, deny));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    throw not_permitted("a filter of system calls");
  }
}

void mount_privately(const std::string& type, const std::string& directory, const std::string& options,
                     bool read_only) {
  const std::string user = std::to_string(geteuid());
  const std::string group = std::to_string(getegid());
  if (unshare(CLONE_NEWNS) != 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) throw not_permitted("a mount of its own");
    write_file("/proc/self/setgroups", "deny");
    write_file("/proc/self/uid_map", "0 " + user + " 1");
    write_file("/proc/self/gid_map", "0 " + group + " 1");
  }
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("none", directory.c_str(), type.c_str(), read_only ? MS_RDONLY : 0, options.c_str()) != 0) {
    throw not_permitted("to mount a " + type);
  }
}

void become_nobody() {
  constexpr unsigned kNobody = 65534;
  if (geteuid() == 0 && (setegid(kNobody) != 0 || seteuid(kNobody) != 0)) throw not_permitted("another user");
}

}  // namespace zero::testing
