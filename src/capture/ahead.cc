// Work that begins while calls are still being captured: see Note [Ahead] in capture.h.
#include "capture/capture.h"
#include "replay/replay.h"

namespace tandem {

namespace {
constexpr int kMostMisses = 4;
}

void Capture::start_guess() {
  if (!programs_ || programs_->watch || static_cast<size_t>(segments) >= programs_->latest.size()) return;
  const std::shared_ptr<ProgramCache::Entry>& entry = programs_->latest[segments];
  if (!entry || entry->missed >= kMostMisses || entry->programs.empty()) return;
  const Ref<Plan>& program = entry->programs.front().plan;
  Replay* replay = program->replay();
  if (!replay) return;
  const int32_t first = replay->first_ahead();
  if (first == INT_MAX) return;
  guess_ = entry;
  guessed_ = program;
  next_ahead_ = first;
}

void Capture::follow_guess(size_t key_before) {
  const std::vector<uint8_t>& expected = guess_->key;
  const auto from = static_cast<int64_t>(key_before);
  if (expected.size() < key_.size() || !std::equal(key_.begin() + from, key_.end(), expected.begin() + from))
    return drop_guess();
  const auto calls = static_cast<int32_t>(calls_.size());
  if (calls < next_ahead_) return;
  Replay& replay = *guessed_->replay();
  if (replay.leaves() < leaves_.size() || replay.numbers() < numbers_.size()) return drop_guess();
  next_ahead_ = replay.go_ahead(*guessed_, this, calls, inputs_so_far(replay.leaves(), replay.numbers()).data());
  if (next_ahead_ < 0) drop_guess();
}

void Capture::drop_guess() {
  next_ahead_ = INT_MAX;
  if (!guess_) return;
  if (Replay* replay = guessed_->replay(); replay && replay->give_up(this)) ++guess_->missed;
  guess_ = nullptr;
  guessed_ = nullptr;
}

}  // namespace tandem
