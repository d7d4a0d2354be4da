#pragma once
/// \file
/// A child process in which a test takes away what the system has: calls, room, permissions. The parent keeps them.

#include <functional>
#include <string>
#include <vector>

namespace zero::testing {

/// Runs `work` in a child process and gives back what it returned, or the text of the exception that it threw, or "the
/// child ended by signal 25".
std::string in_child(const std::function<std::string()>& work);

/// Thrown by the functions below, in the child, where this machine does not permit them: what in_child() gives back
/// then begins with kNotPermitted, and a test skips.
inline constexpr const char* kNotPermitted = "not permitted here: ";

/// A system call that fails from now on in this process, with `error`; only where (argument & mask) == value, when an
/// argument is given.
struct RefusedCall {
  int number = 0;
  int error = 0;
  int argument = -1;
  unsigned mask = 0;
  unsigned value = 0;
};
void refuse_calls(const std::vector<RefusedCall>& calls);

/// Mounts an empty file system of a type at a directory, seen by this process only and gone with it.
void mount_privately(const std::string& type, const std::string& directory, const std::string& options = "",
                     bool read_only = false);

/// Gives up the rights of root, if this process has them.
void become_nobody();

}  // namespace zero::testing
