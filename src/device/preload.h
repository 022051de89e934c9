// Loads shared libraries into the process beside what else goes on, so that whoever opens them later finds them there.
#pragma once
#include <functional>
#include <string>

namespace tandem {

// Begins to load a library, once per process. A library that cannot be loaded is no error here.
void preload(std::string path);

// Runs `work`, which must not need the GIL nor throw, in a thread of its own; not at all where there can be none. It is
// waited for before the process forks or ends: the loader's locks must be free then.
void run_beside(std::function<void()> work);

// Waits until what these began is done.
void finish_preload();

}  // namespace tandem
