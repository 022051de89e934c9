// Which of several ways computes something, where the last bits of results depend on the way.
//
// Note [Choices stay]
// What is quickest depends on the processor, and is measured. Measurements vary, results must not: the same program on
// the same machine gives the same bits, today and tomorrow, after a crash, on every rank. So a choice is made once on a
// machine, before its first use, and stays, for this process and for those to come. What there was no time to measure
// is computed as the instruction set suggests, for good as well. Choices are lines of a file under the cache folder
// (tandem/machine/tune.py): "way measured key". A process that makes one looks first, under a lock, for what others
// have written since. The last line of a key counts; there is a second one only where somebody asked for it: `tandem
// tune`, or TANDEM_TUNE=1, which measures what was not. Without a cache folder choices last as long as the process.
#pragma once
#include <functional>
#include <optional>
#include <string>

namespace tandem::library {

struct Choice {
  int way = 0;
  bool measured = false;
};

// What was chosen for a key; what `choose` gives, if nothing was. Keys have no spaces.
Choice chosen(const std::string& key, const std::function<Choice()>& choose);

std::optional<Choice> already_chosen(const std::string& key);  // without using it

// Chooses again, at once.
void choose_again(const std::string& key, Choice choice);

// Choices are in this file from now on. What this process has used stays as it is. "": they are kept nowhere.
void keep_choices_in(const std::string& path);

}  // namespace tandem::library
