#include "library/choices.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include "fork_guard.h"
#include "switches.h"

namespace tandem::library {
namespace {

constexpr const char* kHeader = "tandem choices 1\n";
constexpr off_t kMostBytes = 1 << 20;  // of the file, and
constexpr size_t kMostKeys = 1 << 14;  // in memory: sizes that change all the time are computed as suggested

struct Known {
  Choice choice;
  bool used = false;  // by this process: it stays as it is
};

std::mutex mutex;  // guards all below
ForkGuard fork_guard{mutex};
std::unordered_map<std::string, Known> known;
std::string file;
off_t read_so_far = 0;

// The file, locked; closed with it. Without a descriptor where it cannot be had, or others may write to it.
class Locked {
 public:
  Locked() {
    if (file.empty()) return;
    constexpr int kFlags = O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
    descriptor_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_APPEND | kFlags, 0600);
    if (descriptor_ < 0) descriptor_ = ::open(file.c_str(), O_RDONLY | kFlags);  // of a folder that is only read
    if (descriptor_ >= 0 && !(trusted() && lock())) ::close(std::exchange(descriptor_, -1));
  }
  ~Locked() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Locked(const Locked&) = delete;
  explicit operator bool() const { return descriptor_ >= 0; }

  std::string content(off_t from) const {
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = ::pread(descriptor_, buffer, sizeof buffer, from)) > 0; from += n) text.append(buffer, n);
    return text;
  }
  void append(const std::string& text) const {
    [[maybe_unused]] const ssize_t written = ::write(descriptor_, text.data(), text.size());  // a full disk is no error
  }
  off_t size() const {
    struct stat status;
    return ::fstat(descriptor_, &status) ? 0 : status.st_size;
  }

 private:
  bool trusted() const {  // as in Note [Who may write] of tandem/machine/disk_cache.py
    struct stat status;
    return !::fstat(descriptor_, &status) && S_ISREG(status.st_mode) &&
           (status.st_uid == ::geteuid() || status.st_uid == 0) && !(status.st_mode & (S_IWGRP | S_IWOTH));
  }
  bool lock() const {  // its holder may have been stopped: not waited for for long
    for (int i = 0; i < 100; ++i) {
      if (!::flock(descriptor_, LOCK_EX | LOCK_NB)) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  int descriptor_ = -1;
};

void understand(const std::string& line) {
  if (line.size() < 5 || line[1] != ' ' || line[3] != ' ') return;
  const int way = line[0] - '0', measured = line[2] - '0';
  if (way < 0 || way > 9 || measured < 0 || measured > 1 || known.size() >= kMostKeys) return;
  Known& entry = known[line.substr(4)];
  if (!entry.used) entry.choice = {way, measured == 1};
}

// Lines that were written since this was last done. What a writer left unfinished at the end is read when it is whole.
void read_on(const Locked& locked) {
  if (!read_so_far) {
    const std::string start = locked.content(0).substr(0, std::char_traits<char>::length(kHeader));
    if (start != kHeader) return;
    read_so_far = start.size();
  }
  const std::string text = locked.content(read_so_far);
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    understand(text.substr(begin, end - begin));
  read_so_far += begin;
}

bool holds(const Known& entry) {
  return entry.used || entry.choice.measured || !switches::get(switches::tune);
}

void write_down(const Locked& locked, const std::string& key, Choice choice) {
  const off_t size = locked.size();
  if (size > kMostBytes || (size && !read_so_far)) return;  // full, or not ours
  std::string text = size ? "" : kHeader;
  if (size > read_so_far) text += '\n';  // ends an unfinished line
  text += std::to_string(choice.way) + (choice.measured ? " 1 " : " 0 ") + key + '\n';
  locked.append(text);
}

Choice settle(const std::string& key, Choice choice) {
  const Locked locked;
  if (locked) {
    read_on(locked);
    const auto found = known.find(key);
    if (found != known.end() && holds(found->second)) return found->second.choice;  // others were quicker
    write_down(locked, key, choice);
  }
  return choice;
}

std::optional<Choice> use(const std::string& key) {
  const auto found = known.find(key);
  if (found == known.end() || !holds(found->second)) return {};
  found->second.used = true;
  return found->second.choice;
}

}  // namespace

Choice chosen(const std::string& key, const std::function<Choice()>& choose) {
  std::unique_lock lock(mutex);
  if (const std::optional<Choice> choice = use(key)) return *choice;
  lock.unlock();  // a measurement takes a while, and may need choices itself
  const Choice made = choose();
  lock.lock();
  if (const std::optional<Choice> choice = use(key)) return *choice;  // another thread was quicker
  if (known.size() >= kMostKeys && !known.contains(key)) return made;
  const Choice choice = settle(key, made);
  known[key] = {choice, true};
  return choice;
}

std::optional<Choice> already_chosen(const std::string& key) {
  const std::lock_guard lock(mutex);
  const auto found = known.find(key);
  if (found == known.end() || !holds(found->second)) return {};
  return found->second.choice;
}

void choose_again(const std::string& key, Choice choice) {
  const std::lock_guard lock(mutex);
  if (const Locked locked; locked) read_on(locked), write_down(locked, key, choice);
  known[key] = {choice, true};
}

void keep_choices_in(const std::string& path) {
  const std::lock_guard lock(mutex);
  if (path == file) return;
  file = path, read_so_far = 0;
  std::erase_if(known, [](const auto& entry) { return !entry.second.used; });
  if (const Locked locked; locked) read_on(locked);
}

}  // namespace tandem::library
